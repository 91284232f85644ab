/* The forward pass of attention: what its driver tells the kernels of an instruction set. */
#ifndef BACKENDCFG_ATTENTION_H
#define BACKENDCFG_ATTENTION_H

#include "attention_inputs.h"
#include "backendcfg.h"

enum {
    ATTENTION_ROWS = 96,  /* queries of a block, whose scores are kept in cache */
    ATTENTION_KEYS = 256, /* keys of a step of the online softmax */
    ATTENTION_FEW = 4,    /* up to so many rows to a head of keys, keys are not transposed */
    ATTENTION_SPLIT = 1024 /* keys of a task where all rows of a head of keys are one block */
};

typedef struct {
    attention_inputs in;
    bool streams;          /* keep no packed keys and values but a step's, for each worker */
    attention_array out;   /* its last stride is that of dense rows */
    void *logsumexp;       /* (batch, heads, queries), dense, float32 or float64 as the work */

    /* Set by the driver. "A head of keys" is one of batch * key_heads; the `group` heads of queries
     * that read it are worked on together, `stacked` of them in a block of rows. */
    int64_t group, stacked, blocks; /* blocks of rows to a head of keys */
    int64_t split, splits;          /* keys to a part, and parts */
    bool pairs;                     /* products of pairs of bfloat16 */
    bool few;                       /* scores by dot products along the width */
    bool in_place;                  /* values are multiplied where they lie */
    int64_t depth;                  /* steps of a score's chain, some of them zeros */
    int64_t tile_rows;              /* rows of a tile; buffers of rows are padded to a multiple */
    int64_t out_row;                /* numbers from row to row of a block's output */
    int64_t real;                   /* bytes of a number of the work */
    int64_t key_bytes, value_bytes; /* of a step's packed keys and values */
    char *packed;                   /* for all steps of the heads of this round, or NULL */
    int64_t first_head;             /* the first head of keys of this round */
    char *parts;                    /* results of the parts before they are merged, or NULL */
    int64_t part_bytes;
} attention_job;

/* The kernels of one kind of arithmetic. */
typedef struct {
    int32_t columns; /* keys of a packed panel */
    int32_t rows;    /* of a tile, that lie in memory whether they are needed or not */
    int32_t at_once; /* steps of a chain that a tile takes at once */
    /* Packs step `step` of a head of keys into job->packed. */
    void (*pack)(const attention_job *job, int64_t head, int64_t step, void *scratch);
    /* One block of rows over one part of the keys; writes the result, or the part's. */
    void (*block)(const attention_job *job, int64_t head, int64_t block, int64_t part,
                  void *scratch);
    /* Merges the parts of a head of keys, in ascending order, and writes the result. */
    void (*merge)(const attention_job *job, int64_t head, void *scratch);
} attention_kernels;

/* Computes the output; the job is filled in but for what the driver sets. threads 0: those of the
 * team. The bits depend on neither `threads` nor the other heads and batches.
 * Errors: BCFG_E_MEMORY; nothing is written then. */
bcfg_status bcfg_attention(attention_job *job, int32_t threads, bcfg_error *error);

static inline int64_t attention_up(int64_t count, int64_t multiple) {
    return (count + multiple - 1) / multiple * multiple;
}

/* Whether scores are dot products along the width: their bits are others than those of tiles. */
static inline bool attention_is_few(const attention_inputs *in) {
    return in->heads / in->key_heads * in->queries <= ATTENTION_FEW;
}

static inline int64_t attention_steps(const attention_job *job) {
    return (job->in.keys + ATTENTION_KEYS - 1) / ATTENTION_KEYS;
}

/* Rows of a block: those of `stacked` heads, or a part of those of one. */
static inline int64_t attention_block_rows(const attention_job *job) {
    int64_t rows = job->stacked * job->in.queries;
    return rows < ATTENTION_ROWS ? rows : ATTENTION_ROWS;
}

/* Where the parts of a worker's scratch begin, in bytes. */
typedef struct {
    int64_t query, scores, weights, output, highest, sum, bias, drop, seen, keys, values, rows, end;
} attention_scratch;

static inline attention_scratch attention_layout(const attention_job *job) {
    attention_scratch at;
    int64_t rows = attention_block_rows(job), offset = 0;
    int64_t padded = attention_up(rows, job->tile_rows);
    int64_t widest = job->in.width > job->in.value_width ? job->in.width : job->in.value_width;
#define PLACE(name, bytes) (at.name = offset, offset += attention_up(bytes, 64))
    PLACE(query, padded * attention_up(job->in.width, 16) * job->real);
    PLACE(scores, job->tile_rows * ATTENTION_KEYS * job->real);
    PLACE(weights, job->pairs ? job->tile_rows * ATTENTION_KEYS * 2 : 0);
    PLACE(output, padded * job->out_row * job->real);
    PLACE(highest, rows * job->real);
    PLACE(sum, rows * job->real);
    PLACE(bias, ATTENTION_KEYS * job->real);
    PLACE(drop, ATTENTION_KEYS * 4);
    PLACE(seen, rows * 8);
    PLACE(keys, job->few ? 0 : job->key_bytes);
    PLACE(values, job->in_place ? 0 : job->value_bytes);
    PLACE(rows, 16 * attention_up(widest, 16) * job->real);
#undef PLACE
    at.end = offset;
    return at;
}

#endif
