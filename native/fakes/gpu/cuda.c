/* A libcuda.so.1 whose devices are memory of the host. See recorded.h.
 *
 * Settings: version (13000 is 13.0), devices, capability (90 is 9.0), memory (bytes of all devices
 * together), processors (multiprocessors of each), capturing (a CUstreamCaptureStatus),
 * shared (bytes that a block may have), cache (bytes of the second level), asks (address of an
 * `int (void)` whose answer cuMemFree_v2 records; 0 for none).
 *
 * A pointer of a device is one of the host. Work on streams is done at once; events and streams are
 * handles that only this library knows, so that a wrong one is refused.
 *
 * Kernels are run by the test: it hands in, with fake_kernels, what a launch calls.
 */
#ifndef VERSION
#define VERSION 13000
#endif
#define SETTINGS                                                                                   \
    SETTING(version, VERSION)                                                                      \
    SETTING(devices, 1)                                                                            \
    SETTING(capability, 90)                                                                        \
    SETTING(memory, 1 << 30)                                                                       \
    SETTING(processors, 132)                                                                       \
    SETTING(capturing, 0)                                                                          \
    SETTING(shared, 232448)                                                                        \
    SETTING(cache, 50 << 20)                                                                       \
    SETTING(asks, 0)
#include "recorded.h"

#include "gpu/abi_cuda.h"

/* The prototypes of the table are those of the definitions below. */
#define DECLARE(result, name, parameters) API result name parameters;
BCFG_CUDA_SYMBOLS(DECLARE, DECLARE)
#undef DECLARE

enum { DEVICES = 8, DEPTH = 16, HANDLES = 4096 };
enum { STREAM = 1, EVENT = 2, MODULE = 3, FUNCTION = 4 };

/* Streams, events, modules and functions. One that ended keeps its place, so that a use after that
 * is seen. */
static struct handle {
    int kind, device;                              /* kind 0: it ended */
    struct handle *module;                         /* a function's */
    char text[128];                                /* a module's code as text; a function's name */
    int shared;                                    /* bytes that a function may have */
    unsigned int flags;                            /* an event's */
    double when;                                   /* it was recorded */
} handles[HANDLES];
static int handle_count;

static int initialised;
static struct context {
    int device, retained;
} contexts[DEVICES];
static _Thread_local struct context *stack[DEPTH];
static _Thread_local int depth;
static int64_t used; /* bytes, of all devices together */
API int64_t fake_used(void) { return used; }

static struct context *current(void) { return depth ? stack[depth - 1] : NULL; }

#define NEED(condition, code)                                                                      \
    if (!(condition)) return BCFG_CUDA_ERROR_##code;

static int is_context(const void *pointer) {
    for (int at = 0; at < DEVICES; at++)
        if (pointer == &contexts[at]) return contexts[at].retained > 0;
    return 0;
}

static int is_handle(const void *pointer, int kind) {
    for (int at = 0; at < __atomic_load_n(&handle_count, __ATOMIC_ACQUIRE); at++)
        if (pointer == &handles[at]) return handles[at].kind == kind;
    return 0;
}

/* NULL is the legacy stream, 1 and 2 the named ones. */
static int is_stream(const void *stream) {
    return (uintptr_t)stream <= 2 || is_handle(stream, STREAM);
}

int cuInit(unsigned int flags) {
    ENTER("cuInit", I(flags))
    NEED(setting_devices > 0, NO_DEVICE)
    initialised = 1;
    return 0;
}

int cuDriverGetVersion(int *version) {
    ENTER("cuDriverGetVersion", P(version))
    *version = (int)setting_version;
    return 0;
}

static const char *name_of(int status) {
    switch (status) {
#define CASE(name) case BCFG_##name: return #name;
        CASE(CUDA_SUCCESS)
        CASE(CUDA_ERROR_INVALID_VALUE)
        CASE(CUDA_ERROR_OUT_OF_MEMORY)
        CASE(CUDA_ERROR_NOT_INITIALIZED)
        CASE(CUDA_ERROR_NO_DEVICE)
        CASE(CUDA_ERROR_INVALID_DEVICE)
        CASE(CUDA_ERROR_NOT_FOUND)
        CASE(CUDA_ERROR_ILLEGAL_ADDRESS)
        CASE(CUDA_ERROR_LAUNCH_FAILED)
        CASE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        CASE(CUDA_ERROR_UNKNOWN)
#undef CASE
    default: return NULL;
    }
}

