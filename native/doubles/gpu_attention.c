/* attention_forward.cu on the host: tests compile this once for each variant of the kernel.
 *
 *     cc -shared -fPIC -O2 -I../../backendcfg/kernels -I. -DBFLOAT16=1 -DWIDTH=64 ... gpu_attention.c
 */
#include "../src/kernels/philox.h"
#include "attention_forward.cu"

static void body(const void *job) { attention_forward(*(const attention_arguments *)job); }

/* 1 where all went well. */
int run_attention(const attention_arguments *job, unsigned blocks, uint64_t shared_bytes,
                  int schedule, const gpu_range ranges[GPU_RANGES], gpu_report *report) {
    return gpu_run(body, job, blocks, WARPS, shared_bytes, schedule, ranges, report);
}

/* What the kernels of the CPU drop: factors[j] for key j, `count` rounded up to a multiple of 64. */
void dropout_row(uint64_t seed, double probability, uint64_t batch_head, int64_t query,
                 int64_t count, float *factors) {
    bcfg_dropout_row(seed, bcfg_dropout_threshold(probability), bcfg_dropout_factor(probability),
                     batch_head, query, 0, count, factors);
}

uint64_t arguments_size(void) { return sizeof(attention_arguments); }
uint64_t shared_bytes(void) { return QUERY_BYTES + STAGES * 2 * KEY_BYTES; }
