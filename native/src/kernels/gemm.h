/* Our own blocked matrix product.
 *
 * Every element of a product is made of the same sums, in the same order, wherever it is computed:
 * the inner dimension is cut every GEMM_INNER, each piece is one chain of fused multiply-adds that
 * starts at 0, and the pieces are added in ascending order. Cuts in the other dimensions, which
 * thread computes what, and what else is computed beside it change no bit, and neither does the
 * instruction set, except for bfloat16: AVX-512 BF16 and AMX sum it as pairs_product.inc and amx.h say. */
#ifndef BACKENDCFG_GEMM_H
#define BACKENDCFG_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "backendcfg.h"

enum {
    GEMM_TILE_ROWS = 6,     /* the most rows of a tile */
    GEMM_INNER = 256,       /* changing it changes bits */
    GEMM_FEW = 24,          /* up to so many rows, piece_of_few decides the order */
    GEMM_STREAMS = 32,      /* rows of B that are read side by side: CPUs follow about so many */
    GEMM_ROWS = 96,         /* rows of A in one piece: with GEMM_INNER, a part of the L2 cache */
    GEMM_COLUMN_BYTES = 2048 /* a row of B in one piece: with GEMM_INNER, half of the L2 cache */
};

/* What all blocks of a product have in common. Strides are in bytes. */
typedef struct {
    int32_t element;
    int64_t k;
    int64_t a_row, a_column, b_row, b_column, c_row, c_column, added_row, added_column;
    bool a_in_place, b_in_place, c_in_place; /* else by way of a copy in the element of the sums */
} bcfg_gemm_common;

/* Computes a block of C. `added`, or NULL, is added to the sums of 16-bit elements. `space` has room
 * for what bcfg_gemm_run counts, and starts at a multiple of 64. The pointers are those of the block's
 * first elements. */
typedef void bcfg_gemm_block(const bcfg_gemm_common *gemm, int64_t rows, int64_t columns, const char *a,
                             const char *b, const char *added, char *c, char *space);

/* c = a b for each matrix of a batch, where c overlaps nothing that is read and no size is 0.
 * Elements are float32, float64, or bfloat16 and float16 with sums in float32. `added`, unless it is
 * NULL, is added to these sums before they are rounded, once. `everywhere`: with bits that are the
 * same on every instruction set. At most `threads` threads, 0 for as many as the team has. Errors: BCFG_E_MEMORY; c
 * is then untouched. */
bcfg_status bcfg_gemm_run(const bcfg_product *product, const bcfg_operand *added, bool everywhere,
                          int32_t threads, bcfg_error *error);

/* What decides how matrices are cut into blocks.
 *   down, across  into how many blocks at least
 *   copying       the rows, or columns, that are multiplied in the time in which an operand is copied */
typedef struct {
    int64_t m, n, k, matrices, tile_rows, tile_columns, copying, down, across;
} bcfg_gemm_sizes;

/* The size of the blocks with which so many threads are done first, a multiple of a tile's. Where more
 * blocks than `down` and `across` ask for are made, each is worth a task. */
void bcfg_gemm_share(const bcfg_gemm_sizes *sizes, int64_t threads, int64_t *rows, int64_t *columns);

#endif
