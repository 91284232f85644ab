/* A product on a device as calls of a library: from a bcfg_product to column-major GEMM. */
#ifndef BACKENDCFG_DEVICE_GEMM_H
#define BACKENDCFG_DEVICE_GEMM_H

#include "gpu/products/lease.h"

enum { BCFG_DEVICE_DIMENSIONS = 32 };

/* One call, column-major: c = alpha op(a) op(b) + beta c, `batch` times; strides in elements. */
typedef struct {
    int transpose_a, transpose_b;      /* 0 or 1; the vendors' numbers are the backends' business */
    int64_t m, n, k, batch;
    const void *a, *b;
    void *c;
    const void *bias;                  /* m numbers, added to each column of c; NULL */
    int64_t a_leading, b_leading, c_leading, a_stride, b_stride, c_stride;
} bcfg_gemm_call;

/* A product as one call, repeated over `dimensions` outer ones; strides of the call's operands, in
 * bytes. */
typedef struct {
    bcfg_gemm_call call;               /* the next one */
    bool by_rows;                      /* the call's c is the result's transpose */
    int32_t dimensions;
    int64_t index[BCFG_DEVICE_DIMENSIONS]; /* of the next call */
    int64_t shape[BCFG_DEVICE_DIMENSIONS], a[BCFG_DEVICE_DIMENSIONS], b[BCFG_DEVICE_DIMENSIONS],
        c[BCFG_DEVICE_DIMENSIONS];
} bcfg_gemm_plan;

/* Returns 0, or the operand whose strides BLAS cannot read or write: 'a', 'b' or 'c'. Only k may be
 * 0 of the product's sizes, batch included. */
char bcfg_gemm_plan_of(const bcfg_product *product, bcfg_gemm_plan *plan);

/* Puts the calls on the lease's stream; alpha and beta are (real, imaginary). After a failure the
 * plan is at the call that failed. BCFG_DEVICE_UNSUPPORTED: the library has no algorithm for that
 * call, and another library may continue from there. */
bcfg_outcome bcfg_gemm_run_plan(const bcfg_lease *lease, bcfg_gemm_plan *plan, const double alpha[2],
                                const double beta[2], bcfg_fault *fault);

/* alpha or beta in the type that a recipe says: 16 bytes are enough for each. */
void bcfg_scalar_of(int32_t scale_type, const double value[2], void *scalar);

#endif
