/* What AVX-512 BF16 adds to the kernels of kernels_avx512.c: products of pairs of bfloat16, two
 * neighbours along what is summed over, the first one low. All else is compiled once, there;
 * kernels.c puts the two together. */
#include "simd_avx512.h"

#include "simd_common.h"
#include "simd_transpose.h"

#include "float32.inc"
#include "rows.inc"

#define NUMBER uint32_t
#define NUMBERS pairs
#define N(name) pairs_##name
#define CHAIN(a, b, c) pairs_dot(c, a, b)
#define IS_PAIRS 1
#include "tile.inc"
#include "attention_pack.inc"
#include "attention_forward.inc"
#include "attention_backward.inc"

#include "pairs.inc"
#include "pairs_product.inc"

const bcfg_pairs_kernels bcfg_kernels_pairs = {
    .product = product_block,
    .attention = &pairs_attention_kernels,
    .backward = &pairs_backward_kernels,
};
