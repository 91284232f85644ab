/* Descriptors as cuBLASLt has them: attributes by number, each of a size. For its double. */
#ifndef DESCRIBED_H
#define DESCRIBED_H

#include "blas_rules.h"
#include "device/abi_cublaslt.h"

enum { OPERATION = 1, LAYOUT, PREFERENCE, ATTRIBUTES = 48 };

/* A descriptor, a layout or a preference: its attributes by their numbers. */
typedef struct {
    int kind;
    int64_t values[ATTRIBUTES];
} described;

/* How many bytes an attribute has; 0 for one that this double does not know. */
static size_t bytes_of(int kind, int attribute) {
    if (kind == OPERATION) switch (attribute) {
        case BCFG_CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        case BCFG_CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        case BCFG_CUBLASLT_MATMUL_DESC_POINTER_MODE:
        case BCFG_CUBLASLT_MATMUL_DESC_TRANSA:
        case BCFG_CUBLASLT_MATMUL_DESC_TRANSB:
        case BCFG_CUBLASLT_MATMUL_DESC_EPILOGUE:
        case BCFG_CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
        case BCFG_CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return 4;
        case BCFG_CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        case BCFG_CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return 8;
        default: return 0;
        }
    if (kind == LAYOUT) switch (attribute) {
        case BCFG_CUBLASLT_MATRIX_LAYOUT_TYPE:
        case BCFG_CUBLASLT_MATRIX_LAYOUT_ORDER:
        case BCFG_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return 4;
        case BCFG_CUBLASLT_MATRIX_LAYOUT_ROWS:
        case BCFG_CUBLASLT_MATRIX_LAYOUT_COLS:
        case BCFG_CUBLASLT_MATRIX_LAYOUT_LD:
        case BCFG_CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return 8;
        default: return 0;
        }
    switch (attribute) {
    case BCFG_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
    case BCFG_CUBLASLT_MATMUL_PREF_IMPL_MASK: return 8;
    case BCFG_CUBLASLT_MATMUL_PREF_SEARCH_MODE:
    case BCFG_CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    case BCFG_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case BCFG_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case BCFG_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case BCFG_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return 4;
    default: return 0;
    }
}

static int create(void **place, int kind, described **made) {
    *made = calloc(1, sizeof **made);
    NEED(*made, ALLOC_FAILED)
    (*made)->kind = kind;
    *place = *made;
    return 0;
}

static int destroy(void *place, int kind) {
    described *known = place;
    NEED(known && known->kind == kind, INVALID_VALUE)
    known->kind = 0;
    free(known);
    return 0;
}

static int set(void *place, int kind, int attribute, const void *value, size_t bytes) {
    described *known = place;
    NEED(known && known->kind == kind && value, INVALID_VALUE)
    size_t size = bytes_of(kind, attribute);
    NEED(size != 0 && bytes == size, INVALID_VALUE)
    int32_t narrow;
    if (size == 4) {
        memcpy(&narrow, value, 4);
        known->values[attribute] = narrow;
    } else {
        memcpy(&known->values[attribute], value, 8);
    }
    return 0;
}

static int get(void *place, int kind, int attribute, void *value, size_t bytes, size_t *written) {
    described *known = place;
    NEED(known && known->kind == kind, INVALID_VALUE)
    size_t size = bytes_of(kind, attribute);
    NEED(size != 0 && (bytes == size || (bytes == 0 && written)), INVALID_VALUE)
    if (written) *written = size;
    int32_t narrow = (int32_t)known->values[attribute];
    if (bytes == 4) memcpy(value, &narrow, 4);
    if (bytes == 8) memcpy(value, &known->values[attribute], 8);
    return 0;
}

/* The value as it is set, for the record. */
static argument content(const void *value, size_t bytes) {
    int64_t wide = 0;
    int32_t narrow = 0;
    if (value && bytes == 4) memcpy(&narrow, value, 4);
    if (value && bytes == 8) memcpy(&wide, value, 8);
    return bytes == 4 ? I(narrow) : I(wide);
}
#define V(value) content(value, bytes)

#endif
