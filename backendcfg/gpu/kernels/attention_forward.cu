/* Attention forward on tensor cores, for NVIDIA GPUs from sm_80 on: the online softmax (Milakov and
 * Gimelshein, 2018) in tiles that never leave the processor (Dao, 2023).
 *
 * A block of threads has ROWS queries of one head, and walks over the keys that they see, KEYS at a
 * time, upwards. Its queries are in shared memory, or in registers; keys and values come in the
 * background, a step ahead, into the other one of two buffers. A warp has whole rows, so that scores
 * and weights stay in its registers: the fragment that a product of scores leaves is the one that
 * the product with the values takes. No two blocks share a sum and no block splits one: the bits of
 * a row depend on nothing but the row, its keys, and the tile sizes.
 *
 * Written in what C and C++ have in common: NVRTC compiles it for a GPU, and a C compiler for the
 * tests. The variant is chosen by macros, see backendcfg/gpu/attention/flash.py:
 *
 *     BFLOAT16                1 or 0, for float16
 *     WIDTH                   of a head: a multiple of 8, up to 256
 *     ROWS, STEP, WARPS       queries of a block, keys of a step, warps; ROWS is 16 or 32 for each warp
 *     RESIDENT                blocks that a processor shall hold at once
 *     QUERY_IN_REGISTERS      1 or 0
 *     CAUSAL                  1: a query sees no key behind its own position, counted from 0 for both
 *     MASK                    0 none, 1 bool, 2 added in float32, more: added, as the queries are
 *     DROPOUT                 1 or 0
 *     ALIGNED                 1: rows begin at multiples of 16 bytes; 0: anywhere
 */
#define KEYS STEP
#include "attention_parts.h"

/* --- scores ----------------------------------------------------------------------------------- */

/* Minus infinity where a key is not seen, and the mask. */
DEVICE void hide(const attention_arguments *job, float scores[ROW_TILES][KEY_TILES][4], int batch,
                 int head, int first_row, int first_key) {
    unsigned lane = thread_index() % 32;
    long long plane = batch * job->mask_strides[0] + head * job->mask_strides[1];
    UNROLL
    for (int r = 0; r < ROW_TILES; r++)
        UNROLL
        for (int i = 0; i < 4; i++) {
            int query = first_row + r * 16 + (int)(lane / 4) + i / 2 * 8;
            int seen = CAUSAL && query + 1 < job->keys ? query + 1 : job->keys;
            long long row = plane + query * job->mask_strides[2];
            UNROLL
            for (int j = 0; j < KEY_TILES; j++) {
                int key = first_key + j * 8 + (int)(lane % 4) * 2 + i % 2;
                if (key >= seen)
                    scores[r][j][i] = MINUS_INFINITY;
                else if (MASK && query < job->queries)
                    scores[r][j][i] = masked(job, row, scores[r][j][i], key);
            }
        }
}

/* --- dropout ---------------------------------------------------------------------------------- */

/* Sets weights that are dropped to 0. Two neighbouring lanes need the random words of the same four keys,
 * for two rows: each makes those of one row, and they exchange halves. */
DEVICE void drop(const attention_arguments *job, unsigned weights[ROW_TILES][KEY_TILES][2], int pair,
                 int first_row, int first_key) {
    unsigned lane = thread_index() % 32, odd = lane % 2;
    UNROLL
    for (int r = 0; r < ROW_TILES; r++)
        UNROLL
        for (int j = 0; j < KEY_TILES; j++) {
            unsigned query = (unsigned)first_row + r * 16 + lane / 4 + odd * 8;
            unsigned key = (unsigned)first_key + j * 8 + lane % 4 / 2 * 4;
            unsigned words[4] = {key / 4, query, (unsigned)pair, 0};
            philox(job->seed, words);
            unsigned other0 = exchange_bits(odd ? words[0] : words[2], 1);
            unsigned other1 = exchange_bits(odd ? words[1] : words[3], 1);
            unsigned mine[4] = {odd ? other0 : words[0], odd ? other1 : words[1],
                                odd ? words[2] : other0, odd ? words[3] : other1};
            UNROLL
            for (int i = 0; i < 4; i++)
                if (mine[i] < job->threshold)
                    weights[r][j][i / 2] &= i % 2 ? 0xffffu : 0xffff0000u;
        }
}

