/* A kernel of attention on the host: tests compile this once for each variant. Backward are those with
 * OF_KEYS, forward those without.
 *
 *     cc -shared -fPIC -O2 -I../../../backendcfg/gpu/kernels -I. -DBFLOAT16=1 -DWIDTH=64 ... gpu_attention.c
 */
#include "../../src/kernels/philox.h"
#ifdef OF_KEYS
#include "attention_backward.cu"
typedef backward_arguments arguments;
enum { SHARED_BYTES = 2 * OWN_BYTES + STAGES * 2 * STEP_BYTES };
static void body(const void *job) { attention_backward(*(const arguments *)job); }
#else
#include "attention_forward.cu"
typedef attention_arguments arguments;
enum { SHARED_BYTES = QUERY_BYTES + STAGES * 2 * KEY_BYTES };
static void body(const void *job) { attention_forward(*(const arguments *)job); }
#endif

/* 1 where all went well. */
int run_attention(const arguments *job, unsigned blocks, uint64_t shared_bytes, int schedule,
                  const gpu_range ranges[GPU_RANGES], gpu_report *report) {
    return gpu_run(body, job, blocks, WARPS, shared_bytes, schedule, ranges, report);
}

/* What the kernels of the CPU drop: factors[j] for key j, `count` rounded up to a multiple of 64. */
void dropout_row(uint64_t seed, double probability, uint64_t batch_head, int64_t query,
                 int64_t count, float *factors) {
    bcfg_dropout_row(seed, probability, batch_head, query, 0, count, factors);
    for (int64_t j = 0; j < count; j++) factors[j] *= (float)bcfg_dropout_factor(probability);
}

uint64_t arguments_size(void) { return sizeof(arguments); }
uint64_t shared_bytes(void) { return SHARED_BYTES; }
