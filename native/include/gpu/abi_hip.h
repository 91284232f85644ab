/* abi_hip.h - what we use of the HIP runtime, libamdhip64.so.6 and libamdhip64.so.7.
 *
 * Source: hip/hip_runtime_api.h of ROCm 6.3 (ROCm/HIP c5e11fc). `native/abi/check.py` compares this
 * file with the vendor's header. Streams and events are `void *`, enumerations int; a device is its
 * ordinal, an int, and memory a plain pointer.
 *
 * Each thread has a current device, and no contexts: a call sets the device and puts the one before
 * back.
 */
#ifndef BACKENDCFG_DEVICE_ABI_HIP_H
#define BACKENDCFG_DEVICE_ABI_HIP_H

#include <stddef.h>
#include <stdint.h>

/* CONSTANT(name, value): the vendor's name and number; ours is BCFG_ before it. */
#define BCFG_HIP_CONSTANTS(CONSTANT)                                                               \
    CONSTANT(hipSuccess, 0)                                                                        \
    CONSTANT(hipErrorInvalidValue, 1)                                                              \
    CONSTANT(hipErrorOutOfMemory, 2)                                                               \
    CONSTANT(hipErrorNotInitialized, 3)                                                            \
    CONSTANT(hipErrorNoDevice, 100)                                                                \
    CONSTANT(hipErrorInvalidDevice, 101)                                                           \
    CONSTANT(hipErrorInvalidContext, 201)                                                          \
    CONSTANT(hipErrorInvalidHandle, 400)                                                           \
    CONSTANT(hipErrorIllegalAddress, 700)                                                          \
    CONSTANT(hipErrorLaunchFailure, 719)                                                           \
    CONSTANT(hipErrorNotSupported, 801)                                                            \
    CONSTANT(hipErrorStreamCaptureUnsupported, 900)                                                \
    CONSTANT(hipErrorUnknown, 999)                                                                 \
    CONSTANT(hipDeviceAttributeComputeCapabilityMajor, 23)                                         \
    CONSTANT(hipDeviceAttributeComputeCapabilityMinor, 61)                                         \
    CONSTANT(hipDeviceAttributeMultiprocessorCount, 63)                                            \
    CONSTANT(hipEventDisableTiming, 2)                                                             \
    CONSTANT(hipStreamNonBlocking, 1)                                                              \
    CONSTANT(hipStreamCaptureStatusNone, 0)                                                        \
    CONSTANT(hipStreamCaptureStatusActive, 1)

enum {
#define CONSTANT(name, value) BCFG_##name = value,
    BCFG_HIP_CONSTANTS(CONSTANT)
#undef CONSTANT
};

/* A stream that is a number and not a handle; there is none for the legacy stream but NULL. */
#define BCFG_HIP_STREAM_PER_THREAD ((void *)0x2)

/* REQUIRED and OPTIONAL(result, name, parameters). An optional one may be NULL in the table. */
#define BCFG_HIP_SYMBOLS(REQUIRED, OPTIONAL)                                                       \
    REQUIRED(int, hipInit, (unsigned int flags))                                                   \
    REQUIRED(const char *, hipGetErrorName, (int status))                                          \
    REQUIRED(int, hipGetDevice, (int *device))                                                     \
    REQUIRED(int, hipSetDevice, (int device))                                                      \
    REQUIRED(int, hipDeviceGetAttribute, (int *value, int attribute, int device))                  \
    REQUIRED(int, hipStreamCreateWithFlags, (void **stream, unsigned int flags))                   \
    REQUIRED(int, hipStreamDestroy, (void *stream))                                                \
    REQUIRED(int, hipStreamGetDevice, (void *stream, int *device))                                 \
    REQUIRED(int, hipStreamSynchronize, (void *stream))                                            \
    REQUIRED(int, hipStreamIsCapturing, (void *stream, int *status))                               \
    REQUIRED(int, hipStreamWaitEvent, (void *stream, void *event, unsigned int flags))             \
    REQUIRED(int, hipEventCreateWithFlags, (void **event, unsigned int flags))                     \
    REQUIRED(int, hipEventRecord, (void *event, void *stream))                                     \
    REQUIRED(int, hipEventDestroy, (void *event))                                                  \
    REQUIRED(int, hipMalloc, (void **pointer, size_t bytes))                                       \
    REQUIRED(int, hipFree, (void *pointer))                                                        \
    REQUIRED(int, hipMemsetAsync, (void *pointer, int value, size_t bytes, void *stream))

typedef struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    BCFG_HIP_SYMBOLS(MEMBER, MEMBER)
#undef MEMBER
} bcfg_hip_table;

#endif
