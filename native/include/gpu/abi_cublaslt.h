/* abi_cublaslt.h - what we use of cuBLASLt, libcublasLt.so.12 and libcublasLt.so.13.
 *
 * Source: cublasLt.h of cuBLAS 13.10 and 12.9. `native/abi/check.py` compares this file with the
 * vendor's headers. Handles, descriptors, layouts and preferences are `void *`, enumerations int.
 * Statuses, element types and compute types are those of abi_cublas.h.
 */
#ifndef BACKENDCFG_DEVICE_ABI_CUBLASLT_H
#define BACKENDCFG_DEVICE_ABI_CUBLASLT_H

#include "gpu/abi_cublas.h"

/* CONSTANT(name, value): the vendor's name and number; ours is BCFG_ before it. */
#define BCFG_CUBLASLT_CONSTANTS(CONSTANT)                                                          \
    CONSTANT(CUBLASLT_ORDER_COL, 0)                                                                \
    CONSTANT(CUBLASLT_ORDER_ROW, 1)                                                                \
    CONSTANT(CUBLASLT_MATRIX_LAYOUT_TYPE, 0)                                                       \
    CONSTANT(CUBLASLT_MATRIX_LAYOUT_ORDER, 1)                                                      \
    CONSTANT(CUBLASLT_MATRIX_LAYOUT_ROWS, 2)                                                       \
    CONSTANT(CUBLASLT_MATRIX_LAYOUT_COLS, 3)                                                       \
    CONSTANT(CUBLASLT_MATRIX_LAYOUT_LD, 4)                                                         \
    CONSTANT(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)                                                \
    CONSTANT(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)                                       \
    CONSTANT(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 0)                                                 \
    CONSTANT(CUBLASLT_MATMUL_DESC_SCALE_TYPE, 1)                                                   \
    CONSTANT(CUBLASLT_MATMUL_DESC_POINTER_MODE, 2)                                                 \
    CONSTANT(CUBLASLT_MATMUL_DESC_TRANSA, 3)                                                       \
    CONSTANT(CUBLASLT_MATMUL_DESC_TRANSB, 4)                                                       \
    CONSTANT(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                                     \
    CONSTANT(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                                                 \
    CONSTANT(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, 10)                                           \
    CONSTANT(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, 15)                                             \
    CONSTANT(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 26)                                              \
    CONSTANT(CUBLASLT_MATMUL_PREF_SEARCH_MODE, 0)                                                  \
    CONSTANT(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                          \
    CONSTANT(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)                                        \
    CONSTANT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                                        \
    CONSTANT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                                        \
    CONSTANT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                                        \
    CONSTANT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)                                        \
    CONSTANT(CUBLASLT_REDUCTION_SCHEME_NONE, 0)                                                    \
    CONSTANT(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)                                            \
    CONSTANT(CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 4)                                             \
    CONSTANT(CUBLASLT_REDUCTION_SCHEME_MASK, 7)                                                    \
    CONSTANT(CUBLASLT_EPILOGUE_DEFAULT, 1)                                                         \
    CONSTANT(CUBLASLT_EPILOGUE_BIAS, 4)

enum {
#define CONSTANT(name, value) BCFG_##name = value,
    BCFG_CUBLASLT_CONSTANTS(CONSTANT)
#undef CONSTANT
};

/* Semi-opaque: 64 bytes that may be copied. */
typedef struct {
    uint64_t data[8];
} bcfg_cublaslt_algorithm;

/* One answer of the heuristic. */
typedef struct {
    bcfg_cublaslt_algorithm algorithm;
    size_t workspace;                  /* bytes that it needs */
    int status;                        /* CUBLAS_STATUS_SUCCESS, or the rest means nothing */
    float waves;
    int reserved[4];
} bcfg_cublaslt_heuristic;

/* FIELD(the vendor's struct, its field, our struct, its field). */
#define BCFG_CUBLASLT_FIELDS(FIELD)                                                                \
    FIELD(cublasLtMatmulHeuristicResult_t, algo, bcfg_cublaslt_heuristic, algorithm)               \
    FIELD(cublasLtMatmulHeuristicResult_t, workspaceSize, bcfg_cublaslt_heuristic, workspace)      \
    FIELD(cublasLtMatmulHeuristicResult_t, state, bcfg_cublaslt_heuristic, status)                 \
    FIELD(cublasLtMatmulHeuristicResult_t, wavesCount, bcfg_cublaslt_heuristic, waves)

/* REQUIRED and OPTIONAL(result, name, parameters). An optional one may be NULL in the table. */
#define BCFG_CUBLASLT_SYMBOLS(REQUIRED, OPTIONAL)                                                  \
    REQUIRED(int, cublasLtCreate, (void **handle))                                                 \
    REQUIRED(int, cublasLtDestroy, (void *handle))                                                 \
    REQUIRED(size_t, cublasLtGetVersion, (void))                                                   \
    REQUIRED(const char *, cublasLtGetStatusName, (int status))                                    \
    REQUIRED(int, cublasLtMatmulDescCreate, (void **description, int compute_type,                 \
                                             int scale_type))                                      \
    REQUIRED(int, cublasLtMatmulDescDestroy, (void *description))                                  \
    REQUIRED(int, cublasLtMatmulDescSetAttribute,                                                  \
             (void *description, int attribute, const void *value, size_t bytes))                  \
    REQUIRED(int, cublasLtMatmulDescGetAttribute,                                                  \
             (void *description, int attribute, void *value, size_t bytes, size_t *written))       \
    REQUIRED(int, cublasLtMatrixLayoutCreate,                                                      \
             (void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading))          \
    REQUIRED(int, cublasLtMatrixLayoutDestroy, (void *layout))                                     \
    REQUIRED(int, cublasLtMatrixLayoutSetAttribute,                                                \
             (void *layout, int attribute, const void *value, size_t bytes))                       \
    REQUIRED(int, cublasLtMatrixLayoutGetAttribute,                                                \
             (void *layout, int attribute, void *value, size_t bytes, size_t *written))            \
    REQUIRED(int, cublasLtMatmulPreferenceCreate, (void **preference))                             \
    REQUIRED(int, cublasLtMatmulPreferenceDestroy, (void *preference))                             \
    REQUIRED(int, cublasLtMatmulPreferenceSetAttribute,                                            \
             (void *preference, int attribute, const void *value, size_t bytes))                   \
    REQUIRED(int, cublasLtMatmulAlgoGetHeuristic,                                                  \
             (void *handle, void *description, void *a, void *b, void *c, void *d,                 \
              void *preference, int wanted, bcfg_cublaslt_heuristic *found, int *count))           \
    REQUIRED(int, cublasLtMatmul,                                                                  \
             (void *handle, void *description, const void *alpha, const void *a, void *a_layout,   \
              const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,      \
              void *d, void *d_layout, const bcfg_cublaslt_algorithm *algorithm,                   \
              void *workspace, size_t workspace_bytes, void *stream))

typedef struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    BCFG_CUBLASLT_SYMBOLS(MEMBER, MEMBER)
#undef MEMBER
} bcfg_cublaslt_table;

#endif
