/* The built-in provider: every operation in portable C, as CBLAS declares it with 64-bit integers.
 *
 * Each element of a product is one sum over the inner dimension, added in blocks of fixed size in
 * ascending order, whatever the other dimensions are. Built without contraction into fused
 * multiply-add (see CMakeLists.txt), so that the same build gives the same bits on every CPU. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#define NAME(name) name##_float32
#define ELEMENT float
#include "reference_product.inc"
#undef NAME
#undef ELEMENT

#define NAME(name) name##_float64
#define ELEMENT double
#include "reference_product.inc"
#undef NAME
#undef ELEMENT

#define NAME(name) name##_complex64
#define ELEMENT float
#define COMPLEX
#include "reference_product.inc"
#undef NAME
#undef ELEMENT

#define NAME(name) name##_complex128
#define ELEMENT double
#include "reference_product.inc"
#undef NAME
#undef ELEMENT
#undef COMPLEX

static _Atomic uint64_t calls[BCFG_COUNTERS * BCFG_OPERATIONS];

bcfg_provider bcfg_reference_provider = {
    .name = "reference",
    .path = "",
    .prefix = "",
    .suffix = "",
    .interface = BCFG_ILP64,
    .functions =
        {
            [BCFG_SGEMM] = (bcfg_function)gemm_float32,
            [BCFG_DGEMM] = (bcfg_function)gemm_float64,
            [BCFG_CGEMM] = (bcfg_function)gemm_complex64,
            [BCFG_ZGEMM] = (bcfg_function)gemm_complex128,
            [BCFG_SGEMV] = (bcfg_function)gemv_float32,
            [BCFG_DGEMV] = (bcfg_function)gemv_float64,
            [BCFG_CGEMV] = (bcfg_function)gemv_complex64,
            [BCFG_ZGEMV] = (bcfg_function)gemv_complex128,
        },
    .calls = calls,
    .next = &bcfg_native_provider,
};

const bcfg_provider *bcfg_reference(void) { return &bcfg_reference_provider; }
