/* What is written once over the vectors of simd_avx512.h, simd_avx2.h or simd_portable.h. */
#ifndef BACKENDCFG_SIMD_COMMON_H
#define BACKENDCFG_SIMD_COMMON_H

#include <math.h>
#include <sched.h>
#include <string.h>

#include "kernels.h"
#include "philox.h"

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* The widest tile; and vectors of pixels side by side, as many chains as hide the latency of an
 * addition. */
enum { F32_COLUMNS = TILE_VECTORS * F32_LANES, F64_COLUMNS = TILE_VECTORS * F64_LANES };
enum { LINE_VECTORS = 4 };

/* `CASE(rows, vectors)` for every size of a tile. */
#define TILE_ROWS(CASE, vectors)                                                                   \
    CASE(1, vectors) CASE(2, vectors) CASE(3, vectors) CASE(4, vectors) CASE(5, vectors)           \
    CASE(6, vectors)
#if defined(__AVX512F__)
#define TILE_CASES(CASE) TILE_ROWS(CASE, 1) TILE_ROWS(CASE, 2) TILE_ROWS(CASE, 3) TILE_ROWS(CASE, 4)
#else
#define TILE_CASES(CASE) TILE_ROWS(CASE, 1)
#endif

/* exp(r) for small r: Taylor's series to the 13th power, whose remainder is below 2^-57. */
static SIMD f64x f64_exp_series(f64x r) {
    static const double inverse_factorials[] = {
        1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
        1.0 / 40320,      1.0 / 5040,      1.0 / 720,      1.0 / 120,     1.0 / 24,
        1.0 / 6,          0.5,             1.0,            1.0};
    f64x p = f64_set(inverse_factorials[0]);
    for (int i = 1; i < 14; i++) p = f64_fma(p, r, f64_set(inverse_factorials[i]));
    return p;
}

/* 2^x for x <= 128, or 1024 in float64, as attention needs it: exactly 1 at 0, 0 below -151, NaN for
 * NaN. Relative error below 3 units of 2^-24 where the result is normal. */
static SIMD f32x f32_power_of_two(f32x x) {
    x = f32_max(f32_set(-151.0f), x);
    f32x n = f32_round(x), r = f32_sub(x, n);
    f32x p = f32_set(0.0013274633092805743f);
    p = f32_fma(p, r, f32_set(0.009671961888670921f));
    p = f32_fma(p, r, f32_set(0.055506784468889236f));
    p = f32_fma(p, r, f32_set(0.24022234976291656f));
    p = f32_fma(p, r, f32_set(0.6931470632553101f));
    p = f32_fma(p, r, f32_set(1.0f));
    return f32_scale(p, n);
}
static SIMD f64x f64_power_of_two(f64x x) {
    x = f64_max(f64_set(-1080.0), x);
    f64x n = f64_round(x), r = f64_mul(f64_sub(x, n), f64_set(0x1.62e42fefa39efp-1));
    return f64_scale(f64_exp_series(r), n);
}

/* The first n numbers of 16, zeros behind them. `n` may be all. */
static SIMD f32x f32_from_bfloat16_first(int64_t n, const uint16_t *p) {
    uint16_t part[F32_LANES] = {0};
    memcpy(part, p, (size_t)n * sizeof *p);
    return f32_from_bfloat16(part);
}
static SIMD f32x f32_from_float16_first(int64_t n, const uint16_t *p) {
    uint16_t part[F32_LANES] = {0};
    memcpy(part, p, (size_t)n * sizeof *p);
    return f32_from_float16(part);
}

#endif
