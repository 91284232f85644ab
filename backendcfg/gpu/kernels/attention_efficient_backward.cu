/* Attention backward by multiplications and additions alone, for NVIDIA GPUs from sm_50 on: the weights are
 * computed again from logsumexp, tile by tile, and none is kept (Dao, 2023). Numbers are computed as in
 * attention_efficient.cu.
 *
 * One source for four kernels, each of one gradient. A block of 128 threads has ROWS rows of its own side
 * and walks over the other side, KEYS rows at a time, upwards:
 *
 *     OF_QUERY    queries, against keys
 *     OF_KEY      keys, against the queries of all heads that share them
 *     OF_VALUE    keys, against the same; it needs no slopes, what a change of a score is worth
 *     OF_MASK     queries, and KEYS keys with them, against all that sees the same numbers of the mask
 *
 * It multiplies queries by keys and, for slopes, the result's gradient by values, slice by slice as in the
 * forward pass; leaves weights or slopes in shared memory; and multiplies them by rows of the other side. A
 * block has COLUMNS columns of its gradient, and the next one others: so widths are no part of a variant.
 *
 * No two blocks add to one number and there are no atomic operations: every number of a gradient is one
 * sum, whose order does not depend on other blocks. A kernel that is not wanted is not launched. The
 * variant is chosen by macros, see backendcfg/gpu/attention/efficient.py: ELEMENT, RESIDENT,
 * CAUSAL, MASK, DROPOUT and ALIGNED are those of attention_efficient.cu; and
 *
 *     OF                      which of the four
 *     COLUMNS                 of a gradient that a block has: 64 or 128
 */
#include "attention_walk.h"

/* --- weights ------------------------------------------------------------------------------------ */

/* What weights are multiplied by, to where weights and slopes will be: 0 where they are dropped. */
DEVICE void drop(unsigned tile, const backward_arguments *job, const place *at) {
    unsigned pair = (unsigned)(at->batch * job->heads + at->head);
    for (unsigned index = thread_index(); index < ROWS * KEYS / 4; index += THREADS) {
        unsigned query = BY_KEYS ? index % KEYS : index / (KEYS / 4);
        unsigned key = (BY_KEYS ? index / KEYS : index % (KEYS / 4)) * 4;
        unsigned words[4] = {((unsigned)at->key + key) / 4, (unsigned)at->query + query, pair, 0};
        philox(job->seed, words);
        UNROLL
        for (unsigned e = 0; e < 4; e++) {
            unsigned row = BY_KEYS ? key + e : query, column = BY_KEYS ? query : key + e;
            store_real(tile + (row * WEIGHT_STEP + column) * (unsigned)sizeof(real),
                       words[e] < job->threshold ? 0 : (real)job->kept);
        }
    }
    block_barrier();
}

/* Weights, or slopes, to shared memory; OF_MASK adds them up, a tile in the place of columns. */
DEVICE void weigh(const backward_arguments *job, const place *at, real scores[OWN_ROWS][OWN_KEYS],
                  real pulls[OWN_ROWS][OWN_KEYS], real sum[OWN_ROWS][OWN_CHUNKS][PACK],
                  unsigned tile) {
    const int total = ELEMENT == FLOAT64 ? FLOAT64 : FLOAT32;
    const real log2_of_e = (real)1.4426950408889634;
    int across = (int)thread_index() % 16, down = (int)thread_index() / 16;
    long long line = (long long)(at->batch * job->heads + at->head) * job->queries;
    long long plane = at->batch * job->mask_strides[0] + at->head * job->mask_strides[1];
    real base[LINES], delta[LINES];
    UNROLL
    for (int i = 0; i < LINES; i++) {
        int query = at->query + (BY_KEYS ? across + 16 * i : down + 8 * i);
        base[i] = delta[i] = 0;
        if (query >= job->queries) continue;
        real logsumexp = load_number(total, job->logsumexp, line + query);
        /* A row that sees no key has weights of 0, not NaN. */
        base[i] = logsumexp == (real)MINUS_INFINITY ? -(real)MINUS_INFINITY : logsumexp * log2_of_e;
        if (OF != OF_VALUE) delta[i] = load_number(total, job->delta, line + query);
    }
    if (DROPOUT) drop(tile, job, at);
    UNROLL
    for (int i = 0; i < OWN_ROWS; i++)
        UNROLL
        for (int j = 0; j < OWN_KEYS; j++) {
            int own = down + 8 * i, other = across + 16 * j, which = BY_KEYS ? j : i;
            int query = at->query + (BY_KEYS ? other : own), key = at->key + (BY_KEYS ? own : other);
            unsigned to = tile + (unsigned)(own * WEIGHT_STEP + other) * (unsigned)sizeof(real);
            real factor = DROPOUT ? take_real(to) : 1, it = 0;
            if (query < job->queries && key < job->keys && !(CAUSAL && key > query)) {
                long long one = plane + query * job->mask_strides[2] + key * job->mask_strides[3];
                real score = masked(MASK, job->mask, one, scores[i][j] * (real)job->scale);
                it = raise_two(score - base[which]);
                /* A dropped weight adds nothing, even where the number is infinite. */
                bool is_gone = DROPOUT && factor == 0;
                if (OF == OF_VALUE)
                    it = is_gone ? 0 : it * factor;
                else
                    it *= (is_gone ? 0 : pulls[i][j] * factor) - delta[which];
            }
            if (OF == OF_MASK)
                sum[i][j / PACK][j % PACK] += it;
            else
                store_real(to, it);
        }
}

