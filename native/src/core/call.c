/* Calls CBLAS: the only file that has its signatures, for both integer widths. */
#include "core.h"

#define SCALAR_VALUE(element) element
#define SCALAR_POINTER(element) const void *
#define ONE_VALUE(element) 1
#define ZERO_VALUE(element) 0
/* A complex scalar is a pair; both widths of element fit in the first two. */
#define ONE_POINTER(element) (const element[2]){1, 0}
#define ZERO_POINTER(element) (const element[2]){0, 0}

#define GEMM(integer, element, scalar)                                                             \
    ((void (*)(int, int, int, integer, integer, integer, SCALAR_##scalar(element), const void *,   \
               integer, const void *, integer, SCALAR_##scalar(element), void *, integer))f)(      \
        ROW_MAJOR, a.transpose, b.transpose, (integer)m, (integer)n, (integer)k,                   \
        ONE_##scalar(element), a.data, (integer)a.leading, b.data, (integer)b.leading,             \
        ZERO_##scalar(element), c, (integer)leading)

#define GEMV(integer, element, scalar)                                                             \
    ((void (*)(int, int, integer, integer, SCALAR_##scalar(element), const void *, integer,        \
               const void *, integer, SCALAR_##scalar(element), void *, integer))f)(               \
        ROW_MAJOR, a.transpose, (integer)rows, (integer)columns, ONE_##scalar(element), a.data,    \
        (integer)a.leading, x, (integer)x_stride, ZERO_##scalar(element), y, (integer)y_stride)

#define BY_ELEMENT(call, integer)                                                                  \
    switch (element) {                                                                             \
    case BCFG_FLOAT32: call(integer, float, VALUE); break;                                         \
    case BCFG_FLOAT64: call(integer, double, VALUE); break;                                        \
    case BCFG_COMPLEX64: call(integer, float, POINTER); break;                                     \
    default: call(integer, double, POINTER); break;                                                \
    }

static bcfg_function counted(const bcfg_provider *provider, int32_t operation) {
    bcfg_count(provider, COUNT_CALLS, operation, 1);
    /* The native provider has no complex products of its own; fall through to the reference's. Its
     * other products never come here: see native.c. */
    if (provider == &bcfg_native_provider) provider = &bcfg_reference_provider;
    return provider->functions[operation];
}

void bcfg_gemm(const bcfg_provider *provider, int32_t element, int64_t m, int64_t n, int64_t k,
               bcfg_view a, bcfg_view b, void *c, int64_t leading) {
    bcfg_function f = counted(provider, BCFG_SGEMM + element);
    if (provider->interface == BCFG_LP64) {
        BY_ELEMENT(GEMM, int32_t)
    } else {
        BY_ELEMENT(GEMM, int64_t)
    }
}

void bcfg_gemv(const bcfg_provider *provider, int32_t element, int64_t rows, int64_t columns,
               bcfg_view a, const void *x, int64_t x_stride, void *y, int64_t y_stride) {
    bcfg_function f = counted(provider, BCFG_SGEMV + element);
    if (provider->interface == BCFG_LP64) {
        BY_ELEMENT(GEMV, int32_t)
    } else {
        BY_ELEMENT(GEMV, int64_t)
    }
}
