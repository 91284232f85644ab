/* Vectors of 16 float32 or 8 float64 on AVX-512 F, BW, DQ, VL; with BF16 where compiled for it.
 *
 * simd_avx2.h and simd_portable.h give the same names with the same number of lanes and the same
 * results to the bit, so that what is written over them computes the same everywhere:
 *   X_load, X_store             unaligned; the ..._first ones touch the first n lanes only
 *   X_fma(a, b, c)              a b + c, rounded once; X_fms: a b - c
 *   X_max(a, b), X_min(a, b)    b where either is NaN
 *   X_sum, X_highest            of all lanes, as a tree: lane i with i + half, halving
 *   X_power(t)                  2 to the n, where t is n + X_SHIFT and n from -126 to 128 (-1022 to
 *                               1024); for other n anything
 *   X_unless_below(l, x, a)     a, but 0 where x is below l; a where x is NaN
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

#define SIMD_ALL(t, s, scalar)                                                                     \
    static SIMD t##x t##_load(const scalar *p) { return _mm512_loadu_##s(p); }                     \
    static SIMD void t##_store(scalar *p, t##x a) { _mm512_storeu_##s(p, a); }                     \
    static SIMD t##x t##_load_first(t##m m, const scalar *p) {                                     \
        return _mm512_maskz_loadu_##s(m, p);                                                       \
    }                                                                                              \
    static SIMD void t##_store_first(t##m m, scalar *p, t##x a) {                                  \
        _mm512_mask_storeu_##s(p, m, a);                                                           \
    }                                                                                              \
    static SIMD t##x t##_set(scalar a) { return _mm512_set1_##s(a); }                              \
    static SIMD t##x t##_fma(t##x a, t##x b, t##x c) { return _mm512_fmadd_##s(a, b, c); }         \
    static SIMD t##x t##_fms(t##x a, t##x b, t##x c) { return _mm512_fmsub_##s(a, b, c); }         \
    static SIMD t##x t##_add(t##x a, t##x b) { return _mm512_add_##s(a, b); }                      \
    static SIMD t##x t##_sub(t##x a, t##x b) { return _mm512_sub_##s(a, b); }                      \
    static SIMD t##x t##_mul(t##x a, t##x b) { return _mm512_mul_##s(a, b); }                      \
    static SIMD t##x t##_max(t##x a, t##x b) { return _mm512_max_##s(a, b); }                      \
    static SIMD t##x t##_min(t##x a, t##x b) { return _mm512_min_##s(a, b); }                      \
    static SIMD t##x t##_unless_below(t##x l, t##x x, t##x a) {                                    \
        return _mm512_maskz_mov_##s(_mm512_cmp_##s##_mask(x, l, _CMP_NLT_UQ), a);                  \
    }                                                                                              \
    static SIMD t##x t##_pick(t##m m, t##x a, t##x b) { return _mm512_mask_blend_##s(m, b, a); }
SIMD_ALL(f32, ps, float)
SIMD_ALL(f64, pd, double)
#undef SIMD_ALL

static SIMD f32x f32_power(f32x t) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(t), 23));
}
static SIMD f64x f64_power(f64x t) {
    return _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_castpd_si512(t), 52));
}

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
static SIMD void f32_to_pairs(uint32_t *p, f32x low, f32x high) {
    __m512i a = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low));
    __m512i b = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high));
    _mm512_storeu_si512(p, _mm512_or_si512(a, _mm512_slli_epi32(b, 16)));
}
#endif

#endif
