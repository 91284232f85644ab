/* What the gradients of attention subtract from each query's: the sum of a row of the result times its
 * gradient, in float32, or in float64 for float64. For NVIDIA GPUs from sm_50 on, in what C and C++ have
 * in common, as attention_forward.cu is. A warp has a row and shares its sum with nobody.
 *
 *     ELEMENT                 of the arrays, see attention_numbers.h
 */
#include "attention_numbers.h"

enum { THREADS = 256, ROWS_OF_BLOCK = THREADS / 32 };

/* Mirrored by `DeltaArguments` in backendcfg/gpu/attention/efficient.py. */
typedef struct {
    const void *out, *grad_out;
    void *delta; /* (batch, heads, queries), dense, of `real` */
    long long out_strides[4], grad_out_strides[4], rows;
    int heads, queries, value_width, unused;
} delta_arguments;

KERNEL(THREADS, 4) attention_delta(const delta_arguments job) {
    int lane = (int)(thread_index() % 32);
    long long row = (long long)block_index() * ROWS_OF_BLOCK + thread_index() / 32;
    if (row >= job.rows) return;
    long long pair = row / job.queries, batch = pair / job.heads;
    long long query = row - pair * job.queries, head = pair - batch * job.heads;
    long long out = batch * job.out_strides[0] + head * job.out_strides[1] + query * job.out_strides[2];
    long long grad = batch * job.grad_out_strides[0] + head * job.grad_out_strides[1] +
                     query * job.grad_out_strides[2];
    real sum = 0;
    for (int column = lane; column < job.value_width; column += 32)
        sum = combine(load_number(ELEMENT, job.out, out + column * job.out_strides[3]),
                      load_number(ELEMENT, job.grad_out, grad + column * job.grad_out_strides[3]),
                      sum);
    UNROLL
    for (unsigned each = 1; each < 32; each *= 2) sum += swap(sum, each);
    if (lane == 0) store_number(ELEMENT == FLOAT64 ? FLOAT64 : FLOAT32, job.delta, row, sum);
}
