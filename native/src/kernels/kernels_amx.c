/* What AMX adds to the kernels of kernels_avx512_bf16.c: products of bfloat16 by tiles, and attention
 * over them. */
#include "simd_avx512.h"

#include "simd_common.h"
#include "simd_transpose.h"

#include "amx.h"
#include "float32.inc"
#include "rows.inc"

#include "pairs.inc"
#include "amx_product.inc"

#define NUMBER uint32_t
#define N(name) tiles_##name
#define IS_PAIRS 1
#define TILE_HEIGHT (2 * TILE_SIDE)
#define AT_ONCE TILE_SIDE
#define BEGIN() tiles_begin()
#define END() tiles_end()

/* What tile.inc does, for up to 32 rows, which lie in memory as whole tiles, with zeros behind the last
 * pairs. */
static void tiles_tile(int64_t rows, int64_t columns, int64_t k, const uint32_t *a, int64_t a_row,
                       int64_t a_step, const uint32_t *b, int64_t b_row, float *c, int64_t c_row,
                       int accumulate) {
    (void)a_step; /* is 1, and nobody passes TILE_ADD */
    const int64_t steps = (k + AT_ONCE - 1) / AT_ONCE;
    const tiles_at left = {(const char *)a, a_row * 4, TILE_SIDE * a_row * 4, 64};
    for (int64_t j = 0; j < columns; j += 2 * TILE_SIDE)
        tiles_multiply(rows, columns - j, steps, left,
                       (tiles_at){(const char *)(b + j), b_row * 4, 64, TILE_SIDE * b_row * 4}, c + j,
                       c_row * 4, accumulate == TILE_CHAIN);
}

#include "attention_pack.inc"
#include "attention_forward.inc"
#include "attention_backward.inc"

const bcfg_tiles_kernels bcfg_kernels_tiles = {
    .side = PRODUCT_SIDE,
    .inner = PRODUCT_INNER,
    .columns = PRODUCT_COLUMNS,
    .space = product_space,
    .block = product_block,
};
const bcfg_pairs_kernels bcfg_kernels_tiled_pairs = {
    .attention = &tiles_attention_kernels,
    .backward = &tiles_backward_kernels,
};
