/* Scores to weights, in place: the softmax between the two products of attention, in float32, or in
 * float64 for float64. For NVIDIA GPUs from sm_50 on, in what C and C++ have in common, as
 * attention_forward.cu is. A warp has a row and shares its sum with nobody.
 *
 *     ELEMENT                 of the scores, see attention_numbers.h
 *     CAUSAL, MASK, DROPOUT   as in attention_efficient.cu
 */
#include "attention_numbers.h"

enum { THREADS = 256, ROWS_OF_BLOCK = THREADS / 32 };

/* Mirrored by `SoftmaxArguments` in backendcfg/gpu/attention/math.py; scores are (batch,
 * heads, queries, keys), dense. */
typedef struct {
    void *scores;
    const void *mask;
    void *logsumexp; /* (batch, heads, queries), dense, of `real`; NULL: not wanted */
    long long mask_strides[4], rows;
    unsigned long long seed, threshold;
    double scale, kept; /* in units of ln 2 */
    int heads, queries, keys, unused;
} softmax_arguments;

/* A score of a row in units of ln 2, with the mask. */
DEVICE real score_at(const softmax_arguments *job, long long row, long long mask, int key) {
    real score = reload_number(ELEMENT, job->scores, row + key) * (real)job->scale;
    return masked(MASK, job->mask, mask + key * job->mask_strides[3], score);
}

/* A warp has a row, and a lane four keys of each 128. */
KERNEL(THREADS, 4) attention_softmax(const softmax_arguments job) {
    const real ln_2 = (real)0.6931471805599453;
    int lane = (int)(thread_index() % 32);
    long long row = (long long)block_index() * ROWS_OF_BLOCK + thread_index() / 32;
    if (row >= job.rows) return;
    long long pair = row / job.queries, batch = pair / job.heads;
    int query = (int)(row - pair * job.queries);
    int seen = CAUSAL && query + 1 < job.keys ? query + 1 : job.keys;
    long long from = row * job.keys, mask = batch * job.mask_strides[0] +
                                            (pair - batch * job.heads) * job.mask_strides[1] +
                                            query * job.mask_strides[2];

    real highest = (real)MINUS_INFINITY, sum = 0;
    for (int first = 4 * lane; first < seen; first += 128) {
        real scores[4], most = highest;
        UNROLL
        for (int i = 0; i < 4; i++) {
            scores[i] = first + i < seen ? score_at(&job, from, mask, first + i)
                                         : (real)MINUS_INFINITY;
            most = larger(most, scores[i]);
        }
        real base = most == (real)MINUS_INFINITY ? 0 : most;
        sum *= raise_two(highest - base);
        UNROLL
        for (int i = 0; i < 4; i++) sum += raise_two(scores[i] - base);
        highest = most;
    }
    real most = highest;
    UNROLL
    for (unsigned each = 1; each < 32; each *= 2) most = larger(most, swap(most, each));
    /* A row that sees no key has weights of 0, not NaN. */
    real base = most == (real)MINUS_INFINITY ? 0 : most;
    sum *= raise_two(highest - base);
    UNROLL
    for (unsigned each = 1; each < 32; each *= 2) sum += swap(sum, each);
    bool empty = sum == 0;
    real factor = empty ? 0 : (DROPOUT ? (real)job.kept : 1) / sum;
    if (job.logsumexp != 0 && lane == 0)
        store_number(ELEMENT == FLOAT64 ? FLOAT64 : FLOAT32, job.logsumexp, row,
                     empty ? (real)MINUS_INFINITY : (base + logarithm(sum)) * ln_2);

    for (int first = 4 * lane; first < job.keys; first += 128) {
        unsigned words[4] = {(unsigned)first / 4, (unsigned)query, (unsigned)pair, 0};
        if (DROPOUT) philox(job.seed, words);
        UNROLL
        for (int i = 0; i < 4; i++) {
            if (first + i >= job.keys) break;
            real weight = 0;
            if (first + i < seen)
                weight = raise_two(score_at(&job, from, mask, first + i) - base) * factor;
            if (DROPOUT && words[i] < job.threshold) weight = 0;
            store_number(ELEMENT, job.scores, from + first + i, weight);
        }
    }
}
