/* Attention backward on tensor cores, for NVIDIA GPUs from sm_80 on: the weights are computed again from
 * logsumexp, tile by tile, and none is kept (Dao, 2023).
 *
 * One source for two kernels. A block of threads has ROWS rows of its own side and walks over the
 * other side, STEP rows at a time, upwards:
 *
 *     OF_KEYS 0: queries and the gradient of the output, against keys and values; the gradient of the
 *                queries. It also makes `delta`, the sum of a row of output times its gradient
 *     OF_KEYS 1: keys and values, against queries and the gradient of the output, head by head of
 *                those that share them; the gradients of keys and values. It reads `delta`
 *
 * In both a warp has whole rows of its own side, so that what a product leaves in registers is the
 * fragment that the next one takes: with keys as rows these are the transposed scores, and no tile is
 * turned. No two blocks add to one number and there are no atomic operations: every number of a
 * gradient is one sum, in the order of the keys, or of heads and queries.
 *
 * The variant is chosen by macros, see backendcfg/gpu/attention/flash.py. WIDTH, BFLOAT16, ROWS,
 * WARPS, RESIDENT, CAUSAL, MASK, DROPOUT and ALIGNED are those of attention_forward.cu; and
 *
 *     OF_KEYS                 which of the two
 *     STEP                    rows of a step
 *     PARTED                  1: a block has the gradient of its keys or of its values, and the next
 *                             one the other: heads are too wide for the sums of both
 */
#define KEYS STEP
#define QUERY_IN_REGISTERS 0
#include "attention_parts.h"

enum {
    OWN_BYTES = ROWS * PADDED * 2, /* of each of two tiles */
    STEP_BYTES = STEP * PADDED * 2,
    SUMS = OF_KEYS && !PARTED ? 2 : 1,
    LINES = OF_KEYS ? KEY_TILES : ROW_TILES /* tiles along the queries */
};

/* Mirrored by `FlashBackwardArguments` in backendcfg/gpu/attention/flash.py. */
typedef struct {
    attention_arguments call; /* as in the forward pass, but `scale` has its sign; `pairs` are heads of
                               * this kernel's own side, and `blocks` and `section` are of those */
    const half_bits *grad_out;
    half_bits *grad_query, *grad_key, *grad_value;
    float *delta; /* (batch, heads, queries), dense */
    long long grad_out_strides[4], grad_query_strides[4], grad_key_strides[4], grad_value_strides[4];
    float factor; /* the scale, not in units of ln 2 */
    float unused;
} backward_arguments;

DEVICE const half_bits *head_of(const half_bits *from, const long long strides[4], int batch,
                                int head) {
    return from + batch * strides[0] + head * strides[1];
}

/* --- logsumexp and delta of queries ------------------------------------------------------------ */

/* The logsumexp of a row in units of ln 2. For a row that sees no key, and for one beyond the last, it
 * is so large that all weights are 0. */
DEVICE float base_of(const attention_arguments *call, int pair, int query) {
    const float log2_of_e = 1.4426950408889634f;
    if (query >= call->queries) return -MINUS_INFINITY;
    float logsumexp = load_float(call->logsumexp + (long long)pair * call->queries + query);
    return logsumexp == MINUS_INFINITY ? -MINUS_INFINITY : logsumexp * log2_of_e;
}

/* For the queries of a step: those of a lane's columns. */
DEVICE void read_lines(const backward_arguments *job, float base[LINES][2], float delta[LINES][2],
                       int pair, int first) {
    unsigned lane = thread_index() % 32;
    UNROLL
    for (int j = 0; j < LINES; j++)
        UNROLL
        for (int i = 0; i < 2; i++) {
            int query = first + j * 8 + (int)(lane % 4) * 2 + i;
            base[j][i] = base_of(&job->call, pair, query);
            delta[j][i] = 0;
            if (query < job->call.queries)
                delta[j][i] = load_float(job->delta + (long long)pair * job->call.queries + query);
        }
}

DEVICE float sum_of_products(sixteen_bytes a, sixteen_bytes b, float sum) {
    UNROLL
    for (int i = 0; i < 4; i++) {
        sum = multiply_add(widen(BFLOAT16, (half_bits)a.word[i]),
                           widen(BFLOAT16, (half_bits)b.word[i]), sum);
        sum = multiply_add(widen(BFLOAT16, (half_bits)(a.word[i] >> 16)),
                           widen(BFLOAT16, (half_bits)(b.word[i] >> 16)), sum);
    }
    return sum;
}

