/* Products against the definition, over providers, element types, sizes, strides and overlaps. */
#include <math.h>

#include "check.h"

const char *fakes;
static int64_t values[512];
static uint32_t state = 1;

static double small(void) { /* small whole numbers: every sum is exact in float */
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 29) - 3;
}

static const int64_t sizes[4] = {4, 8, 8, 16};

/* An operand inside a block of memory, `steps` elements apart, backwards where asked. */
typedef struct {
    char *block;
    bcfg_operand operand;
    int64_t strides[1];
} Matrix;

static void put(int32_t element, char *at, double real, double imaginary) {
    float f[2] = {(float)real, (float)imaginary};
    double d[2] = {real, imaginary};
    bool single = element == BCFG_FLOAT32 || element == BCFG_COMPLEX64;
    memcpy(at, single ? (void *)f : (void *)d, (size_t)sizes[element]);
}

static void get(int32_t element, const char *at, double *real, double *imaginary) {
    float f[2] = {0, 0};
    double d[2] = {0, 0};
    bool single = element == BCFG_FLOAT32 || element == BCFG_COMPLEX64;
    memcpy(single ? (void *)f : (void *)d, at, (size_t)sizes[element]);
    *real = single ? (double)f[0] : d[0];
    *imaginary = single ? (double)f[1] : d[1];
}

/* layout: 0 rows, 1 columns, 2 rows with gaps, 3 every second element, 4 backwards, 5 unaligned */
static void make(Matrix *matrix, int32_t element, int64_t rows, int64_t columns, int layout) {
    int64_t size = sizes[element], gap = layout == 3 ? 2 : 1;
    int64_t row = columns * size * gap, column = size * gap;
    if (layout == 1) row = size, column = rows * size;
    if (layout == 2) row += 3 * size;
    if (layout == 5) row += 1;
    int64_t batch = rows * columns * size * 2 + rows * size * 4 + 64;
    matrix->block = calloc(1, (size_t)(2 * batch + 1));
    CHECK(matrix->block != NULL);
    matrix->strides[0] = batch;
    char *data = matrix->block;
    if (layout == 4 && rows > 0 && columns > 0) {
        data += (rows - 1) * row + (columns - 1) * column;
        row = -row, column = -column;
    }
    matrix->operand = (bcfg_operand){data, row, column, matrix->strides};
    for (int64_t at = 0; at < 2; at++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                put(element, data + at * batch + i * row + j * column, small(), small());
}

static char *element_at(const bcfg_operand *o, int64_t batch, int64_t i, int64_t j) {
    return (char *)o->data + batch * o->batch_strides[0] + i * o->row_stride +
           j * o->column_stride;
}

static void check_product(const bcfg_product *p, const Matrix *a, const Matrix *b) {
    for (int64_t at = 0; at < p->batch_shape[0]; at++)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->n; j++) {
                double real = 0, imaginary = 0, x[2], y[2], z[2];
                for (int64_t q = 0; q < p->k; q++) {
                    get(p->element, element_at(&a->operand, at, i, q), &x[0], &x[1]);
                    get(p->element, element_at(&b->operand, at, q, j), &y[0], &y[1]);
                    real += x[0] * y[0] - x[1] * y[1];
                    imaginary += x[0] * y[1] + x[1] * y[0];
                }
                get(p->element, element_at(&p->c, at, i, j), &z[0], &z[1]);
                CHECK(z[0] == real && z[1] == imaginary);
            }
}

static void one(const bcfg_snapshot *snapshot, int32_t element, int64_t m, int64_t n, int64_t k,
                int layout_a, int layout_b, int layout_c) {
    static const int64_t shape[1] = {2};
    Matrix a, b, c;
    make(&a, element, m, k, layout_a);
    make(&b, element, k, n, layout_b);
    make(&c, element, m, n, layout_c);
    bcfg_product product = {element,   1,        shape, m, n, k,
                            a.operand, b.operand,     c.operand};
    bcfg_error error = NEW_ERROR;
    CHECK(bcfg_matmul(snapshot, &product, &error) == BCFG_OK);
    check_product(&product, &a, &b);
    free(a.block), free(b.block), free(c.block);
}

