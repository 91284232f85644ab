/* What is written once over the vectors of simd_avx512.h, simd_avx2.h or simd_portable.h. */
#ifndef BACKENDCFG_SIMD_COMMON_H
#define BACKENDCFG_SIMD_COMMON_H

#include <math.h>
#include <sched.h>
#include <string.h>

#include "kernels.h"

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

/* Numbers to which one adds an integer n, and finds the exponent of 2 to the n in the lowest bits. */
#define F32_SHIFT (0x1.8p23f + 127)
#define F64_SHIFT (0x1.8p52 + 1023)

/* e^x as attention needs it, for x up to where it is infinite: exactly 1 at 0; NaN for NaN; 0 below
 * -87, or -708 in float64, because a result that is not normal costs some CPUs as much as ten vectors
 * of others. Relative errors below (3 + |x|) 2^-24, or (1 + |x|) 2^-52. */
static SIMD f32x f32_exp(f32x x) {
    const f32x log2_of_e = f32_set(1.44269504f), shift = f32_set(F32_SHIFT);
    f32x t = f32_fma(x, log2_of_e, shift), r = f32_fms(x, log2_of_e, f32_sub(t, shift));
    f32x p = f32_set(0.0013274633092805743f);
    p = f32_fma(p, r, f32_set(0.009671961888670921f));
    p = f32_fma(p, r, f32_set(0.055506784468889236f));
    p = f32_fma(p, r, f32_set(0.24022234976291656f));
    p = f32_fma(p, r, f32_set(0.6931470632553101f));
    p = f32_fma(p, r, f32_set(1.0f));
    return f32_unless_below(f32_set(-87.0f), x, f32_mul(p, f32_power(t)));
}
static SIMD f64x f64_exp(f64x x) {
    const f64x shift = f64_set(F64_SHIFT);
    f64x t = f64_fma(x, f64_set(0x1.71547652b82fep0), shift), n = f64_sub(t, shift);
    f64x r = f64_fma(n, f64_set(-0x1.62e42fefa3800p-1), x);
    r = f64_fma(n, f64_set(-0x1.ef35793c76730p-45), r);
    return f64_unless_below(f64_set(-708.0), x, f64_mul(f64_exp_series(r), f64_power(t)));
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
