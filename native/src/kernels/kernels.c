/* Which instruction set the kernels use: found once, or forced by a test. */
#include "kernels.h"

#include <stdatomic.h>
#include <stddef.h>
#ifdef BACKENDCFG_X86_64
#include <cpuid.h>
#endif
#ifdef BACKENDCFG_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "core/core.h"

#ifdef BACKENDCFG_AVX512_BF16
/* Those of avx512, and pairs, and tiles: see put_together. */
static bcfg_kernels avx512_bf16;
#ifdef BACKENDCFG_AMX
static bcfg_kernels amx;
#endif
#endif

static const struct {
    const char *name;
    const bcfg_kernels *kernels; /* NULL where the compiler could not make it */
} sets[BCFG_ISAS] = {
    [BCFG_PORTABLE] = {"portable", &bcfg_kernels_portable},
#ifdef BACKENDCFG_X86_64
    [BCFG_AVX2] = {"avx2", &bcfg_kernels_avx2},
    [BCFG_AVX512] = {"avx512", &bcfg_kernels_avx512},
#ifdef BACKENDCFG_AVX512_BF16
    [BCFG_AVX512_BF16] = {"avx512_bf16", &avx512_bf16},
#ifdef BACKENDCFG_AMX
    [BCFG_AMX] = {"amx_bf16", &amx},
#endif
#endif
#endif
};

#ifdef BACKENDCFG_AVX512_BF16
/* Before anything of this library can be called. */
__attribute__((constructor)) static void put_together(void) {
    avx512_bf16 = bcfg_kernels_avx512;
    avx512_bf16.isa = BCFG_AVX512_BF16;
    avx512_bf16.pairs = &bcfg_kernels_pairs;
#ifdef BACKENDCFG_AMX
    amx = avx512_bf16;
    amx.isa = BCFG_AMX;
    amx.pairs = &bcfg_kernels_tiled_pairs;
    amx.tiles = &bcfg_kernels_tiles;
#endif
}
#endif

/* The best for all elements but bfloat16, and for bfloat16. */
static const bcfg_kernels *_Atomic best[2], *_Atomic forced;
static _Atomic uint64_t served[BCFG_ISAS];

#ifdef BACKENDCFG_X86_64
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

#ifdef BACKENDCFG_AMX
/* Whether the CPU has tiles of bfloat16 and the system lets this process use them, which it asks for:
 * Linux, Documentation/arch/x86/xstate.rst. */
static bool may_use_amx(void) {
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, ASK = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE) &&
           syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
}
#endif

/* The compiler's own run-time support asks cpuid, and XGETBV whether the system keeps registers. */
static bool runs(int32_t isa) {
    if (sets[isa].kernels == NULL) return false;
    if (isa == BCFG_PORTABLE) return true;
#ifdef BACKENDCFG_X86_64
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
        return false;
    if (isa == BCFG_AVX2) return true;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return false;
    if (isa == BCFG_AVX512) return true;
#ifdef BACKENDCFG_AVX512_BF16
    if (!__builtin_cpu_supports("avx512bf16")) return false;
    if (isa == BCFG_AVX512_BF16) return true;
#endif
#ifdef BACKENDCFG_AMX
    return may_use_amx();
#else
    return false;
#endif
#else
    return false;
#endif
}

const char *bcfg_isa_name(int32_t isa) {
    return isa >= 0 && isa < BCFG_ISAS ? (sets[isa].name ? sets[isa].name : "") : NULL;
}

int32_t bcfg_isa_available(int32_t isa) { return isa >= 0 && isa < BCFG_ISAS && runs(isa); }

bcfg_status bcfg_force_isa(int32_t isa) {
    if (isa != -1 && !bcfg_isa_available(isa)) return BCFG_E_ARGUMENT;
    atomic_store(&forced, isa == -1 ? NULL : sets[isa].kernels);
    return BCFG_OK;
}

uint64_t bcfg_isa_served(int32_t isa) {
    return isa >= 0 && isa < BCFG_ISAS ? atomic_load(&served[isa]) : 0;
}

void bcfg_kernels_served(bcfg_isa isa) {
    atomic_fetch_add_explicit(&served[isa], 1, memory_order_relaxed);
}

const bcfg_kernels *bcfg_kernels_for(int32_t element, bool everywhere) {
    const bcfg_kernels *kernels = atomic_load_explicit(&forced, memory_order_acquire);
    bool narrow = element == BCFG_BFLOAT16 && !everywhere;
    if (kernels == NULL) kernels = atomic_load_explicit(&best[narrow], memory_order_acquire);
    if (kernels == NULL) {
        int32_t isa = narrow ? BCFG_AMX : BCFG_AVX512;
        while (!runs(isa)) isa--;
        kernels = sets[isa].kernels;
        atomic_store_explicit(&best[narrow], kernels, memory_order_release);
    }
#ifdef BACKENDCFG_AVX512_BF16
    if (everywhere && kernels->pairs != NULL) return &bcfg_kernels_avx512; /* what was forced */
#endif
    return kernels;
}
