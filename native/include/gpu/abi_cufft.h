/* abi_cufft.h - what we use of cuFFT, libcufft.so.11 (CUDA 12) and libcufft.so.12 (CUDA 13).
 *
 * Source: cufft.h and cufftXt.h of cuFFT 12.5 and 11.4. `native/abi/check.py` compares this file
 * with the vendor's headers. Plans are int, streams `void *`, enumerations int.
 */
#ifndef BACKENDCFG_DEVICE_ABI_CUFFT_H
#define BACKENDCFG_DEVICE_ABI_CUFFT_H

#include <stddef.h>

/* CONSTANT(name, value): the vendor's name and number; ours is BCFG_ before it. */
#define BCFG_CUFFT_STATUS_CONSTANTS(CONSTANT)                                                      \
    CONSTANT(CUFFT_SUCCESS, 0)                                                                     \
    CONSTANT(CUFFT_INVALID_PLAN, 1)                                                                \
    CONSTANT(CUFFT_ALLOC_FAILED, 2)                                                                \
    CONSTANT(CUFFT_INVALID_TYPE, 3)                                                                \
    CONSTANT(CUFFT_INVALID_VALUE, 4)                                                               \
    CONSTANT(CUFFT_INTERNAL_ERROR, 5)                                                              \
    CONSTANT(CUFFT_EXEC_FAILED, 6)                                                                 \
    CONSTANT(CUFFT_SETUP_FAILED, 7)                                                                \
    CONSTANT(CUFFT_INVALID_SIZE, 8)                                                                \
    CONSTANT(CUFFT_UNALIGNED_DATA, 9)                                                              \
    CONSTANT(CUFFT_INVALID_DEVICE, 11)                                                             \
    CONSTANT(CUFFT_NO_WORKSPACE, 13)                                                               \
    CONSTANT(CUFFT_NOT_IMPLEMENTED, 14)                                                            \
    CONSTANT(CUFFT_NOT_SUPPORTED, 16)

#define BCFG_CUFFT_CONSTANTS(CONSTANT)                                                             \
    CONSTANT(CUFFT_FORWARD, -1)                                                                    \
    CONSTANT(CUFFT_INVERSE, 1)

/* Statuses that version 12.0 brought. */
#define BCFG_CUFFT_SINCE_12_0_CONSTANTS(CONSTANT)                                                  \
    CONSTANT(CUFFT_MISSING_DEPENDENCY, 17)                                                         \
    CONSTANT(CUFFT_NVRTC_FAILURE, 18)                                                              \
    CONSTANT(CUFFT_NVJITLINK_FAILURE, 19)                                                          \
    CONSTANT(CUFFT_NVSHMEM_FAILURE, 20)

enum {
#define CONSTANT(name, value) BCFG_##name = value,
    BCFG_CUFFT_STATUS_CONSTANTS(CONSTANT)
    BCFG_CUFFT_CONSTANTS(CONSTANT)
    BCFG_CUFFT_SINCE_12_0_CONSTANTS(CONSTANT)
#undef CONSTANT
};

/* REQUIRED and OPTIONAL(result, name, parameters). Types are cudaDataType's numbers. */
#define BCFG_CUFFT_SYMBOLS(REQUIRED, OPTIONAL)                                                     \
    REQUIRED(int, cufftGetProperty, (int property, int *value))                                    \
    REQUIRED(int, cufftCreate, (int *plan))                                                        \
    REQUIRED(int, cufftDestroy, (int plan))                                                        \
    REQUIRED(int, cufftSetAutoAllocation, (int plan, int allocates))                               \
    REQUIRED(int, cufftXtMakePlanMany,                                                             \
             (int plan, int rank, long long int *n, long long int *input_embed,                    \
              long long int input_stride, long long int input_distance, int input_type,            \
              long long int *output_embed, long long int output_stride,                            \
              long long int output_distance, int output_type, long long int batch,                 \
              size_t *bytes, int execution_type))                                                  \
    REQUIRED(int, cufftSetStream, (int plan, void *stream))                                        \
    REQUIRED(int, cufftSetWorkArea, (int plan, void *area))                                        \
    REQUIRED(int, cufftXtExec, (int plan, void *input, void *output, int direction))

typedef struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    BCFG_CUFFT_SYMBOLS(MEMBER, MEMBER)
#undef MEMBER
} bcfg_cufft_table;

#endif
