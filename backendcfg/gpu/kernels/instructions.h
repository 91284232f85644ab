/* The functions by which the kernels use what C does not have: instructions of a GPU, and its memories.
 *
 * There are two implementations: inline PTX for NVRTC and nvcc, and a block of threads on the host for
 * tests, in native/fakes/gpu/gpu_block.h. Both follow the PTX ISA (sections as in PTX ISA 8.x,
 * https://docs.nvidia.com/cuda/parallel-thread-execution; MMA_Traits of SM80_16x8x16_F32BF16BF16F32_TN in
 * CUTLASS describe the same fragments):
 *
 *     multiply     9.7.14.5.8   Matrix Fragments for mma.m16n8k16 with floating point type
 *     load_matrix  9.7.14.5.15  Warp-level matrix load instruction: ldmatrix
 *     copy_ahead   9.7.9.25.3   Data Movement: cp.async, cp.async.commit_group, cp.async.wait_group
 *     exchange     9.7.9.6      shfl.sync, mode .bfly
 *     pack         9.7.9.21     cvt.rn.bf16x2.f32 and cvt.rn.f16x2.f32
 *
 * A lane is laneid = thread % 32, its group laneid / 4, its place in the group laneid % 4. In that
 * order two neighbours are one register, the lower one in the lower half:
 *
 *     A (16, 16)  register r: row group + 8 * (r % 2), columns 2 * place + 8 * (r / 2) + {0, 1}
 *     B (16, 8)   register r: rows 2 * place + 8 * r + {0, 1}, column group
 *     C (16, 8)   number r:   row group + 8 * (r / 2), column 2 * place + r % 2
 *     ldmatrix    register r of matrix r, (8, 8): row group, columns 2 * place + {0, 1}; transposed:
 *                 rows 2 * place + {0, 1}, column group. Row i of matrix r lies where lane 8 r + i
 *                 says, 16 bytes
 *
 * Addresses of shared memory are numbers of bytes in the window of the block. */
#ifndef BACKENDCFG_INSTRUCTIONS_H
#define BACKENDCFG_INSTRUCTIONS_H

typedef unsigned short half_bits; /* a bfloat16 or float16 */

typedef struct {
    unsigned word[4];
} sixteen_bytes;

#ifdef __CUDACC__

#define DEVICE static __device__ __forceinline__
#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define UNROLL _Pragma("unroll")
#define MINUS_INFINITY __int_as_float((int)0xff800000)

DEVICE unsigned thread_index(void) { return threadIdx.x; }
/* The same, read again, so that the compiler keeps nothing that follows from it in registers across a
 * loop. */
DEVICE unsigned thread_index_anew(void) {
    unsigned index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return index;
}
DEVICE unsigned block_index(void) { return blockIdx.x; }

DEVICE unsigned shared_window(void) {
    extern __shared__ __align__(128) unsigned char window[];
    return (unsigned)__cvta_generic_to_shared(window);
}

/* --- order between threads -------------------------------------------------------------------- */

DEVICE void block_barrier(void) { __syncthreads(); }
DEVICE void warp_barrier(void) { __syncwarp(); }

DEVICE float exchange(float value, unsigned mask) {
    return __shfl_xor_sync(0xffffffffu, value, (int)mask);
}
DEVICE unsigned exchange_bits(unsigned value, unsigned mask) {
    return __shfl_xor_sync(0xffffffffu, value, (int)mask);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* 16 bytes from global to shared memory, in the background; zeros where `inside` is false. */
DEVICE void copy_ahead(unsigned to, const void *from, bool inside) {
    unsigned bytes = inside ? 16u : 0u;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
}
DEVICE void end_copies(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until all copies of this thread have arrived but those of the last `left` groups: 0 or 1. */
DEVICE void await_copies(int left) {
    if (left == 0)
        asm volatile("cp.async.wait_group 0;" ::: "memory");
    else
        asm volatile("cp.async.wait_group 1;" ::: "memory");
}

DEVICE sixteen_bytes load_shared(unsigned from) {
    sixteen_bytes it;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(it.word[0]), "=r"(it.word[1]), "=r"(it.word[2]), "=r"(it.word[3])
                 : "r"(from)
                 : "memory");
    return it;
}
DEVICE void store_shared(unsigned to, sixteen_bytes it) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(it.word[0]),
                 "r"(it.word[1]), "r"(it.word[2]), "r"(it.word[3])
                 : "memory");
}
DEVICE void store_shared_word(unsigned to, unsigned it) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(it) : "memory");
}

DEVICE unsigned load_shared_word(unsigned from) {
    unsigned it;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(it) : "r"(from) : "memory");
    return it;
}

DEVICE unsigned char load_byte(const unsigned char *from) { return __ldg(from); }
DEVICE half_bits load_half(const half_bits *from) { return __ldg(from); }
DEVICE float load_float(const float *from) { return __ldg(from); }
DEVICE sixteen_bytes load_chunk(const void *from) {
    uint4 four = __ldg((const uint4 *)from);
    sixteen_bytes it = {{four.x, four.y, four.z, four.w}};
    return it;
}
DEVICE void store_half(half_bits *to, half_bits it) { *to = it; }
DEVICE void store_float(float *to, float it) { *to = it; }
DEVICE void store_sixteen(void *to, sixteen_bytes it) {
    *(uint4 *)to = make_uint4(it.word[0], it.word[1], it.word[2], it.word[3]);
}

/* --- matrices --------------------------------------------------------------------------------- */

DEVICE void load_matrix(unsigned to[4], unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
DEVICE void load_matrix_transposed(unsigned to[4], unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

/* c += a b, of bfloat16 or float16 with sums in float32. */
DEVICE void multiply(bool bfloat16, float c[4], const unsigned a[4], unsigned b0, unsigned b1) {
    if (bfloat16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* Two numbers, rounded to nearest even, in one register. */
DEVICE unsigned pack(bool bfloat16, float low, float high) {
    unsigned it;
    if (bfloat16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(it) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(it) : "f"(high), "f"(low));
    return it;
}
DEVICE float widen(bool bfloat16, half_bits it) {
    float wide;
    if (bfloat16)
        wide = __int_as_float((int)((unsigned)it << 16));
    else
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(it));
    return wide;
}
DEVICE float power_of_two(float it) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(it));
    return power;
}
DEVICE float reciprocal(float it) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(it));
    return inverse;
}
DEVICE float logarithm_of_two(float it) {
    float logarithm;
    asm("lg2.approx.f32 %0, %1;" : "=f"(logarithm) : "f"(it));
    return logarithm;
}
/* The greater number; where one of them is NaN, the other. */
DEVICE float greater(float a, float b) { return fmaxf(a, b); }
DEVICE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE unsigned upper_product(unsigned a, unsigned b) { return __umulhi(a, b); }

#else
#include "gpu_block.h"
#endif

#endif
