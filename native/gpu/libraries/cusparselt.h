/* Products of 2:4 sparse matrices by cuSPARSELt. All matrices are given row by row. */
#ifndef BACKENDCFG_DEVICE_CUSPARSELT_H
#define BACKENDCFG_DEVICE_CUSPARSELT_H

#include "gpu/device/work.h"

/* A sparse matrix before it is compressed. */
typedef struct {
    int64_t rows, columns, leading;    /* in numbers */
    int type;                          /* a cudaDataType */
} bcfg_sparse_matrix;

/* d = a b + bias, where a is compressed of (m, k), b (k, n), d (m, n). What a plan depends on:
 * compared as bytes, so that nothing here may be padding. */
typedef struct {
    int64_t m, n, k, b_leading;
    const void *bias;                  /* m numbers, one for each row; NULL for none */
    int32_t type, result_type, compute; /* cudaDataType, cusparseComputeType */
    int32_t transposes_b;              /* b is given as (n, k) */
    int32_t algorithm;                 /* its number, as a search gives it */
    int32_t split_k, split_k_mode;     /* 1 and 0 do not split */
    int32_t unused;                    /* 0 */
} bcfg_sparse_product;

typedef struct {
    const void *a, *b;
    void *d, *area;                    /* `area` of the bytes that are asked for below */
} bcfg_sparse_operands;

/* What a search found, and the highest number of an algorithm. */
typedef struct {
    int algorithm, split_k, split_k_mode, most;
} bcfg_sparse_found;

/* The bytes of the compressed matrix, and of a buffer for compressing it. */
bcfg_outcome bcfg_cusparselt_sizes(const bcfg_work *work, const bcfg_sparse_matrix *matrix,
                                   size_t *bytes, size_t *buffer, bcfg_fault *fault);
/* Puts onto the stream: *invalid, on the device, becomes 0 where the matrix is 2:4. */
bcfg_outcome bcfg_cusparselt_check(const bcfg_work *work, const bcfg_sparse_matrix *matrix,
                                   const void *dense, int *invalid, bcfg_fault *fault);
bcfg_outcome bcfg_cusparselt_compress(const bcfg_work *work, const bcfg_sparse_matrix *matrix,
                                      const void *dense, void *compressed, void *buffer,
                                      bcfg_fault *fault);
/* The bytes that a product works in. */
bcfg_outcome bcfg_cusparselt_area(const bcfg_work *work, const bcfg_sparse_product *product,
                                  size_t *bytes, bcfg_fault *fault);
bcfg_outcome bcfg_cusparselt_multiply(const bcfg_work *work, const bcfg_sparse_product *product,
                                      const bcfg_sparse_operands *operands, bcfg_fault *fault);
/* Runs the product by every algorithm and says which was fastest; waits for the device. */
bcfg_outcome bcfg_cusparselt_search(const bcfg_work *work, const bcfg_sparse_product *product,
                                    const bcfg_sparse_operands *operands,
                                    bcfg_sparse_found *found, bcfg_fault *fault);

#endif
