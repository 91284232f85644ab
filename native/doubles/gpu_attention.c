/* attention_forward.cu on the host: tests compile this once for each variant of the kernel.
 *
 *     cc -shared -fPIC -O2 -I../../backendcfg/kernels -I. -DBFLOAT16=1 -DWIDTH=64 ... gpu_attention.c
 */
#include "attention_forward.cu"

static void body(const void *job) { attention_forward(*(const attention_arguments *)job); }

/* 1 where all went well. */
int run_attention(const attention_arguments *job, unsigned blocks, uint64_t shared_bytes,
                  int schedule, const gpu_range ranges[GPU_RANGES], gpu_report *report) {
    return gpu_run(body, job, blocks, WARPS, shared_bytes, schedule, ranges, report);
}

uint64_t arguments_size(void) { return sizeof(attention_arguments); }
uint64_t shared_bytes(void) { return QUERY_BYTES + STAGES * 2 * KEY_BYTES; }
