/* Vectors of 16 float32 or 8 float64 as pairs of AVX2's, with FMA and F16C; see simd_avx512.h. */
#ifndef BACKENDCFG_SIMD_H
#define BACKENDCFG_SIMD_H

#include <immintrin.h>
#include <stdint.h>

#define SIMD inline __attribute__((always_inline))

typedef struct { __m256 low, high; } f32x;
typedef struct { __m256d low, high; } f64x;
typedef struct { __m256i low, high; } f32m;
typedef struct { __m256i low, high; } f64m;
enum { F32_LANES = 16, F64_LANES = 8, TILE_VECTORS = 1 };

static SIMD f32m f32_first(int64_t n) {
    __m256i count = _mm256_set1_epi32((int)n);
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (f32m){_mm256_cmpgt_epi32(count, lane),
                  _mm256_cmpgt_epi32(count, _mm256_add_epi32(lane, _mm256_set1_epi32(8)))};
}
static SIMD f64m f64_first(int64_t n) {
    __m256i count = _mm256_set1_epi64x(n), lane = _mm256_setr_epi64x(0, 1, 2, 3);
    return (f64m){_mm256_cmpgt_epi64(count, lane),
                  _mm256_cmpgt_epi64(count, _mm256_add_epi64(lane, _mm256_set1_epi64x(4)))};
}

#define SIMD_BOTH(t, s, scalar, vector, half, castm)                                               \
    static SIMD t##x t##_load(const scalar *p) {                                                   \
        return (t##x){_mm256_loadu_##s(p), _mm256_loadu_##s(p + half)};                            \
    }                                                                                              \
    static SIMD void t##_store(scalar *p, t##x a) {                                                \
        _mm256_storeu_##s(p, a.low);                                                               \
        _mm256_storeu_##s(p + half, a.high);                                                       \
    }                                                                                              \
    static SIMD t##x t##_load_first(t##m m, const scalar *p) {                                     \
        return (t##x){_mm256_maskload_##s(p, m.low), _mm256_maskload_##s(p + half, m.high)};       \
    }                                                                                              \
    static SIMD void t##_store_first(t##m m, scalar *p, t##x a) {                                  \
        _mm256_maskstore_##s(p, m.low, a.low);                                                     \
        _mm256_maskstore_##s(p + half, m.high, a.high);                                            \
    }                                                                                              \
    static SIMD t##x t##_set(scalar a) {                                                           \
        vector both = _mm256_set1_##s(a);                                                          \
        return (t##x){both, both};                                                                 \
    }                                                                                              \
    static SIMD t##x t##_fma(t##x a, t##x b, t##x c) {                                             \
        return (t##x){_mm256_fmadd_##s(a.low, b.low, c.low),                                       \
                      _mm256_fmadd_##s(a.high, b.high, c.high)};                                   \
    }                                                                                              \
    static SIMD t##x t##_fms(t##x a, t##x b, t##x c) {                                             \
        return (t##x){_mm256_fmsub_##s(a.low, b.low, c.low),                                       \
                      _mm256_fmsub_##s(a.high, b.high, c.high)};                                   \
    }                                                                                              \
    static SIMD t##x t##_pick(t##m m, t##x a, t##x b) {                                            \
        return (t##x){_mm256_blendv_##s(b.low, a.low, castm(m.low)),                               \
                      _mm256_blendv_##s(b.high, a.high, castm(m.high))};                           \
    }
SIMD_BOTH(f32, ps, float, __m256, 8, _mm256_castsi256_ps)
SIMD_BOTH(f64, pd, double, __m256d, 4, _mm256_castsi256_pd)
#undef SIMD_BOTH

#define SIMD_TWO(t, s, op)                                                                         \
    static SIMD t##x t##_##op(t##x a, t##x b) {                                                    \
        return (t##x){_mm256_##op##_##s(a.low, b.low), _mm256_##op##_##s(a.high, b.high)};         \
    }
