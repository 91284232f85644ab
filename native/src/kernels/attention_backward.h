/* The backward pass of attention: what its driver tells the kernels of an instruction set. */
#ifndef BACKENDCFG_ATTENTION_BACKWARD_H
#define BACKENDCFG_ATTENTION_BACKWARD_H

#include <stdatomic.h>

#include "attention_inputs.h"
#include "backendcfg.h"

/* Rows of queries that are worked on at once, and the most keys that one task owns. The results do
 * not depend on either, if both are multiples of 32: every sum is one chain in a fixed order, which
 * pairs of bfloat16 are cut out of at even places, and tiles at multiples of 32. */
enum { BACKWARD_ROWS = 96, BACKWARD_KEYS = 256, BACKWARD_ALIGN = 16 };

typedef struct {
    attention_inputs in;
    /* logsumexp is (batch, heads, queries) with its last stride 0, in float32 or float64 as the
     * work. */
    attention_array grad_out, out, logsumexp;
    attention_array grad_query, grad_key, grad_value;

    /* Set by the driver. */
    int64_t keys_per_task;
    attention_array query_sum; /* where grad_query is summed: itself, or in float32 beside it */
    void *delta;            /* (batch, heads, queries): sum of grad_out * out over the width */
    _Atomic int64_t *done;  /* by task: how many steps have been added to query_sum */
} backward_job;

/* The kernels. `head` is one of batch * heads; `task` one of those of a head * batch * key_heads, of
 * which all of a lower number must be finished, or running in other threads. */
typedef struct {
    /* The rows of query_sum are a multiple of it for each head: tiles write all of theirs. */
    int64_t sum_rows;
    /* Numbers that a worker needs for its tasks. */
    int64_t (*workspace)(const backward_job *job);
    /* Fills in delta of some rows of a head. */
    void (*begin)(const backward_job *job, void *workspace, int64_t head, int64_t first,
                  int64_t rows);
    /* Gradients of a block of keys and values, and its share of query_sum. */
    void (*block)(const backward_job *job, void *workspace, int64_t task);
    /* Writes some rows of query_sum to grad_query. */
    void (*finish)(const backward_job *job, int64_t head, int64_t first, int64_t rows);
} backward_kernels;

/* Computes the gradients; the job is filled in but for what the driver sets. threads 0: those of the
 * team. The bits do not depend on `threads`. Errors: BCFG_E_MEMORY; nothing is written then. */
bcfg_status bcfg_attention_backward(backward_job *job, int32_t threads, bcfg_error *error);

/* Up to a multiple of BACKWARD_ALIGN. */
static inline int64_t backward_padded(int64_t count) {
    return (count + BACKWARD_ALIGN - 1) / BACKWARD_ALIGN * BACKWARD_ALIGN;
}

/* The same, and an odd multiple: rows that far apart do not share their sets of the cache. */
static inline int64_t backward_skewed(int64_t count) {
    return backward_padded(count) | BACKWARD_ALIGN;
}

#endif
