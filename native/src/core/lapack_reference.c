/* The factorisations that are compiled in: what `reference` serves, and what serves small matrices,
 * where a library spends its time on its own arguments. Built without contraction into fused
 * multiply-add, as the reference's products are, so that every CPU gives the same bits. */
#include <string.h>

#define ROUTINES bcfg_portable_routines
#include "lapack_types.inc"

bcfg_lapack bcfg_reference_lapack = {
    .provider = &bcfg_reference_provider,
    .interface = BCFG_ILP64,
    .lacking = "",
};

/* Before anything of this library can be called. */
__attribute__((constructor)) static void choose_instructions(void) {
    const bcfg_function(*routines)[4] = bcfg_portable_routines;
#ifdef BCFG_HAS_WIDE_ROUTINES
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) routines = bcfg_wide_routines;
#endif
    memcpy(bcfg_reference_lapack.functions, routines, sizeof bcfg_reference_lapack.functions);
}
