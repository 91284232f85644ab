#include "simd_avx512.h"

#define KERNELS bcfg_kernels_avx512_bf16
#define ISA BCFG_AVX512_BF16
#include "kernels.inc"
