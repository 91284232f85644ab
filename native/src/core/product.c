/* bcfg_addmm: checks first, then one BLAS call per matrix of the batch, or our own kernel. */
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "kernels/gemm.h"

enum { MOST_DIMENSIONS = 64 };

#define FLAG(name, NAME, kind, choices) FLAG_##NAME,
enum {
#include "backendcfg_flags.inc"
};
#undef FLAG

/* One product in progress. The buffers hold packed matrices, NULL where none is needed. */
typedef struct {
    const bcfg_product *product;
    const bcfg_provider *provider;
    int64_t size, limit;
    char *a, *b, *c;
    const char *packed_a, *packed_b; /* what the buffers hold: a repeated matrix is packed once */
} Work;

/* How many matrices the result has; -1 for more than can be. */
static int64_t count_matrices(const bcfg_product *product) {
    int64_t matrices = 1;
    for (int32_t d = 0; d < product->batch_dimensions; d++)
        if (product->batch_shape[d] == 0) return 0;
    for (int32_t d = 0; d < product->batch_dimensions; d++) {
        if (matrices > INT64_MAX / product->batch_shape[d]) return -1;
        matrices *= product->batch_shape[d];
    }
    return matrices;
}

/* Whether a result that is not empty repeats an element; the other ways to overlap itself take
 * deliberate strides, and the caller must not pass them. */
static bool repeats(const bcfg_product *product) {
    for (int32_t d = 0; d < product->batch_dimensions; d++)
        if (product->batch_shape[d] > 1 && product->c.batch_strides[d] == 0) return true;
    return (product->m > 1 && product->c.row_stride == 0) ||
           (product->n > 1 && product->c.column_stride == 0);
}

/* Advances `index` over the batch and the data pointers with it; false after the last. */
static bool advance(const bcfg_product *product, int64_t *index, const char **a, const char **b,
                    char **c) {
    for (int32_t d = product->batch_dimensions - 1; d >= 0; d--) {
        *a += product->a.batch_strides[d];
        *b += product->b.batch_strides[d];
        *c += product->c.batch_strides[d];
        if (++index[d] < product->batch_shape[d]) return true;
        *a -= index[d] * product->a.batch_strides[d];
        *b -= index[d] * product->b.batch_strides[d];
        *c -= index[d] * product->c.batch_strides[d];
        index[d] = 0;
    }
    return false;
}

static bool is_complex(int32_t element) {
    return element == BCFG_COMPLEX64 || element == BCFG_COMPLEX128;
}

/* Whether every matrix of the stack starts at a multiple of the element's part. */
static bool aligned(const Work *work, const bcfg_operand *operand) {
    uint64_t bits = (uint64_t)(uintptr_t)operand->data;
    for (int32_t d = 0; d < work->product->batch_dimensions; d++)
        bits |= (uint64_t)operand->batch_strides[d];
    uint64_t part = (uint64_t)work->size / (is_complex(work->product->element) ? 2 : 1);
    return bits % part == 0;
}

/* Gets memory for a matrix unless BLAS can read it in place. */
static bool prepare(const Work *work, const bcfg_operand *operand, int64_t rows, int64_t columns,
                    char **buffer) {
    bcfg_view view;
    if (aligned(work, operand) && bcfg_view_of(work->size, operand, operand->data, rows, columns,
                                               work->limit, &view))
        return true;
    if (rows > INT64_MAX / work->size / columns) return false;
    *buffer = malloc((size_t)(rows * columns * work->size));
    return *buffer != NULL;
}

static bcfg_view readable(Work *work, const bcfg_operand *operand, const char *data, int64_t rows,
                          int64_t columns, char *buffer, const char **packed) {
    bcfg_view view;
    if (buffer == NULL) {
        (void)bcfg_view_of(work->size, operand, data, rows, columns, work->limit, &view);
        return view;
    }
    if (*packed != data) {
        bcfg_pack(work->size, buffer, data, operand->row_stride, operand->column_stride, rows,
                  columns);
        *packed = data;
    }
    return (bcfg_view){buffer, columns, NO_TRANSPOSE};
}

static bcfg_view flipped(bcfg_view view) {
    view.transpose = view.transpose == NO_TRANSPOSE ? TRANSPOSE : NO_TRANSPOSE;
    return view;
}

/* y = A x by GEMV, A being `rows` by `columns` as `matrix` presents it and x one column or row. */
static void times_vector(const Work *work, bcfg_view matrix, int64_t rows, int64_t columns,
                         bcfg_view x, bool x_is_column, char *y, int64_t y_stride) {
    bool plain = matrix.transpose == NO_TRANSPOSE;
    /* A view of a vector steps by `leading` along the dimension that its storage has as rows. */
    bool step = x_is_column == (x.transpose == NO_TRANSPOSE);
    /* Some OpenBLAS releases multiply y by beta 0 instead of not reading it, which keeps NaN. */
    for (int64_t i = 0; i < rows; i++) memset(y + i * y_stride * work->size, 0, (size_t)work->size);
    bcfg_gemv(work->provider, work->product->element, plain ? rows : columns,
              plain ? columns : rows, matrix, x.data, step ? x.leading : 1, y, y_stride);
}

