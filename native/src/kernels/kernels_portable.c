#include "simd_portable.h"

#define KERNELS bcfg_kernels_portable
#define ISA BCFG_PORTABLE
#include "kernels.inc"
