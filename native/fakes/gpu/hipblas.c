/* A libhipblas that computes on memory of the host. See recorded.h and products.h.
 *
 * MAJOR is that of its interface. With 2, hipblasGemmEx_64 and its kin take hipBLAS's own numbers for
 * types, as hipBLAS 2 does, and hipblasGemmEx_v2_64 those of HIP; with 3 there are only the first,
 * which take those of HIP. Where the older functions are called with newer numbers they answer
 * INVALID_ENUM, and record it under their own name: nobody should.
 *
 * Like hipBLAS over rocBLAS it refuses FAST_TF32; XF32 comes by the math mode. A product's record ends
 * with the state of its handle: stream, math_mode, atomics, workspace, workspace_bytes.
 *
 * It has no settings.
 */
#ifndef MAJOR
#define MAJOR 3
#endif
#define SETTINGS
#include "recorded.h"

#include "blas_rules.h"
#include "gpu/abi_hipblas.h"

/* The prototypes of the table are those of the definitions below. */
#define DECLARE(result, name, parameters) API result name parameters;
#if MAJOR == 2
#define OLD(result, name, parameters)
#define NEW(result, name, before, parameters) API result before parameters;
#define GEMM hipblasGemmEx_v2_64
#define GEMM_STRIDED hipblasGemmStridedBatchedEx_v2_64
#else
#define OLD DECLARE
#define NEW(result, name, before, parameters) API result name parameters;
#define GEMM hipblasGemmEx_64
#define GEMM_STRIDED hipblasGemmStridedBatchedEx_64
#endif
BCFG_HIPBLAS_SYMBOLS(DECLARE, OLD, NEW)

#undef NEED
#define NEED(condition, code)                                                                      \
    if (!(condition)) return BCFG_HIPBLAS_STATUS_##code;

#define OPERATION_N BCFG_HIPBLAS_OP_N
#define STRIDE int64_t
#define GIVEN(handle) NEED(handle, HANDLE_IS_NULLPTR)
#include "gemm.h"

int hipblasCreate(void **handle) {
    ENTER("hipblasCreate", P(handle))
    return create_handle(handle, BCFG_HIPBLAS_ATOMICS_ALLOWED);
}

int hipblasDestroy(void *handle) {
    ENTER("hipblasDestroy", P(handle))
    return destroy_handle(handle);
}

int hipblasSetStream(void *handle, void *stream) {
    ENTER("hipblasSetStream", P(handle), P(stream))
    HANDLE(handle)
    known->stream = stream;
    return 0;
}

#if MAJOR >= 3
int hipblasSetWorkspace(void *handle, void *workspace, size_t bytes) {
    ENTER("hipblasSetWorkspace", P(handle), P(workspace), I(bytes))
    HANDLE(handle)
    known->workspace = workspace;
    known->workspace_bytes = bytes;
    return 0;
}
#endif

#define NUMBER(setter, field, most)                                                                \
    int setter(void *handle, int mode) {                                                           \
        ENTER(#setter, P(handle), I(mode))                                                         \
        HANDLE(handle)                                                                             \
        NEED(mode >= 0 && mode <= most, INVALID_ENUM)                                              \
        known->field = mode;                                                                       \
        return 0;                                                                                  \
    }
NUMBER(hipblasSetAtomicsMode, atomics, 1)
NUMBER(hipblasSetMathMode, math_mode, 5)

int hipblasGetAtomicsMode(void *handle, int *mode) {
    ENTER("hipblasGetAtomicsMode", P(handle), P(mode))
    HANDLE(handle)
    *mode = known->atomics;
    return 0;
}

const char *hipblasStatusToString(int status) {
    switch (status) {
#define CONSTANT(name, value) case value: return #name;
        BCFG_HIPBLAS_STATUS_CONSTANTS(CONSTANT)
#undef CONSTANT
    default: return "HIPBLAS_STATUS_UNKNOWN";
    }
}

#include "hip_rules.h"

static int compute_of(int compute) { return compute_of_cuda(compute); }

static int check_numbers(const call *it) {
    NEED(is_operation(it->transa) && is_operation(it->transb), INVALID_ENUM)
    NEED(it->algorithm == BCFG_HIPBLAS_GEMM_DEFAULT, INVALID_ENUM)
    NEED(compute_of(it->compute) >= 0, INVALID_ENUM)
    NEED(it->compute != BCFG_HIPBLAS_COMPUTE_32F_FAST_TF32, NOT_SUPPORTED)
    NEED(is_supported(compute_of(it->compute), it->a_type, it->b_type, it->c_type), NOT_SUPPORTED)
    return 0;
}

static enum rounding how_of(const call *it) {
    if (it->handle->math_mode == BCFG_HIPBLAS_XF32_XDL_MATH &&
        it->compute == BCFG_HIPBLAS_COMPUTE_32F && (it->a_type == R_32F || it->a_type == C_32F))
        return TO_TF32;
    return rounding_of(compute_of(it->compute));
}

static division division_of(const call *it) {
    (void)it;
    return UNDIVIDED;
}

#if MAJOR == 2
/* The older meaning: nothing of ours may call these. */
#define TRAP(name)                                                                                 \
    API int name(void *handle);                                                                    \
    int name(void *handle) {                                                                       \
        ENTER(#name, P(handle))                                                                    \
        return BCFG_HIPBLAS_STATUS_INVALID_ENUM;                                                   \
    }
TRAP(hipblasGemmEx_64)
TRAP(hipblasGemmStridedBatchedEx_64)
#endif
