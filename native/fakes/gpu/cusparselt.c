/* A libcusparseLt that computes on memory of the host. See recorded.h and products.h.
 *
 * VERSION is what it says of itself: 1000 is 0.10.0, 701 is 0.7.1, whose structs are of 1024 bytes and
 * whose selections are not destroyed. Like cuSPARSELt it takes matrices by rows, whose sizes are
 * multiples of 16, 32 for bytes, and memory aligned to 16; a product of bytes takes b transposed; a
 * plan reads its product and selection when it runs. Compressed memory holds the numbers that are
 * kept, two of every four, and a byte for the place of each.
 *
 * Settings: work, bytes of a product's work area; buffer, bytes of compressing; most, the highest
 * algorithm; fastest, what a search finds; splits, its split k.
 */
#ifndef VERSION
#define VERSION 1000
#endif
#define SETTINGS                                                                                   \
    SETTING(work, 64)                                                                              \
    SETTING(buffer, 32)                                                                            \
    SETTING(most, 5)                                                                               \
    SETTING(fastest, 3)                                                                            \
    SETTING(splits, 1)
#include "recorded.h"

#include "gpu/abi_cusparselt.h"
#pragma GCC diagnostic ignored "-Wunused-function"
#include "products.h"

/* The prototypes of the table are those of the definitions below. */
#define DECLARE(result, name, parameters) API result name parameters;
#if VERSION >= 800
BCFG_CUSPARSELT_SYMBOLS(DECLARE, DECLARE)
enum { BYTES = 512 };
#else
#define LEAVE(result, name, parameters)
BCFG_CUSPARSELT_SYMBOLS(DECLARE, LEAVE)
enum { BYTES = 1024 };
#endif

#define NEED(condition, code)                                                                      \
    if (!(condition)) return BCFG_CUSPARSE_STATUS_##code;

enum { R_8I = 3, R_32I = 10 };
enum { HANDLE = 0x48, MATRIX, PRODUCT, SELECTION, PLAN };

typedef struct {
    int kind;
} header;
typedef struct {
    int kind, sparse, type;
    int64_t rows, columns, leading;
} matrix;
typedef struct {
    int kind, transposes_b, compute;
    matrix a, b, d;
    const void *bias;
} product;
typedef struct {
    int kind, algorithm, split_k, split_k_mode;
} selection;
typedef struct {
    int kind;
    const product *product;
    const selection *selection;
} plan;

static int is(const void *memory, int kind) {
    return memory != NULL && (uintptr_t)memory % 16 == 0 && ((const header *)memory)->kind == kind;
}
/* Writes all that the library's struct has. */
static void start(void *memory, int kind) {
    memset(memory, 0, BYTES);
    ((header *)memory)->kind = kind;
}
#define HANDLE_OF(pointer) NEED(is(pointer, HANDLE), NOT_INITIALIZED)

static size_t bytes_of(int type) { return type == R_8I ? 1 : type == R_32I ? 4 : size_of(type); }
static double value_at(const void *from, int64_t at, int type) {
    if (type == R_8I) return ((const int8_t *)from)[at];
    return read_number(from, at, type).real;
}
static void write_at(void *to, int64_t at, int type, double value) {
    if (type == R_8I)
        ((int8_t *)to)[at] = (int8_t)(value > 127 ? 127 : value < -128 ? -128 : value);
    else if (type == R_32I)
        ((int32_t *)to)[at] = (int32_t)value;
    else
        write_number(to, at, type, (number){value, 0});
}

int cusparseLtGetProperty(int property, int *value) {
    ENTER("cusparseLtGetProperty", I(property), P(value))
    const int parts[] = {VERSION / 10000, VERSION / 100 % 100, VERSION % 100};
    NEED(property >= 0 && property < 3, INVALID_VALUE)
    *value = parts[property];
    return 0;
}