int cuGetErrorName(int status, const char **text) {
    *text = name_of(status);
    return *text != NULL ? 0 : BCFG_CUDA_ERROR_INVALID_VALUE;
}
int cuDeviceGet(int *device, int ordinal) {
    ENTER("cuDeviceGet", P(device), I(ordinal))
    NEED(initialised, NOT_INITIALIZED)
    NEED(ordinal >= 0 && ordinal < setting_devices, INVALID_DEVICE)
    *device = ordinal;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER("cuDeviceGetAttribute", P(value), I(attribute), I(device))
    NEED(initialised, NOT_INITIALIZED)
    NEED(device >= 0 && device < setting_devices, INVALID_DEVICE)
    switch (attribute) {
    case BCFG_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = (int)setting_processors; return 0;
    case BCFG_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = (int)setting_capability / 10;
        return 0;
    case BCFG_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = (int)setting_capability % 10;
        return 0;
    case BCFG_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = (int)setting_shared;
        return 0;
    case BCFG_CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = (int)setting_cache; return 0;
    default: return BCFG_CUDA_ERROR_INVALID_VALUE;
    }
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    ENTER("cuDevicePrimaryCtxRetain", P(context), I(device))
    NEED(initialised, NOT_INITIALIZED)
    NEED(device >= 0 && device < setting_devices && device < DEVICES, INVALID_DEVICE)
    contexts[device].device = device;
    contexts[device].retained++;
    *context = &contexts[device];
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    ENTER("cuDevicePrimaryCtxRelease_v2", I(device))
    NEED(device >= 0 && device < DEVICES && contexts[device].retained > 0, INVALID_CONTEXT)
    contexts[device].retained--;
    return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active) {
    ENTER("cuDevicePrimaryCtxGetState", I(device), P(flags), P(active))
    NEED(device >= 0 && device < setting_devices && device < DEVICES, INVALID_DEVICE)
    *flags = 0;
    *active = contexts[device].retained > 0;
    return 0;
}

int cuCtxGetCurrent(void **context) {
    ENTER("cuCtxGetCurrent", P(context))
    NEED(initialised, NOT_INITIALIZED)
    *context = current();
    return 0;
}

int cuCtxPushCurrent_v2(void *context) {
    ENTER("cuCtxPushCurrent_v2", P(context))
    NEED(is_context(context) && depth < DEPTH, INVALID_CONTEXT)
    stack[depth++] = context;
    return 0;
}

int cuCtxPopCurrent_v2(void **context) {
    ENTER("cuCtxPopCurrent_v2", P(context))
    NEED(depth > 0, INVALID_CONTEXT)
    depth--;
    if (context) *context = stack[depth];
    return 0;
}

int cuCtxGetDevice(int *device) {
    ENTER("cuCtxGetDevice", P(device))
    NEED(current(), INVALID_CONTEXT)
    *device = current()->device;
    return 0;
}

