/* abi_hipblaslt.h - what we use of hipBLASLt, libhipblaslt.so.0 and libhipblaslt.so.1.
 *
 * Source: hipblaslt/hipblaslt.h of hipBLASLt 0.11 (ROCm/hipBLASLt 7d9fb68) and 1 (ROCm/rocm-libraries
 * 006d2e0, as far as its enumerations). `native/abi/check.py` compares this file with the vendor's
 * header. Handles, descriptors, layouts and preferences are `void *`, enumerations int. Statuses,
 * operations, element types and compute types are those of abi_hipblas.h.
 *
 * The functions are cuBLASLt's, the numbers of their attributes are not.
 */
#ifndef BACKENDCFG_DEVICE_ABI_HIPBLASLT_H
#define BACKENDCFG_DEVICE_ABI_HIPBLASLT_H

#include "gpu/abi_hipblas.h"

/* CONSTANT(name, value): the vendor's name and number; ours is BCFG_ before it. */
#define BCFG_HIPBLASLT_CONSTANTS(CONSTANT)                                                         \
    CONSTANT(HIPBLASLT_ORDER_COL, 0)                                                               \
    CONSTANT(HIPBLASLT_ORDER_ROW, 1)                                                               \
    CONSTANT(HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 0)                                               \
    CONSTANT(HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 1)                                      \
    CONSTANT(HIPBLASLT_MATRIX_LAYOUT_TYPE, 2)                                                      \
    CONSTANT(HIPBLASLT_MATRIX_LAYOUT_ORDER, 3)                                                     \
    CONSTANT(HIPBLASLT_MATRIX_LAYOUT_ROWS, 4)                                                      \
    CONSTANT(HIPBLASLT_MATRIX_LAYOUT_COLS, 5)                                                      \
    CONSTANT(HIPBLASLT_MATRIX_LAYOUT_LD, 6)                                                        \
    CONSTANT(HIPBLASLT_MATMUL_DESC_TRANSA, 0)                                                      \
    CONSTANT(HIPBLASLT_MATMUL_DESC_TRANSB, 1)                                                      \
    CONSTANT(HIPBLASLT_MATMUL_DESC_EPILOGUE, 2)                                                    \
    CONSTANT(HIPBLASLT_MATMUL_DESC_BIAS_POINTER, 3)                                                \
    CONSTANT(HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 4)                                              \
    CONSTANT(HIPBLASLT_MATMUL_DESC_POINTER_MODE, 13)                                               \
    CONSTANT(HIPBLASLT_MATMUL_PREF_SEARCH_MODE, 0)                                                 \
    CONSTANT(HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                         \
    CONSTANT(HIPBLASLT_EPILOGUE_DEFAULT, 1)                                                        \
    CONSTANT(HIPBLASLT_EPILOGUE_BIAS, 4)

enum {
#define CONSTANT(name, value) BCFG_##name = value,
    BCFG_HIPBLASLT_CONSTANTS(CONSTANT)
#undef CONSTANT
};

/* Opaque, may be copied. */
typedef struct {
    uint8_t data[16];
    size_t max_workspace;
} bcfg_hipblaslt_algorithm;

/* One answer of the heuristic. */
typedef struct {
    bcfg_hipblaslt_algorithm algorithm;
    size_t workspace;                  /* bytes that it needs */
    int status;                        /* HIPBLAS_STATUS_SUCCESS, or the rest means nothing */
    float waves;
    int reserved[4];
} bcfg_hipblaslt_heuristic;

/* FIELD(the vendor's struct, its field, our struct, its field). */
#define BCFG_HIPBLASLT_FIELDS(FIELD)                                                               \
    FIELD(hipblasLtMatmulHeuristicResult_t, algo, bcfg_hipblaslt_heuristic, algorithm)             \
    FIELD(hipblasLtMatmulHeuristicResult_t, workspaceSize, bcfg_hipblaslt_heuristic, workspace)    \
    FIELD(hipblasLtMatmulHeuristicResult_t, state, bcfg_hipblaslt_heuristic, status)               \
    FIELD(hipblasLtMatmulHeuristicResult_t, wavesCount, bcfg_hipblaslt_heuristic, waves)

/* REQUIRED and OPTIONAL(result, name, parameters). An optional one may be NULL in the table. */
#define BCFG_HIPBLASLT_SYMBOLS(REQUIRED, OPTIONAL)                                                 \
    REQUIRED(int, hipblasLtCreate, (void **handle))                                                \
    REQUIRED(int, hipblasLtDestroy, (void *handle))                                                \
    REQUIRED(int, hipblasLtMatmulDescCreate, (void **description, int compute_type,                \
                                              int scale_type))                                     \
    REQUIRED(int, hipblasLtMatmulDescDestroy, (void *description))                                 \
    REQUIRED(int, hipblasLtMatmulDescSetAttribute,                                                 \
             (void *description, int attribute, const void *value, size_t bytes))                  \
    REQUIRED(int, hipblasLtMatmulDescGetAttribute,                                                 \
             (void *description, int attribute, void *value, size_t bytes, size_t *written))       \
    REQUIRED(int, hipblasLtMatrixLayoutCreate,                                                     \
             (void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading))          \
    REQUIRED(int, hipblasLtMatrixLayoutDestroy, (void *layout))                                    \
    REQUIRED(int, hipblasLtMatrixLayoutSetAttribute,                                               \
             (void *layout, int attribute, const void *value, size_t bytes))                       \
    REQUIRED(int, hipblasLtMatrixLayoutGetAttribute,                                               \
             (void *layout, int attribute, void *value, size_t bytes, size_t *written))            \
    REQUIRED(int, hipblasLtMatmulPreferenceCreate, (void **preference))                            \
    REQUIRED(int, hipblasLtMatmulPreferenceDestroy, (void *preference))                            \
    REQUIRED(int, hipblasLtMatmulPreferenceSetAttribute,                                           \
             (void *preference, int attribute, const void *value, size_t bytes))                   \
    REQUIRED(int, hipblasLtMatmulAlgoGetHeuristic,                                                 \
             (void *handle, void *description, void *a, void *b, void *c, void *d,                 \
              void *preference, int wanted, bcfg_hipblaslt_heuristic *found, int *count))          \
    REQUIRED(int, hipblasLtMatmul,                                                                 \
             (void *handle, void *description, const void *alpha, const void *a, void *a_layout,   \
              const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,      \
              void *d, void *d_layout, const bcfg_hipblaslt_algorithm *algorithm,                  \
              void *workspace, size_t workspace_bytes, void *stream))

typedef struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    BCFG_HIPBLASLT_SYMBOLS(MEMBER, MEMBER)
#undef MEMBER
} bcfg_hipblaslt_table;

#endif
