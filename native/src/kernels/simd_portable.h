/* Vectors of 16 float32 or 8 float64 in plain C, for any CPU; see simd_avx512.h. */
#ifndef BACKENDCFG_SIMD_H
#define BACKENDCFG_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define SIMD inline __attribute__((always_inline))

enum { F32_LANES = 16, F64_LANES = 8, TILE_VECTORS = 1 };
typedef struct { float lane[F32_LANES]; } f32x;
typedef struct { double lane[F64_LANES]; } f64x;
typedef struct { uint8_t lane[F32_LANES]; } f32m;
typedef struct { uint8_t lane[F64_LANES]; } f64m;

#define SIMD_EACH(lanes) for (int i = 0; i < (lanes); i++)
#define SIMD_ALL(t, scalar, lanes, fused, whole, mantissa)                                         \
    static SIMD t##m t##_first(int64_t n) {                                                        \
        t##m m;                                                                                    \
        SIMD_EACH(lanes) m.lane[i] = i < n;                                                        \
        return m;                                                                                  \
    }                                                                                              \
    static SIMD t##m t##_where(const uint8_t *p) {                                                 \
        t##m m;                                                                                    \
        SIMD_EACH(lanes) m.lane[i] = p[i] != 0;                                                    \
        return m;                                                                                  \
    }                                                                                              \
    static SIMD t##x t##_load(const scalar *p) {                                                   \
        t##x a;                                                                                    \
        memcpy(a.lane, p, sizeof a.lane);                                                          \
        return a;                                                                                  \
    }                                                                                              \
    static SIMD void t##_store(scalar *p, t##x a) { memcpy(p, a.lane, sizeof a.lane); }            \
    static SIMD t##x t##_load_first(t##m m, const scalar *p) {                                     \
        t##x a = {{0}};                                                                            \
        SIMD_EACH(lanes) if (m.lane[i]) memcpy(a.lane + i, p + i, sizeof *p);                      \
        return a;                                                                                  \
    }                                                                                              \
    static SIMD void t##_store_first(t##m m, scalar *p, t##x a) {                                  \
        SIMD_EACH(lanes) if (m.lane[i]) p[i] = a.lane[i];                                          \
    }                                                                                              \
    static SIMD t##x t##_set(scalar value) {                                                       \
        t##x a;                                                                                    \
        SIMD_EACH(lanes) a.lane[i] = value;                                                        \
        return a;                                                                                  \
    }                                                                                              \
    static SIMD t##x t##_fma(t##x a, t##x b, t##x c) {                                             \
        SIMD_EACH(lanes) c.lane[i] = fused(a.lane[i], b.lane[i], c.lane[i]);                       \
        return c;                                                                                  \
    }                                                                                              \
    static SIMD t##x t##_fms(t##x a, t##x b, t##x c) {                                             \
        SIMD_EACH(lanes) c.lane[i] = fused(a.lane[i], b.lane[i], -c.lane[i]);                      \
        return c;                                                                                  \
    }                                                                                              \
    static SIMD t##x t##_add(t##x a, t##x b) {                                                     \
        SIMD_EACH(lanes) a.lane[i] += b.lane[i];                                                   \
        return a;                                                                                  \
    }                                                                                              \
    static SIMD t##x t##_sub(t##x a, t##x b) {                                                     \
        SIMD_EACH(lanes) a.lane[i] -= b.lane[i];                                                   \
        return a;                                                                                  \
    }                                                                                              \
    static SIMD t##x t##_mul(t##x a, t##x b) {                                                     \
        SIMD_EACH(lanes) a.lane[i] *= b.lane[i];                                                   \
        return a;                                                                                  \
    }                                                                                              \
    static SIMD t##x t##_max(t##x a, t##x b) {                                                     \
        SIMD_EACH(lanes) a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];                \
        return a;                                                                                  \
    }                                                                                              \
    static SIMD t##x t##_min(t##x a, t##x b) {                                                     \
        SIMD_EACH(lanes) a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];                \
        return a;                                                                                  \
    }                                                                                              \
    static SIMD t##x t##_power(t##x a) {                                                           \
        whole bits[lanes];                                                                         \
        memcpy(bits, a.lane, sizeof bits);                                                         \
        SIMD_EACH(lanes) bits[i] <<= mantissa;                                                     \
        memcpy(a.lane, bits, sizeof bits);                                                         \
        return a;                                                                                  \
    }                                                                                              \
    static SIMD t##x t##_unless_below(t##x l, t##x x, t##x a) {                                    \
        SIMD_EACH(lanes) a.lane[i] = x.lane[i] < l.lane[i] ? 0 : a.lane[i];                        \
        return a;                                                                                  \
    }                                                                                              \
    static SIMD t##x t##_pick(t##m m, t##x a, t##x b) {                                            \
        SIMD_EACH(lanes) a.lane[i] = m.lane[i] ? a.lane[i] : b.lane[i];                            \
        return a;                                                                                  \
    }                                                                                              \
    static SIMD scalar t##_sum(t##x a) {                                                           \
        for (int half = (lanes) / 2; half > 0; half /= 2)                                          \
            SIMD_EACH(half) a.lane[i] += a.lane[i + half];                                         \
        return a.lane[0];                                                                          \
    }                                                                                              \
    static SIMD scalar t##_highest(t##x a) {                                                       \
        for (int half = (lanes) / 2; half > 0; half /= 2)                                          \
            SIMD_EACH(half) a.lane[i] =                                                            \
                a.lane[i] > a.lane[i + half] ? a.lane[i] : a.lane[i + half];                       \
        return a.lane[0];                                                                          \
    }