static void every_layout_and_size_is_right(const bcfg_snapshot *snapshot) {
    static const int64_t lengths[][3] = {{1, 1, 1}, {1, 5, 3}, {5, 1, 3},   {3, 4, 1},
                                         {4, 4, 4}, {7, 5, 6}, {33, 65, 129}, {2, 3, 0},
                                         {0, 3, 2}, {3, 0, 2}};
    for (int32_t element = 0; element < 4; element++)
        for (size_t s = 0; s < sizeof lengths / sizeof *lengths; s++)
            for (int layout = 0; layout < 6 * 6 * 6; layout++) {
                if (lengths[s][0] == 33 && layout % 31 != 0) continue; /* the large one is slow */
                one(snapshot, element, lengths[s][0], lengths[s][1], lengths[s][2], layout % 6,
                    layout / 6 % 6, layout / 36);
            }
}

/* The result one element behind a, behind b, or behind both. */
static void a_result_over_its_operands_is_as_if_it_were_not(const bcfg_snapshot *snapshot) {
    for (int which = 0; which < 3; which++) {
        double block[16], other[9], wanted[9];
        for (int i = 0; i < 16; i++) block[i] = small();
        for (int i = 0; i < 9; i++) other[i] = small();
        double *a = which == 1 ? other : block, *b = which == 0 ? other : block;
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++) {
                wanted[3 * i + j] = 0;
                for (int p = 0; p < 3; p++) wanted[3 * i + j] += a[3 * i + p] * b[3 * p + j];
            }
        bcfg_operand left = {a, 24, 8, NULL}, right = {b, 24, 8, NULL};
        bcfg_operand later = {block + 1, 24, 8, NULL};
        bcfg_product product = {BCFG_FLOAT64, 0,    NULL, 3, 3, 3,
                                left,     right,          later};
        CHECK(bcfg_matmul(snapshot, &product, NULL) == BCFG_OK);
        CHECK(memcmp(block + 1, wanted, sizeof wanted) == 0);
    }
}

static void what_cannot_be_done_is_refused_before_anything_is_written(
    const bcfg_snapshot *snapshot, const bcfg_provider *lp64) {
    double a[4] = {1, 2, 3, 4}, c[4] = {9, 9, 9, 9}, before[4];
    memcpy(before, c, sizeof c);
    bcfg_error error = NEW_ERROR;
    bcfg_operand from = {a, 16, 8, NULL}, to = {c, 16, 8, NULL}, shared = {c, 0, 8, NULL};
    bcfg_product product = {BCFG_FLOAT64, 0, NULL, 2, 2, 2,
                            from,     from,           shared};
    CHECK(bcfg_matmul(snapshot, &product, &error) == BCFG_E_ARGUMENT);
    CHECK(strcmp(error.detail, "elements of c share memory") == 0);
    product.c = to;
    CHECK(bcfg_matmul(snapshot_of(NULL, 0, values), &product, &error) == BCFG_E_UNSERVED);
    CHECK(strcmp(error.detail, "no provider serves dgemm") == 0);
    product.k = (int64_t)INT32_MAX + 1;
    CHECK(bcfg_matmul(snapshot_of(&lp64, 1, values), &product, &error) == BCFG_E_RANGE);
    product.k = 2;
    product.a.data = NULL;
    CHECK(bcfg_matmul(snapshot, &product, &error) == BCFG_E_ARGUMENT);
    CHECK(strcmp(error.detail, "the data of an operand is NULL") == 0);
    product.a.data = a;
    product.batch_dimensions = 2;
    int64_t large[3] = {(int64_t)1 << 32, (int64_t)1 << 32, 0}, steps[3] = {32, 32, 32};
    product.batch_shape = large;
    product.a.batch_strides = product.b.batch_strides = product.c.batch_strides = steps;
    CHECK(bcfg_matmul(snapshot, &product, &error) == BCFG_E_ARGUMENT);
    CHECK(strcmp(error.detail, "the batch is too large") == 0);
    product.batch_dimensions = 3; /* the last of them is 0, so there is nothing to write */
    CHECK(bcfg_matmul(snapshot, &product, &error) == BCFG_OK);
    CHECK(memcmp(before, c, sizeof c) == 0);
}