static void multiply(Work *work, const char *a_data, const char *b_data, char *c_data) {
    const bcfg_product *p = work->product;
    bcfg_view a = readable(work, &p->a, a_data, p->m, p->k, work->a, &work->packed_a);
    bcfg_view b = readable(work, &p->b, b_data, p->k, p->n, work->b, &work->packed_b);
    bcfg_operand dense = {NULL, p->n * work->size, work->size, NULL};
    const bcfg_operand *layout = work->c != NULL ? &dense : &p->c;
    char *target = work->c != NULL ? work->c : c_data;
    bcfg_view c;
    (void)bcfg_view_of(work->size, layout, target, p->m, p->n, work->limit, &c);
    if (p->n == 1)
        times_vector(work, a, p->m, p->k, b, true, target,
                     c.transpose == NO_TRANSPOSE ? c.leading : 1);
    else if (p->m == 1)
        times_vector(work, flipped(b), p->n, p->k, a, false, target,
                     c.transpose == NO_TRANSPOSE ? 1 : c.leading);
    else if (c.transpose == NO_TRANSPOSE)
        bcfg_gemm(work->provider, p->element, p->m, p->n, p->k, a, b, target, c.leading);
    else /* c lies by columns: its transpose, b' a', lies by rows */
        bcfg_gemm(work->provider, p->element, p->n, p->m, p->k, flipped(b), flipped(a), target,
                  c.leading);
    if (work->c != NULL)
        bcfg_unpack(work->size, c_data, p->c.row_stride, p->c.column_stride, work->c, p->m, p->n);
}

static void fill_zero(const bcfg_product *product, int64_t size) {
    int64_t index[MOST_DIMENSIONS] = {0};
    const char *a = product->a.data, *b = product->b.data;
    char *c = product->c.data;
    do
        for (int64_t i = 0; i < product->m; i++)
            for (int64_t j = 0; j < product->n; j++)
                memset(c + i * product->c.row_stride + j * product->c.column_stride, 0,
                       (size_t)size);
    while (advance(product, index, &a, &b, &c));
}

int32_t bcfg_operation_of(const bcfg_product *product) {
    if (product->element >= BCFG_BFLOAT16) return BCFG_BGEMM + product->element - BCFG_BFLOAT16;
    return (product->m == 1 || product->n == 1 ? BCFG_SGEMV : BCFG_SGEMM) + product->element;
}

bool bcfg_everywhere(const bcfg_snapshot *snapshot) {
    return snapshot->values[FLAG_DETERMINISM_TIER] == TIER_CROSS_MACHINE;
}

bcfg_status bcfg_native_product(const bcfg_snapshot *snapshot, const bcfg_product *product,
                                const bcfg_operand *added, bcfg_error *error) {
    int64_t threads = snapshot->values[FLAG_THREADS_COUNT];
    if (threads < 0 || threads > INT32_MAX) threads = 0;
    bcfg_status status =
        bcfg_gemm_run(product, added, bcfg_everywhere(snapshot), (int32_t)threads, error);
    if (status == BCFG_OK)
        bcfg_count(&bcfg_native_provider, COUNT_CALLS, bcfg_operation_of(product),
                   (uint64_t)count_matrices(product));
    return status;
}

static bcfg_status run(const bcfg_snapshot *snapshot, const bcfg_product *product,
                       const bcfg_operand *added, const bcfg_provider *provider,
                       bcfg_error *error) {
    if (provider == &bcfg_native_provider && !is_complex(product->element))
        return bcfg_native_product(snapshot, product, added, error);
    Work work = {
        .product = product,
        .provider = provider,
        .size = bcfg_element_size[product->element],
        .limit = provider->interface == BCFG_LP64 ? INT32_MAX : INT64_MAX,
    };
    bcfg_status status = BCFG_OK;
    if (prepare(&work, &product->a, product->m, product->k, &work.a) &&
        prepare(&work, &product->b, product->k, product->n, &work.b) &&
        prepare(&work, &product->c, product->m, product->n, &work.c)) {
        int64_t index[MOST_DIMENSIONS];
        for (int32_t d = 0; d < product->batch_dimensions; d++) index[d] = 0;
        const char *a = product->a.data, *b = product->b.data;
        char *c = product->c.data;
        do multiply(&work, a, b, c);
        while (advance(product, index, &a, &b, &c));
    } else {
        status = bcfg_fail(error, BCFG_E_MEMORY, "no memory for a copy of a strided matrix");
    }
    free(work.a);
    free(work.b);
    free(work.c);
    return status;
}

static bcfg_status check_finite(const bcfg_product *product, const char *data, int64_t matrices,
                                bcfg_error *error) {
    int64_t at = bcfg_not_finite(product->element, data,
                                 product->n * bcfg_element_size[product->element],
                                 product->m * matrices, product->n);
    if (at < 0) return BCFG_OK;
    int64_t row = at / product->n;
    return bcfg_fail(error, BCFG_E_NOT_FINITE,
                     "matrix %lld of the result has NaN or infinity at row %lld, column %lld",
                     (long long)(row / product->m), (long long)(row % product->m),
                     (long long)(at % product->n));
}