/* --- results ------------------------------------------------------------------------------------ */

DEVICE void write_gradient(const backward_arguments *job, int owner, int block, int panel,
                           real sum[OWN_ROWS][OWN_CHUNKS][PACK]) {
    int across = (int)thread_index() % 16, down = (int)thread_index() / 16;
    int group = OF == OF_KEY ? job->key_group : OF == OF_VALUE ? job->value_group : 1;
    int heads = job->heads / group, rows = BY_KEYS ? job->keys : job->queries;
    const long long *strides = job->gradient_strides;
    long long head = owner / heads * strides[0] + owner % heads * strides[1];
    UNROLL
    for (int i = 0; i < OWN_ROWS; i++) {
        int own = block * ROWS + down + 8 * i;
        if (own >= rows) continue;
        UNROLL
        for (int j = 0; j < OWN_CHUNKS; j++) {
            int column = panel * COLUMNS + (across + 16 * j) * PACK;
            chunk all;
            UNROLL
            for (int c = 0; c < PACK; c++) all.at[c] = sum[i][j][c] * (real)job->factor;
            if (ALIGNED && column < job->columns) {
                store_sixteen((real *)job->gradient + head + own * strides[2] + column,
                              bytes_of(all));
                continue;
            }
            UNROLL
            for (int c = 0; c < PACK; c++)
                if (column + c < job->columns)
                    store_number(ELEMENT, job->gradient,
                                 head + own * strides[2] + (column + c) * strides[3], all.at[c]);
        }
    }
}

/* The sum of numbers of the tile, in order; all threads of a warp go the same way. */
DEVICE real sum_of(unsigned tile, unsigned first, unsigned step, unsigned count) {
    real total = 0;
    for (unsigned i = 0; i < count; i++)
        total += take_real(tile + (first + i * step) * (unsigned)sizeof(real));
    return total;
}

