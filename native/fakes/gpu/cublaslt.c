/* A libcublasLt that computes on memory of the host. See lt.h.
 *
 * VERSION is what it says of itself: 130100 is 13.1.0.
 *
 * Settings: split_k and workspace, of the divided algorithm; algorithms, how many the heuristic
 * knows.
 */
#ifndef VERSION
#define VERSION 130100
#endif
#define SETTINGS SETTING(split_k, 4) SETTING(workspace, 65536) SETTING(algorithms, 8)
#include "recorded.h"

#include "blas_rules.h"
#include "gpu/abi_cublaslt.h"

/* The prototypes of the table are those of the definitions below. */
#define DECLARE(result, name, parameters) API result name parameters;
BCFG_CUBLASLT_SYMBOLS(DECLARE, DECLARE)
#undef DECLARE

#define LT(name) cublasLt##name
#define NAME(name) "cublasLt" #name
#define N(name) BCFG_CUBLASLT_##name
#define ALGORITHM bcfg_cublaslt_algorithm
#define HEURISTIC bcfg_cublaslt_heuristic
#define OPERATION_N BCFG_CUBLAS_OP_N
enum { WORKSPACE_ALIGNMENT = 256 };

#define SETTABLE                                                                                   \
    ATTRIBUTE(OPERATION, MATMUL_DESC_COMPUTE_TYPE, 4)                                              \
    ATTRIBUTE(OPERATION, MATMUL_DESC_SCALE_TYPE, 4)                                                \
    ATTRIBUTE(OPERATION, MATMUL_DESC_POINTER_MODE, 4)                                              \
    ATTRIBUTE(OPERATION, MATMUL_DESC_TRANSA, 4)                                                    \
    ATTRIBUTE(OPERATION, MATMUL_DESC_TRANSB, 4)                                                    \
    ATTRIBUTE(OPERATION, MATMUL_DESC_EPILOGUE, 4)                                                  \
    ATTRIBUTE(OPERATION, MATMUL_DESC_SM_COUNT_TARGET, 4)                                           \
    ATTRIBUTE(OPERATION, MATMUL_DESC_BIAS_DATA_TYPE, 4)                                            \
    ATTRIBUTE(OPERATION, MATMUL_DESC_BIAS_POINTER, 8)                                              \
    ATTRIBUTE(OPERATION, MATMUL_DESC_BIAS_BATCH_STRIDE, 8)                                         \
    ATTRIBUTE(LAYOUT, MATRIX_LAYOUT_TYPE, 4)                                                       \
    ATTRIBUTE(LAYOUT, MATRIX_LAYOUT_ORDER, 4)                                                      \
    ATTRIBUTE(LAYOUT, MATRIX_LAYOUT_BATCH_COUNT, 4)                                                \
    ATTRIBUTE(LAYOUT, MATRIX_LAYOUT_ROWS, 8)                                                       \
    ATTRIBUTE(LAYOUT, MATRIX_LAYOUT_COLS, 8)                                                       \
    ATTRIBUTE(LAYOUT, MATRIX_LAYOUT_LD, 8)                                                         \
    ATTRIBUTE(LAYOUT, MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 8)                                       \
    ATTRIBUTE(PREFERENCE, MATMUL_PREF_MAX_WORKSPACE_BYTES, 8)                                      \
    ATTRIBUTE(PREFERENCE, MATMUL_PREF_SEARCH_MODE, 4)                                              \
    ATTRIBUTE(PREFERENCE, MATMUL_PREF_REDUCTION_SCHEME_MASK, 4)                                    \
    ATTRIBUTE(PREFERENCE, MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4)                                    \
    ATTRIBUTE(PREFERENCE, MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 4)                                    \
    ATTRIBUTE(PREFERENCE, MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 4)                                    \
    ATTRIBUTE(PREFERENCE, MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 4)

static int operation_of(int operation) { return operation >= 0 && operation <= 2 ? operation : -1; }

static int compute_of(int compute) {
    return VERSION >= 120900 || compute < BCFG_CUBLAS_COMPUTE_32F_EMULATED_16BFX9 ? compute : -1;
}

#include "lt.h"

static void pack(ALGORITHM *algorithm, const remembered *from) {
    *algorithm = (ALGORITHM){{from->id, from->split, from->scheme, from->needed, from->problem}};
}

static void unpack(const ALGORITHM *algorithm, remembered *into) {
    const uint64_t *data = algorithm->data;
    *into = (remembered){data[0], data[1], data[2], data[3], data[4]};
}

size_t cublasLtGetVersion(void) { return VERSION; }
const char *cublasLtGetStatusName(int status) { return status_name(status); }
