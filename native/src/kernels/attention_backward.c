/* The driver of attention's backward pass: room, tasks, and their order.
 *
 * Tasks are numbered block of keys by block of keys, and each worker takes the next number. A block
 * waits, step by step, for the block before it of the same head; that one has a lower number, so
 * somebody is at it, and the block with the lowest number of all waits for nobody. */
#include "attention_backward.h"
#include "attention.h"

#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "core/team.h"
#include "kernels.h"

/* Below this many multiplications one thread is faster than waking another. */
enum { WORTH_SHARING = 1 << 20, ROWS_PER_TASK = 256 };

typedef struct {
    const backward_job *job;
    const backward_kernels *kernels;
    char *rooms;
    int64_t room, tasks, rows_per_head; /* bytes of a worker's room; tasks of block and of rows */
    _Atomic int64_t next;
} Run;

static void begin_rows(void *context, int64_t index, int32_t worker) {
    const Run *run = context;
    int64_t head = index / run->rows_per_head;
    int64_t first = index % run->rows_per_head * ROWS_PER_TASK;
    int64_t rows = run->job->in.queries - first;
    run->kernels->begin(run->job, run->rooms + worker * run->room, head, first,
                        rows < ROWS_PER_TASK ? rows : ROWS_PER_TASK);
}

static void finish_rows(void *context, int64_t index, int32_t worker) {
    (void)worker;
    const Run *run = context;
    int64_t head = index / run->rows_per_head;
    int64_t first = index % run->rows_per_head * ROWS_PER_TASK;
    int64_t rows = run->job->in.queries - first;
    run->kernels->finish(run->job, head, first, rows < ROWS_PER_TASK ? rows : ROWS_PER_TASK);
}

/* Takes blocks until there is none: in ascending order, whoever asks, because they wait for each
 * other. */
static void work_on_blocks(void *context, int64_t index, int32_t worker) {
    (void)index;
    Run *run = context;
    for (;;) {
        int64_t task = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed);
        if (task >= run->tasks) return;
        run->kernels->block(run->job, run->rooms + worker * run->room, task);
    }
}

/* Adds count * size to *total; false where it does not fit. */
static bool more_bytes(int64_t *total, int64_t count, int64_t size) {
    int64_t bytes;
    return !__builtin_mul_overflow(count, size, &bytes) &&
           !__builtin_add_overflow(bytes, 63, &bytes) &&
           !__builtin_add_overflow(*total, bytes & ~(int64_t)63, total);
}

/* Blocks small enough that each worker gets some, and that a wide one fits the cache. */
static int64_t keys_per_task(const backward_job *job, int64_t threads) {
    int64_t widest = job->in.width > job->in.value_width ? job->in.width : job->in.value_width;
    int64_t keys = widest > 1024 ? BACKWARD_KEYS / 4 : widest > 256 ? BACKWARD_KEYS / 2
                                                                    : BACKWARD_KEYS;
    int64_t heads = job->in.batch * job->in.key_heads;
    while (keys > 64 && (job->in.keys + keys - 1) / keys * heads < 2 * threads) keys /= 2;
    return job->in.keys < keys ? job->in.keys : keys;
}

/* Whether the sums can be made where grad_query is. */
static bool sums_in_place(const backward_job *job, int64_t real) {
    const attention_array *to = &job->grad_query;
    bool same = job->in.element == BCFG_FLOAT32 || job->in.element == BCFG_FLOAT64;
    return same && to->strides[3] == real && to->strides[2] % real == 0 &&
           to->strides[2] >= real * job->in.width && (uintptr_t)to->data % (uintptr_t)real == 0 &&
           to->strides[0] % real == 0 && to->strides[1] % real == 0;
}

static void clear(const backward_job *job, const attention_array *array, int64_t heads,
                  int64_t rows, int64_t width, int64_t size) {
    for (int64_t b = 0; b < job->in.batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < rows; i++)
                for (int64_t d = 0; d < width; d++)
                    memset(array->data + b * array->strides[0] + h * array->strides[1] +
                               i * array->strides[2] + d * array->strides[3],
                           0, (size_t)size);
}

