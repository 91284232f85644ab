/* Attention forward by multiplications and additions alone, for NVIDIA GPUs from sm_50 on: the online
 * softmax (Milakov and Gimelshein, 2018) in tiles that never leave the processor (Dao, 2023), without
 * tensor cores. float32 is computed in float32 and float64 in float64, each product and sum; 16-bit
 * numbers in float32.
 *
 * A block of 128 threads has ROWS queries of one head and walks over the keys that they see, KEYS at a
 * time, upwards. Queries and keys come in slices of SLICE columns, values some rows at a time: a slice
 * is multiplied out of one of two buffers while the next one is on its way into registers, and then
 * into the other buffer, with one barrier between two. So 48 KiB of shared memory are enough for any
 * width. A thread has rows `down`, `down` + 8 and so on, and of these the keys, and later the columns,
 * of its place `across`: the weights of a row are made and read by one warp.
 *
 * No two blocks share a sum and no block splits one: the bits of a row depend on nothing but the row
 * and its keys. Written in what C and C++ have in common, as attention_forward.cu is; how a block is
 * cut, and its products, are in attention_slices.h. The variant is chosen by macros, see
 * backendcfg/gpu/attention/efficient.py:
 *
 *     ELEMENT                 of the arrays, see attention_numbers.h
 *     COLUMNS                 of values, rounded up: 64, 128, 192 or 256
 *     RESIDENT                blocks that a processor shall hold at once
 *     CAUSAL                  1: a query sees no key behind its own position, counted from 0 for both
 *     MASK                    0 none, 1 bool, 2 and the element that is added
 *     DROPOUT                 1 or 0
 *     ALIGNED                 1: rows are dense and begin at multiples of 16 bytes; 0: anywhere
 */
#include "attention_slices.h"

/* Strides count numbers: batch, head, row, column. Mirrored by `EfficientArguments` in
 * backendcfg/gpu/attention/efficient.py. */
typedef struct {
    const void *query, *key, *value, *mask;
    void *out, *logsumexp; /* (batch, heads, queries), dense, of `real`; NULL: not wanted */
    long long query_strides[4], key_strides[4], value_strides[4], out_strides[4], mask_strides[4];
    unsigned long long seed, threshold; /* words of the generator below it are dropped */
    double scale;                       /* in units of ln 2 */
    double kept;                        /* what a weight that is not dropped is multiplied by */
    int heads, group;                   /* of queries; of them, to a head of keys */
    int queries, keys;
    int width, value_width;
    int blocks, pairs; /* to a head of queries; batch * heads */
} efficient_arguments;

/* What a block works on. */
typedef struct {
    long long query, key, value; /* where its heads begin, in numbers */
    int pair, batch, head, first_row;
} place;

/* --- slices ----------------------------------------------------------------------------------- */

/* Columns from `first` on of the block's queries, and of KEYS keys. */
DEVICE void fetch_slice(chunk held[HELD], const efficient_arguments *job, const place *at,
                        int first, int first_key) {
    UNROLL
    for (int turn = 0; turn < HELD; turn++) {
        int index = (int)thread_index_anew() + turn * THREADS;
        int row = index / (SLICE / PACK), column = first + index % (SLICE / PACK) * PACK;
        if (row < ROWS) {
            row += at->first_row;
            held[turn] = fetch_chunk(job->query, at->query + row * job->query_strides[2],
                                     job->query_strides[3], column, job->width, row < job->queries);
        } else {
            row += first_key - ROWS;
            held[turn] = fetch_chunk(job->key, at->key + row * job->key_strides[2],
                                     job->key_strides[3], column, job->width, row < job->keys);
        }
    }
}

/* VALUE_KEYS rows of the values. */
DEVICE void fetch_values(chunk held[HELD], const efficient_arguments *job, const place *at,
                         int first_key) {
    UNROLL
    for (int turn = 0; turn * THREADS < VALUE_CHUNKS; turn++) {
        int index = (int)thread_index_anew() + turn * THREADS;
        int row = first_key + index / (COLUMNS / PACK), column = index % (COLUMNS / PACK) * PACK;
        held[turn] = fetch_chunk(job->value, at->value + row * job->value_strides[2],
                                 job->value_strides[3], column, job->value_width, row < job->keys);
    }
}

/* --- weights ---------------------------------------------------------------------------------- */

