/* The tiles of AMX: 8 registers of 16 rows of 64 bytes, which multiply bfloat16 by pairs.
 *
 * The left operand of a product lies by rows: 16 rows of 16 pairs, two neighbours along what is summed
 * over. The right one is transposed pair by pair: 16 rows of 16 pairs, one pair of each column. With
 * the left numbers l and the right ones r of one element, a tile's product computes
 *     c += (l[0] r[0] + l[2] r[2] + ... + l[30] r[30]) + (l[1] r[1] + ... + l[31] r[31])
 * where both chains are fused multiply-adds that start at 0, and all that is subnormal is 0 (Intel's
 * manual, TDPBF16PS). So the bits of an element depend on neither the tile nor what lies beside it.
 *
 * The registers may be used between `tiles_begin` and `tiles_end`. A call need not preserve them, so what
 * is called in between must not use tiles itself. */
#ifndef BACKENDCFG_AMX_H
#define BACKENDCFG_AMX_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    TILE_SIDE = 16,                        /* rows of a tile, and numbers of a row of sums */
    TILE_STEP = 32,                        /* numbers of bfloat16 in a row */
    TILE_PAIRS = TILE_SIDE * TILE_STEP / 2 /* pairs of a tile */
};

/* The format of LDTILECFG. */
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_shapes;

static inline void tiles_begin(void) {
    static const tile_shapes whole = {.palette = 1,
                                      .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                      .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&whole);
}
static inline void tiles_end(void) { _tile_release(); }

/* Where the tiles of an operand lie: bytes from row to row of a tile, to the tile beside it (below it,
 * of a left operand), and to the next one along what is summed over. */
typedef struct {
    const char *first;
    int64_t row, beside, step;
} tiles_at;

/* One or two tiles of rows times one or two of columns. Of the right operand, which is read on and on
 * from the L2 cache, the loads leave the L1 cache to the rest. */
static inline __attribute__((always_inline)) void tiles_sum(const int rows, const int columns,
                                                            int64_t steps, tiles_at a, tiles_at b,
                                                            float *c, int64_t c_row, bool more) {
    char *first = (char *)c, *below = first + TILE_SIDE * c_row;
    __asm__ volatile("" ::: "memory"); /* GCC's intrinsics do not say that they read memory */
    if (more) {
        _tile_loadd(0, first, c_row);
        if (columns > 1) _tile_loadd(1, first + 64, c_row);
        if (rows > 1) _tile_loadd(2, below, c_row);
        if (rows > 1 && columns > 1) _tile_loadd(3, below + 64, c_row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < steps; k++, a.first += a.step, b.first += b.step) {
        _tile_loadd(4, a.first, a.row);
        _tile_stream_loadd(6, b.first, b.row);
        _tile_dpbf16ps(0, 4, 6);
        if (rows > 1) {
            _tile_loadd(5, a.first + a.beside, a.row);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (columns > 1) {
            _tile_stream_loadd(7, b.first + b.beside, b.row);
            _tile_dpbf16ps(1, 4, 7);
            if (rows > 1) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, first, c_row);
    if (columns > 1) _tile_stored(1, first + 64, c_row);
    if (rows > 1) _tile_stored(2, below, c_row);
    if (rows > 1 && columns > 1) _tile_stored(3, below + 64, c_row);
}

/* c = a b, or c + a b if `more`, for at most 32 rows and 32 columns: all of their tiles are read and
 * written. `c_row` counts bytes. */
static inline void tiles_multiply(int64_t rows, int64_t columns, int64_t steps, tiles_at a, tiles_at b,
                                  float *c, int64_t c_row, bool more) {
    if (rows > TILE_SIDE && columns > TILE_SIDE) tiles_sum(2, 2, steps, a, b, c, c_row, more);
    else if (rows > TILE_SIDE) tiles_sum(2, 1, steps, a, b, c, c_row, more);
    else if (columns > TILE_SIDE) tiles_sum(1, 2, steps, a, b, c, c_row, more);
    else tiles_sum(1, 1, steps, a, b, c, c_row, more);
}

#endif