SIMD_ALL(f32, float, F32_LANES, fmaf, uint32_t, 23)
SIMD_ALL(f64, double, F64_LANES, fma, uint64_t, 52)
#undef SIMD_ALL

static SIMD float f32_of_bits(uint32_t bits) {
    float a;
    memcpy(&a, &bits, sizeof a);
    return a;
}
static SIMD uint32_t f32_bits(float a) {
    uint32_t bits;
    memcpy(&bits, &a, sizeof bits);
    return bits;
}
static SIMD f32x f32_from_bfloat16(const uint16_t *p) {
    uint16_t halves[F32_LANES];
    memcpy(halves, p, sizeof halves); /* which need not be aligned */
    f32x a;
    SIMD_EACH(F32_LANES) a.lane[i] = f32_of_bits((uint32_t)halves[i] << 16);
    return a;
}
static SIMD void f32_to_bfloat16(uint16_t *p, f32x a) {
    SIMD_EACH(F32_LANES) {
        uint32_t bits = f32_bits(a.lane[i]);
        uint32_t up = bits + 0x7fff + (bits >> 16 & 1);
        p[i] = (uint16_t)((a.lane[i] != a.lane[i] ? bits | 0x400000 : up) >> 16);
    }
}
/* A float16 is what its exponent and fraction say in float32's place, times 2^112. */
static SIMD float f32_of_float16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = (uint32_t)(half & 0x7fff) << 13;
    if ((half & 0x7c00) == 0x7c00) {
        uint32_t quiet = half & 0x3ff ? 0x400000u : 0;
        return f32_of_bits(sign | 0x7f800000 | (rest & 0x7fffff) | quiet);
    }
    return f32_of_bits(sign | f32_bits(f32_of_bits(rest) * 0x1p112f));
}
static SIMD uint16_t f32_float16_of(float a) {
    uint32_t bits = f32_bits(a), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x1ff));
    if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and above round to it */
    if (size < 0x38800000) {                                  /* subnormal: units of 2^-24 */
        float units = f32_of_bits(size) + 0.5f;               /* one unit of 0.5f is 2^-24 */
        return (uint16_t)(sign | (f32_bits(units) - f32_bits(0.5f)));
    }
    return (uint16_t)(sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13));
}
static SIMD f32x f32_from_float16(const uint16_t *p) {
    uint16_t halves[F32_LANES];
    memcpy(halves, p, sizeof halves);
    f32x a;
    SIMD_EACH(F32_LANES) a.lane[i] = f32_of_float16(halves[i]);
    return a;
}
static SIMD void f32_to_float16(uint16_t *p, f32x a) {
    SIMD_EACH(F32_LANES) p[i] = f32_float16_of(a.lane[i]);
}

#endif