/* For a warp's own queries: the four lanes that share a row sum it, and write its delta for the kernel of
 * the keys. */
DEVICE void make_lines(const backward_arguments *job, float base[LINES][2], float delta[LINES][2],
                       int pair, int first) {
    unsigned lane = thread_index() % 32;
    const attention_arguments *call = &job->call;
    int batch = pair / call->heads, head = pair % call->heads;
    const half_bits *out = head_of(call->out, call->out_strides, batch, head);
    const half_bits *grad = head_of(job->grad_out, job->grad_out_strides, batch, head);
    for (int r = 0; r < LINES; r++)
        for (int half = 0; half < 2; half++) {
            int query = first + r * 16 + half * 8 + (int)(lane / 4);
            float sum = 0;
            for (unsigned chunk = lane % 4; chunk * 8 < WIDTH && query < call->queries; chunk += 4) {
                const half_bits *a = out + query * call->out_strides[2] + chunk * 8;
                const half_bits *b = grad + query * job->grad_out_strides[2] + chunk * 8;
                sum = ALIGNED ? sum_of_products(load_chunk(a), load_chunk(b), sum)
                              : sum_of_products(load_unaligned(a, true), load_unaligned(b, true), sum);
            }
            sum += exchange(sum, 1);
            sum += exchange(sum, 2);
            base[r][half] = base_of(call, pair, query);
            delta[r][half] = sum;
            if (lane % 4 == 0 && query < call->queries)
                store_float(job->delta + (long long)pair * call->queries + query, sum);
        }
}

/* --- scores ------------------------------------------------------------------------------------ */

/* Scores in units of ln 2, minus infinity where a key is not seen. */
DEVICE void finish_scores(const attention_arguments *call, float scores[ROW_TILES][KEY_TILES][4],
                          int batch, int head, int own_row, int step_row, bool is_edge) {
    unsigned lane = thread_index() % 32;
    long long plane = batch * call->mask_strides[0] + head * call->mask_strides[1];
    UNROLL
    for (int r = 0; r < ROW_TILES; r++)
        UNROLL
        for (int j = 0; j < KEY_TILES; j++)
            UNROLL
            for (int i = 0; i < 4; i++) {
                float *score = &scores[r][j][i];
                int own = own_row + r * 16 + (int)(lane / 4) + i / 2 * 8;
                int other = step_row + j * 8 + (int)(lane % 4) * 2 + i % 2;
                int query = OF_KEYS ? other : own, key = OF_KEYS ? own : other;
                if (MASK < 2) *score *= call->scale; /* an added mask scales */
                if (!is_edge) continue;
                if (key >= call->keys || query >= call->queries || (CAUSAL && key > query))
                    *score = MINUS_INFINITY;
                else if (MASK)
                    *score = masked(call, plane + query * call->mask_strides[2], *score, key);
            }
}

/* --- dropout ----------------------------------------------------------------------------------- */

/* Which of the four weights of a fragment are dropped. Four words are of four keys and one query. Where
 * keys are columns, two lanes share them, as in the forward pass; where they are rows, four lanes do: each
 * makes the words of one query and four of the keys, and what they have is transposed. */
DEVICE void find_dropped(const attention_arguments *call, bool gone[4], int pair, int own_row,
                         int step_row) {
    unsigned lane = thread_index() % 32, place = OF_KEYS ? lane / 4 % 4 : lane % 2;
    unsigned query = (unsigned)own_row + lane / 4 + place * 8;
    unsigned key = (unsigned)step_row + lane % 4 / 2 * 4;
    if (OF_KEYS) {
        query = (unsigned)step_row + lane % 4 * 2 + place % 2;
        key = (unsigned)own_row + lane / 16 * 4 + place / 2 * 8;
    }
    unsigned words[4] = {key / 4, query, (unsigned)pair, 0};
    philox(call->seed, words);
    UNROLL
    for (int i = 0; i < 2; i++) { /* the words 2 i and 2 i + 1, or i and i + 2 */
        unsigned low = OF_KEYS ? 2 * i : i, high = OF_KEYS ? low + 1 : low + 2, odd = place % 2;
        unsigned got = exchange_bits(odd ? words[low] : words[high], OF_KEYS ? 4 : 1);
        if (odd)
            words[low] = got;
        else
            words[high] = got;
    }
    if (OF_KEYS) {
        UNROLL
        for (int i = 0; i < 2; i++) {
            unsigned got = exchange_bits(place & 2 ? words[i] : words[i + 2], 8);
            if (place & 2)
                words[i] = got;
            else
                words[i + 2] = got;
        }
    }
    UNROLL
    for (int i = 0; i < 4; i++) gone[i] = words[i] < call->threshold;
}