/* Computes into memory of its own and copies: for a result that overlaps an operand, or that must
 * not be seen before it is checked. */
static bcfg_status run_aside(const bcfg_snapshot *snapshot, const bcfg_product *product,
                             const bcfg_operand *added, const bcfg_provider *provider,
                             int64_t matrices, bool finite, bcfg_error *error) {
    int64_t size = bcfg_element_size[product->element], strides[MOST_DIMENSIONS];
    if (product->m > INT64_MAX / size / product->n / matrices)
        return bcfg_fail(error, BCFG_E_MEMORY, "no memory for a copy of the result");
    char *own = malloc((size_t)(matrices * product->m * product->n * size));
    if (own == NULL) return bcfg_fail(error, BCFG_E_MEMORY, "no memory for a copy of the result");
    bcfg_product aside = *product;
    int64_t stride = product->m * product->n * size;
    for (int32_t d = product->batch_dimensions - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= product->batch_shape[d];
    }
    aside.c = (bcfg_operand){own, product->n * size, size, strides};
    bcfg_status status = run(snapshot, &aside, added, provider, error);
    if (status == BCFG_OK && finite) status = check_finite(product, own, matrices, error);
    if (status == BCFG_OK) {
        int64_t index[MOST_DIMENSIONS] = {0};
        const char *from = own, *unused = product->a.data;
        char *to = product->c.data;
        bcfg_product copied = *product; /* b stands for the source of the copy */
        copied.b = aside.c;
        do bcfg_unpack(size, to, product->c.row_stride, product->c.column_stride, from, product->m,
                       product->n);
        while (advance(&copied, index, &unused, &from, &to));
    }
    free(own);
    return status;
}

static bool any_serves(const bcfg_snapshot *snapshot, int32_t operation) {
    const bcfg_order *order = &snapshot->tables->orders[operation];
    for (uint32_t i = 0; i < order->count; i++)
        if (bcfg_serves(order->providers[i], operation)) return true;
    return false;
}

bcfg_status bcfg_matmul(const bcfg_snapshot *snapshot, const bcfg_product *product,
                        bcfg_error *error) {
    return bcfg_addmm(snapshot, product, NULL, error);
}

bcfg_status bcfg_addmm(const bcfg_snapshot *snapshot, const bcfg_product *product,
                       const bcfg_operand *added, bcfg_error *error) {
    bcfg_status status = bcfg_error_begin(error);
    if (status != BCFG_OK) return status;
    if (snapshot == NULL) snapshot = bcfg_current();
    int64_t m = product->m, n = product->n, k = product->k, matrices = count_matrices(product);
    if (m == 0 || n == 0 || matrices == 0) return BCFG_OK;
    if (matrices < 0) return bcfg_fail(error, BCFG_E_ARGUMENT, "the batch is too large");
    if (product->c.data == NULL || (k > 0 && (product->a.data == NULL || product->b.data == NULL)))
        return bcfg_fail(error, BCFG_E_ARGUMENT, "the data of an operand is NULL");
    if (repeats(product)) return bcfg_fail(error, BCFG_E_ARGUMENT, "elements of c share memory");
    if (added != NULL && (product->element < BCFG_BFLOAT16 || k == 0 || added->data == NULL))
        return bcfg_fail(error, BCFG_E_ARGUMENT, "only sums of products with 16 bits are added to");
    if (k == 0) {
        fill_zero(product, bcfg_element_size[product->element]);
        return BCFG_OK;
    }
    int32_t operation = bcfg_operation_of(product);
    bcfg_reason reason = BCFG_FIRST;
    int32_t chosen = bcfg_pick(snapshot, operation, m, n, k, &reason);
    if (chosen < 0 && !any_serves(snapshot, operation))
        return bcfg_fail(error, BCFG_E_UNSERVED, "no provider serves %s",
                         bcfg_operation_name(operation));
    if (chosen < 0)
        return bcfg_fail(error, BCFG_E_RANGE,
                         "a size of %lld by %lld times %lld by %lld does not fit the 32-bit "
                         "integers of any provider",
                         (long long)m, (long long)k, (long long)k, (long long)n);
    const bcfg_provider *provider = snapshot->tables->orders[operation].providers[chosen];
    if (reason != BCFG_FIRST)
        bcfg_count(provider, reason == BCFG_FASTEST ? COUNT_BY_SPEED : COUNT_BY_NEED, operation,
                   (uint64_t)matrices);
    bool finite = snapshot->values[FLAG_OPS_CHECK_FINITE] != 0;
    if (finite || bcfg_overlap(product, &product->a, m, k) ||
        bcfg_overlap(product, &product->b, k, n) ||
        (added != NULL && bcfg_overlap(product, added, m, n)))
        return run_aside(snapshot, product, added, provider, matrices, finite, error);
    return run(snapshot, product, added, provider, error);
}
