/* Row-major products as column-major calls: every element is where the call says, for random sizes,
 * strides and batches. The calls are made by plain loops in place of a library. */
#include "../check.h"
#include "gpu/products/gemm.h"

enum { MOST = 4, ROOM = 1 << 14 };
static double a[ROOM], b[ROOM], c[ROOM], wanted[ROOM];

static uint32_t state = 1;
static int64_t below(int64_t limit) {
    state = state * 1664525 + 1013904223;
    return (int64_t)(state >> 16) % limit;
}

/* What a BLAS does with a call; it may read and write nothing else. */
static void multiply(const bcfg_gemm_call *call) {
    for (int64_t i = 0; i < call->batch; i++) {
        const double *left = (const double *)call->a + i * call->a_stride;
        const double *right = (const double *)call->b + i * call->b_stride;
        double *to = (double *)call->c + i * call->c_stride;
        CHECK(call->a_leading >= (call->transpose_a ? call->k : call->m) && call->a_leading > 0);
        CHECK(call->b_leading >= (call->transpose_b ? call->n : call->k) && call->b_leading > 0);
        CHECK(call->c_leading >= call->m);
        for (int64_t row = 0; row < call->m; row++)
            for (int64_t column = 0; column < call->n; column++) {
                double sum = 0;
                for (int64_t p = 0; p < call->k; p++)
                    sum += left[call->transpose_a ? row * call->a_leading + p
                                                  : p * call->a_leading + row] *
                           right[call->transpose_b ? p * call->b_leading + column
                                                   : column * call->b_leading + p];
                to[column * call->c_leading + row] = sum;
            }
    }
}

/* Strides of a stack of rows by columns matrices: rows or columns one after the other, with gaps. */
static bcfg_operand operand(double *data, int64_t rows, int64_t columns, int32_t dimensions,
                            const int64_t *shape, int64_t *strides, bool may_repeat) {
    int64_t gap = below(2), step;
    bcfg_operand made = {.data = data, .batch_strides = strides};
    bool by_rows = below(2) == 0;
    int64_t inner = by_rows ? columns : rows, outer = by_rows ? rows : columns;
    int64_t leading = inner + gap;
    made.row_stride = by_rows ? leading * 8 : 8;
    made.column_stride = by_rows ? 8 : leading * 8;
    step = leading * (outer > 0 ? outer : 1) + (below(2) ? 3 : 0);
    for (int32_t d = dimensions - 1; d >= 0; d--) {
        bool repeats = may_repeat && below(4) == 0;
        strides[d] = repeats ? 0 : step * 8;
        step *= shape[d];
    }
    return made;
}

static double *at(const bcfg_operand *operand, const int64_t *index, int32_t dimensions, int64_t row,
                  int64_t column) {
    char *data = operand->data;
    for (int32_t d = 0; d < dimensions; d++) data += index[d] * operand->batch_strides[d];
    return (double *)(data + row * operand->row_stride + column * operand->column_stride);
}

static bool next(int64_t *index, const int64_t *shape, int32_t dimensions) {
    for (int32_t d = dimensions - 1; d >= 0; d--) {
        if (++index[d] < shape[d]) return true;
        index[d] = 0;
    }
    return false;
}

/* The outer dimensions of a plan, as gemm.c goes through them. */
static void run(const bcfg_gemm_plan *plan) {
    int64_t index[BCFG_DEVICE_DIMENSIONS] = {0};
    do {
        bcfg_gemm_call call = plan->call;
        for (int32_t d = 0; d < plan->dimensions; d++) {
            call.a = (const char *)call.a + index[d] * plan->a[d];
            call.b = (const char *)call.b + index[d] * plan->b[d];
            call.c = (char *)call.c + index[d] * plan->c[d];
        }
        multiply(&call);
    } while (next(index, plan->shape, plan->dimensions));
}

static void one(void) {
    int32_t dimensions = (int32_t)below(MOST);
    int64_t shape[MOST], a_strides[MOST], b_strides[MOST], c_strides[MOST], index[MOST] = {0};
    for (int32_t d = 0; d < dimensions; d++) shape[d] = 1 + below(3);
    bcfg_product product = {.element = BCFG_FLOAT64,
                            .batch_dimensions = dimensions, .batch_shape = shape,
                            .m = 1 + below(4), .n = 1 + below(4), .k = below(4)};
    product.a = operand(a, product.m, product.k, dimensions, shape, a_strides, true);
    product.b = operand(b, product.k, product.n, dimensions, shape, b_strides, true);
    product.c = operand(c, product.m, product.n, dimensions, shape, c_strides, false);
    for (int i = 0; i < ROOM; i++) {
        a[i] = (double)below(9) - 4;
        b[i] = (double)below(9) - 4;
        c[i] = wanted[i] = -99;
    }
    do {
        for (int64_t row = 0; row < product.m; row++)
            for (int64_t column = 0; column < product.n; column++) {
                double sum = 0;
                for (int64_t p = 0; p < product.k; p++)
                    sum += *at(&product.a, index, dimensions, row, p) *
                           *at(&product.b, index, dimensions, p, column);
                wanted[at(&product.c, index, dimensions, row, column) - c] = sum;
            }
    } while (next(index, shape, dimensions));
    bcfg_gemm_plan plan;
    CHECK(bcfg_gemm_plan_of(&product, &plan) == 0);
    run(&plan);
    CHECK(memcmp(c, wanted, sizeof c) == 0); /* nothing beside the result was written either */
}

/* An operand without neighbours in either direction is named. */
static void refusals(void) {
    bcfg_product product = {.element = BCFG_FLOAT64,
                            .m = 3, .n = 3, .k = 3, .a = {a, 24, 8, NULL}, .b = {b, 24, 8, NULL},
                            .c = {c, 24, 8, NULL}};
    bcfg_gemm_plan plan;
    bcfg_operand *operands[3] = {&product.a, &product.b, &product.c};
    for (int i = 0; i < 3; i++) {
        bcfg_operand sound = *operands[i];
        *operands[i] = (bcfg_operand){sound.data, 96, 16, NULL};
        CHECK(bcfg_gemm_plan_of(&product, &plan) == "abc"[i]);
        *operands[i] = (bcfg_operand){(char *)sound.data + 4, 24, 8, NULL}; /* no multiple of 8 */
        CHECK(bcfg_gemm_plan_of(&product, &plan) == "abc"[i]);
        *operands[i] = sound;
    }
    CHECK(bcfg_gemm_plan_of(&product, &plan) == 0);
}

/* alpha and beta in binary16: to nearest, ties to even. */
static void halves(void) {
    static const struct {
        double value;
        uint16_t bits;
    } known[] = {{0, 0},           {-0.0, 0x8000},      {1, 0x3c00},         {-2, 0xc000},
                 {65504, 0x7bff},  {65519, 0x7bff},     {65520, 0x7c00},     {1e300, 0x7c00},
                 {6e-8, 1},        {2.98e-8, 0},        {2.99e-8, 1},        {6.1e-5, 0x03ff},
                 {1.0 / 3, 0x3555}, {2049, 0x6800},     {2051, 0x6802},      {1e-300, 0}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint64_t room[2] = {0};
        bcfg_scalar_of(BCFG_CUDA_R_16F, (double[2]){known[i].value, 0}, room);
        uint16_t bits;
        memcpy(&bits, room, sizeof bits);
        CHECK(bits == known[i].bits);
    }
}

int main(void) {
    for (int i = 0; i < 3000; i++) one();
    refusals();
    halves();
    return 0;
}