/* --- weights ---------------------------------------------------------------------------------- */

/* Weights 2^(score - highest), two neighbours of a row in a register. The sums, which add weights before
 * they are rounded, and the output so far are scaled to a new highest score. */
DEVICE void weigh(unsigned weights[ROW_TILES][KEY_TILES][2],
                  float scores[ROW_TILES][KEY_TILES][4], float out[ROW_TILES][WIDTH_TILES][4],
                  float highest[ROW_TILES][2], float sum[ROW_TILES][2], float scale) {
    UNROLL
    for (int r = 0; r < ROW_TILES; r++)
        UNROLL
        for (int half = 0; half < 2; half++) {
            float most = highest[r][half];
            UNROLL
            for (int j = 0; j < KEY_TILES; j++)
                most = greater(most, greater(scores[r][j][2 * half], scores[r][j][2 * half + 1]));
            most = greater(most, exchange(most, 1));
            most = greater(most, exchange(most, 2));
            /* A row that has seen no key yet has weights of 0, not NaN. */
            float base = most == MINUS_INFINITY ? 0 : most * scale;
            float again = power_of_two(multiply_add(highest[r][half], scale, -base));
            highest[r][half] = most;
            float total = sum[r][half] * again;
            UNROLL
            for (int j = 0; j < KEY_TILES; j++) {
                float *two = scores[r][j] + 2 * half;
                two[0] = power_of_two(multiply_add(two[0], scale, -base));
                two[1] = power_of_two(multiply_add(two[1], scale, -base));
                total += two[0];
                total += two[1];
                weights[r][j][half] = pack(BFLOAT16, two[0], two[1]);
            }
            sum[r][half] = total;
            UNROLL
            for (int j = 0; j < WIDTH_TILES; j++) {
                out[r][j][2 * half] *= again;
                out[r][j][2 * half + 1] *= again;
            }
        }
}

/* --- results ---------------------------------------------------------------------------------- */

/* Ends the sums: writes the logarithms, and gives what the output is multiplied by. */
DEVICE void end_rows(const attention_arguments *job, float highest[ROW_TILES][2],
                     float sum[ROW_TILES][2], float factor[ROW_TILES][2], float scale, int pair,
                     int first_row) {
    const float ln_2 = 0.6931471805599453f;
    unsigned lane = thread_index() % 32;
    UNROLL
    for (int r = 0; r < ROW_TILES; r++)
        UNROLL
        for (int half = 0; half < 2; half++) {
            float total = sum[r][half];
            total += exchange(total, 1);
            total += exchange(total, 2);
            /* A row that saw something has a weight of 1 in its sum. */
            bool empty = total == 0;
            factor[r][half] = empty ? 0 : (DROPOUT ? job->kept : 1) * reciprocal(total);
            int query = first_row + r * 16 + half * 8 + (int)(lane / 4);
            if (job->logsumexp != 0 && lane % 4 == 0 && query < job->queries)
                store_float(job->logsumexp + (long long)pair * job->queries + query,
                            empty ? MINUS_INFINITY
                                  : multiply_add(highest[r][half], scale,
                                                 logarithm_of_two(total)) * ln_2);
        }
}

