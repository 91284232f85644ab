/* A libamdhip64 whose devices are memory of the host. See recorded.h.
 *
 * Settings: devices, capability (94 is 9.4), memory (bytes of all devices together), processors
 * (compute units of each), capturing (a hipStreamCaptureStatus).
 *
 * A pointer of a device is one of the host. Work on streams is done at once; events and streams are
 * handles that only this library knows, so that a wrong one is refused. Each thread has a current
 * device, 0 to begin with.
 */
#define SETTINGS                                                                                   \
    SETTING(devices, 1)                                                                            \
    SETTING(capability, 94)                                                                        \
    SETTING(memory, 1 << 30)                                                                       \
    SETTING(processors, 304)                                                                       \
    SETTING(capturing, 0)
#include "recorded.h"

#include "gpu/abi_hip.h"

/* The prototypes of the table are those of the definitions below. */
#define DECLARE(result, name, parameters) API result name parameters;
BCFG_HIP_SYMBOLS(DECLARE, DECLARE)
#undef DECLARE

enum { HANDLES = 4096, STREAM = 1, EVENT = 2 };

/* Streams and events. One that ended keeps its place, so that a use after that is seen. */
static struct handle {
    int kind, device;                              /* kind 0: it ended */
} handles[HANDLES];
static int handle_count;
static _Thread_local int current;
static int64_t used; /* bytes, of all devices together */

#define NEED(condition, code)                                                                      \
    if (!(condition)) return BCFG_hipError##code;

static int is_handle(const void *pointer, int kind) {
    for (int at = 0; at < handle_count; at++)
        if (pointer == &handles[at]) return handles[at].kind == kind;
    return 0;
}

/* NULL is the default stream, 2 that of each thread. */
static int is_stream(const void *stream) {
    return stream == NULL || stream == BCFG_HIP_STREAM_PER_THREAD || is_handle(stream, STREAM);
}

static int is_device(int device) { return device >= 0 && device < setting_devices; }

int hipInit(unsigned int flags) {
    ENTER("hipInit", I(flags))
    NEED(setting_devices > 0, NoDevice)
    return 0;
}

static const char *name_of(int status) {
    switch (status) {
#define CASE(name) case BCFG_##name: return #name;
        CASE(hipSuccess)
        CASE(hipErrorInvalidValue)
        CASE(hipErrorOutOfMemory)
        CASE(hipErrorNoDevice)
        CASE(hipErrorInvalidDevice)
        CASE(hipErrorIllegalAddress)
        CASE(hipErrorLaunchFailure)
#undef CASE
    default: return "hipErrorUnknown";
    }
}

const char *hipGetErrorName(int status) { return name_of(status); }
int hipGetDevice(int *device) {
    ENTER("hipGetDevice", P(device))
    *device = current;
    return 0;
}

int hipSetDevice(int device) {
    ENTER("hipSetDevice", I(device))
    NEED(is_device(device), InvalidDevice)
    current = device;
    return 0;
}

int hipDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER("hipDeviceGetAttribute", P(value), I(attribute), I(device))
    NEED(is_device(device), InvalidDevice)
    switch (attribute) {
    case BCFG_hipDeviceAttributeMultiprocessorCount: *value = (int)setting_processors; return 0;
    case BCFG_hipDeviceAttributeComputeCapabilityMajor:
        *value = (int)setting_capability / 10;
        return 0;
    case BCFG_hipDeviceAttributeComputeCapabilityMinor:
        *value = (int)setting_capability % 10;
        return 0;
    default: return BCFG_hipErrorInvalidValue;
    }
}

static int make(void **place, int kind) {
    NEED(is_device(current), InvalidDevice)
    NEED(handle_count < HANDLES, OutOfMemory)
    handles[handle_count] = (struct handle){kind, current};
    *place = &handles[handle_count++];
    return 0;
}

static int end(void *place, int kind) {
    NEED(is_handle(place, kind), InvalidHandle)
    ((struct handle *)place)->kind = 0;
    return 0;
}

int hipStreamCreateWithFlags(void **stream, unsigned int flags) {
    ENTER("hipStreamCreateWithFlags", P(stream), I(flags))
    return make(stream, STREAM);
}

int hipStreamDestroy(void *stream) {
    ENTER("hipStreamDestroy", P(stream))
    return end(stream, STREAM);
}

int hipStreamGetDevice(void *stream, int *device) {
    ENTER("hipStreamGetDevice", P(stream), P(device))
    NEED(is_stream(stream), InvalidHandle)
    *device = is_handle(stream, STREAM) ? ((struct handle *)stream)->device : current;
    return 0;
}

int hipStreamSynchronize(void *stream) {
    ENTER("hipStreamSynchronize", P(stream))
    NEED(is_stream(stream), InvalidHandle)
    return 0;
}

int hipStreamIsCapturing(void *stream, int *capturing) {
    ENTER("hipStreamIsCapturing", P(stream), P(capturing))
    NEED(is_stream(stream), InvalidHandle)
    *capturing = (int)setting_capturing;
    return 0;
}

int hipStreamWaitEvent(void *stream, void *event, unsigned int flags) {
    ENTER("hipStreamWaitEvent", P(stream), P(event), I(flags))
    NEED(is_stream(stream) && is_handle(event, EVENT), InvalidHandle)
    return 0;
}

int hipEventCreateWithFlags(void **event, unsigned int flags) {
    ENTER("hipEventCreateWithFlags", P(event), I(flags))
    return make(event, EVENT);
}

int hipEventRecord(void *event, void *stream) {
    ENTER("hipEventRecord", P(event), P(stream))
    NEED(is_stream(stream) && is_handle(event, EVENT), InvalidHandle)
    return 0;
}

int hipEventDestroy(void *event) {
    ENTER("hipEventDestroy", P(event))
    return end(event, EVENT);
}

/* Memory, with its size before it. */
enum { BEFORE = 256 };

static int allocate(void **pointer, size_t bytes) {
    NEED(bytes > 0, InvalidValue)
    NEED((int64_t)bytes <= setting_memory - used, OutOfMemory)
    char *block = aligned_alloc(BEFORE, BEFORE + (bytes + BEFORE - 1) / BEFORE * BEFORE);
    NEED(block, OutOfMemory)
    memcpy(block, &bytes, sizeof bytes);
    used += (int64_t)bytes;
    *pointer = block + BEFORE;
    return 0;
}

static int release(void *pointer) {
    if (pointer == NULL) return 0;
    char *block = (char *)pointer - BEFORE;
    size_t bytes;
    memcpy(&bytes, block, sizeof bytes);
    used -= (int64_t)bytes;
    free(block);
    return 0;
}

int hipMalloc(void **pointer, size_t bytes) {
    ENTER("hipMalloc", P(pointer), I(bytes))
    return allocate(pointer, bytes);
}

int hipFree(void *pointer) {
    ENTER("hipFree", P(pointer))
    return release(pointer);
}

int hipMemsetAsync(void *pointer, int value, size_t bytes, void *stream) {
    ENTER("hipMemsetAsync", P(pointer), I(value), I(bytes), P(stream))
    NEED(is_stream(stream), InvalidHandle)
    memset(pointer, value, bytes);
    return 0;
}

