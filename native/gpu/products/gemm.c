/* Products on a device: a plan's calls, one after the other on the lease's stream. */
#include "gpu/libraries/backend.h"

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

/* Moves a call to the next index of the outer dimensions; false after the last. */
static bool advance(bcfg_gemm_plan *plan) {
    const char *a = plan->call.a, *b = plan->call.b;
    char *c = plan->call.c;
    bool more = false;
    for (int32_t d = plan->dimensions - 1; d >= 0; d--) {
        a += plan->a[d];
        b += plan->b[d];
        c += plan->c[d];
        more = ++plan->index[d] < plan->shape[d];
        if (more) break;
        a -= plan->shape[d] * plan->a[d];
        b -= plan->shape[d] * plan->b[d];
        c -= plan->shape[d] * plan->c[d];
        plan->index[d] = 0;
    }
    plan->call.a = a, plan->call.b = b, plan->call.c = c;
    return more;
}

/* Sets c to 0: no library documents that for k = 0. */
static bcfg_outcome clear(const bcfg_lease *lease, const bcfg_gemm_call *call, bcfg_fault *fault) {
    const int64_t size = bcfg_element_size[lease->recipe->is.element];
    bool dense = call->c_leading == call->m;
    int64_t runs = dense ? 1 : call->n, length = call->m * (dense ? call->n : 1) * size;
    for (int64_t i = 0; i < call->batch; i++)
        for (int64_t run = 0; run < runs; run++) {
            char *at = (char *)call->c + (i * call->c_stride + run * call->c_leading) * size;
            bcfg_outcome outcome = bcfg_place_clear(lease->recipe->is.driver, at, (size_t)length,
                                                    lease->handle->stream, fault);
            if (outcome != BCFG_DEVICE_OK) return outcome;
        }
    return BCFG_DEVICE_OK;
}

static bcfg_outcome multiply(const bcfg_lease *lease, const bcfg_gemm_call *call, const void *alpha,
                             const void *beta, bcfg_fault *fault) {
    const bcfg_device_library *library = lease->recipe->is.library;
    const char *function = "";
    const bcfg_backend *backend = bcfg_backend_of(library);
    int status = backend->multiply(lease, call, alpha, beta, &function);
    if (status == 0) return BCFG_DEVICE_OK;
    bcfg_outcome outcome = bcfg_library_fault(library, function, status, fault);
    return status == backend->unsupported ? BCFG_DEVICE_UNSUPPORTED : outcome;
}

bcfg_outcome bcfg_gemm_run_plan(const bcfg_lease *lease, bcfg_gemm_plan *plan, const double alpha[2],
                                const double beta[2], bcfg_fault *fault) {
    double scalars[2][2]; /* as aligned as any of the types needs */
    bcfg_scalar_of(lease->recipe->is.scale_type, alpha, scalars[0]);
    bcfg_scalar_of(lease->recipe->is.scale_type, beta, scalars[1]);
    const bcfg_gemm_call *call = &plan->call;
    do {
        bool clears = call->k == 0 && beta[0] == 0 && beta[1] == 0;
        bcfg_outcome outcome = clears ? clear(lease, call, fault)
                                      : multiply(lease, call, scalars[0], scalars[1], fault);
        if (outcome != BCFG_DEVICE_OK) return outcome;
        /* A batch counts as one call for each of its matrices, as everywhere. */
        if (!clears)
            atomic_fetch_add_explicit(lease->recipe->calls, (uint64_t)call->batch,
                                      memory_order_relaxed);
    } while (advance(plan));
    return BCFG_DEVICE_OK;
}
