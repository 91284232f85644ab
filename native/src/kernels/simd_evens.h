/* Every second number of two vectors: a[0], a[2], ..., b[0], b[2], ... */
#ifndef BACKENDCFG_SIMD_EVENS_H
#define BACKENDCFG_SIMD_EVENS_H

#ifdef __AVX512F__
static SIMD f32x f32_evens(f32x a, f32x b) {
    const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(a, at, b);
}
static SIMD f64x f64_evens(f64x a, f64x b) {
    return _mm512_permutex2var_pd(a, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), b);
}
#elif defined(__AVX2__)
static SIMD __m256 f32_even_half(__m256 a, __m256 b) {
    __m256d both = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)); /* a0 a2 b0 b2 a4 a6 b4 b6 */
    return _mm256_castpd_ps(_mm256_permute4x64_pd(both, 0xd8));
}
static SIMD f32x f32_evens(f32x a, f32x b) {
    return (f32x){f32_even_half(a.low, a.high), f32_even_half(b.low, b.high)};
}
static SIMD __m256d f64_even_half(__m256d a, __m256d b) {
    return _mm256_permute4x64_pd(_mm256_unpacklo_pd(a, b), 0xd8);
}
static SIMD f64x f64_evens(f64x a, f64x b) {
    return (f64x){f64_even_half(a.low, a.high), f64_even_half(b.low, b.high)};
}
#else
static SIMD f32x f32_evens(f32x a, f32x b) {
    for (int i = 0; i < F32_LANES / 2; i++) a.lane[i] = a.lane[2 * i];
    for (int i = 0; i < F32_LANES / 2; i++) a.lane[i + F32_LANES / 2] = b.lane[2 * i];
    return a;
}
static SIMD f64x f64_evens(f64x a, f64x b) {
    for (int i = 0; i < F64_LANES / 2; i++) a.lane[i] = a.lane[2 * i];
    for (int i = 0; i < F64_LANES / 2; i++) a.lane[i + F64_LANES / 2] = b.lane[2 * i];
    return a;
}
#endif

#endif
