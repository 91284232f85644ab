/* What attention_efficient.cu and attention_efficient_backward.cu share: how a block divides its work
 * among threads, how chunks of 16 bytes come from the arrays through registers to shared memory, and the
 * two products. The macros are those of the kernels. In the backward pass "queries" here are the rows of
 * the block's own side, and "keys" those of the other side. */
#ifndef BACKENDCFG_ATTENTION_SLICES_H
#define BACKENDCFG_ATTENTION_SLICES_H

#include "attention_numbers.h"

enum {
    THREADS = 128,
    ROWS = ELEMENT == FLOAT64 ? 32 : 64,
    KEYS = 64,
    SLICE = 16,
    PACK = 16 / (int)sizeof(real), /* numbers that one instruction moves: a chunk */
    OWN_ROWS = ROWS / 8,
    OWN_KEYS = KEYS / 16,
    OWN_CHUNKS = COLUMNS / (16 * PACK),
    ROWS_AT_ONCE = COLUMNS < 256 ? OWN_ROWS : OWN_ROWS / 2, /* whose weights are in registers */
    /* Rows are a chunk longer than what they hold: 8 of them begin in different banks. */
    SLICE_STEP = SLICE + PACK,
    WEIGHT_STEP = KEYS + PACK,
    SLICE_CHUNKS = (ROWS + KEYS) * SLICE / PACK,
    VALUE_KEYS = (COLUMNS == 64 ? 32 : COLUMNS == 128 ? 16 : 8) / (ELEMENT == FLOAT64 ? 2 : 1),
    VALUE_CHUNKS = VALUE_KEYS * COLUMNS / PACK,
    HELD = SLICE_CHUNKS / THREADS, /* chunks on their way, of a thread */
    STAGE_BYTES = (ROWS + KEYS) * SLICE_STEP * (int)sizeof(real),
    WEIGHT_BYTES = ROWS * WEIGHT_STEP * (int)sizeof(real)
};

typedef struct {
    real at[PACK];
} chunk;

/* --- shared memory ---------------------------------------------------------------------------- */

DEVICE chunk chunk_of(sixteen_bytes it) {
    chunk all;
    UNROLL
    for (int i = 0; i < PACK; i++) {
        real_words bits;
        UNROLL
        for (int w = 0; w < WORDS; w++) bits.word[w] = it.word[WORDS * i + w];
        all.at[i] = bits.number;
    }
    return all;
}

DEVICE sixteen_bytes bytes_of(chunk all) {
    sixteen_bytes it;
    UNROLL
    for (int i = 0; i < PACK; i++) {
        real_words bits;
        bits.number = all.at[i];
        UNROLL
        for (int w = 0; w < WORDS; w++) it.word[WORDS * i + w] = bits.word[w];
    }
    return it;
}

DEVICE chunk take_chunk(unsigned from) { return chunk_of(load_shared(from)); }

DEVICE real take_real(unsigned from) {
    real_words bits;
    UNROLL
    for (unsigned w = 0; w < WORDS; w++) bits.word[w] = load_shared_word(from + 4 * w);
    return bits.number;
}

DEVICE void store_real(unsigned to, real it) {
    real_words bits;
    bits.number = it;
    UNROLL
    for (unsigned w = 0; w < WORDS; w++) store_shared_word(to + 4 * w, bits.word[w]);
}

/* --- on the way ----------------------------------------------------------------------------------- */

/* A chunk of a row; zeros where there is no such row or column. */
DEVICE chunk fetch_chunk(const void *from, long long row, long long step, int column, int columns,
                         bool inside) {
    chunk all;
    UNROLL
    for (int i = 0; i < PACK; i++) all.at[i] = 0;
    if (!inside || column >= columns) return all;
    if (ALIGNED) /* rows are whole chunks then */
        return chunk_of(load_chunk((const real *)from + row + column));
    UNROLL
    for (int i = 0; i < PACK; i++)
        if (column + i < columns) all.at[i] = load_number(ELEMENT, from, row + (column + i) * step);
    return all;
}

DEVICE void store_slice(const chunk held[HELD], unsigned stage) {
    UNROLL
    for (int turn = 0; turn < HELD; turn++) {
        unsigned index = thread_index_anew() + (unsigned)turn * THREADS;
        unsigned row = index / (SLICE / PACK), column = index % (SLICE / PACK) * PACK;
        store_shared(stage + (row * SLICE_STEP + column) * (unsigned)sizeof(real),
                     bytes_of(held[turn]));
    }
}

DEVICE void store_values(const chunk held[HELD], unsigned stage) {
    UNROLL
    for (int turn = 0; turn * THREADS < VALUE_CHUNKS; turn++)
        store_shared(stage + (thread_index() + (unsigned)turn * THREADS) * 16,
                     bytes_of(held[turn]));
}

/* --- products --------------------------------------------------------------------------------- */

/* Rows of a slice times rows of it. */
DEVICE void add_scores(real scores[OWN_ROWS][OWN_KEYS], unsigned stage) {
    unsigned across = thread_index() % 16, down = thread_index() / 16;
    ROLLED
    for (unsigned depth = 0; depth < SLICE; depth += PACK) {
        chunk key[OWN_KEYS];
        UNROLL
        for (unsigned j = 0; j < OWN_KEYS; j++)
            key[j] = take_chunk(stage + ((ROWS + across + 16 * j) * SLICE_STEP + depth) *
                                            (unsigned)sizeof(real));
        UNROLL
        for (unsigned i = 0; i < OWN_ROWS; i++) {
            chunk query =
                take_chunk(stage + ((down + 8 * i) * SLICE_STEP + depth) * (unsigned)sizeof(real));
            UNROLL
            for (int e = 0; e < PACK; e++)
                UNROLL
                for (int j = 0; j < OWN_KEYS; j++)
                    scores[i][j] = combine(query.at[e], key[j].at[e], scores[i][j]);
        }
    }
}

/* Weights of keys from `first` on of the step, times their values. */
DEVICE void add_values(real out[OWN_ROWS][OWN_CHUNKS][PACK], unsigned weights, unsigned stage,
                       unsigned first) {
    unsigned across = thread_index() % 16, down = thread_index() / 16;
    ROLLED
    for (unsigned key = 0; key < VALUE_KEYS; key += PACK) {
        UNROLL
        for (unsigned part = 0; part < OWN_ROWS; part += ROWS_AT_ONCE) {
            chunk weight[ROWS_AT_ONCE];
            UNROLL
            for (unsigned i = 0; i < ROWS_AT_ONCE; i++)
                weight[i] = take_chunk(
                    weights + ((down + 8 * (part + i)) * WEIGHT_STEP + first + key) *
                                  (unsigned)sizeof(real));
            UNROLL
            for (unsigned e = 0; e < PACK; e++)
                UNROLL
                for (unsigned j = 0; j < OWN_CHUNKS; j++) {
                    chunk value =
                        take_chunk(stage + ((key + e) * COLUMNS + (across + 16 * j) * PACK) *
                                               (unsigned)sizeof(real));
                    UNROLL
                    for (unsigned i = 0; i < ROWS_AT_ONCE; i++)
                        UNROLL
                        for (int c = 0; c < PACK; c++)
                            out[part + i][j][c] =
                                combine(weight[i].at[e], value.at[c], out[part + i][j][c]);
                }
        }
    }
}

#endif