const char *cusparseLtGetErrorName(int status) {
    switch (status) {
#define CONSTANT(name, value)                                                                      \
    case value: return #name;
        CONSTANT(CUSPARSE_STATUS_NOT_INITIALIZED, 1)
        CONSTANT(CUSPARSE_STATUS_ALLOC_FAILED, 2)
        CONSTANT(CUSPARSE_STATUS_INVALID_VALUE, 3)
        CONSTANT(CUSPARSE_STATUS_ARCH_MISMATCH, 4)
        CONSTANT(CUSPARSE_STATUS_EXECUTION_FAILED, 6)
        CONSTANT(CUSPARSE_STATUS_INTERNAL_ERROR, 7)
        CONSTANT(CUSPARSE_STATUS_NOT_SUPPORTED, 10)
#undef CONSTANT
    default: return "unrecognized error code";
    }
}

int cusparseLtInit(void *handle) {
    ENTER("cusparseLtInit", P(handle))
    NEED((uintptr_t)handle % 16 == 0, INVALID_VALUE)
    start(handle, HANDLE);
    return 0;
}

int cusparseLtDestroy(const void *handle) {
    ENTER("cusparseLtDestroy", P(handle))
    HANDLE_OF(handle)
    return 0;
}

static int describe(void *to, int64_t rows, int64_t columns, int64_t leading, uint32_t alignment,
                    int type, int order, int sparse) {
    int64_t multiple = type == R_8I ? sparse ? 32 : 16 : sparse ? 16 : 8;
    NEED((uintptr_t)to % 16 == 0 && order == BCFG_CUSPARSE_ORDER_ROW && alignment % 16 == 0,
         INVALID_VALUE)
    NEED(rows > 0 && columns > 0 && leading >= columns, INVALID_VALUE)
    NEED(type == R_32I || (rows % multiple == 0 && columns % multiple == 0), NOT_SUPPORTED)
    NEED(leading * (int64_t)bytes_of(type) % 16 == 0, NOT_SUPPORTED)
    start(to, MATRIX);
    *(matrix *)to = (matrix){MATRIX, sparse, type, rows, columns, leading};
    return 0;
}

int cusparseLtDenseDescriptorInit(const void *handle, void *matrix, int64_t rows, int64_t columns,
                                  int64_t leading, uint32_t alignment, int type, int order) {
    ENTER("cusparseLtDenseDescriptorInit", I(rows), I(columns), I(leading), I(alignment), I(type),
          I(order))
    HANDLE_OF(handle)
    return describe(matrix, rows, columns, leading, alignment, type, order, 0);
}

int cusparseLtStructuredDescriptorInit(const void *handle, void *matrix, int64_t rows,
                                       int64_t columns, int64_t leading, uint32_t alignment,
                                       int type, int order, int sparsity) {
    ENTER("cusparseLtStructuredDescriptorInit", I(rows), I(columns), I(leading), I(alignment),
          I(type), I(order), I(sparsity))
    HANDLE_OF(handle)
    NEED(sparsity == BCFG_CUSPARSELT_SPARSITY_50_PERCENT, INVALID_VALUE)
    return describe(matrix, rows, columns, leading, alignment, type, order, 1);
}

