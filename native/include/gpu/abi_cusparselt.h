/* abi_cusparselt.h - what we use of cuSPARSELt, libcusparseLt.so.0.
 *
 * Source: cusparseLt.h of cuSPARSELt 0.7.1, 0.8.1 and 0.10.0, and the cusparse.h that 0.10.0 brings.
 * `native/abi/check.py` compares this file with the vendor's headers. Its structs are opaque memory of
 * the caller's, 16-byte aligned: 1024 bytes in 0.7, 512 since, so that 1024 serve all. Enumerations
 * are int.
 */
#ifndef BACKENDCFG_DEVICE_ABI_CUSPARSELT_H
#define BACKENDCFG_DEVICE_ABI_CUSPARSELT_H

#include <stddef.h>
#include <stdint.h>

/* CONSTANT(name, value): the vendor's name and number; ours is BCFG_ before it. */
#define BCFG_CUSPARSELT_CONSTANTS(CONSTANT)                                                        \
    CONSTANT(CUSPARSE_STATUS_SUCCESS, 0)                                                           \
    CONSTANT(CUSPARSE_STATUS_NOT_INITIALIZED, 1)                                                   \
    CONSTANT(CUSPARSE_STATUS_ALLOC_FAILED, 2)                                                      \
    CONSTANT(CUSPARSE_STATUS_INVALID_VALUE, 3)                                                     \
    CONSTANT(CUSPARSE_STATUS_ARCH_MISMATCH, 4)                                                     \
    CONSTANT(CUSPARSE_STATUS_EXECUTION_FAILED, 6)                                                  \
    CONSTANT(CUSPARSE_STATUS_INTERNAL_ERROR, 7)                                                    \
    CONSTANT(CUSPARSE_STATUS_NOT_SUPPORTED, 10)                                                    \
    CONSTANT(CUSPARSE_STATUS_INSUFFICIENT_RESOURCES, 11)                                           \
    CONSTANT(CUSPARSE_OPERATION_NON_TRANSPOSE, 0)                                                  \
    CONSTANT(CUSPARSE_OPERATION_TRANSPOSE, 1)                                                      \
    CONSTANT(CUSPARSE_ORDER_ROW, 2)                                                                \
    CONSTANT(CUSPARSE_COMPUTE_32I, 0)                                                              \
    CONSTANT(CUSPARSE_COMPUTE_32F, 2)                                                              \
    CONSTANT(CUSPARSELT_SPARSITY_50_PERCENT, 0)                                                    \
    CONSTANT(CUSPARSELT_MATMUL_BIAS_POINTER, 8)                                                    \
    CONSTANT(CUSPARSELT_MATMUL_ALG_DEFAULT, 0)                                                     \
    CONSTANT(CUSPARSELT_MATMUL_ALG_CONFIG_ID, 0)                                                   \
    CONSTANT(CUSPARSELT_MATMUL_ALG_CONFIG_MAX_ID, 1)                                               \
    CONSTANT(CUSPARSELT_MATMUL_SPLIT_K, 3)                                                         \
    CONSTANT(CUSPARSELT_MATMUL_SPLIT_K_MODE, 4)

enum {
#define CONSTANT(name, value) BCFG_##name = value,
    BCFG_CUSPARSELT_CONSTANTS(CONSTANT)
#undef CONSTANT
    BCFG_CUSPARSELT_BYTES = 1024
};

/* REQUIRED and OPTIONAL(result, name, parameters). An optional one may be NULL in the table; a
 * selection needs no destruction before 0.8. */
#define BCFG_CUSPARSELT_SYMBOLS(REQUIRED, OPTIONAL)                                                \
    REQUIRED(int, cusparseLtGetProperty, (int property, int *value))                               \
    REQUIRED(const char *, cusparseLtGetErrorName, (int status))                                   \
    REQUIRED(int, cusparseLtInit, (void *handle))                                                  \
    REQUIRED(int, cusparseLtDestroy, (const void *handle))                                         \
    REQUIRED(int, cusparseLtDenseDescriptorInit,                                                   \
             (const void *handle, void *matrix, int64_t rows, int64_t columns, int64_t leading,    \
              uint32_t alignment, int type, int order))                                            \
    REQUIRED(int, cusparseLtStructuredDescriptorInit,                                              \
             (const void *handle, void *matrix, int64_t rows, int64_t columns, int64_t leading,    \
              uint32_t alignment, int type, int order, int sparsity))                              \
    REQUIRED(int, cusparseLtMatDescriptorDestroy, (const void *matrix))                            \
    REQUIRED(int, cusparseLtMatmulDescriptorInit,                                                  \
             (const void *handle, void *product, int transa, int transb, const void *a,            \
              const void *b, const void *c, const void *d, int compute_type))                      \
    REQUIRED(int, cusparseLtMatmulDescSetAttribute,                                                \
             (const void *handle, void *product, int attribute, const void *value, size_t bytes))  \
    REQUIRED(int, cusparseLtMatmulAlgSelectionInit,                                                \
             (const void *handle, void *selection, const void *product, int algorithm))            \
    OPTIONAL(int, cusparseLtMatmulAlgSelectionDestroy, (const void *selection))                    \
    REQUIRED(int, cusparseLtMatmulAlgSetAttribute,                                                 \
             (const void *handle, void *selection, int attribute, const void *value,               \
              size_t bytes))                                                                       \
    REQUIRED(int, cusparseLtMatmulAlgGetAttribute,                                                 \
             (const void *handle, const void *selection, int attribute, void *value,               \
              size_t bytes))                                                                       \
    REQUIRED(int, cusparseLtMatmulGetWorkspace,                                                    \
             (const void *handle, const void *plan, size_t *bytes))                                \
    REQUIRED(int, cusparseLtMatmulPlanInit,                                                        \
             (const void *handle, void *plan, const void *product, const void *selection))         \
    REQUIRED(int, cusparseLtMatmulPlanDestroy, (const void *plan))                                 \
    REQUIRED(int, cusparseLtMatmul,                                                                \
             (const void *handle, const void *plan, const void *alpha, const void *a,              \
              const void *b, const void *beta, const void *c, void *d, void *workspace,            \
              void **streams, int32_t count))                                                      \
    REQUIRED(int, cusparseLtMatmulSearch,                                                          \
             (const void *handle, void *plan, const void *alpha, const void *a, const void *b,     \
              const void *beta, const void *c, void *d, void *workspace, void **streams,           \
              int32_t count))                                                                      \
    REQUIRED(int, cusparseLtSpMMAPruneCheck2,                                                      \
             (const void *handle, const void *matrix, int is_a, int operation, const void *in,     \
              int *invalid, void *stream))                                                         \
    REQUIRED(int, cusparseLtSpMMACompressedSize2,                                                  \
             (const void *handle, const void *matrix, size_t *bytes, size_t *buffer_bytes))        \
    REQUIRED(int, cusparseLtSpMMACompress2,                                                        \
             (const void *handle, const void *matrix, int is_a, int operation, const void *dense,  \
              void *compressed, void *buffer, void *stream))

typedef struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    BCFG_CUSPARSELT_SYMBOLS(MEMBER, MEMBER)
#undef MEMBER
} bcfg_cusparselt_table;

#endif
