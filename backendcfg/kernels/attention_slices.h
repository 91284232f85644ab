/* What a block of attention_efficient.cu works on, and how it comes there: the argument, chunks of 16
 * bytes, and slices of queries, keys and values on their way from the arrays, by registers, to shared
 * memory. The macros are those of the kernel. */
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

/* Strides count numbers: batch, head, row, column. Mirrored by `Arguments` in
 * backendcfg/dispatch/device_attention_plain.py. */
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

typedef struct {
    real at[PACK];
} chunk;

/* What a block works on. */
typedef struct {
    long long query, key, value; /* where its heads begin, in numbers */
    int pair, batch, head, first_row;
} place;

/* --- shared memory ---------------------------------------------------------------------------- */

DEVICE chunk chunk_of(sixteen_bytes it) {
    chunk all;
#if ELEMENT == FLOAT64
    UNROLL
    for (int i = 0; i < 2; i++) {
        two_words bits;
        bits.word[0] = it.word[2 * i], bits.word[1] = it.word[2 * i + 1];
        all.at[i] = bits.number;
    }
#else
    UNROLL
    for (int i = 0; i < 4; i++) {
        one_word bits;
        bits.word = it.word[i];
        all.at[i] = bits.number;
    }
#endif
    return all;
}

DEVICE sixteen_bytes bytes_of(chunk all) {
    sixteen_bytes it;
#if ELEMENT == FLOAT64
    UNROLL
    for (int i = 0; i < 2; i++) {
        two_words bits;
        bits.number = all.at[i];
        it.word[2 * i] = bits.word[0], it.word[2 * i + 1] = bits.word[1];
    }
#else
    UNROLL
    for (int i = 0; i < 4; i++) {
        one_word bits;
        bits.number = all.at[i];
        it.word[i] = bits.word;
    }
#endif
    return it;
}

DEVICE chunk take_chunk(unsigned from) { return chunk_of(load_shared(from)); }

DEVICE void store_real(unsigned to, real it) {
#if ELEMENT == FLOAT64
    two_words bits;
    bits.number = it;
    store_shared_word(to, bits.word[0]);
    store_shared_word(to + 4, bits.word[1]);
#else
    one_word bits;
    bits.number = it;
    store_shared_word(to, bits.word);
#endif
}

/* --- slices ----------------------------------------------------------------------------------- */

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

DEVICE void store_slice(const chunk held[HELD], unsigned stage) {
    UNROLL
    for (int turn = 0; turn < HELD; turn++) {
        unsigned index = thread_index_anew() + (unsigned)turn * THREADS;
        unsigned row = index / (SLICE / PACK), column = index % (SLICE / PACK) * PACK;
        store_shared(stage + (row * SLICE_STEP + column) * (unsigned)sizeof(real),
                     bytes_of(held[turn]));
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

DEVICE void store_values(const chunk held[HELD], unsigned stage) {
    UNROLL
    for (int turn = 0; turn * THREADS < VALUE_CHUNKS; turn++)
        store_shared(stage + (thread_index() + (unsigned)turn * THREADS) * 16,
                     bytes_of(held[turn]));
}

#endif