/* Each ends what has the kind, so that a use after it is seen. */
#define DESTROY(name, of, word)                                                                    \
    int name(const void *word) {                                                                   \
        ENTER(#name, P(word))                                                                      \
        NEED(is(word, of), INVALID_VALUE)                                                          \
        ((header *)word)->kind = 0;                                                                \
        return 0;                                                                                  \
    }
DESTROY(cusparseLtMatDescriptorDestroy, MATRIX, matrix)
DESTROY(cusparseLtMatmulPlanDestroy, PLAN, plan)
#if VERSION >= 800
DESTROY(cusparseLtMatmulAlgSelectionDestroy, SELECTION, selection)
#endif

static int fits(int type, int result, int compute, int transposes_b) {
    if (type == R_8I)
        return compute == BCFG_CUSPARSE_COMPUTE_32I && transposes_b &&
               (result == R_8I || result == R_32I || result == R_16F || result == R_16BF);
    return (type == R_16F || type == R_16BF) && result == type &&
           compute == BCFG_CUSPARSE_COMPUTE_32F;
}

int cusparseLtMatmulDescriptorInit(const void *handle, void *product_, int transa, int transb,
                                   const void *a, const void *b, const void *c, const void *d,
                                   int compute_type) {
    ENTER("cusparseLtMatmulDescriptorInit", I(transa), I(transb), I(compute_type))
    HANDLE_OF(handle)
    NEED(is(a, MATRIX) && is(b, MATRIX) && is(c, MATRIX) && is(d, MATRIX), INVALID_VALUE)
    const matrix *of_a = a, *of_b = b, *of_d = d;
    int64_t k = transb ? of_b->columns : of_b->rows, n = transb ? of_b->rows : of_b->columns;
    NEED(of_a->sparse && !of_b->sparse && transa == 0, NOT_SUPPORTED)
    NEED(of_a->columns == k && of_d->rows == of_a->rows && of_d->columns == n, INVALID_VALUE)
    NEED(of_a->type == of_b->type && fits(of_a->type, of_d->type, compute_type, transb),
         NOT_SUPPORTED)
    start(product_, PRODUCT);
    *(product *)product_ = (product){PRODUCT, transb, compute_type, *of_a, *of_b, *of_d, NULL};
    return 0;
}

int cusparseLtMatmulDescSetAttribute(const void *handle, void *product_, int attribute,
                                     const void *value, size_t bytes) {
    const void *set = NULL;
    memcpy(&set, value, sizeof set);
    ENTER("cusparseLtMatmulDescSetAttribute", I(attribute), P(set), I(bytes))
    HANDLE_OF(handle)
    NEED(is(product_, PRODUCT) && attribute == BCFG_CUSPARSELT_MATMUL_BIAS_POINTER &&
             bytes == sizeof set, INVALID_VALUE)
    ((product *)product_)->bias = set;
    return 0;
}

int cusparseLtMatmulAlgSelectionInit(const void *handle, void *selection_, const void *product,
                                     int algorithm) {
    ENTER("cusparseLtMatmulAlgSelectionInit", I(algorithm))
    HANDLE_OF(handle)
    NEED(is(product, PRODUCT) && algorithm == BCFG_CUSPARSELT_MATMUL_ALG_DEFAULT, INVALID_VALUE)
    start(selection_, SELECTION);
    *(selection *)selection_ = (selection){SELECTION, 0, 1, 0};
    return 0;
}

static int *field(const void *selection_, int attribute) {
    selection *it = (selection *)selection_;
    switch (attribute) {
    case BCFG_CUSPARSELT_MATMUL_ALG_CONFIG_ID: return &it->algorithm;
    case BCFG_CUSPARSELT_MATMUL_SPLIT_K: return &it->split_k;
    case BCFG_CUSPARSELT_MATMUL_SPLIT_K_MODE: return &it->split_k_mode;
    default: return NULL;
    }
}

int cusparseLtMatmulAlgSetAttribute(const void *handle, void *selection, int attribute,
                                    const void *value, size_t bytes) {
    int set = bytes == sizeof set ? *(const int *)value : -1;
    ENTER("cusparseLtMatmulAlgSetAttribute", I(attribute), I(set), I(bytes))
    HANDLE_OF(handle)
    NEED(is(selection, SELECTION) && bytes == sizeof set && field(selection, attribute),
         INVALID_VALUE)
    NEED(attribute != BCFG_CUSPARSELT_MATMUL_ALG_CONFIG_ID || (set >= 0 && set <= setting_most),
         INVALID_VALUE)
    *field(selection, attribute) = set;
    return 0;
}

int cusparseLtMatmulAlgGetAttribute(const void *handle, const void *selection, int attribute,
                                    void *value, size_t bytes) {
    ENTER("cusparseLtMatmulAlgGetAttribute", I(attribute), I(bytes))
    HANDLE_OF(handle)
    NEED(is(selection, SELECTION) && bytes == sizeof(int), INVALID_VALUE)
    if (attribute == BCFG_CUSPARSELT_MATMUL_ALG_CONFIG_MAX_ID) {
        *(int *)value = (int)setting_most;
        return 0;
    }
    NEED(field(selection, attribute), INVALID_VALUE)
    *(int *)value = *field(selection, attribute);
    return 0;
}

int cusparseLtMatmulPlanInit(const void *handle, void *plan_, const void *product,
                             const void *selection) {
    ENTER("cusparseLtMatmulPlanInit", P(plan_))
    HANDLE_OF(handle)
    NEED(is(product, PRODUCT) && is(selection, SELECTION), INVALID_VALUE)
    start(plan_, PLAN);
    *(plan *)plan_ = (plan){PLAN, product, selection};
    return 0;
}

int cusparseLtMatmulGetWorkspace(const void *handle, const void *plan, size_t *bytes) {
    ENTER("cusparseLtMatmulGetWorkspace", P(plan))
    HANDLE_OF(handle)
    NEED(is(plan, PLAN), INVALID_VALUE)
    *bytes = (size_t)setting_work;
    return 0;
}

/* Two of every four numbers of a row, with their places; 0 when there are more. */
static int kept_of(const void *from, int64_t first, int type, int places[2]) {
    int count = 0;
    for (int i = 0; i < 4; i++)
        if (value_at(from, first + i, type) != 0) {
            if (count == 2) return 0;
            places[count++] = i;
        }
    /* What is missing is some other number, which is 0. */
    for (int i = 0; i < 4 && count < 2; i++)
        if (count == 0 || places[0] != i) places[count++] = i;
    return 1;
}

int cusparseLtSpMMAPruneCheck2(const void *handle, const void *matrix_, int is_a, int operation,
                               const void *in, int *invalid, void *stream) {
    ENTER("cusparseLtSpMMAPruneCheck2", I(is_a), I(operation), P(in), P(invalid), P(stream))
    HANDLE_OF(handle)
    const matrix *it = matrix_;
    NEED(is(it, MATRIX) && it->sparse && is_a == 1 && operation == 0, INVALID_VALUE)
    *invalid = 0;
    int places[2];
    for (int64_t row = 0; row < it->rows; row++)
        for (int64_t column = 0; column < it->columns; column += 4)
            if (!kept_of(in, row * it->leading + column, it->type, places)) *invalid = 1;
    return 0;
}

int cusparseLtSpMMACompressedSize2(const void *handle, const void *matrix_, size_t *bytes,
                                   size_t *buffer_bytes) {
    ENTER("cusparseLtSpMMACompressedSize2", P(bytes))
    HANDLE_OF(handle)
    const matrix *it = matrix_;
    NEED(is(it, MATRIX) && it->sparse, INVALID_VALUE)
    *bytes = (size_t)(it->rows * it->columns / 2) * (bytes_of(it->type) + 1);
    *buffer_bytes = (size_t)setting_buffer;
    return 0;
}

int cusparseLtSpMMACompress2(const void *handle, const void *matrix_, int is_a, int operation,
                             const void *dense, void *compressed, void *buffer, void *stream) {
    ENTER("cusparseLtSpMMACompress2", I(is_a), I(operation), P(dense), P(compressed), P(buffer),
          P(stream))
    HANDLE_OF(handle)
    const matrix *it = matrix_;
    NEED(is(it, MATRIX) && it->sparse && is_a == 1 && operation == 0, INVALID_VALUE)
    NEED((uintptr_t)dense % 16 == 0 && (uintptr_t)compressed % 16 == 0, INVALID_VALUE)
    NEED(buffer != NULL || setting_buffer == 0, INVALID_VALUE)
    if (setting_buffer) memset(buffer, 0xff, (size_t)setting_buffer);
    int64_t half = it->rows * it->columns / 2, at = 0;
    unsigned char *index = (unsigned char *)compressed + half * (int64_t)bytes_of(it->type);
    for (int64_t row = 0; row < it->rows; row++)
        for (int64_t column = 0; column < it->columns; column += 4) {
            int places[2] = {0, 1};
            (void)kept_of(dense, row * it->leading + column, it->type, places);
            for (int i = 0; i < 2; i++, at++) {
                double value = value_at(dense, row * it->leading + column + places[i], it->type);
                write_at(compressed, at, it->type, value);
                index[at] = (unsigned char)places[i];
            }
        }
    return 0;
}

static void compute(const product *it, const void *a, const void *b, void *d) {
    int64_t half = it->a.rows * it->a.columns / 2, row_half = it->a.columns / 2;
    const unsigned char *index = (const unsigned char *)a + half * (int64_t)bytes_of(it->a.type);
    for (int64_t row = 0; row < it->d.rows; row++)
        for (int64_t column = 0; column < it->d.columns; column++) {
            double sum = it->bias ? value_at(it->bias, row, it->d.type) : 0;
            for (int64_t at = 0; at < row_half; at++) {
                int64_t inner = at / 2 * 4 + index[row * row_half + at];
                int64_t place = it->transposes_b ? column * it->b.leading + inner
                                                 : inner * it->b.leading + column;
                sum += value_at(a, row * row_half + at, it->a.type) *
                       value_at(b, place, it->b.type);
            }
            write_at(d, row * it->d.leading + column, it->d.type, sum);
        }
}

static int run(const void *plan_, const void *alpha, const void *a, const void *b,
               const void *beta, const void *c, void *d, void *area) {
    const plan *it = plan_;
    NEED(is(it, PLAN) && is(it->product, PRODUCT) && is(it->selection, SELECTION), INVALID_VALUE)
    NEED(*(const float *)alpha == 1 && *(const float *)beta == 0, INVALID_VALUE)
    NEED(((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d) % 16 == 0, INVALID_VALUE)
    NEED(area != NULL || setting_work == 0, INVALID_VALUE)
    if (setting_work) memset(area, 0xff, (size_t)setting_work);
    compute(it->product, a, b, d);
    return 0;
}

int cusparseLtMatmul(const void *handle, const void *plan_, const void *alpha, const void *a,
                     const void *b, const void *beta, const void *c, void *d, void *workspace,
                     void **streams, int32_t count) {
    const plan *known = plan_;
    int algorithm = known->selection->algorithm, split_k = known->selection->split_k;
    int split_k_mode = known->selection->split_k_mode;
    void *stream = count == 1 ? *streams : (void *)(uintptr_t)-1;
    ENTER("cusparseLtMatmul", P(a), P(b), P(c), P(d), P(workspace), P(stream), I(algorithm),
          I(split_k), I(split_k_mode))
    HANDLE_OF(handle)
    return run(plan_, alpha, a, b, beta, c, d, workspace);
}

int cusparseLtMatmulSearch(const void *handle, void *plan_, const void *alpha, const void *a,
                           const void *b, const void *beta, const void *c, void *d,
                           void *workspace, void **streams, int32_t count) {
    void *stream = count == 1 ? *streams : (void *)(uintptr_t)-1;
    ENTER("cusparseLtMatmulSearch", P(a), P(b), P(c), P(d), P(workspace), P(stream))
    HANDLE_OF(handle)
    status = run(plan_, alpha, a, b, beta, c, d, workspace);
    if (status != 0) return status;
    selection *found = (selection *)((plan *)plan_)->selection;
    found->algorithm = (int)setting_fastest;
    found->split_k = (int)setting_splits;
    found->split_k_mode = setting_splits > 1;
    return 0;
}
