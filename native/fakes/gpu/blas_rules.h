/* What cuBLAS and cuBLASLt accept and how they compute it, for their fakes.
 *
 * Source: the tables of cublasGemmEx and cublasLtMatmul in NVIDIA's cuBLAS documentation, 13.0.
 */
#ifndef BLAS_RULES_H
#define BLAS_RULES_H

#include "gpu/abi_cublas.h"
#include "products.h"

static int scale_of(int compute, int element) {
    if (element == C_32F || element == C_64F) return element;
    switch (compute) {
    case BCFG_CUBLAS_COMPUTE_16F:
    case BCFG_CUBLAS_COMPUTE_16F_PEDANTIC: return R_16F;
    case BCFG_CUBLAS_COMPUTE_64F:
    case BCFG_CUBLAS_COMPUTE_64F_PEDANTIC:
    case BCFG_CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT: return R_64F;
    default: return R_32F;
    }
}

/* Whether a product of such elements can be computed so. */
static int is_supported(int compute, int a, int b, int c) {
    if (a != b) return 0;
    switch (compute) {
    case BCFG_CUBLAS_COMPUTE_16F:
    case BCFG_CUBLAS_COMPUTE_16F_PEDANTIC: return a == R_16F && c == R_16F;
    case BCFG_CUBLAS_COMPUTE_32F:
    case BCFG_CUBLAS_COMPUTE_32F_PEDANTIC:
        if (a == R_16F || a == R_16BF) return c == a || c == R_32F;
        return a == c && (a == R_32F || a == C_32F);
    case BCFG_CUBLAS_COMPUTE_32F_FAST_16F:
    case BCFG_CUBLAS_COMPUTE_32F_FAST_16BF:
    case BCFG_CUBLAS_COMPUTE_32F_FAST_TF32:
    case BCFG_CUBLAS_COMPUTE_32F_EMULATED_16BFX9: return a == c && (a == R_32F || a == C_32F);
    case BCFG_CUBLAS_COMPUTE_64F:
    case BCFG_CUBLAS_COMPUTE_64F_PEDANTIC:
    case BCFG_CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT: return a == c && (a == R_64F || a == C_64F);
    default: return 0;
    }
}

static enum rounding rounding_of(int compute) {
    switch (compute) {
    case BCFG_CUBLAS_COMPUTE_16F:
    case BCFG_CUBLAS_COMPUTE_16F_PEDANTIC: return SUM_IN_FLOAT16;
    case BCFG_CUBLAS_COMPUTE_32F_FAST_16F: return TO_FLOAT16;
    case BCFG_CUBLAS_COMPUTE_32F_FAST_16BF: return TO_BFLOAT16;
    case BCFG_CUBLAS_COMPUTE_32F_FAST_TF32: return TO_TF32;
    case BCFG_CUBLAS_COMPUTE_64F:
    case BCFG_CUBLAS_COMPUTE_64F_PEDANTIC:
    case BCFG_CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT: return SUM_IN_FLOAT64;
    default: return AS_THEY_ARE;
    }
}

static inline const char *status_name(int status) {
    switch (status) {
#define CONSTANT(name, value) case value: return #name;
        BCFG_CUBLAS_STATUS_CONSTANTS(CONSTANT)
#undef CONSTANT
    default: return "CUBLAS_STATUS_UNKNOWN";
    }
}

#define NEED(condition, code)                                                                      \
    if (!(condition)) return BCFG_CUBLAS_STATUS_##code;

#endif
