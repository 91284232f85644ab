/* What both passes of attention read: its arrays and its numbers. */
#ifndef BACKENDCFG_ATTENTION_INPUTS_H
#define BACKENDCFG_ATTENTION_INPUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "backendcfg.h"
#include "philox.h"

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
    attention_array kept; /* bytes, 1 for each weight that is kept; where data is NULL, `seed` says */
} attention_inputs;

/* What the forward pass writes and the backward pass reads. With `kept`, results are not rounded to 16
 * bits: PyTorch's attention with dropout, which such calls stand for, has float32 there. */
static inline int32_t attention_out_element(const attention_inputs *in) {
    return in->kept.data == NULL || in->element == BCFG_FLOAT64 ? in->element : BCFG_FLOAT32;
}

/* factors[j] = 0 where key `first + j` is dropped for a query, else 1. `factors` has room as
 * `bcfg_dropout_row` says. */
static inline void attention_dropped(const attention_inputs *in, int64_t batch, int64_t head,
                                     int64_t query, int64_t first, int64_t count, float *factors) {
    if (in->kept.data == NULL) {
        bcfg_dropout_row(in->seed, in->dropout, (uint64_t)(batch * in->heads + head), query, first,
                         count, factors);
        return;
    }
    int64_t step = in->kept.strides[3];
    const char *kept = attention_at(&in->kept, batch, head, query) + first * step;
    for (int64_t j = 0; j < count; j++) factors[j] = kept[j * step];
    for (int64_t j = count; j % PHILOX_LANES != 0; j++) factors[j] = 0;
}

#endif
