/* What AVX-512 BF16 adds to the kernels of kernels_avx512.c: products of pairs of bfloat16. All else
 * is compiled once, there; kernels.c puts the two together. */
#define PAIRS_ONLY
#include "simd_avx512.h"

#include "kernels.h"
#include "simd_common.h"

#include <sched.h>

#include "philox.h"
#include "tile.inc"

#define REAL float
#define VECTOR f32x
#define X(name) f32_##name
#define BACKWARD(name) backward32_##name
#define IS_DOUBLE 0
#include "attention_backward.inc"
#include "attention_backward_pairs.inc"

#include "simd_transpose.h"

#include "attention_kinds.inc"

const bcfg_pairs_kernels bcfg_kernels_pairs = {
    .attention = &attention_pairs_kernels,
    .backward = &backward_pairs_kernels,
};