/* --- weights and slopes ------------------------------------------------------------------------ */

/* Weights, and slopes, the gradients of the scores, from `pulls`, the gradients of the weights. */
DEVICE void weigh(const backward_arguments *job, unsigned weights[ROW_TILES][KEY_TILES][2],
                  unsigned slopes[ROW_TILES][KEY_TILES][2],
                  float scores[ROW_TILES][KEY_TILES][4], float pulls[ROW_TILES][KEY_TILES][4],
                  float base[LINES][2], float delta[LINES][2], int pair, int own_row, int step_row) {
    UNROLL
    for (int r = 0; r < ROW_TILES; r++)
        UNROLL
        for (int j = 0; j < KEY_TILES; j++) {
            float weight[4], slope[4];
            bool gone[4] = {false, false, false, false};
            if (DROPOUT) find_dropped(&job->call, gone, pair, own_row + r * 16, step_row + j * 8);
            UNROLL
            for (int i = 0; i < 4; i++) {
                int line = OF_KEYS ? j : r, one = OF_KEYS ? i % 2 : i / 2;
                weight[i] = power_of_two(scores[r][j][i] - base[line][one]);
                float pull = pulls[r][j][i];
                if (DROPOUT) pull = gone[i] ? 0 : pull * job->call.kept;
                slope[i] = weight[i] * (pull - delta[line][one]);
                if (gone[i]) weight[i] = 0;
            }
            UNROLL
            for (int half = 0; half < 2; half++) {
                weights[r][j][half] = pack(BFLOAT16, weight[2 * half], weight[2 * half + 1]);
                slopes[r][j][half] = pack(BFLOAT16, slope[2 * half], slope[2 * half + 1]);
            }
        }
}

/* --- the kernel -------------------------------------------------------------------------------- */

/* What a step walks over: the tiles of the other side, of one head after the other. */
typedef struct {
    int per_head, first; /* steps of a head, and the row where they begin */
} walk;

DEVICE void fetch_step(const backward_arguments *job, const walk *way, unsigned to, int step,
                       int batch, int own_head) {
    const attention_arguments *call = &job->call;
    int row = way->first + step % way->per_head * STEP;
    if (OF_KEYS) {
        int head = own_head * call->group + step / way->per_head;
        fetch(to, STEP, head_of(call->query, call->query_strides, batch, head),
              call->query_strides[2], row, call->queries);
        fetch(to + STEP_BYTES, STEP, head_of(job->grad_out, job->grad_out_strides, batch, head),
              job->grad_out_strides[2], row, call->queries);
    } else {
        int head = own_head / call->group;
        fetch(to, STEP, head_of(call->key, call->key_strides, batch, head), call->key_strides[2],
              row, call->keys);
        fetch(to + STEP_BYTES, STEP, head_of(call->value, call->value_strides, batch, head),
              call->value_strides[2], row, call->keys);
    }
}

/* Writes a gradient through its own tile, of which each warp reads its own rows only. */
DEVICE void write_gradient(half_bits *to, const long long strides[4], int batch, int head, int count,
                           float sum[ROW_TILES][WIDTH_TILES][4], float by, unsigned tile,
                           int first_row) {
    float factor[ROW_TILES][2];
    UNROLL
    for (int r = 0; r < ROW_TILES; r++) factor[r][0] = factor[r][1] = by;
    write_rows(to + batch * strides[0] + head * strides[1], strides[2], count, sum, factor, tile,
               first_row);
}

