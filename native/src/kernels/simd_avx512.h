/* Vectors of 16 float32 or 8 float64 on AVX-512 F, BW, DQ, VL; with BF16 where compiled for it.
 *
 * simd_avx2.h and simd_portable.h give the same names with the same number of lanes and the same
 * results to the bit, so that what is written over them computes the same everywhere:
 *   X_load, X_store             unaligned; the ..._first ones touch the first n lanes only
 *   X_fma(a, b, c)              a b + c, rounded once
 *   X_max(a, b), X_min(a, b)    b where either is NaN
 *   X_sum, X_highest            of all lanes, as a tree: lane i with i + half, halving
 *   X_round                     to the nearest integer, ties to even
 *   X_scale(a, n)               a times 2 to the n, an integer between -200 and 200 (-2000, 2000)
 *   X_pick(m, a, b)             a where the mask is set, else b
 */
#ifndef BACKENDCFG_SIMD_H
#define BACKENDCFG_SIMD_H

#include <immintrin.h>
#include <stdint.h>

#define SIMD inline __attribute__((always_inline))

typedef __m512 f32x;
typedef __m512d f64x;
typedef __mmask16 f32m;
typedef __mmask8 f64m;
enum { F32_LANES = 16, F64_LANES = 8, TILE_VECTORS = 4 };

/* The first n lanes, 0 <= n <= lanes. */
static SIMD f32m f32_first(int64_t n) { return (f32m)((1u << n) - 1); }
static SIMD f64m f64_first(int64_t n) { return (f64m)((1u << n) - 1); }

static SIMD f32x f32_load(const float *p) { return _mm512_loadu_ps(p); }
static SIMD f64x f64_load(const double *p) { return _mm512_loadu_pd(p); }
static SIMD void f32_store(float *p, f32x a) { _mm512_storeu_ps(p, a); }
static SIMD void f64_store(double *p, f64x a) { _mm512_storeu_pd(p, a); }
static SIMD f32x f32_load_first(f32m m, const float *p) { return _mm512_maskz_loadu_ps(m, p); }
static SIMD f64x f64_load_first(f64m m, const double *p) { return _mm512_maskz_loadu_pd(m, p); }
static SIMD void f32_store_first(f32m m, float *p, f32x a) { _mm512_mask_storeu_ps(p, m, a); }
static SIMD void f64_store_first(f64m m, double *p, f64x a) { _mm512_mask_storeu_pd(p, m, a); }
static SIMD f32x f32_set(float a) { return _mm512_set1_ps(a); }
static SIMD f64x f64_set(double a) { return _mm512_set1_pd(a); }
static SIMD f32x f32_fma(f32x a, f32x b, f32x c) { return _mm512_fmadd_ps(a, b, c); }
static SIMD f64x f64_fma(f64x a, f64x b, f64x c) { return _mm512_fmadd_pd(a, b, c); }
static SIMD f32x f32_add(f32x a, f32x b) { return _mm512_add_ps(a, b); }
static SIMD f64x f64_add(f64x a, f64x b) { return _mm512_add_pd(a, b); }
static SIMD f32x f32_sub(f32x a, f32x b) { return _mm512_sub_ps(a, b); }
static SIMD f64x f64_sub(f64x a, f64x b) { return _mm512_sub_pd(a, b); }
static SIMD f32x f32_mul(f32x a, f32x b) { return _mm512_mul_ps(a, b); }
static SIMD f64x f64_mul(f64x a, f64x b) { return _mm512_mul_pd(a, b); }
static SIMD f32x f32_max(f32x a, f32x b) { return _mm512_max_ps(a, b); }
static SIMD f64x f64_max(f64x a, f64x b) { return _mm512_max_pd(a, b); }
static SIMD f32x f32_min(f32x a, f32x b) { return _mm512_min_ps(a, b); }
static SIMD f64x f64_min(f64x a, f64x b) { return _mm512_min_pd(a, b); }
static SIMD f32x f32_round(f32x a) { return _mm512_roundscale_ps(a, 8); }
static SIMD f64x f64_round(f64x a) { return _mm512_roundscale_pd(a, 8); }
static SIMD f32x f32_scale(f32x a, f32x n) { return _mm512_scalef_ps(a, n); }
static SIMD f64x f64_scale(f64x a, f64x n) { return _mm512_scalef_pd(a, n); }
static SIMD f32x f32_pick(f32m m, f32x a, f32x b) { return _mm512_mask_blend_ps(m, b, a); }
static SIMD f64x f64_pick(f64m m, f64x a, f64x b) { return _mm512_mask_blend_pd(m, b, a); }
/* Whether any lane is NaN. */
static SIMD int f32_any_nan(f32x a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0; }
static SIMD int f64_any_nan(f64x a) { return _mm512_cmp_pd_mask(a, a, _CMP_UNORD_Q) != 0; }

/* Which of 16 (8) bytes are not zero. */
static SIMD f32m f32_where(const uint8_t *p) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    return _mm_test_epi8_mask(bytes, bytes);
}
static SIMD f64m f64_where(const uint8_t *p) {
    __m128i bytes = _mm_loadl_epi64((const __m128i *)p);
    return (f64m)_mm_test_epi8_mask(bytes, bytes);
}

#define SIMD_REDUCE(name, op)                                                                      \
    static SIMD float f32_##name(f32x a) {                                                         \
        __m256 b = _mm256_##op##_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));      \
        __m128 c = _mm_##op##_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));          \
        c = _mm_##op##_ps(c, _mm_movehl_ps(c, c));                                                 \
        return _mm_cvtss_f32(_mm_##op##_ss(c, _mm_movehdup_ps(c)));                                \
    }                                                                                              \
    static SIMD double f64_##name(f64x a) {                                                        \
        __m256d b = _mm256_##op##_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));     \
        __m128d c = _mm_##op##_pd(_mm256_castpd256_pd128(b), _mm256_extractf128_pd(b, 1));         \
        return _mm_cvtsd_f64(_mm_##op##_sd(c, _mm_unpackhi_pd(c, c)));                             \
    }
SIMD_REDUCE(sum, add)
SIMD_REDUCE(highest, max)
#undef SIMD_REDUCE

static SIMD f32x f32_from_bfloat16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static SIMD f32x f32_from_float16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static SIMD void f32_to_float16(uint16_t *p, f32x a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
/* Ties to even; every NaN becomes a quiet one of the same sign. */
static SIMD void f32_to_bfloat16(uint16_t *p, f32x a) {
    __m512i bits = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    up = _mm512_mask_mov_epi32(up, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), quiet);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16)));
}

#ifdef __AVX512BF16__
/* Pairs of bfloat16, 16 to a vector. The instruction treats subnormal numbers as zero. */
#define SIMD_PAIRS 1
typedef __m512i pairs;
static SIMD pairs pairs_load(const uint32_t *p) { return _mm512_loadu_si512(p); }
static SIMD pairs pairs_load_first(f32m m, const uint32_t *p) {
    return _mm512_maskz_loadu_epi32(m, p);
}
static SIMD pairs pairs_set(uint32_t a) { return _mm512_set1_epi32((int)a); }
static SIMD f32x pairs_dot(f32x c, pairs a, pairs b) {
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}
/* For numbers that may lose their subnormal part: attention's weights. */
static SIMD void f32_to_bfloat16_fast(uint16_t *p, f32x a) {
    _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(a));
}
#endif

#endif
