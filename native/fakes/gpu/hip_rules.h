/* What hipBLAS and hipBLASLt name otherwise than cuBLAS and cuBLASLt, for their fakes: operations
 * and compute types. What is computed and accepted is in blas_rules.h. */
#ifndef HIP_RULES_H
#define HIP_RULES_H

#include "blas_rules.h"
#include "gpu/abi_hipblas.h"

static int is_operation(int operation) {
    return operation >= BCFG_HIPBLAS_OP_N && operation <= BCFG_HIPBLAS_OP_C;
}

/* cuBLAS's number of a compute type; -1 for none. */
static int compute_of_cuda(int compute) {
    static const int numbers[] = {
        [BCFG_HIPBLAS_COMPUTE_16F] = BCFG_CUBLAS_COMPUTE_16F,
        [BCFG_HIPBLAS_COMPUTE_16F_PEDANTIC] = BCFG_CUBLAS_COMPUTE_16F_PEDANTIC,
        [BCFG_HIPBLAS_COMPUTE_32F] = BCFG_CUBLAS_COMPUTE_32F,
        [BCFG_HIPBLAS_COMPUTE_32F_PEDANTIC] = BCFG_CUBLAS_COMPUTE_32F_PEDANTIC,
        [BCFG_HIPBLAS_COMPUTE_32F_FAST_16F] = BCFG_CUBLAS_COMPUTE_32F_FAST_16F,
        [BCFG_HIPBLAS_COMPUTE_32F_FAST_16BF] = BCFG_CUBLAS_COMPUTE_32F_FAST_16BF,
        [BCFG_HIPBLAS_COMPUTE_32F_FAST_TF32] = BCFG_CUBLAS_COMPUTE_32F_FAST_TF32,
        [BCFG_HIPBLAS_COMPUTE_64F] = BCFG_CUBLAS_COMPUTE_64F,
        [BCFG_HIPBLAS_COMPUTE_64F_PEDANTIC] = BCFG_CUBLAS_COMPUTE_64F_PEDANTIC,
    };
    return compute >= 0 && compute < (int)(sizeof numbers / sizeof *numbers) ? numbers[compute] : -1;
}

#endif
