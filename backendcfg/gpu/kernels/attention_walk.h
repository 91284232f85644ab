/* What a block of attention_efficient_backward.cu works on, and how it comes there: the argument, the tiles
 * of scores that a block walks over, and the parts of a step. The macros are those of the kernel. */
#ifndef BACKENDCFG_ATTENTION_WALK_H
#define BACKENDCFG_ATTENTION_WALK_H

#include "attention_slices.h"

#define OF_QUERY 0
#define OF_KEY 1
#define OF_VALUE 2
#define OF_MASK 3

enum {
    BY_KEYS = OF == OF_KEY || OF == OF_VALUE, /* a block's own rows are keys */
    QUERY_ROWS = BY_KEYS ? KEYS : ROWS,       /* of a step */
    KEY_ROWS = BY_KEYS ? ROWS : KEYS,
    LINES = BY_KEYS ? OWN_KEYS : OWN_ROWS /* queries of a thread */
};

/* Strides count numbers: batch, head, row, column. Mirrored by `EfficientBackwardArguments` in
 * backendcfg/gpu/attention/efficient.py. */
typedef struct {
    const void *query, *key, *value, *mask, *grad_out;
    const void *logsumexp, *delta; /* (batch, heads, queries), dense, of `real` */
    void *gradient;
    long long query_strides[4], key_strides[4], value_strides[4], mask_strides[4];
    long long grad_out_strides[4], gradient_strides[4];
    unsigned long long seed, threshold; /* words of the generator below it are dropped */
    double scale, factor;               /* in units of ln 2; what a sum is multiplied by */
    double kept;                        /* what a weight that is not dropped is multiplied by */
    int batch, heads, key_group, value_group; /* of queries; of their heads, to one of keys, of values */
    int queries, keys, width, value_width;
    int columns;        /* of the gradient */
    int blocks, panels; /* along the rows of a head, and along columns */
    int unused;
    int mask_sizes[4]; /* (batch, heads, queries, keys); 1 where the mask is broadcast */
} backward_arguments;

/* The tile of scores of a step; heads are those of queries. */
typedef struct {
    int batch, head, query, key;
} place;

/* What a block walks over: from a place on, so many steps in each dimension. */
typedef struct {
    place from, steps;
} walk;

/* Rows of an array of one head, from the first of a step on. */
typedef struct {
    const void *from;
    long long row, row_step, column_step;
    int rows, columns; /* that there are */
} side;

/* --- what a block works on --------------------------------------------------------------------- */

DEVICE int steps_of(int rows, int step) { return (rows + step - 1) / step; }

DEVICE place place_at(const walk *way, long long step) {
    place at = way->from;
    at.key += (int)(step % way->steps.key) * KEY_ROWS, step /= way->steps.key;
    at.query += (int)(step % way->steps.query) * QUERY_ROWS, step /= way->steps.query;
    at.head += (int)(step % way->steps.head);
    at.batch += (int)(step / way->steps.head);
    return at;
}

/* The walk of a block. Its owner is a head that has a gradient of its own, counted through the batch; or a
 * plane of the mask. */
DEVICE walk walk_of(const backward_arguments *job, int owner, int block) {
    walk way = {{0, 0, 0, 0}, {1, 1, 1, 1}};
    if (OF == OF_MASK) {
        const int *sizes = job->mask_sizes;
        int across = sizes[3] == 1 ? 1 : steps_of(job->keys, KEYS);
        way.from.batch = owner / sizes[1], way.from.head = owner % sizes[1];
        way.from.query = block / across * ROWS, way.from.key = block % across * KEYS;
        if (sizes[0] == 1) way.steps.batch = job->batch;
        if (sizes[1] == 1) way.steps.head = job->heads;
        if (sizes[2] == 1) way.steps.query = steps_of(job->queries, ROWS);
        if (sizes[3] == 1) way.steps.key = steps_of(job->keys, KEYS);
        return way;
    }
    int group = OF == OF_KEY ? job->key_group : OF == OF_VALUE ? job->value_group : 1;
    int heads = job->heads / group;
    way.from.batch = owner / heads, way.from.head = owner % heads * group;
    way.steps.head = group;
    if (BY_KEYS) {
        way.from.key = block * ROWS;
        if (CAUSAL) way.from.query = way.from.key / KEYS * KEYS;
        way.steps.query = way.from.query < job->queries
                              ? steps_of(job->queries - way.from.query, KEYS)
                              : 0;
    } else {
        way.from.query = block * ROWS;
        int seen = job->keys;
        if (CAUSAL && seen > way.from.query + ROWS) seen = way.from.query + ROWS;
        way.steps.key = steps_of(seen, KEYS);
    }
    return way;
}