KERNEL(THREADS, RESIDENT) attention_forward(const attention_arguments job) {
    unsigned queries = shared_window(), stages = queries + QUERY_BYTES;
    int pair, block;
    locate(&job, &pair, &block);
    /* Under a causal mask later rows have more to do, so they come first. */
    int block_row = (CAUSAL ? job.blocks - 1 - block : block) * ROWS;
    int batch = pair / job.heads, head = pair % job.heads, key_head = head / job.group;
    const half_bits *query =
        job.query + batch * job.query_strides[0] + head * job.query_strides[1];
    const half_bits *key = job.key + batch * job.key_strides[0] + key_head * job.key_strides[1];
    const half_bits *value =
        job.value + batch * job.value_strides[0] + key_head * job.value_strides[1];
    int warp_row = block_row + (int)(thread_index() / 32) * ROW_TILES * 16;
    /* With an added mask the scores have been scaled where they met it. */
    float scale = MASK >= 2 ? 1 : job.scale;

    int seen = job.keys;
    if (CAUSAL && seen > block_row + ROWS) seen = block_row + ROWS;
    int steps = (seen + KEYS - 1) / KEYS;

    fetch(queries, ROWS, query, job.query_strides[2], block_row, job.queries);
    end_copies();
    if (steps > 0) {
        fetch(stages, KEYS, key, job.key_strides[2], 0, job.keys);
        fetch(stages + KEY_BYTES, KEYS, value, job.value_strides[2], 0, job.keys);
    }
    end_copies();
    await_copies(1);
    if (job.sign != 1) mend_queries(queries, &job);

    unsigned held[QUERY_IN_REGISTERS ? DEPTH : 1][ROW_TILES][4];
    if (QUERY_IN_REGISTERS) {
        block_barrier();
        UNROLL
        for (unsigned depth = 0; depth < DEPTH; depth++)
            take_rows(held[QUERY_IN_REGISTERS ? depth : 0], queries, depth);
    }

    float out[ROW_TILES][WIDTH_TILES][4], highest[ROW_TILES][2], sum[ROW_TILES][2];
    clear(WIDTH_TILES, out[0]);
    UNROLL
    for (int r = 0; r < ROW_TILES; r++) {
        highest[r][0] = highest[r][1] = MINUS_INFINITY;
        sum[r][0] = sum[r][1] = 0;
    }

    for (int step = 0; step < steps; step++) {
        unsigned keys = stages + (unsigned)(step % STAGES) * (2 * KEY_BYTES);
        int first_key = step * KEYS;
        await_copies(0);
        block_barrier(); /* this step's tiles are whole, and nobody reads the last step's */
        if (step + 1 < steps) {
            unsigned next = stages + (unsigned)((step + 1) % STAGES) * (2 * KEY_BYTES);
            fetch(next, KEYS, key, job.key_strides[2], first_key + KEYS, job.keys);
            fetch(next + KEY_BYTES, KEYS, value, job.value_strides[2], first_key + KEYS, job.keys);
        }
        end_copies();
        /* The last rows of a block reach further than its first ones. */
        if (CAUSAL && first_key >= warp_row + ROW_TILES * 16) continue;

        float scores[ROW_TILES][KEY_TILES][4];
        clear(KEY_TILES, scores[0]);
        multiply_rows(scores, held, queries, keys);
        if (MASK || first_key + KEYS > job.keys || (CAUSAL && first_key + KEYS - 1 > warp_row))
            hide(&job, scores, batch, head, warp_row, first_key);
        unsigned weights[ROW_TILES][KEY_TILES][2];
        weigh(weights, scores, out, highest, sum, scale);
        if (DROPOUT) drop(&job, weights, pair, warp_row, first_key);
        add_product(out, weights, keys + KEY_BYTES);
    }

    if (steps == 0) { /* the queries may still be on their way to where the output goes */
        await_copies(0);
        block_barrier();
    }
    float factor[ROW_TILES][2];
    end_rows(&job, highest, sum, factor, scale, pair, warp_row);
    half_bits *to = job.out + batch * job.out_strides[0] + head * job.out_strides[1];
    write_rows(to, job.out_strides[2], job.queries, out, factor, queries, warp_row);
}
