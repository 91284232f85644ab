/* The kernels of attention without tensor cores on the host: tests compile this once for each program.
 *
 *     cc -shared -fPIC -O2 -I../../../backendcfg/gpu/kernels -I. -DPROGRAM=3 -DELEMENT=0 ... gpu_plain.c
 *
 * PROGRAM is 1 for attention_efficient, 2 for attention_gather, 3 for attention_softmax, 4 for
 * attention_efficient_backward and 5 for attention_delta. */
#include "../../src/kernels/philox.h"
#if PROGRAM == 1
#include "attention_efficient.cu"
typedef efficient_arguments arguments;
static void body(const void *job) { attention_efficient(*(const arguments *)job); }
#elif PROGRAM == 2
#include "attention_gather.cu"
typedef gather_arguments arguments;
static void body(const void *job) { attention_gather(*(const arguments *)job); }
#elif PROGRAM == 4
#include "attention_efficient_backward.cu"
typedef backward_arguments arguments;
static void body(const void *job) { attention_efficient_backward(*(const arguments *)job); }
#elif PROGRAM == 5
#include "attention_delta.cu"
typedef delta_arguments arguments;
static void body(const void *job) { attention_delta(*(const arguments *)job); }
#else
#include "attention_softmax.cu"
typedef softmax_arguments arguments;
static void body(const void *job) { attention_softmax(*(const arguments *)job); }
#endif

/* 1 where all went well. */
int run_program(const void *job, unsigned blocks, uint64_t shared_bytes, int schedule,
                const gpu_range ranges[GPU_RANGES], gpu_report *report) {
    return gpu_run(body, job, blocks, THREADS / 32, shared_bytes, schedule, ranges, report);
}

/* What the kernels of the CPU drop: factors[j] for key j, `count` rounded up to a multiple of 64. */
void dropout_row(uint64_t seed, double probability, uint64_t batch_head, int64_t query,
                 int64_t count, float *factors) {
    bcfg_dropout_row(seed, probability, batch_head, query, 0, count, factors);
    for (int64_t j = 0; j < count; j++) factors[j] *= (float)bcfg_dropout_factor(probability);
}

uint64_t arguments_size(void) { return sizeof(arguments); }
uint64_t ranges(void) { return GPU_RANGES; }
#if PROGRAM == 1 || PROGRAM == 4
uint64_t shared_bytes(void) { return WEIGHT_BYTES + 2 * STAGE_BYTES; }
#else
uint64_t shared_bytes(void) { return 0; }
#endif