/* Scores in units of ln 2, with the mask; minus infinity where a key is not seen. */
DEVICE void finish_scores(real scores[OWN_ROWS][OWN_KEYS], const efficient_arguments *job,
                          const place *at, int first_key) {
    int across = (int)thread_index() % 16, down = (int)thread_index() / 16;
    long long plane = at->batch * job->mask_strides[0] + at->head * job->mask_strides[1];
    UNROLL
    for (int i = 0; i < OWN_ROWS; i++) {
        int query = at->first_row + down + 8 * i;
        int seen = CAUSAL && query + 1 < job->keys ? query + 1 : job->keys;
        long long row = plane + query * job->mask_strides[2];
        UNROLL
        for (int j = 0; j < OWN_KEYS; j++) {
            int key = first_key + across + 16 * j;
            real score = scores[i][j] * (real)job->scale;
            if (key >= seen)
                score = (real)MINUS_INFINITY;
            else if (MASK != 0 && query < job->queries)
                score = masked(MASK, job->mask, row + key * job->mask_strides[3], score);
            scores[i][j] = score;
        }
    }
}

/* Writes weights 2^(score - highest) to shared memory. The sums, of which each thread has its own, and the
 * output so far are scaled to a new highest score. */
DEVICE void weigh(real scores[OWN_ROWS][OWN_KEYS], real out[OWN_ROWS][OWN_CHUNKS][PACK],
                  real highest[OWN_ROWS], real sum[OWN_ROWS], unsigned weights) {
    unsigned across = thread_index() % 16, down = thread_index() / 16;
    UNROLL
    for (unsigned i = 0; i < OWN_ROWS; i++) {
        real most = highest[i];
        UNROLL
        for (int j = 0; j < OWN_KEYS; j++) most = larger(most, scores[i][j]);
        UNROLL
        for (unsigned mask = 1; mask < 16; mask *= 2) most = larger(most, swap(most, mask));
        /* A row that has seen no key yet has weights of 0, not NaN. */
        real base = most == (real)MINUS_INFINITY ? 0 : most;
        real again = raise_two(highest[i] - base), total = sum[i] * again;
        UNROLL
        for (unsigned j = 0; j < OWN_KEYS; j++) {
            real weight = raise_two(scores[i][j] - base);
            total += weight;
            store_real(weights + ((down + 8 * i) * WEIGHT_STEP + across + 16 * j) *
                                     (unsigned)sizeof(real),
                       weight);
        }
        highest[i] = most;
        sum[i] = total;
        UNROLL
        for (int j = 0; j < OWN_CHUNKS; j++)
            UNROLL
            for (int c = 0; c < PACK; c++) out[i][j][c] *= again;
    }
    warp_barrier();
}

/* Sets dropped weights of the warp's own rows to 0. */
DEVICE void drop(unsigned weights, const efficient_arguments *job, const place *at,
                 int first_key) {
    unsigned lane = thread_index() % 32, warp = thread_index() / 32;
    for (unsigned index = lane; index < 2 * OWN_ROWS * (KEYS / PACK); index += 32) {
        unsigned which = index / (KEYS / PACK), key = index % (KEYS / PACK) * PACK;
        unsigned row = 2 * warp + which % 2 + 8 * (which / 2);
        unsigned from = weights + (row * WEIGHT_STEP + key) * (unsigned)sizeof(real);
        unsigned words[4] = {((unsigned)first_key + key) / 4, (unsigned)at->first_row + row,
                             (unsigned)at->pair, 0};
        philox(job->seed, words);
        chunk all = take_chunk(from);
        UNROLL
        for (unsigned e = 0; e < PACK; e++) {
            unsigned word = PACK == 2 && key % 4 != 0 ? words[(e + 2) % 4] : words[e];
            if (word < job->threshold) all.at[e] = 0;
        }
        store_shared(from, bytes_of(all));
    }
    warp_barrier();
}

/* --- results ---------------------------------------------------------------------------------- */

