/* The provider of our own kernels: see kernels/gemm.h for what it promises. Complex products are
 * the reference's, which promises the same; it serves the others through bcfg_gemm_run alone, which
 * takes whole batches, so there are no functions for them here. */
#include "core.h"

static _Atomic uint64_t calls[BCFG_COUNTERS * BCFG_OPERATIONS];

bcfg_provider bcfg_native_provider = {
    .name = "native",
    .path = "",
    .prefix = "",
    .suffix = "",
    .interface = BCFG_ILP64,
    .calls = calls,
};

const bcfg_provider *bcfg_native(void) { return &bcfg_native_provider; }

bool bcfg_serves(const bcfg_provider *provider, int32_t operation) {
    return provider == &bcfg_native_provider || provider->functions[operation] != NULL;
}