static int make(void **place, int kind) {
    NEED(current(), INVALID_CONTEXT)
    pthread_mutex_lock(&recording);
    struct handle *made = handle_count < HANDLES ? &handles[handle_count] : NULL;
    if (made) {
        *made = (struct handle){.kind = kind, .device = current()->device};
        __atomic_store_n(&handle_count, handle_count + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&recording);
    NEED(made, OUT_OF_MEMORY)
    *place = made;
    return 0;
}

static int end(void *place, int kind) {
    NEED(is_handle(place, kind), INVALID_HANDLE)
    ((struct handle *)place)->kind = 0;
    return 0;
}

int cuStreamCreate(void **stream, unsigned int flags) {
    ENTER("cuStreamCreate", P(stream), I(flags))
    return make(stream, STREAM);
}

int cuStreamDestroy_v2(void *stream) {
    ENTER("cuStreamDestroy_v2", P(stream))
    return end(stream, STREAM);
}

int cuStreamGetCtx(void *stream, void **context) {
    ENTER("cuStreamGetCtx", P(stream), P(context))
    NEED(is_stream(stream), INVALID_HANDLE)
    struct context *made =
        is_handle(stream, STREAM) ? &contexts[((struct handle *)stream)->device] : current();
    NEED(made, INVALID_CONTEXT)
    *context = made;
    return 0;
}

int cuStreamSynchronize(void *stream) {
    ENTER("cuStreamSynchronize", P(stream))
    NEED(is_stream(stream), INVALID_HANDLE)
    return 0;
}

int cuStreamIsCapturing(void *stream, int *capturing) {
    ENTER("cuStreamIsCapturing", P(stream), P(capturing))
    NEED(is_stream(stream), INVALID_HANDLE)
    *capturing = (int)setting_capturing;
    return 0;
}

int cuStreamWaitEvent(void *stream, void *event, unsigned int flags) {
    ENTER("cuStreamWaitEvent", P(stream), P(event), I(flags))
    NEED(is_stream(stream) && is_handle(event, EVENT), INVALID_HANDLE)
    return 0;
}

int cuEventCreate(void **event, unsigned int flags) {
    ENTER("cuEventCreate", P(event), I(flags))
    int made = make(event, EVENT);
    if (made == 0) ((struct handle *)*event)->flags = flags;
    return made;
}

/* What devices take for their work, in milliseconds; only fakes of other libraries move it. */
static double now;

API void fake_spend(double milliseconds) { now += milliseconds; }

int cuEventRecord(void *event, void *stream) {
    ENTER("cuEventRecord", P(event), P(stream))
    NEED(is_stream(stream) && is_handle(event, EVENT), INVALID_HANDLE)
    ((struct handle *)event)->when = now;
    return 0;
}

int cuEventSynchronize(void *event) {
    ENTER("cuEventSynchronize", P(event))
    NEED(is_handle(event, EVENT), INVALID_HANDLE)
    return 0;
}

int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
    ENTER("cuEventElapsedTime", P(milliseconds), P(start), P(end))
    NEED(is_handle(start, EVENT) && is_handle(end, EVENT), INVALID_HANDLE)
    const struct handle *first = start, *last = end;
    NEED(first->flags == BCFG_CU_EVENT_DEFAULT && last->flags == BCFG_CU_EVENT_DEFAULT,
         INVALID_HANDLE)
    *milliseconds = (float)(last->when - first->when);
    return 0;
}

int cuEventDestroy_v2(void *event) {
    ENTER("cuEventDestroy_v2", P(event))
    return end(event, EVENT);
}

/* Memory, with its size before it. */
enum { BEFORE = 256 };

static int allocate(uint64_t *pointer, size_t bytes) {
    NEED(current(), INVALID_CONTEXT)
    NEED(bytes > 0, INVALID_VALUE)
    NEED((int64_t)bytes <= setting_memory - used, OUT_OF_MEMORY)
    char *block = aligned_alloc(BEFORE, BEFORE + (bytes + BEFORE - 1) / BEFORE * BEFORE);
    NEED(block, OUT_OF_MEMORY)
    memcpy(block, &bytes, sizeof bytes);
    used += (int64_t)bytes;
    *pointer = (uint64_t)(uintptr_t)(block + BEFORE);
    return 0;
}

static int release(uint64_t pointer) {
    if (pointer == 0) return 0;
    char *block = (char *)(uintptr_t)pointer - BEFORE;
    size_t bytes;
    memcpy(&bytes, block, sizeof bytes);
    used -= (int64_t)bytes;
    free(block);
    return 0;
}

int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) {
    ENTER("cuMemAlloc_v2", P(pointer), I(bytes))
    return allocate(pointer, bytes);
}

int cuMemFree_v2(uint64_t pointer) {
    int answer = setting_asks ? ((int (*)(void))(intptr_t)setting_asks)() : -1;
    ENTER("cuMemFree_v2", P(pointer), I(answer))
    return release(pointer);
}

