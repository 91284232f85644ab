/* bcfg_linalg: a stack of matrices, one after the other or shared out among the team's threads. */
#include <stdlib.h>
#include <string.h>

#include "linalg.h"
#include "team.h"

enum { ALIGNMENT = 64, CHUNKS_PER_THREAD = 8, MOST_WORKERS = 256 };

/* About how many multiplications pay for another thread. */
#define WORTH_SHARING 200000.0

typedef struct {
    const bcfg_lapack *lapack;
    const bcfg_problem *problem;
    const bcfg_space *lengths;
    char *block;                                    /* the workers' scratch, `each` bytes apart */
    int64_t each, per_task;
    bool alone;                                     /* the library must not start threads */
} Stack;

static int64_t rounded(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static bool multiply(int64_t *product, int64_t factor) {
    return !__builtin_mul_overflow(*product, factor, product);
}

/* Lays out a worker's scratch from `block` on. Returns its size in bytes, or -1 for an overflow. */
static int64_t lay_out(const bcfg_problem *p, const bcfg_space *lengths, char *block,
                       bcfg_scratch *scratch) {
    int64_t size = bcfg_element_size[p->element], real = size >> (p->element >= BCFG_COMPLEX64);
    int64_t matrix = p->m, most = p->m > p->n ? p->m : p->n;
    if (!multiply(&matrix, p->n) || matrix > INT64_MAX / 64) return -1;
    int64_t sizes[6] = {matrix * size, most * 8, most * size, lengths->length * size,
                        lengths->real_length * real, lengths->integer_length * 8};
    int64_t at[7] = {0};
    if (lengths->length < 0 || lengths->length > INT64_MAX / 64) return -1;
    if (p->operation == BCFG_INV || p->operation == BCFG_CHOLESKY ||
        p->operation == BCFG_CHOLESKY_INVERSE || p->operation == BCFG_EIGH ||
        p->operation == BCFG_LU_FACTOR)
        sizes[0] = 0;
    for (int i = 0; i < 6; i++) at[i + 1] = at[i] + rounded(sizes[i]);
    if (block != NULL)
        *scratch = (bcfg_scratch){
            block,
            block + at[1],
            block + at[2],
            {block + at[3], block + at[4], block + at[5], lengths->length, lengths->real_length,
             lengths->integer_length},
        };
    return at[6];
}

static bcfg_place place_of(const bcfg_problem *p, int64_t index) {
    bcfg_place at = {
        .a = p->a.data,
        .b = p->b.data,
        .pivots = p->pivots.data,
        .x = p->x.data + index * p->x.step,
        .y = p->y.data + index * p->y.step,
        .z = p->z.data + index * p->z.step,
        .values = p->values.data + index * p->values.step,
        .out_pivots = (int32_t *)(void *)(p->out_pivots.data + index * p->out_pivots.step),
    };
    for (int32_t d = p->dimensions - 1; d >= 0; d--) {
        int64_t i = d > 0 ? index % p->shape[d] : index;
        if (d > 0) index /= p->shape[d];
        at.a += i * p->a.batch_strides[d];
        if (at.b != NULL) at.b += i * p->b.batch_strides[d];
        if (at.pivots != NULL) at.pivots += i * p->pivots.batch_strides[d];
    }
    return at;
}

static void some(void *context, int64_t task, int32_t worker) {
    const Stack *stack = context;
    const bcfg_problem *p = stack->problem;
    int64_t from = task * stack->per_task, to = from + stack->per_task;
    if (to > p->matrices) to = p->matrices;
    bcfg_scratch scratch;
    (void)lay_out(p, stack->lengths, stack->block + worker * stack->each, &scratch);
    int before = stack->alone ? stack->lapack->set_own_threads(1) : 0;
    for (int64_t i = from; i < to; i++) {
        bcfg_place at = place_of(p, i);
        p->info[i] = (int32_t)bcfg_linalg_one(stack->lapack, p, &at, &scratch);
    }
    if (stack->alone) (void)stack->lapack->set_own_threads(before);
}

static void fill_empty(const bcfg_problem *p) {
    for (int64_t i = 0; i < p->matrices; i++) {
        p->info[i] = 0;
        if (p->operation == BCFG_LU)
            bcfg_fill_identity(p->element, p->m, p->m, p->x.data + i * p->x.step);
        if (p->mode != 'A') continue;
        if (p->operation == BCFG_QR || p->operation == BCFG_SVD)
            bcfg_fill_identity(p->element, p->m, p->m, p->x.data + i * p->x.step);
        if (p->operation == BCFG_SVD)
            bcfg_fill_identity(p->element, p->n, p->n, p->y.data + i * p->y.step);
    }
}

/* The caller passes the pivots, and LAPACK would index memory by any number in them. */
static bcfg_status check_pivots(const bcfg_problem *p, bcfg_error *error) {
    for (int64_t index = 0; index < p->matrices; index++) {
        bcfg_place at = place_of(p, index);
        for (int64_t i = 0; i < p->n; i++) {
            int32_t pivot;
            memcpy(&pivot, at.pivots + i * p->pivots.row_stride, sizeof pivot);
            if (pivot < 1 || pivot > p->n)
                return bcfg_fail(error, BCFG_E_ARGUMENT, "%d", pivot);
        }
    }
    return BCFG_OK;
}

/* How many of our threads share the stack. A library with its own threads gets large matrices one
 * by one. */
static int32_t workers(const bcfg_lapack *lapack, const bcfg_problem *p, bool library_alone) {
    if (p->matrices < 2) return 1;
    if (lapack->provider != &bcfg_reference_provider && !library_alone) return 1;
    double most = (double)(p->m > p->n ? p->m : p->n), work = most * most * (most + (double)p->k);
    if (work * (double)p->matrices < WORTH_SHARING) return 1;
    int32_t threads = bcfg_team_size();
    if (threads > p->matrices) threads = (int32_t)p->matrices;
    return threads > MOST_WORKERS ? MOST_WORKERS : threads < 1 ? 1 : threads;
}

bcfg_status bcfg_linalg(const bcfg_lapack *lapack, const bcfg_problem *p, bcfg_error *error) {
    bcfg_space lengths;
    if (p->matrices == 0) return BCFG_OK;
    if (p->m == 0 || p->n == 0) {
        fill_empty(p);
        return BCFG_OK;
    }
    if (p->operation == BCFG_LU_SOLVE) {
        bcfg_status status = check_pivots(p, error);
        if (status != BCFG_OK) return status;
    }
    bool small = p->m <= BCFG_LIBRARY_ALONE && p->n <= BCFG_LIBRARY_ALONE &&
                 p->k <= BCFG_LIBRARY_ALONE;
    int32_t threads = workers(lapack, p, small);
    bcfg_linalg_lengths(lapack, p, &lengths);
    int64_t each = lay_out(p, &lengths, NULL, NULL), whole = each;
    _Alignas(ALIGNMENT) char near[8192];
    char *block = near, *owned = NULL;
    if (each < 0 || !multiply(&whole, threads))
        return bcfg_fail(error, BCFG_E_MEMORY, "no memory for a workspace");
    if (whole > (int64_t)sizeof near) {
        block = owned = aligned_alloc(ALIGNMENT, (size_t)whole);
        if (block == NULL) return bcfg_fail(error, BCFG_E_MEMORY, "no memory for a workspace");
    }
    int64_t tasks = threads == 1 ? 1 : (int64_t)threads * CHUNKS_PER_THREAD;
    if (tasks > p->matrices) tasks = p->matrices;
    Stack stack = {lapack, p, &lengths, block, each, (p->matrices + tasks - 1) / tasks,
                   small && lapack->set_own_threads != NULL};
    if (threads == 1)
        some(&stack, 0, 0);
    else
        bcfg_team_run(threads, tasks, some, &stack);
    free(owned);
    return BCFG_OK;
}
