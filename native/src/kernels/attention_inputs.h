/* What both passes of attention read: its arrays and its numbers. */
#ifndef BACKENDCFG_ATTENTION_INPUTS_H
#define BACKENDCFG_ATTENTION_INPUTS_H

#include <stdbool.h>
#include <stdint.h>

/* Elements that are read and written. The work itself is in float32, or float64 for FLOAT64. */
typedef enum {
    ATTENTION_FLOAT32,
    ATTENTION_FLOAT64,
    ATTENTION_BFLOAT16,
    ATTENTION_FLOAT16,
    ATTENTION_BOOL /* masks only: whether a key is seen */
} attention_element;

/* A four-dimensional array, (batch, heads, length, width); strides in bytes. */
typedef struct {
    char *data;
    int64_t strides[4];
} attention_array;

typedef struct {
    attention_element element, mask_element;
    int64_t batch, heads, key_heads, queries, keys, width, value_width;
    bool is_causal;
    double scale, dropout;
    uint64_t seed;
    attention_array query, key, value, mask; /* mask.data is NULL for none */
} attention_inputs;

#endif