static int32_t threads_for(const backward_job *job, int32_t threads) {
    double work = (double)job->in.batch * (double)job->in.heads * (double)job->in.queries *
                  (double)job->in.keys * (double)(job->in.width + job->in.value_width);
    if (work < WORTH_SHARING) return 1;
    if (threads <= 0) threads = bcfg_team_size();
    return threads > BCFG_TEAM_MOST ? BCFG_TEAM_MOST : threads;
}

bcfg_status bcfg_attention_backward(backward_job *job, int32_t threads, bcfg_error *error) {
    bool is_double = job->in.element == BCFG_FLOAT64;
    int64_t real = is_double ? 8 : 4;
    int64_t size = is_double ? 8 : job->in.element == BCFG_FLOAT32 ? 4 : 2;
    const bcfg_kernels *kernels = bcfg_kernels_for(job->in.element, job->in.everywhere);
    bcfg_kernels_served(kernels->isa);
    if (job->in.keys == 0 || job->in.batch * job->in.heads == 0) {
        clear(job, &job->grad_query, job->in.heads, job->in.queries, job->in.width, size);
        clear(job, &job->grad_key, job->in.key_heads, job->in.keys, job->in.width, size);
        clear(job, &job->grad_value, job->in.key_heads, job->in.keys, job->in.value_width, size);
        return BCFG_OK;
    }
    threads = threads_for(job, threads);
    job->keys_per_task = keys_per_task(job, threads);
    Run run = {.job = job, .kernels = kernels->of[is_double]->backward};
    bool few = attention_is_few(&job->in);
    if (job->in.element == BCFG_BFLOAT16 && kernels->pairs != NULL && !few)
        run.kernels = kernels->pairs->backward;
    run.tasks = (job->in.keys + job->keys_per_task - 1) / job->keys_per_task * job->in.batch *
                job->in.key_heads;
    run.rows_per_head = (job->in.queries + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
    if (threads > run.tasks) threads = (int32_t)run.tasks;

    int64_t heads = job->in.batch * job->in.heads, bytes = 0, rows, delta_at, done_at, sum_at;
    bool in_place = sums_in_place(job, real);
    int64_t sum_row = backward_padded(job->in.width) * real;
    bool fits = more_bytes(&bytes, run.kernels->workspace(job), real);
    run.room = bytes;
    fits = fits && !__builtin_mul_overflow(bytes, threads, &bytes) &&
           !__builtin_mul_overflow(heads, job->in.queries, &rows);
    delta_at = bytes;
    fits = fits && more_bytes(&bytes, rows, real);
    done_at = bytes;
    fits = fits && more_bytes(&bytes, run.tasks, sizeof(int64_t));
    sum_at = bytes;
    int64_t summed = attention_up(job->in.queries, run.kernels->sum_rows), sums;
    fits = fits && (in_place || (!__builtin_mul_overflow(heads, summed, &sums) &&
                                 more_bytes(&bytes, sums, sum_row)));
    run.rooms = fits && bytes <= PTRDIFF_MAX ? aligned_alloc(64, (size_t)bytes) : NULL;
    if (run.rooms == NULL)
        return bcfg_fail(error, BCFG_E_MEMORY, "no room for the backward pass of attention");
    job->delta = run.rooms + delta_at;
    job->done = (_Atomic int64_t *)(void *)(run.rooms + done_at);
    for (int64_t i = 0; i < run.tasks; i++) atomic_init(&job->done[i], 0);
    job->query_sum = job->grad_query;
    if (!in_place)
        job->query_sum = (attention_array){
            run.rooms + sum_at,
            {sum_row * summed * job->in.heads, sum_row * summed, sum_row, real}};

    bcfg_team_run(threads, heads * run.rows_per_head, begin_rows, &run);
    bcfg_team_run(threads, threads, work_on_blocks, &run);
    if (!in_place) bcfg_team_run(threads, heads * run.rows_per_head, finish_rows, &run);
    free(run.rooms);
    return BCFG_OK;
}
