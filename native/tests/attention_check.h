/* What the tests of both passes of attention share: numbers, elements, and arrays of them. */
#ifndef BACKENDCFG_ATTENTION_CHECK_H
#define BACKENDCFG_ATTENTION_CHECK_H

#include <math.h>

#include "../src/kernels/attention_inputs.h"
#include "check.h"

typedef enum { NO_MASK, BOOLS, ADDED, MASKS } mask_kind;

/* The next of a fixed sequence of numbers. */
static inline int64_t any_number(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int64_t)state;
}

static inline int64_t size_of(int32_t element) {
    return element == BCFG_FLOAT64 ? 8 : element == BCFG_FLOAT32 ? 4 : 2;
}

/* bfloat16 is rounded; float16 must hold the value exactly, and normally or as 0 or infinity. */
static inline void store(int32_t element, char *to, double value) {
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, 4);
    uint16_t half = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    if (element == BCFG_FLOAT16) {
        half = (uint16_t)(bits >> 16 & 0x8000);
        if ((bits & 0x7fffffff) == 0x7f800000) half |= 0x7c00;
        else if (bits & 0x7fffffff) half |= (uint16_t)(((bits & 0x7fffffff) - 0x38000000) >> 13);
    }
    if (value != value) half = element == BCFG_FLOAT16 ? 0x7e00 : 0x7fc0;
    if (element == BCFG_FLOAT64) memcpy(to, &value, 8);
    else if (element == BCFG_FLOAT32) memcpy(to, &narrow, 4);
    else memcpy(to, &half, 2);
}

static inline double load(int32_t element, const char *from) {
    double value;
    float narrow;
    uint16_t half;
    if (element == BCFG_FLOAT64) return memcpy(&value, from, 8), value;
    if (element == BCFG_FLOAT32) return memcpy(&narrow, from, 4), narrow;
    memcpy(&half, from, 2);
    uint32_t bits = (uint32_t)half << 16;
    if (element == BCFG_BFLOAT16) return memcpy(&narrow, &bits, 4), narrow;
    double sign = half & 0x8000 ? -1 : 1, fraction = half & 0x3ff;
    int exponent = half >> 10 & 31;
    return exponent == 0 ? sign * ldexp(fraction, -24)
                         : sign * ldexp(fraction + 1024, exponent - 25);
}

static inline char *place(const attention_array *array, int64_t b, int64_t h, int64_t l,
                          int64_t d) {
    return array->data + b * array->strides[0] + h * array->strides[1] + l * array->strides[2] +
           d * array->strides[3];
}

/* An array of the shape s in memory: dense, or spread as (batch, length, heads, width) with every
 * second number its own. Filled from dense numbers, or with NaN where there are none. */
static inline attention_array lay_out(char *memory, const int64_t s[4], int32_t element,
                                      bool is_spread, const double *from) {
    int64_t size = size_of(element), row = s[3] * size, all = s[1] * s[2] * row;
    attention_array dense = {memory, {all, s[2] * row, row, size}};
    attention_array spread = {memory, {2 * all, 2 * row, 2 * s[1] * row, 2 * size}};
    attention_array array = is_spread ? spread : dense;
    for (int64_t b = 0; b < s[0]; b++)
        for (int64_t h = 0; h < s[1]; h++)
            for (int64_t l = 0; l < s[2]; l++)
                for (int64_t d = 0; d < s[3]; d++)
                    store(element, place(&array, b, h, l, d), from == NULL ? NAN : *from++);
    return array;
}

/* Writes a mask (batch, 1, queries, keys) of a bias, which is minus infinity where a bool is false;
 * its memory is `scores` elements, or bytes for bools. */
static inline attention_array lay_mask(char *memory, mask_kind kind, int32_t element,
                                       int64_t scores, int64_t queries, int64_t keys,
                                       const double *bias) {
    int64_t size = kind == BOOLS ? 1 : size_of(element);
    for (int64_t i = 0; i < scores; i++) {
        if (kind == BOOLS) memory[i] = bias[i] == 0;
        else store(element, memory + i * size, bias[i]);
    }
    return (attention_array){kind == NO_MASK ? NULL : memory,
                             {queries * keys * size, 0, keys * size, size}};
}

#endif
