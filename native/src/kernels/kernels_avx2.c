#include "simd_avx2.h"

#define KERNELS bcfg_kernels_avx2
#define ISA BCFG_AVX2
#include "kernels.inc"
