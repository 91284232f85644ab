/* The tiles of the attention kernels: how large they are, where their numbers lie in shared memory, and
 * how they are copied there. */
#ifndef BACKENDCFG_ATTENTION_TILES_H
#define BACKENDCFG_ATTENTION_TILES_H

#include "instructions.h"

enum {
    PADDED = (WIDTH + 15) / 16 * 16, /* products go 16 deep */
    CHUNKS = PADDED / 8,             /* of 16 bytes, to a row */
    THREADS = WARPS * 32,
    ROW_TILES = ROWS / WARPS / 16, /* of a warp */
    KEY_TILES = KEYS / 8,
    WIDTH_TILES = PADDED / 8,
    DEPTH = PADDED / 16,
    QUERY_BYTES = ROWS * PADDED * 2,
    KEY_BYTES = KEYS * PADDED * 2, /* and of the values of a step */
    STAGES = 2
};

/* Strides count numbers. Mirrored by `FlashArguments` in backendcfg/gpu/attention/flash.py. */
typedef struct {
    const half_bits *query, *key, *value;
    const void *mask;
    half_bits *out;
    float *logsumexp; /* (batch, heads, queries), dense, natural logarithm; NULL: not wanted */
    long long query_strides[4], key_strides[4], value_strides[4], out_strides[4]; /* batch, head, row */
    long long mask_strides[4]; /* batch, head, query, key */
    unsigned long long seed, threshold; /* words of the generator below it are dropped */
    int heads, group;                   /* of queries; of them, to a head of keys */
    int queries, keys;
    int blocks;  /* to a head of queries */
    int pairs;   /* batch * heads */
    int section; /* heads whose blocks are worked on side by side, for the cache */
    int sign;    /* of the scale: 1, 0 or -1 */
    float scale; /* its size in units of ln 2; where it is 0, 1 */
    float kept;  /* what a weight that is not dropped is multiplied by */
} attention_arguments;

/* --- shared memory ---------------------------------------------------------------------------- */

/* Where 16 bytes of a tile, a chunk, lie. ldmatrix reads the same chunk of eight rows at once, and these
 * must lie in different banks. So a tile is cut into panels that are 8 chunks wide, then 4, then 2, and
 * the chunks of a row are permuted by the number of the row. */
DEVICE void panel_of(unsigned chunk, unsigned *wide, unsigned *first) {
    const unsigned whole = CHUNKS / 8 * 8, rest = CHUNKS % 8;
    *wide = 8, *first = chunk / 8 * 8;
    if (chunk >= whole && rest >= 4 && chunk < whole + 4)
        *wide = 4, *first = whole;
    else if (chunk >= whole)
        *wide = 2, *first = whole + (rest & 4);
}

/* What permutes the chunks of a row of a panel. */
DEVICE unsigned turned(unsigned wide, unsigned row) { return row / (8 / wide) % wide; }

DEVICE unsigned chunk_at(unsigned rows, unsigned row, unsigned chunk) {
    unsigned wide, first;
    panel_of(chunk, &wide, &first);
    return (first * rows + row * wide + ((chunk - first) ^ turned(wide, row))) * 16;
}

/* The same as an address in a tile, for row `base` + `row` and chunk `even` + `odd`: the base is a
 * multiple of 16, the row below 16, `odd` 0 or 1. Only `row` and `odd` depend on the lane; the compiler
 * knows the rest. The permutation is applied last, which works because tiles begin at multiples of 128
 * bytes: were addresses of the steps to differ by a sum only, the compiler would keep them all in
 * registers. */
DEVICE unsigned lane_at(unsigned tile, unsigned rows, unsigned base, unsigned row, unsigned even,
                        unsigned odd) {
    unsigned wide, first;
    panel_of(even, &wide, &first);
    unsigned lane = tile + (row * wide + (odd ^ turned(wide, row))) * 16;
    return (lane ^ (even - first) * 16) + (first * rows + base * wide) * 16;
}

/* --- tiles ------------------------------------------------------------------------------------ */

/* The chunk of `rows` rows that a thread moves at a turn; false where it moves none. All threads of a
 * warp have the same turns. */
DEVICE bool chunk_of(unsigned thread, unsigned rows, unsigned turn, unsigned *row,
                     unsigned *chunk) {
    if (THREADS % CHUNKS == 0) { /* always the same column */
        *row = thread / CHUNKS + turn * (THREADS / CHUNKS);
        *chunk = thread % CHUNKS;
    } else {
        *row = (thread + turn * THREADS) / CHUNKS;
        *chunk = (thread + turn * THREADS) % CHUNKS;
    }
    return rows * CHUNKS % THREADS == 0 || *row < rows;
}

DEVICE sixteen_bytes load_unaligned(const half_bits *from, bool inside) {
    sixteen_bytes it;
    UNROLL
    for (int i = 0; i < 4; i++) {
        it.word[i] = 0;
        if (inside) it.word[i] = load_half(from + 2 * i) | (unsigned)load_half(from + 2 * i + 1) << 16;
    }
    return it;
}

/* Copies rows from `first` on of a matrix with `count` rows into a tile; zeros beyond its edges. */
DEVICE void fetch(unsigned to, unsigned rows, const half_bits *from, long long stride, int first,
                  int count) {
    unsigned thread = thread_index_anew(), row, chunk;
    (void)chunk_of(thread, rows, 0, &row, &chunk);
    const half_bits *place = from + (first + (int)row) * stride + chunk * 8;
    UNROLL
    for (unsigned turn = 0; turn * THREADS < rows * CHUNKS; turn++) {
        if (!chunk_of(thread, rows, turn, &row, &chunk)) continue;
        if (THREADS % CHUNKS != 0)
            place = from + (first + (int)row) * stride + chunk * 8;
        else if (turn > 0) /* a sum, because the compiler would make a product at each turn */
            place += THREADS / CHUNKS * stride;
        bool inside = first + (int)row < count && chunk * 8 < WIDTH;
        if (ALIGNED)
            copy_ahead(to + chunk_at(rows, row, chunk), place, inside);
        else
            store_shared(to + chunk_at(rows, row, chunk), load_unaligned(place, inside));
    }
}

/* A number times 0: NaN where it is infinite or NaN. */
DEVICE unsigned times_zero(unsigned it) {
    const unsigned exponent = BFLOAT16 ? 0x7f80 : 0x7c00;
    return (it & exponent) == exponent ? 0x7fff : 0;
}

/* Applies the sign of a scale that is negative or 0 to the queries. Scores are then multiplied by a
 * positive number, so that the highest score stays the highest. Each thread changes what it copied. */
DEVICE void mend_queries(unsigned at, const attention_arguments *job) {
    for (unsigned turn = 0; turn * THREADS < ROWS * CHUNKS; turn++) {
        unsigned row, chunk;
        if (!chunk_of(thread_index(), ROWS, turn, &row, &chunk)) continue;
        sixteen_bytes it = load_shared(at + chunk_at(ROWS, row, chunk));
        for (int i = 0; i < 4; i++)
            it.word[i] = job->sign < 0 ? it.word[i] ^ 0x80008000u
                                       : times_zero(it.word[i]) | times_zero(it.word[i] >> 16) << 16;
        store_shared(at + chunk_at(ROWS, row, chunk), it);
    }
}

#endif