DEVICE void write_rows(const efficient_arguments *job, const place *at,
                       real out[OWN_ROWS][OWN_CHUNKS][PACK], real highest[OWN_ROWS],
                       real sum[OWN_ROWS]) {
    const real ln_2 = (real)0.6931471805599453;
    int across = (int)thread_index() % 16, down = (int)thread_index() / 16;
    long long plane = at->batch * job->out_strides[0] + at->head * job->out_strides[1];
    UNROLL
    for (int i = 0; i < OWN_ROWS; i++) {
        real total = sum[i];
        UNROLL
        for (unsigned mask = 1; mask < 16; mask *= 2) total += swap(total, mask);
        int query = at->first_row + down + 8 * i;
        /* A row that saw something has a weight of 1 in its sum. */
        bool empty = total == 0;
        real factor = empty ? 0 : (DROPOUT ? (real)job->kept : 1) / total;
        if (query >= job->queries) continue;
        if (job->logsumexp != 0 && across == 0)
            store_number(ELEMENT == FLOAT64 ? FLOAT64 : FLOAT32, job->logsumexp,
                         (long long)at->pair * job->queries + query,
                         empty ? (real)MINUS_INFINITY : (highest[i] + logarithm(total)) * ln_2);
        long long row = plane + query * job->out_strides[2];
        UNROLL
        for (int j = 0; j < OWN_CHUNKS; j++) {
            int column = (across + 16 * j) * PACK;
            if (ALIGNED && column < job->value_width) {
                chunk all;
                UNROLL
                for (int c = 0; c < PACK; c++) all.at[c] = out[i][j][c] * factor;
                store_sixteen((real *)job->out + row + column, bytes_of(all));
            } else {
                UNROLL
                for (int c = 0; c < PACK; c++)
                    if (column + c < job->value_width)
                        store_number(ELEMENT, job->out,
                                     row + (column + c) * job->out_strides[3],
                                     out[i][j][c] * factor);
            }
        }
    }
}

KERNEL(THREADS, RESIDENT) attention_efficient(const efficient_arguments job) {
    unsigned weights = shared_window(), stages = weights + WEIGHT_BYTES, turn = 0;
    place at;
    at.pair = (int)block_index() / job.blocks;
    int block = (int)block_index() % job.blocks;
    /* Under a causal mask later rows have more to do, so they come first. */
    at.first_row = (CAUSAL ? job.blocks - 1 - block : block) * ROWS;
    at.batch = at.pair / job.heads, at.head = at.pair % job.heads;
    int key_head = at.head / job.group;
    at.query = at.batch * job.query_strides[0] + at.head * job.query_strides[1];
    at.key = at.batch * job.key_strides[0] + key_head * job.key_strides[1];
    at.value = at.batch * job.value_strides[0] + key_head * job.value_strides[1];

    int seen = job.keys;
    if (CAUSAL && seen > at.first_row + ROWS) seen = at.first_row + ROWS;
    int slices = (job.width + SLICE - 1) / SLICE;

    real out[OWN_ROWS][OWN_CHUNKS][PACK], highest[OWN_ROWS], sum[OWN_ROWS];
    UNROLL
    for (int i = 0; i < OWN_ROWS; i++) {
        highest[i] = (real)MINUS_INFINITY;
        sum[i] = 0;
        UNROLL
        for (int j = 0; j < OWN_CHUNKS; j++)
            UNROLL
            for (int c = 0; c < PACK; c++) out[i][j][c] = 0;
    }

    chunk held[HELD];
    if (seen > 0) {
        fetch_slice(held, &job, &at, 0, 0);
        store_slice(held, stages);
        block_barrier();
    }
    for (int first_key = 0; first_key < seen; first_key += KEYS) {
        real scores[OWN_ROWS][OWN_KEYS];
        UNROLL
        for (int i = 0; i < OWN_ROWS; i++)
            UNROLL
            for (int j = 0; j < OWN_KEYS; j++) scores[i][j] = 0;
        for (int slice = 1; slice <= slices; slice++) {
            if (slice < slices)
                fetch_slice(held, &job, &at, slice * SLICE, first_key);
            else
                fetch_values(held, &job, &at, first_key);
            add_scores(scores, stages + turn * STAGE_BYTES);
            turn ^= 1; /* no warp has read that buffer since the last barrier */
            if (slice < slices)
                store_slice(held, stages + turn * STAGE_BYTES);
            else
                store_values(held, stages + turn * STAGE_BYTES);
            block_barrier();
        }
        finish_scores(scores, &job, &at, first_key);
        weigh(scores, out, highest, sum, weights);
        if (DROPOUT) drop(weights, &job, &at, first_key);
        for (int first = 0; first < KEYS; first += VALUE_KEYS) {
            bool more = first + VALUE_KEYS < KEYS, next = first_key + KEYS < seen;
            if (more)
                fetch_values(held, &job, &at, first_key + first + VALUE_KEYS);
            else if (next)
                fetch_slice(held, &job, &at, 0, first_key + KEYS);
            add_values(out, weights, stages + turn * STAGE_BYTES, (unsigned)first);
            turn ^= 1;
            if (more)
                store_values(held, stages + turn * STAGE_BYTES);
            else if (next)
                store_slice(held, stages + turn * STAGE_BYTES);
            block_barrier();
        }
    }
    write_rows(&job, &at, out, highest, sum);
}
