/* The `native` provider: our own kernels; kernels/gemm.h says which bits they guarantee. Its complex
 * products are those of the reference, which guarantees the same. bcfg_gemm_run computes all others:
 * it takes whole batches, so this table has no functions for them. */
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
