/* Squares of a matrix, transposed in registers: to[i][j] = from[j][i]. Rows are `..._row` elements
 * apart. The same for AVX2 and AVX-512; without either, plain loops. */
#ifndef BACKENDCFG_SIMD_TRANSPOSE_H
#define BACKENDCFG_SIMD_TRANSPOSE_H

enum { F32_SQUARE = 8, F64_SQUARE = 4 };

#ifdef __AVX2__
static SIMD void f32_square(float *to, int64_t to_row, const float *from, int64_t from_row) {
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_ps(from + i * from_row);
    for (int i = 0; i < 4; i++) {
        b[2 * i] = _mm256_unpacklo_ps(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm256_unpackhi_ps(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * to_row, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * to_row, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    }
}
static SIMD void f64_square(double *to, int64_t to_row, const double *from, int64_t from_row) {
    __m256d a[4], b[4];
    for (int i = 0; i < 4; i++) a[i] = _mm256_loadu_pd(from + i * from_row);
    for (int i = 0; i < 4; i += 2) {
        b[i] = _mm256_unpacklo_pd(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_pd(a[i], a[i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        _mm256_storeu_pd(to + i * to_row, _mm256_permute2f128_pd(b[i], b[i + 2], 0x20));
        _mm256_storeu_pd(to + (i + 2) * to_row, _mm256_permute2f128_pd(b[i], b[i + 2], 0x31));
    }
}
#else
#define SIMD_SQUARE(name, scalar, size)                                                            \
    static SIMD void name(scalar *to, int64_t to_row, const scalar *from, int64_t from_row) {      \
        for (int i = 0; i < (size); i++)                                                           \
            for (int j = 0; j < (size); j++)                                                       \
                memcpy(to + i * to_row + j, (const char *)(from + j * from_row + i),               \
                       sizeof(scalar));                                                            \
    }
SIMD_SQUARE(f32_square, float, F32_SQUARE)
SIMD_SQUARE(f64_square, double, F64_SQUARE)
#undef SIMD_SQUARE
#endif

#endif
