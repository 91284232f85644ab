/* What the kernels without tensor cores share: numbers of every element type, and masks. See
 * attention_efficient.cu, attention_gather.cu and attention_softmax.cu.
 *
 * They run on devices from sm_50 on, so they use no instruction that is newer. */
#ifndef BACKENDCFG_ATTENTION_NUMBERS_H
#define BACKENDCFG_ATTENTION_NUMBERS_H

#include "dropout.h"
#include "instructions.h"

/* Of arrays; a mask is 0 where there is none, 1 of bools, or this and 2. Mirrored by `CODES` in
 * backendcfg/gpu/attention/efficient.py. */
#define FLOAT32 0
#define FLOAT64 1
#define FLOAT16 2
#define BFLOAT16 3

#if ELEMENT == FLOAT64
typedef double real; /* what is computed with */
#else
typedef float real;
#endif

/* --- numbers of 8 bytes, and of two halves ---------------------------------------------------- */

#ifdef __CUDACC__
#define ROLLED _Pragma("unroll 1")
DEVICE double load_double(const double *from) { return __ldg(from); }
DEVICE void store_double(double *to, double it) { *to = it; }
DEVICE unsigned half_of(float it) {
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(it));
    return half;
}
/* What this kernel has written must not be read through the read-only cache. */
DEVICE half_bits reload_half(const half_bits *from) { return *from; }
DEVICE float reload_float(const float *from) { return *from; }
DEVICE double reload_double(const double *from) { return *from; }
#else
#define ROLLED
DEVICE double load_double(const double *from) { return gpu_may(from, 8, false) ? *from : 0; }
DEVICE void store_double(double *to, double it) {
    if (gpu_may(to, 8, true)) *to = it;
}
DEVICE unsigned half_of(float it) { return gpu_narrow(false, it); }
DEVICE half_bits reload_half(const half_bits *from) { return load_half(from); }
DEVICE float reload_float(const float *from) { return load_float(from); }
DEVICE double reload_double(const double *from) { return load_double(from); }
#endif

/* --- numbers of every type -------------------------------------------------------------------- */

enum { WORDS = (int)sizeof(real) / 4 };

typedef union {
    real number;
    unsigned word[WORDS];
} real_words;

/* Rounds to nearest even, with integers, because older devices have no instruction for it. */
DEVICE half_bits bfloat16_of(float it) {
    union {
        float number;
        unsigned word;
    } bits;
    bits.number = it;
    if (it != it) return 0x7fff;
    return (half_bits)((bits.word + 0x7fff + (bits.word >> 16 & 1)) >> 16);
}

DEVICE real load_number(int element, const void *from, long long place) {
    if (element == FLOAT64) return (real)load_double((const double *)from + place);
    if (element == FLOAT32) return load_float((const float *)from + place);
    return widen(element == BFLOAT16, load_half((const half_bits *)from + place));
}
DEVICE real reload_number(int element, const void *from, long long place) {
    if (element == FLOAT64) return (real)reload_double((const double *)from + place);
    if (element == FLOAT32) return reload_float((const float *)from + place);
    return widen(element == BFLOAT16, reload_half((const half_bits *)from + place));
}
DEVICE void store_number(int element, void *to, long long place, real it) {
    if (element == FLOAT64)
        store_double((double *)to + place, it);
    else if (element == FLOAT32)
        store_float((float *)to + place, (float)it);
    else
        store_half((half_bits *)to + place, element == BFLOAT16 ? bfloat16_of((float)it)
                                                                : (half_bits)half_of((float)it));
}

#if ELEMENT == FLOAT64
DEVICE real combine(real a, real b, real c) { return fma(a, b, c); }
DEVICE real raise_two(real it) { return exp2(it); }
DEVICE real logarithm(real it) { return log2(it); }
DEVICE real larger(real a, real b) { return fmax(a, b); }
#else
DEVICE real combine(real a, real b, real c) { return multiply_add(a, b, c); }
DEVICE real raise_two(real it) { return power_of_two(it); }
DEVICE real logarithm(real it) { return log2f(it); }
DEVICE real larger(real a, real b) { return greater(a, b); }
#endif

/* The number of the lane whose index differs in the bits of the mask. */
DEVICE real swap(real it, unsigned mask) {
    real_words bits;
    bits.number = it;
    UNROLL
    for (int w = 0; w < WORDS; w++) bits.word[w] = exchange_bits(bits.word[w], mask);
    return bits.number;
}

/* --- masks ------------------------------------------------------------------------------------ */

/* A scaled score in units of ln 2 with the mask. A mask of bools is added too, as minus infinity, so that
 * a score that is NaN stays NaN, as in our CPU kernels. */
DEVICE real masked(int mask, const void *from, long long place, real score) {
    if (mask == 0) return score;
    if (mask == 1)
        return score + (load_byte((const unsigned char *)from + place) ? 0 : (real)MINUS_INFINITY);
    return combine(load_number(mask - 2, from, place), (real)1.4426950408889634, score);
}

#endif