static void a_result_that_is_not_finite_is_refused_unwritten(const bcfg_provider *provider) {
    uint32_t id = 0;
    bcfg_flag flag = {.abi = BCFG_ABI, .size = sizeof flag};
    while (bcfg_flag_at(id, &flag) == BCFG_OK && strcmp(flag.name, "ops.check_finite") != 0) id++;
    CHECK(id < bcfg_flag_count());
    values[id] = 1;
    const bcfg_snapshot *strict = snapshot_of(&provider, 1, values);
    values[id] = 0;
    float a[4] = {1, 2, 3, INFINITY}, b[4] = {1, 0, 0, 1}, c[4] = {9, 9, 9, 9};
    bcfg_operand left = {a, 8, 4, NULL}, right = {b, 8, 4, NULL}, to = {c, 8, 4, NULL};
    bcfg_product product = {BCFG_FLOAT32, 0, NULL, 2, 2, 2,
                            left,     right,          to};
    bcfg_error error = NEW_ERROR;
    CHECK(bcfg_matmul(strict, &product, &error) == BCFG_E_NOT_FINITE);
    CHECK(strcmp(error.detail,
                 "matrix 0 of the result has NaN or infinity at row 1, column 0") == 0);
    CHECK(c[0] == 9 && c[1] == 9 && c[2] == 9 && c[3] == 9);
    a[3] = 4;
    CHECK(bcfg_matmul(strict, &product, &error) == BCFG_OK && c[3] == 4);
}

static void the_reference_gives_a_row_the_same_bits_in_any_company(void) {
    const bcfg_provider *reference = bcfg_reference();
    const bcfg_snapshot *snapshot = snapshot_of(&reference, 1, values);
    enum { M = 37, N = 19, K = 300 };
    static float a[M * K], b[K * N], all[M * N], row[N];
    for (int i = 0; i < M * K; i++) a[i] = (float)sin(i);
    for (int i = 0; i < K * N; i++) b[i] = (float)cos(i);
    bcfg_product product = {BCFG_FLOAT32, 0, NULL, M, N, K,
                            {a, K * 4, 4, NULL}, {b, N * 4, 4, NULL}, {all, N * 4, 4, NULL}};
    CHECK(bcfg_matmul(snapshot, &product, NULL) == BCFG_OK);
    product.m = 1;
    product.c.data = row;
    for (int i = 0; i < M; i++) {
        product.a.data = a + i * K;
        CHECK(bcfg_matmul(snapshot, &product, NULL) == BCFG_OK);
        CHECK(memcmp(row, all + i * N, sizeof row) == 0);
    }
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    fakes = arguments[1];
    const bcfg_provider *providers[3] = {bcfg_reference()};
    CHECK(open_fake("libfake_lp64.so", "", "", 0, &providers[1], NULL) == BCFG_OK);
    CHECK(open_fake("libfake_ilp64.so", "scipy_", "64_", 0, &providers[2], NULL) == BCFG_OK);
    for (int i = 0; i < 3; i++) {
        const bcfg_snapshot *snapshot = snapshot_of(&providers[i], 1, values);
        every_layout_and_size_is_right(snapshot);
        a_result_over_its_operands_is_as_if_it_were_not(snapshot);
        what_cannot_be_done_is_refused_before_anything_is_written(snapshot, providers[1]);
        a_result_that_is_not_finite_is_refused_unwritten(providers[i]);
        bcfg_description is = {.abi = BCFG_ABI, .size = sizeof is};
        CHECK(bcfg_describe(providers[i], &is) == BCFG_OK);
        CHECK(is.calls[BCFG_DGEMM] > 0 && is.calls[BCFG_CGEMV] > 0);
        bcfg_reset_calls();
        CHECK(bcfg_describe(providers[i], &is) == BCFG_OK && is.calls[BCFG_DGEMM] == 0);
    }
    the_reference_gives_a_row_the_same_bits_in_any_company();
    return 0;
}
