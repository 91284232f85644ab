/* The factorisations that are compiled in once more, for CPUs with AVX2: the same bits, sooner. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2")
#define ROUTINES bcfg_wide_routines
#include "lapack_types.inc"
#else
typedef int nothing_for_this_compiler;
#endif