KERNEL(THREADS, RESIDENT) attention_backward(const backward_arguments job) {
    const attention_arguments *call = &job.call;
    unsigned first_tile = shared_window(), second_tile = first_tile + OWN_BYTES;
    unsigned stages = second_tile + OWN_BYTES;
    int pair, block;
    locate(call, &pair, &block);
    bool of_values = PARTED && block % 2 == 1;
    if (PARTED) block /= 2;
    /* Blocks that have more to do under a causal mask come first: early keys, and late queries. */
    if (CAUSAL && !OF_KEYS) block = call->blocks - 1 - block;
    int heads = OF_KEYS ? call->heads / call->group : call->heads;
    int batch = pair / heads, own_head = pair % heads, block_row = block * ROWS;
    int warp_row = block_row + (int)(thread_index() / 32) * ROW_TILES * 16;

    walk way = {0, 0};
    int seen = OF_KEYS ? call->queries : call->keys;
    if (CAUSAL && OF_KEYS) way.first = block_row / STEP * STEP;
    if (CAUSAL && !OF_KEYS && seen > block_row + ROWS) seen = block_row + ROWS;
    way.per_head = seen > way.first ? (seen - way.first + STEP - 1) / STEP : 0;
    int steps = way.per_head * (OF_KEYS ? call->group : 1);

    if (OF_KEYS) {
        fetch(first_tile, ROWS, head_of(call->key, call->key_strides, batch, own_head),
              call->key_strides[2], block_row, call->keys);
        fetch(second_tile, ROWS, head_of(call->value, call->value_strides, batch, own_head),
              call->value_strides[2], block_row, call->keys);
    } else {
        fetch(first_tile, ROWS, head_of(call->query, call->query_strides, batch, own_head),
              call->query_strides[2], block_row, call->queries);
        fetch(second_tile, ROWS, head_of(job.grad_out, job.grad_out_strides, batch, own_head),
              job.grad_out_strides[2], block_row, call->queries);
    }
    if (steps > 0) fetch_step(&job, &way, stages, 0, batch, own_head);
    end_copies();

    float base[LINES][2], delta[LINES][2];
    if (!OF_KEYS) make_lines(&job, base, delta, pair, warp_row);

    float sum[SUMS][ROW_TILES][WIDTH_TILES][4]; /* of keys or queries, and of values */
    UNROLL
    for (int s = 0; s < SUMS; s++) clear(WIDTH_TILES, sum[s][0]);

    for (int step = 0; step < steps; step++) {
        unsigned tile = stages + (unsigned)(step % STAGES) * (2 * STEP_BYTES);
        await_copies(0);
        block_barrier(); /* this step's tiles are complete, and no warp reads the last step's */
        if (step + 1 < steps)
            fetch_step(&job, &way, stages + (unsigned)((step + 1) % STAGES) * (2 * STEP_BYTES),
                       step + 1, batch, own_head);
        end_copies();
        int row = way.first + step % way.per_head * STEP;
        int head = OF_KEYS ? own_head * call->group + step / way.per_head : own_head;
        int in_all = batch * call->heads + head;
        /* The last keys of a block are seen by later queries than its first ones, and so on. */
        if (CAUSAL && (OF_KEYS ? row + STEP <= warp_row : row >= warp_row + ROW_TILES * 16)) continue;
        if (OF_KEYS) read_lines(&job, base, delta, in_all, row);

        float scores[ROW_TILES][KEY_TILES][4], pulls[ROW_TILES][KEY_TILES][4];
        clear(KEY_TILES, scores[0]);
        multiply_rows(scores, 0, first_tile, tile);
        int first_query = OF_KEYS ? row : warp_row;
        int last_key = OF_KEYS ? warp_row + ROW_TILES * 16 - 1 : row + STEP - 1;
        bool is_edge = MASK || last_key >= call->keys || (CAUSAL && last_key > first_query);
        finish_scores(call, scores, batch, head, warp_row, row, is_edge);
        clear(KEY_TILES, pulls[0]);
        if (!of_values) multiply_rows(pulls, 0, second_tile, tile + STEP_BYTES);
        unsigned weights[ROW_TILES][KEY_TILES][2], slopes[ROW_TILES][KEY_TILES][2];
        weigh(&job, weights, slopes, scores, pulls, base, delta, in_all, warp_row, row);
        if (of_values)
            add_product(sum[0], weights, tile + STEP_BYTES);
        else
            add_product(sum[0], slopes, tile);
        if (SUMS == 2) add_product(sum[SUMS - 1], weights, tile + STEP_BYTES);
    }

    if (steps == 0) { /* copies may still be writing to the tiles that the gradients use */
        await_copies(0);
        block_barrier();
    }
    float kept = DROPOUT ? call->kept : 1;
    if (!OF_KEYS)
        write_gradient(job.grad_query, job.grad_query_strides, batch, own_head, call->queries, sum[0],
                       job.factor, first_tile, warp_row);
    if (OF_KEYS && !of_values)
        write_gradient(job.grad_key, job.grad_key_strides, batch, own_head, call->keys, sum[0],
                       job.factor, first_tile, warp_row);
    if (OF_KEYS && (of_values || SUMS == 2))
        write_gradient(job.grad_value, job.grad_value_strides, batch, own_head, call->keys,
                       sum[SUMS - 1], kept, second_tile, warp_row);
}