int cuMemsetD8Async(uint64_t pointer, unsigned char value, size_t bytes, void *stream) {
    ENTER("cuMemsetD8Async", P(pointer), I(value), I(bytes), P(stream))
    NEED(is_stream(stream), INVALID_HANDLE)
    memset((void *)(uintptr_t)pointer, value, bytes);
    return 0;
}

int cuPointerGetAttribute(void *value, int attribute, uint64_t pointer) {
    ENTER("cuPointerGetAttribute", P(value), I(attribute), P(pointer))
    NEED(pointer, INVALID_VALUE)
    switch (attribute) {
    case BCFG_CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)value = BCFG_CU_MEMORYTYPE_DEVICE;
        return 0;
    case BCFG_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = 0; return 0;
    case BCFG_CU_POINTER_ATTRIBUTE_CONTEXT: *(void **)value = &contexts[0]; return 0;
    default: return BCFG_CUDA_ERROR_INVALID_VALUE;
    }
}

/* What a launch calls: the code and the name of its function, blocks, threads, shared bytes, and the
 * kernel's one argument. Its status is the launch's. */
typedef int run_kernel(const char *code, const char *name, unsigned int grid, unsigned int threads,
                       unsigned int shared_bytes, const void *parameter);
static run_kernel *run;

API void fake_kernels(run_kernel *runs) { run = runs; }

enum { SHARED_ANYHOW = 48 << 10, MOST_THREADS = 1024 };

int cuModuleLoadData(void **module, const void *image) {
    ENTER("cuModuleLoadData", P(module), P(image))
    NEED(image, INVALID_VALUE)
    int made = make(module, MODULE);
    struct handle *handle = made == 0 ? *module : NULL;
    if (handle) snprintf(handle->text, sizeof handle->text, "%s", (const char *)image);
    return made;
}

int cuModuleUnload(void *module) {
    ENTER("cuModuleUnload", P(module))
    return end(module, MODULE);
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    ENTER("cuModuleGetFunction", P(function), P(module), P(name))
    NEED(is_handle(module, MODULE), INVALID_HANDLE)
    int made = make(function, FUNCTION);
    if (made != 0) return made;
    struct handle *handle = *function;
    handle->module = module;
    handle->shared = SHARED_ANYHOW;
    snprintf(handle->text, sizeof handle->text, "%s", name);
    return 0;
}

int cuFuncSetAttribute(void *function, int attribute, int value) {
    ENTER("cuFuncSetAttribute", P(function), I(attribute), I(value))
    NEED(is_handle(function, FUNCTION), INVALID_HANDLE)
    NEED(attribute == BCFG_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, INVALID_VALUE)
    NEED(value >= 0 && value <= setting_shared, INVALID_VALUE)
    ((struct handle *)function)->shared = value;
    return 0;
}

int cuLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                   unsigned int block_x, unsigned int block_y, unsigned int block_z,
                   unsigned int shared_bytes, void *stream, void **parameters, void **extra) {
    ENTER("cuLaunchKernel", P(function), I(grid_x), I(grid_y), I(grid_z), I(block_x), I(block_y),
          I(block_z), I(shared_bytes), P(stream), P(parameters), P(extra))
    NEED(is_handle(function, FUNCTION) && is_stream(stream), INVALID_HANDLE)
    struct handle *known = function;
    NEED(known->module->kind == MODULE, INVALID_HANDLE)
    NEED(current() && current()->device == known->device, INVALID_CONTEXT)
    NEED(grid_x > 0 && grid_y == 1 && grid_z == 1 && block_y == 1 && block_z == 1, INVALID_VALUE)
    NEED(block_x > 0 && block_x <= MOST_THREADS, INVALID_VALUE)
    NEED(shared_bytes <= (unsigned int)known->shared, INVALID_VALUE)
    NEED(parameters && extra == NULL, INVALID_VALUE)
    return run ? run(known->module->text, known->text, grid_x, block_x, shared_bytes, *parameters)
               : 0;
}