SIMD_TWO(f32, ps, add)
SIMD_TWO(f64, pd, add)
SIMD_TWO(f32, ps, sub)
SIMD_TWO(f64, pd, sub)
SIMD_TWO(f32, ps, mul)
SIMD_TWO(f64, pd, mul)
SIMD_TWO(f32, ps, max)
SIMD_TWO(f64, pd, max)
SIMD_TWO(f32, ps, min)
SIMD_TWO(f64, pd, min)
#undef SIMD_TWO

static SIMD f32m f32_where(const uint8_t *p) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    __m128i none = _mm_cmpeq_epi8(bytes, _mm_setzero_si128());
    __m128i some = _mm_xor_si128(none, _mm_set1_epi8(-1));
    return (f32m){_mm256_cvtepi8_epi32(some), _mm256_cvtepi8_epi32(_mm_srli_si128(some, 8))};
}
static SIMD f64m f64_where(const uint8_t *p) {
    __m128i bytes = _mm_loadl_epi64((const __m128i *)p);
    __m128i none = _mm_cmpeq_epi8(bytes, _mm_setzero_si128());
    __m128i some = _mm_xor_si128(none, _mm_set1_epi8(-1));
    return (f64m){_mm256_cvtepi8_epi64(some), _mm256_cvtepi8_epi64(_mm_srli_si128(some, 4))};
}

static SIMD __m256 f32_power_half(__m256 t) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23));
}
static SIMD __m256d f64_power_half(__m256d t) {
    return _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(t), 52));
}
#define SIMD_HALVES(t, s)                                                                          \
    static SIMD t##x t##_power(t##x a) {                                                           \
        return (t##x){t##_power_half(a.low), t##_power_half(a.high)};                              \
    }                                                                                              \
    static SIMD t##x t##_unless_below(t##x l, t##x x, t##x a) {                                    \
        return (t##x){_mm256_and_##s(_mm256_cmp_##s(x.low, l.low, _CMP_NLT_UQ), a.low),            \
                      _mm256_and_##s(_mm256_cmp_##s(x.high, l.high, _CMP_NLT_UQ), a.high)};        \
    }
SIMD_HALVES(f32, ps)
SIMD_HALVES(f64, pd)
#undef SIMD_HALVES

#define SIMD_REDUCE(name, op)                                                                      \
    static SIMD float f32_##name(f32x a) {                                                         \
        __m256 b = _mm256_##op##_ps(a.low, a.high);                                                \
        __m128 c = _mm_##op##_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));          \
        c = _mm_##op##_ps(c, _mm_movehl_ps(c, c));                                                 \
        return _mm_cvtss_f32(_mm_##op##_ss(c, _mm_movehdup_ps(c)));                                \
    }                                                                                              \
    static SIMD double f64_##name(f64x a) {                                                        \
        __m256d b = _mm256_##op##_pd(a.low, a.high);                                               \
        __m128d c = _mm_##op##_pd(_mm256_castpd256_pd128(b), _mm256_extractf128_pd(b, 1));         \
        return _mm_cvtsd_f64(_mm_##op##_sd(c, _mm_unpackhi_pd(c, c)));                             \
    }
SIMD_REDUCE(sum, add)
SIMD_REDUCE(highest, max)
#undef SIMD_REDUCE

static SIMD __m256 f32_from_bfloat16_half(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static SIMD f32x f32_from_bfloat16(const uint16_t *p) {
    return (f32x){f32_from_bfloat16_half(p), f32_from_bfloat16_half(p + 8)};
}
static SIMD f32x f32_from_float16(const uint16_t *p) {
    return (f32x){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
static SIMD void f32_to_float16(uint16_t *p, f32x a) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT));
}
static SIMD __m256i f32_to_bfloat16_half(__m256 a) {
    __m256i bits = _mm256_castps_si256(a);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256 none = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
    up = _mm256_blendv_epi8(up, quiet, _mm256_castps_si256(none));
    return _mm256_srli_epi32(up, 16);
}
static SIMD void f32_to_bfloat16(uint16_t *p, f32x a) {
    __m256i both = _mm256_packus_epi32(f32_to_bfloat16_half(a.low), f32_to_bfloat16_half(a.high));
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(both, 0xd8));
}

#endif
