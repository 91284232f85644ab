/* What both passes of attention read: its arrays and its numbers. */
#ifndef BACKENDCFG_ATTENTION_INPUTS_H
#define BACKENDCFG_ATTENTION_INPUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "backendcfg.h"

/* What a mask may hold beside numbers: whether a key is seen. */
enum { ATTENTION_BOOL = BCFG_ELEMENTS };

/* A four-dimensional array, (batch, heads, length, width); strides in bytes. */
typedef struct {
    char *data;
    int64_t strides[4];
} attention_array;

static inline char *attention_at(const attention_array *array, int64_t batch, int64_t head,
                                 int64_t row) {
    return array->data + batch * array->strides[0] + head * array->strides[1] +
           row * array->strides[2];
}

/* `element` is float32, float64, bfloat16 or float16. The work itself is in float32, or float64 for
 * float64. */
typedef struct {
    int32_t element, mask_element;
    int64_t batch, heads, key_heads, queries, keys, width, value_width;
    bool is_causal;
    bool everywhere; /* with bits that are the same on every instruction set */
    double scale, dropout;
    uint64_t seed;
    attention_array query, key, value, mask; /* mask.data is NULL for none */
} attention_inputs;

#endif
