/* An array as the products of attention want it: dense, heads repeated, in another element type, times a
 * factor; and a result back. For NVIDIA GPUs from sm_50 on, in what C and C++ have in common, as
 * attention_forward.cu is.
 *
 *     ELEMENT                 of what is read, see attention_numbers.h
 *     TO                      of what is written
 */
#include "attention_numbers.h"

enum { THREADS = 256, NUMBERS_OF_BLOCK = 4 * THREADS };

/* Mirrored by `GatherArguments` in backendcfg/gpu/attention/math.py; `to` is (batch,
 * heads, rows, columns), dense. */
typedef struct {
    const void *from;
    void *to;
    long long strides[4], count; /* of `from`, in numbers: batch, head, row, column; of `to` */
    double factor;
    int heads, group, rows, columns;
} gather_arguments;

KERNEL(THREADS, 4) attention_gather(const gather_arguments job) {
    long long first = (long long)block_index() * NUMBERS_OF_BLOCK + thread_index();
    UNROLL
    for (int turn = 0; turn < NUMBERS_OF_BLOCK / THREADS; turn++) {
        long long at = first + turn * THREADS;
        if (at >= job.count) break;
        long long row = at / job.columns, pair = row / job.rows;
        long long column = at - row * job.columns, batch = pair / job.heads;
        long long head = (pair - batch * job.heads) / job.group;
        real it = load_number(ELEMENT, job.from,
                              batch * job.strides[0] + head * job.strides[1] +
                                  (row - pair * job.rows) * job.strides[2] + column * job.strides[3]);
        store_number(TO, job.to, at, it * (real)job.factor);
    }
}
