/* Products on a device: a plan's calls, one after the other on the lease's stream. */
#include "device/gemm.h"

#include <string.h>

/* binary16, rounded to nearest, ties to even. */
static uint16_t half(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
    bits &= UINT64_MAX >> 1;
    if (bits > (uint64_t)2047 << 52) return sign | 0x7e00;      /* NaN */
    int exponent = (int)(bits >> 52) - 1023;
    uint64_t digits = (bits & ((UINT64_MAX >> 12))) | (uint64_t)1 << 52;
    int dropped = 42;
    if (exponent < -14) dropped += -14 - exponent;
    if (exponent > 15) return sign | 0x7c00;
    if (dropped > 54) return sign;
    uint64_t kept = digits >> dropped, rest = digits & (((uint64_t)1 << dropped) - 1);
    uint64_t middle = (uint64_t)1 << (dropped - 1);
    kept += rest > middle || (rest == middle && (kept & 1));
    /* A carry out of the digits goes into the exponent, where it belongs. */
    return sign | (uint16_t)(exponent < -14 ? kept : kept + ((uint64_t)(exponent + 14) << 10));
}

void bcfg_scalar_of(int32_t scale_type, const double value[2], void *scalar) {
    switch (scale_type) {
    case BCFG_CUDA_R_64F:
    case BCFG_CUDA_C_64F: memcpy(scalar, value, 2 * sizeof *value); break;
    case BCFG_CUDA_R_16F: *(uint16_t *)scalar = half(value[0]); break;
    default: ((float *)scalar)[0] = (float)value[0], ((float *)scalar)[1] = (float)value[1];
    }
}

static bcfg_outcome cublas_multiply(const bcfg_lease *lease, const bcfg_gemm_call *call,
                                    const void *alpha, const void *beta, bcfg_fault *fault) {
    const bcfg_recipe_content *is = &lease->recipe->is;
    const bcfg_cublas_table *cublas = bcfg_cublas(is->library);
    int transpose_a = call->transpose_a ? BCFG_CUBLAS_OP_T : BCFG_CUBLAS_OP_N;
    int transpose_b = call->transpose_b ? BCFG_CUBLAS_OP_T : BCFG_CUBLAS_OP_N;
    const char *function = "cublasGemmEx";
    int status;
    if (call->batch == 1) {
        status = cublas->cublasGemmEx_64(
            lease->handle->handle, transpose_a, transpose_b, call->m, call->n, call->k, alpha,
            call->a, is->data_type, call->a_leading, call->b, is->data_type, call->b_leading, beta,
            call->c, is->data_type, call->c_leading, is->compute_type, is->algorithm);
    } else {
        function = "cublasGemmStridedBatchedEx";
        status = cublas->cublasGemmStridedBatchedEx_64(
            lease->handle->handle, transpose_a, transpose_b, call->m, call->n, call->k, alpha,
            call->a, is->data_type, call->a_leading, call->a_stride, call->b, is->data_type,
            call->b_leading, call->b_stride, beta, call->c, is->data_type, call->c_leading,
            call->c_stride, call->batch, is->compute_type, is->algorithm);
    }
    if (status == BCFG_CUBLAS_STATUS_SUCCESS) return BCFG_DEVICE_OK;
    return bcfg_library_fault(is->library, function, status, fault);
}

static bcfg_outcome multiply(const bcfg_lease *lease, const bcfg_gemm_call *call, const void *alpha,
                             const void *beta, bcfg_fault *fault) {
    return lease->handle->library->kind == BCFG_CUBLAS
               ? cublas_multiply(lease, call, alpha, beta, fault)
               : bcfg_cublaslt_multiply(lease, call, alpha, beta, fault);
}

/* Moves a call to the next index of the outer dimensions; false after the last. */
static bool advance(bcfg_gemm_plan *plan, int64_t *index, const char **a, const char **b,
                    char **c) {
    for (int32_t d = plan->dimensions - 1; d >= 0; d--) {
        *a += plan->a[d];
        *b += plan->b[d];
        *c += plan->c[d];
        if (++index[d] < plan->shape[d]) return true;
        *a -= plan->shape[d] * plan->a[d];
        *b -= plan->shape[d] * plan->b[d];
        *c -= plan->shape[d] * plan->c[d];
        index[d] = 0;
    }
    return false;
}

/* c = 0, which no library promises for matrices that are empty. */
static bcfg_outcome clear(const bcfg_lease *lease, const bcfg_gemm_call *call, bcfg_fault *fault) {
    const bcfg_device_library *driver = lease->recipe->is.driver;
    const size_t size = (size_t)bcfg_element_size[lease->recipe->is.element];
    for (int64_t i = 0; i < call->batch; i++)
        for (int64_t column = 0; column < call->n; column++) {
            const char *at = (const char *)call->c +
                             (i * call->c_stride + column * call->c_leading) * (int64_t)size;
            bool dense = call->c_leading == call->m;
            int status = bcfg_cuda(driver)->cuMemsetD8Async(
                (uint64_t)(uintptr_t)at, 0, (size_t)call->m * (dense ? (size_t)call->n : 1) * size,
                lease->handle->stream);
            if (status != BCFG_CUDA_SUCCESS)
                return bcfg_driver_fault(driver, "cuMemsetD8Async", status, fault);
            if (dense) break;
        }
    return BCFG_DEVICE_OK;
}

bcfg_outcome bcfg_gemm_run_plan(const bcfg_lease *lease, bcfg_gemm_plan *plan, const double alpha[2],
                                const double beta[2], bcfg_fault *fault) {
    double scalars[2][2]; /* as aligned as any of the types needs */
    bcfg_scalar_of(lease->recipe->is.scale_type, alpha, scalars[0]);
    bcfg_scalar_of(lease->recipe->is.scale_type, beta, scalars[1]);
    int64_t index[BCFG_DEVICE_DIMENSIONS] = {0};
    bcfg_gemm_call call = plan->call;
    const char *a = call.a, *b = call.b;
    char *c = call.c;
    do {
        call.a = a, call.b = b, call.c = c;
        bool clears = call.k == 0 && beta[0] == 0 && beta[1] == 0;
        bcfg_outcome outcome = clears ? clear(lease, &call, fault)
                                      : multiply(lease, &call, scalars[0], scalars[1], fault);
        if (outcome != BCFG_DEVICE_OK) return outcome;
        /* Batches count one for each of their matrices, as everywhere. */
        if (!clears)
            atomic_fetch_add_explicit(lease->recipe->calls, (uint64_t)call.batch,
                                      memory_order_relaxed);
    } while (advance(plan, index, &a, &b, &c));
    return BCFG_DEVICE_OK;
}