/* Sums of a tile of slopes along the dimensions that share a number of the mask. */
DEVICE void write_mask(const backward_arguments *job, const place *at, unsigned tile,
                       real sum[OWN_ROWS][OWN_CHUNKS][PACK]) {
    unsigned across = thread_index() % 16, down = thread_index() / 16, me = thread_index();
    bool by_query = job->mask_sizes[2] != 1, by_key = job->mask_sizes[3] != 1;
    const long long *strides = job->gradient_strides;
    long long first = at->batch * strides[0] + at->head * strides[1] + at->query * strides[2] +
                      at->key * strides[3];
    const int element = MASK < 2 ? FLOAT32 : MASK - 2;
    UNROLL
    for (unsigned i = 0; i < OWN_ROWS; i++)
        UNROLL
        for (unsigned j = 0; j < OWN_KEYS; j++) {
            unsigned own = down + 8 * i, other = across + 16 * j;
            real it = sum[i][j / PACK][j % PACK];
            bool inside = at->query + (int)own < job->queries && at->key + (int)other < job->keys;
            if (!by_query || !by_key)
                store_real(tile + (own * WEIGHT_STEP + other) * (unsigned)sizeof(real), it);
            else if (inside)
                store_number(element, job->gradient, first + own * strides[2] + other * strides[3],
                             it);
        }
    if (by_query && by_key) return;
    block_barrier();
    if (by_key) {
        real it = me < KEYS ? sum_of(tile, me, WEIGHT_STEP, ROWS) : 0;
        if (me < KEYS && at->key + (int)me < job->keys)
            store_number(element, job->gradient, first + me * strides[3], it);
        return;
    }
    real it = me < ROWS ? sum_of(tile, me * WEIGHT_STEP, 1, KEYS) : 0;
    if (by_query) {
        if (me < ROWS && at->query + (int)me < job->queries)
            store_number(element, job->gradient, first + me * strides[2], it);
        return;
    }
    UNROLL
    for (unsigned mask = 1; mask < 32; mask *= 2) it += swap(it, mask);
    /* By what is free behind a row, a warp's own. */
    store_real(tile + (me / 32 * WEIGHT_STEP + KEYS) * (unsigned)sizeof(real), it);
    block_barrier();
    it = sum_of(tile, KEYS, WEIGHT_STEP, THREADS / 32);
    if (me == 0) store_number(element, job->gradient, first, it);
}

KERNEL(THREADS, RESIDENT) attention_efficient_backward(const backward_arguments job) {
    unsigned tile = shared_window(), stages = tile + WEIGHT_BYTES, turn = 0;
    int panel = (int)block_index() % job.panels, block = (int)block_index() / job.panels;
    int owner = block / job.blocks;
    block %= job.blocks;
    /* Blocks that have more to do under a causal mask come first: early keys, and late queries. */
    if (CAUSAL && OF == OF_QUERY) block = job.blocks - 1 - block;
    walk way = walk_of(&job, owner, block);
    long long steps =
        (long long)way.steps.batch * way.steps.head * way.steps.query * way.steps.key;
    int slices = slices_of(job.width), scored = slices, parts;
    if (OF != OF_VALUE) scored += slices_of(job.value_width);
    parts = OF == OF_MASK ? scored : scored + KEYS / VALUE_KEYS;

    real sum[OWN_ROWS][OWN_CHUNKS][PACK];
    UNROLL
    for (int i = 0; i < OWN_ROWS; i++)
        UNROLL
        for (int j = 0; j < OWN_CHUNKS; j++)
            UNROLL
            for (int c = 0; c < PACK; c++) sum[i][j][c] = 0;

    chunk held[HELD];
    place at = way.from;
    if (steps > 0) {
        fetch_part(held, &job, &at, 0, panel);
        store_slice(held, stages);
        block_barrier();
    }
    for (long long step = 0; step < steps; step++) {
        place next = step + 1 < steps ? place_at(&way, step + 1) : at;
        real scores[OWN_ROWS][OWN_KEYS], pulls[OWN_ROWS][OWN_KEYS];
        UNROLL
        for (int i = 0; i < OWN_ROWS; i++)
            UNROLL
            for (int j = 0; j < OWN_KEYS; j++) scores[i][j] = pulls[i][j] = 0;
        ROLLED
        for (int part = 0; part < parts; part++) {
            bool is_last = part + 1 == parts, more = !is_last || step + 1 < steps;
            unsigned stage = stages + turn * STAGE_BYTES;
            int coming = is_last ? 0 : part + 1;
            place there = at; /* by value: what is chosen by its address is not held in registers */
            if (is_last) there = next;
            if (more) fetch_part(held, &job, &there, coming, panel);
            if (part < slices)
                add_scores(scores, stage);
            else if (part < scored)
                add_scores(pulls, stage);
            else
                add_values(sum, tile, stage, (unsigned)(part - scored) * VALUE_KEYS);
            if (part + 1 == scored) weigh(&job, &at, scores, pulls, sum, tile);
            turn ^= 1; /* nobody reads that buffer since the last barrier */
            if (more && coming < scored)
                store_slice(held, stages + turn * STAGE_BYTES);
            else if (more)
                store_values(held, stages + turn * STAGE_BYTES);
            block_barrier();
        }
        at = next;
    }
    if (OF == OF_MASK)
        write_mask(&job, &way.from, tile, sum);
    else
        write_gradient(&job, owner, block, panel, sum);
}
