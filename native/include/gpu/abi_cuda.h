/* abi_cuda.h - what we use of the CUDA driver, libcuda.so.1.
 *
 * Source: cuda.h of CUDA 13.0. `native/abi/check.py` compares this file with the vendor's header.
 *
 * Handles (contexts, streams, events, modules, functions) are opaque: `void *` here. A device is its ordinal, an int;
 * a CUdeviceptr is 64 bits. Enumerations are passed as int. Names carry the `_v2` that cuda.h hides
 * behind macros, because dlsym needs it.
 */
#ifndef BACKENDCFG_DEVICE_ABI_CUDA_H
#define BACKENDCFG_DEVICE_ABI_CUDA_H

#include <stddef.h>
#include <stdint.h>

/* CONSTANT(name, value): the vendor's name and number; ours is BCFG_ before it. */
#define BCFG_CUDA_CONSTANTS(CONSTANT)                                                              \
    CONSTANT(CUDA_SUCCESS, 0)                                                                      \
    CONSTANT(CUDA_ERROR_INVALID_VALUE, 1)                                                          \
    CONSTANT(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                          \
    CONSTANT(CUDA_ERROR_NOT_INITIALIZED, 3)                                                        \
    CONSTANT(CUDA_ERROR_NO_DEVICE, 100)                                                            \
    CONSTANT(CUDA_ERROR_INVALID_DEVICE, 101)                                                       \
    CONSTANT(CUDA_ERROR_INVALID_CONTEXT, 201)                                                      \
    CONSTANT(CUDA_ERROR_INVALID_HANDLE, 400)                                                       \
    CONSTANT(CUDA_ERROR_NOT_FOUND, 500)                                                            \
    CONSTANT(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                      \
    CONSTANT(CUDA_ERROR_LAUNCH_FAILED, 719)                                                        \
    CONSTANT(CUDA_ERROR_NOT_SUPPORTED, 801)                                                        \
    CONSTANT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                                           \
    CONSTANT(CUDA_ERROR_UNKNOWN, 999)                                                              \
    CONSTANT(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                         \
    CONSTANT(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38)                                                \
    CONSTANT(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                     \
    CONSTANT(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                     \
    CONSTANT(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)                            \
    CONSTANT(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                                   \
    CONSTANT(CU_POINTER_ATTRIBUTE_CONTEXT, 1)                                                      \
    CONSTANT(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                                  \
    CONSTANT(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                               \
    CONSTANT(CU_MEMORYTYPE_DEVICE, 2)                                                              \
    CONSTANT(CU_EVENT_DEFAULT, 0)                                                                  \
    CONSTANT(CU_EVENT_DISABLE_TIMING, 2)                                                           \
    CONSTANT(CU_STREAM_NON_BLOCKING, 1)                                                            \
    CONSTANT(CU_STREAM_CAPTURE_STATUS_NONE, 0)                                                     \
    CONSTANT(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)

enum {
#define CONSTANT(name, value) BCFG_##name = value,
    BCFG_CUDA_CONSTANTS(CONSTANT)
#undef CONSTANT
};

/* Streams that are numbers and not handles. */
#define BCFG_CUDA_STREAM_LEGACY ((void *)0x1)
#define BCFG_CUDA_STREAM_PER_THREAD ((void *)0x2)

/* REQUIRED and OPTIONAL(result, name, parameters). An optional one may be NULL in the table. */
#define BCFG_CUDA_SYMBOLS(REQUIRED, OPTIONAL)                                                      \
    REQUIRED(int, cuInit, (unsigned int flags))                                                    \
    REQUIRED(int, cuDriverGetVersion, (int *version))                                              \
    REQUIRED(int, cuGetErrorName, (int status, const char **text))                                 \
    REQUIRED(int, cuDeviceGet, (int *device, int ordinal))                                         \
    REQUIRED(int, cuDeviceGetAttribute, (int *value, int attribute, int device))                   \
    REQUIRED(int, cuDevicePrimaryCtxRetain, (void **context, int device))                          \
    REQUIRED(int, cuDevicePrimaryCtxRelease_v2, (int device))                                      \
    REQUIRED(int, cuDevicePrimaryCtxGetState, (int device, unsigned int *flags, int *active))      \
    REQUIRED(int, cuCtxGetCurrent, (void **context))                                               \
    REQUIRED(int, cuCtxPushCurrent_v2, (void *context))                                            \
    REQUIRED(int, cuCtxPopCurrent_v2, (void **context))                                            \
    REQUIRED(int, cuCtxGetDevice, (int *device))                                                   \
    REQUIRED(int, cuStreamCreate, (void **stream, unsigned int flags))                             \
    REQUIRED(int, cuStreamDestroy_v2, (void *stream))                                              \
    REQUIRED(int, cuStreamGetCtx, (void *stream, void **context))                                  \
    REQUIRED(int, cuStreamSynchronize, (void *stream))                                             \
    REQUIRED(int, cuStreamIsCapturing, (void *stream, int *status))                                \
    REQUIRED(int, cuStreamWaitEvent, (void *stream, void *event, unsigned int flags))              \
    REQUIRED(int, cuEventCreate, (void **event, unsigned int flags))                               \
    REQUIRED(int, cuEventRecord, (void *event, void *stream))                                      \
    REQUIRED(int, cuEventSynchronize, (void *event))                                               \
    REQUIRED(int, cuEventElapsedTime, (float *milliseconds, void *start, void *end))               \
    REQUIRED(int, cuEventDestroy_v2, (void *event))                                                \
    REQUIRED(int, cuMemAlloc_v2, (uint64_t *pointer, size_t bytes))                                \
    REQUIRED(int, cuMemFree_v2, (uint64_t pointer))                                                \
    REQUIRED(int, cuMemsetD8Async,                                                                 \
             (uint64_t pointer, unsigned char value, size_t bytes, void *stream))                  \
    REQUIRED(int, cuPointerGetAttribute, (void *value, int attribute, uint64_t pointer))           \
    OPTIONAL(int, cuModuleLoadData, (void **module, const void *image))                            \
    OPTIONAL(int, cuModuleUnload, (void *module))                                                  \
    OPTIONAL(int, cuModuleGetFunction, (void **function, void *module, const char *name))          \
    OPTIONAL(int, cuFuncSetAttribute, (void *function, int attribute, int value))                  \
    OPTIONAL(int, cuLaunchKernel,                                                                  \
             (void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,       \
              unsigned int block_x, unsigned int block_y, unsigned int block_z,                    \
              unsigned int shared_bytes, void *stream, void **parameters, void **extra))

typedef struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    BCFG_CUDA_SYMBOLS(MEMBER, MEMBER)
#undef MEMBER
} bcfg_cuda_table;

#endif
