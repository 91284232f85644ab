/* What the files of the core share. The core knows nothing of Python. */
#ifndef BACKENDCFG_CORE_H
#define BACKENDCFG_CORE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "backendcfg.h"

/* CBLAS's own numbers, as every CBLAS defines them. */
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };

/* The counters of a provider, each for every operation. */
enum { COUNT_CALLS = 0, COUNT_BY_SPEED = 1, COUNT_BY_NEED = 2, BCFG_COUNTERS = 3 };

/* Positions among the choices of `determinism.tier`. */
enum { TIER_THREAD_INVARIANT = 2, TIER_CROSS_MACHINE = 4 };

/* A function of a library; call.c casts it to its real type. */
typedef void (*bcfg_function)(void);

struct bcfg_provider {
    char *name, *path, *prefix, *suffix;
    int32_t interface;
    bcfg_function functions[BCFG_OPERATIONS];
    _Atomic uint64_t *calls;                       /* BCFG_COUNTERS by BCFG_OPERATIONS */
    const struct bcfg_provider *_Atomic next;      /* in the list of all providers */
};

/* How many preferences among libraries for factorisations there are: one for each element type. */
enum { BCFG_MEASURED = 4 * BCFG_FACTORISATIONS };

/* What snapshots share whose flags differ. */
struct bcfg_tables {
    struct bcfg_tables *next;                      /* in the list of all tables */
    bcfg_order orders[BCFG_OPERATIONS];
    const uint8_t *factorisations[BCFG_MEASURED];  /* each NULL, or BCFG_SIZE_CLASSES of them */
};

struct bcfg_snapshot {
    const struct bcfg_snapshot *next_alike, *next_near; /* in the chains that find it: snapshot.c */
    struct bcfg_kept *_Atomic kept;                /* made of it at first use: gpu/products/recipe.h */
    const int64_t *values;
    const struct bcfg_tables *tables;
};

/* tables.c: what is wrong with the tables of a content; and the tables with that content, made when
 * there are none yet, NULL when out of memory. The latter is called under the lock. */
bcfg_status bcfg_check_tables(const bcfg_content *content, bcfg_error *error);
const struct bcfg_tables *bcfg_intern_tables(const bcfg_content *content);

/* product.c: multiplies real numbers by our own kernels, whichever provider the snapshot prefers; its
 * flags say how many threads and which tier. Takes whole batches and any strides. The caller has made
 * sure that no size is 0 and that c overlaps nothing that is read. Errors: BCFG_E_MEMORY; c is then
 * untouched. */
bcfg_status bcfg_native_product(const bcfg_snapshot *snapshot, const bcfg_product *product,
                                const bcfg_operand *added, bcfg_error *error);

/* malloc.c: whether glibc's own malloc serves the process. */
bool bcfg_malloc_is_glibc(void);

/* product.c: whether the tier asks for the same bits on every instruction set. */
bool bcfg_everywhere(const bcfg_snapshot *snapshot);

/* Writes the detail and returns the status, so that callers can `return bcfg_fail(...)`. */
bcfg_status bcfg_fail(bcfg_error *error, bcfg_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* BCFG_OK and an empty detail, or BCFG_E_ABI. Every function with a bcfg_error starts with it. */
bcfg_status bcfg_error_begin(bcfg_error *error);

/* The one lock, for everything that changes. fork() holds it, so that a child never inherits it locked
 * by a thread that the child does not have. */
void bcfg_lock(void);
void bcfg_unlock(void);

/* The two providers that are compiled in: `reference` and `native`. The list starts with them. */
extern bcfg_provider bcfg_reference_provider, bcfg_native_provider;
/* native.c: whether a provider has an operation. */
bool bcfg_serves(const bcfg_provider *provider, int32_t operation);

/* probe.c: what a library does when called. `provider` has all its functions. */
bcfg_status bcfg_probe_interface(bcfg_function isamax, int32_t *interface);
bcfg_status bcfg_probe_products(const bcfg_provider *provider, bcfg_error *error);

/* choose.c: bcfg_choose on a valid snapshot and operation, with the reason. */
int32_t bcfg_pick(const bcfg_snapshot *snapshot, int32_t operation, int64_t m, int64_t n, int64_t k,
                  bcfg_reason *reason);

/* The slot of a snapshot in which the GPU part caches what it worked out: the only part of a snapshot
 * that is filled later. */
struct bcfg_kept *_Atomic *bcfg_snapshot_kept(const bcfg_snapshot *snapshot);

/* product.c: the operation that computes a product, by its element and sizes. */
int32_t bcfg_operation_of(const bcfg_product *product);

/* Adds to one counter of a provider. */
static inline void bcfg_count(const bcfg_provider *provider, int counter, int32_t operation,
                              uint64_t more) {
    atomic_fetch_add_explicit(&provider->calls[counter * BCFG_OPERATIONS + operation], more,
                              memory_order_relaxed);
}

/* A matrix as BLAS sees it. */
typedef struct {
    const void *data;
    int64_t leading;
    int transpose;                                 /* NO_TRANSPOSE or TRANSPOSE */
} bcfg_view;

/* call.c: row-major, alpha 1, beta 0, counted. */
void bcfg_gemm(const bcfg_provider *provider, int32_t element, int64_t m, int64_t n, int64_t k,
               bcfg_view a, bcfg_view b, void *c, int64_t leading);
/* y = op(a) x, where a has `rows` and `columns` as stored; strides in elements. */
void bcfg_gemv(const bcfg_provider *provider, int32_t element, int64_t rows, int64_t columns,
               bcfg_view a, const void *x, int64_t x_stride, void *y, int64_t y_stride);

/* layout.c */
extern const int64_t bcfg_element_size[BCFG_ELEMENTS];
/* Whether BLAS can read a rows by columns matrix where it lies, with no number above `limit`. */
bool bcfg_view_of(int64_t size, const bcfg_operand *operand, const char *data, int64_t rows,
                  int64_t columns, int64_t limit, bcfg_view *view);
/* Copies between a strided matrix and a dense row-major one. */
void bcfg_pack(int64_t size, char *dense, const char *data, int64_t row_stride,
               int64_t column_stride, int64_t rows, int64_t columns);
void bcfg_unpack(int64_t size, char *data, int64_t row_stride, int64_t column_stride,
                 const char *dense, int64_t rows, int64_t columns);
/* Whether any byte of the result is one of the operand's, by their extents. */
bool bcfg_overlap(const bcfg_product *product, const bcfg_operand *operand, int64_t rows,
                  int64_t columns);

/* finite.c: position (row * columns + column) of the first NaN or infinity of a matrix whose rows
 * are dense, or -1. */
int64_t bcfg_not_finite(int32_t element, const char *data, int64_t row_stride, int64_t rows,
                        int64_t columns);

#endif