DEVICE side side_of(const void *from, const long long strides[4], int batch, int head, int row,
                    int rows, int columns) {
    side it = {from,       batch * strides[0] + head * strides[1] + row * strides[2],
               strides[2], strides[3], rows - row, columns};
    return it;
}
DEVICE side queries_at(const backward_arguments *job, const place *at) {
    return side_of(job->query, job->query_strides, at->batch, at->head, at->query, job->queries,
                   job->width);
}
DEVICE side gradients_at(const backward_arguments *job, const place *at) {
    return side_of(job->grad_out, job->grad_out_strides, at->batch, at->head, at->query,
                   job->queries, job->value_width);
}
DEVICE side keys_at(const backward_arguments *job, const place *at) {
    return side_of(job->key, job->key_strides, at->batch, at->head / job->key_group, at->key,
                   job->keys, job->width);
}
DEVICE side values_at(const backward_arguments *job, const place *at) {
    return side_of(job->value, job->value_strides, at->batch, at->head / job->value_group, at->key,
                   job->keys, job->value_width);
}

/* --- parts of a step ---------------------------------------------------------------------------- */

/* A step has parts, each of which is brought while the one before is multiplied: slices of queries and
 * keys, then of the result's gradient and values, then rows of the other side. */
DEVICE int slices_of(int width) { return (width + SLICE - 1) / SLICE; }

DEVICE chunk fetch_row(const side *it, int row, int column) {
    return fetch_chunk(it->from, it->row + row * it->row_step, it->column_step, column, it->columns,
                       row < it->rows);
}

DEVICE void fetch_part(chunk held[HELD], const backward_arguments *job, const place *at, int part,
                       int panel) {
    int slices = slices_of(job->width), scored = slices;
    if (OF != OF_VALUE) scored += slices_of(job->value_width);
    if (part < scored) {
        bool second = part >= slices;
        side queries = second ? gradients_at(job, at) : queries_at(job, at);
        side keys = second ? values_at(job, at) : keys_at(job, at);
        int first = (second ? part - slices : part) * SLICE;
        side own = BY_KEYS ? keys : queries, other = BY_KEYS ? queries : keys;
        UNROLL
        for (int turn = 0; turn < HELD; turn++) {
            int index = (int)thread_index_anew() + turn * THREADS;
            int row = index / (SLICE / PACK), column = first + index % (SLICE / PACK) * PACK;
            held[turn] = row < ROWS ? fetch_row(&own, row, column)
                                    : fetch_row(&other, row - ROWS, column);
        }
    } else {
        side other = OF == OF_QUERY ? keys_at(job, at)
                     : OF == OF_KEY ? queries_at(job, at)
                                    : gradients_at(job, at);
        int first = (part - scored) * VALUE_KEYS;
        UNROLL
        for (int turn = 0; turn * THREADS < VALUE_CHUNKS; turn++) {
            int index = (int)thread_index_anew() + turn * THREADS;
            held[turn] = fetch_row(&other, first + index / (COLUMNS / PACK),
                                   panel * COLUMNS + index % (COLUMNS / PACK) * PACK);
        }
    }
}

#endif
