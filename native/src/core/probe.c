/* Probes a library by calling it, instead of believing its version. */
#include <stddef.h>

#include "core.h"

/* In 32 bits this count is 3, in 64 bits it is negative, which every isamax answers with 0 and
 * without reading x. (libblastrampoline's probe; it ends no process, unlike a wrong argument to
 * gemm, which xerbla of the reference BLAS answers with exit.) */
#define THREE_OR_NEGATIVE ((int64_t)0xffffffff00000003)

bcfg_status bcfg_probe_interface(bcfg_function isamax, int32_t *interface) {
    const float x[3] = {1, 2, 3};
    size_t at = ((size_t (*)(int64_t, const float *, int64_t))isamax)(THREE_OR_NEGATIVE, x, 1);
    /* An LP64 function may return int, which leaves the upper half of the register undefined. */
    switch ((uint32_t)at) {
    case 2: *interface = BCFG_LP64; return BCFG_OK;
    case 0: *interface = BCFG_ILP64; return BCFG_OK;
    default: return BCFG_E_INTERFACE;
    }
}

/* [1 2 3; 4 5 6] [1 -1; 2 0; 0 3] = [5 8; 14 14], exact in every element type. */
#define CHECK(element, type, parts)                                                                \
    do {                                                                                           \
        type a[6 * parts] = {0}, b[6 * parts] = {0}, c[4 * parts], y[2 * parts];                   \
        for (int i = 0; i < 6; i++) a[i * parts] = left[i], b[i * parts] = right[i];               \
        for (int i = 0; i < 4 * parts; i++) c[i] = 99;                                             \
        for (int i = 0; i < 2 * parts; i++) y[i] = 0;                                              \
        bcfg_gemm(provider, element, 2, 2, 3, (bcfg_view){a, 3, NO_TRANSPOSE},                     \
                  (bcfg_view){b, 2, NO_TRANSPOSE}, c, 2);                                          \
        bcfg_gemv(provider, element, 2, 3, (bcfg_view){a, 3, NO_TRANSPOSE}, b, 2, y, 1);           \
        for (int i = 0; i < 4 * parts; i++)                                                        \
            if (c[i] != (i % parts ? 0 : wanted[i / parts])) wrong = BCFG_SGEMM + element;         \
        for (int i = 0; i < 2 * parts; i++)                                                        \
            if (y[i] != (i % parts ? 0 : wanted[2 * (i / parts)])) wrong = BCFG_SGEMV + element;   \
    } while (0)

bcfg_status bcfg_probe_products(const bcfg_provider *provider, bcfg_error *error) {
    static const float left[6] = {1, 2, 3, 4, 5, 6}, right[6] = {1, -1, 2, 0, 0, 3};
    static const float wanted[4] = {5, 8, 14, 14};
    int wrong = -1;
    CHECK(BCFG_FLOAT32, float, 1);
    CHECK(BCFG_FLOAT64, double, 1);
    CHECK(BCFG_COMPLEX64, float, 2);
    CHECK(BCFG_COMPLEX128, double, 2);
    for (int32_t operation = 0; operation < BCFG_OPERATIONS; operation++)
        atomic_store_explicit(&provider->calls[operation], 0, memory_order_relaxed);
    if (wrong < 0) return BCFG_OK;
    return bcfg_fail(error, BCFG_E_WRONG, "%s computes a 2 by 3 times 3 by 2 product wrongly: %s",
                     provider->path, bcfg_operation_name(wrong));
}
