#include "simd_avx512.h"

#define KERNELS bcfg_kernels_avx512
#define ISA BCFG_AVX512
#include "kernels.inc"
