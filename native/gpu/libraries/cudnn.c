/* Plans of cuDNN's engines: made, kept with the handle that they were made for, run and timed. */
#include "gpu/libraries/cudnn.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/libraries/cudnn_search.h"

/* 64 places of 8 plans: a plan may hold some hundred kilobytes of the host's memory. */
enum { SETS = 64, WAYS = 8 };

typedef struct {
    uint64_t number, used;             /* used: when, on the handle's clock; 0 for an empty place */
    int32_t place;
    bool captured;                     /* a graph may use its code, so it is never destroyed */
    void *descriptor;
    int64_t workspace;
} plan;

/* What is kept with a handle. The latest search stays: most problems prepare plans right after. */
typedef struct {
    uint64_t clock;
    bcfg_cudnn_search latest;          /* of no problem while its engine_count is 0 */
    plan plans[SETS][WAYS];
} kept;

static const char *name_of(const bcfg_device_library *library, int status) {
    return bcfg_cudnn(library)->cudnnGetErrorString(status);
}

static int create(const bcfg_device_library *library, void *stream, void **handle,
                  const char **function) {
    const bcfg_cudnn_table *cudnn = bcfg_cudnn(library);
    *function = "cudnnCreate";
    int status = cudnn->cudnnCreate(handle);
    if (status != BCFG_CUDNN_STATUS_SUCCESS) return status;
    *function = "cudnnSetStream";
    status = cudnn->cudnnSetStream(*handle, stream);
    if (status != BCFG_CUDNN_STATUS_SUCCESS) (void)cudnn->cudnnDestroy(*handle);
    return status;
}

static void destroy(const bcfg_handle *handle) {
    const bcfg_cudnn_call call = {.handle = (bcfg_handle *)handle};
    kept *mine = handle->kept;
    for (int i = 0; mine != NULL && i < SETS * WAYS; i++)
        bcfg_cudnn_destroy(&call, mine->plans[i / WAYS][i % WAYS].descriptor);
    if (mine != NULL) bcfg_cudnn_forget(&call, &mine->latest);
    free(mine);
    (void)bcfg_cudnn(handle->library)->cudnnDestroy(handle->handle);
}

const bcfg_vendor bcfg_cudnn_vendor = {name_of, create, destroy};

static kept *kept_with(const bcfg_cudnn_call *call) {
    if (call->handle->kept == NULL) call->handle->kept = calloc(1, sizeof(kept));
    return call->handle->kept;
}

static bcfg_outcome look_for(bcfg_cudnn_call *call, kept *mine, const bcfg_cudnn_graph *graph) {
    if (mine->latest.engine_count > 0 && mine->latest.number == graph->number)
        return BCFG_DEVICE_OK;
    bcfg_cudnn_forget(call, &mine->latest);
    memset(&mine->latest, 0, sizeof mine->latest);
    bcfg_outcome outcome = bcfg_cudnn_look(call, graph, &mine->latest);
    if (outcome != BCFG_DEVICE_OK) bcfg_cudnn_forget(call, &mine->latest);
    return outcome;
}

bcfg_outcome bcfg_cudnn_engines(bcfg_cudnn_call *call, const bcfg_cudnn_graph *graph,
                                bcfg_cudnn_engine *engines, int32_t *count) {
    *count = 0;
    kept *mine = kept_with(call);
    if (mine == NULL) return BCFG_DEVICE_MEMORY;
    bcfg_outcome outcome = look_for(call, mine, graph);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    *count = mine->latest.engine_count;
    memcpy(engines, mine->latest.engines, (size_t)*count * sizeof *engines);
    return BCFG_DEVICE_OK;
}

static plan *set_of(kept *mine, uint64_t number, int32_t place) {
    uint64_t mixed = (number * 131 + (uint64_t)place) * 0x9e3779b97f4a7c15;
    return mine->plans[(mixed >> 32) % SETS];
}

static plan *find(kept *mine, uint64_t number, int32_t place) {
    plan *set = set_of(mine, number, place);
    for (int i = 0; i < WAYS; i++)
        if (set[i].used != 0 && set[i].number == number && set[i].place == place) {
            set[i].used = ++mine->clock;
            return &set[i];
        }
    return NULL;
}

static void keep(const bcfg_cudnn_call *call, kept *mine, const plan *made) {
    plan *set = set_of(mine, made->number, made->place), *oldest = set;
    for (int i = 1; i < WAYS; i++)
        if (set[i].used < oldest->used) oldest = &set[i];
    if (!oldest->captured) bcfg_cudnn_destroy(call, oldest->descriptor);
    *oldest = *made;
    oldest->used = ++mine->clock;
}

bcfg_outcome bcfg_cudnn_prepare(bcfg_cudnn_call *call, const bcfg_cudnn_graph *graph, int32_t place,
                                int64_t *workspace) {
    kept *mine = kept_with(call);
    if (mine == NULL) return BCFG_DEVICE_MEMORY;
    const plan *known = find(mine, graph->number, place);
    if (known != NULL) {
        *workspace = known->workspace;
        return BCFG_DEVICE_OK;
    }
    bcfg_outcome outcome = look_for(call, mine, graph);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    if (place < 0 || place >= mine->latest.engine_count)
        return bcfg_cudnn_said(call, "cudnnBackendFinalize", BCFG_CUDNN_STATUS_NOT_SUPPORTED);
    plan made = {.number = graph->number, .place = place};
    int64_t count = 0;
    outcome = bcfg_cudnn_make(call, BCFG_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &made.descriptor);
    STEP(cudnnBackendSetAttribute, made.descriptor, BCFG_CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
         BCFG_CUDNN_TYPE_HANDLE, 1, &call->handle->handle);
    STEP(cudnnBackendSetAttribute, made.descriptor, BCFG_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
         BCFG_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &mine->latest.configurations[place]);
    STEP(cudnnBackendFinalize, made.descriptor);
    STEP(cudnnBackendGetAttribute, made.descriptor, BCFG_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
         BCFG_CUDNN_TYPE_INT64, 1, &count, &made.workspace);
    if (outcome != BCFG_DEVICE_OK) {
        bcfg_cudnn_destroy(call, made.descriptor);
        return outcome;
    }
    keep(call, mine, &made);
    *workspace = made.workspace;
    return BCFG_DEVICE_OK;
}

static bcfg_outcome execute(bcfg_cudnn_call *call, void *descriptor, const bcfg_cudnn_pack *pack) {
    void *variant, *workspace = pack->workspace;
    bcfg_outcome outcome =
        bcfg_cudnn_make(call, BCFG_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &variant);
    STEP(cudnnBackendSetAttribute, variant, BCFG_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
         BCFG_CUDNN_TYPE_VOID_PTR, pack->count, pack->pointers);
    STEP(cudnnBackendSetAttribute, variant, BCFG_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
         BCFG_CUDNN_TYPE_INT64, pack->count, pack->numbers);
    STEP(cudnnBackendSetAttribute, variant, BCFG_CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
         BCFG_CUDNN_TYPE_VOID_PTR, 1, &workspace);
    STEP(cudnnBackendFinalize, variant);
    STEP(cudnnBackendExecute, call->handle->handle, descriptor, variant);
    bcfg_cudnn_destroy(call, variant);
    return outcome;
}

bcfg_outcome bcfg_cudnn_run(bcfg_cudnn_call *call, uint64_t number, int32_t place,
                            const bcfg_cudnn_pack *pack, bool *exists) {
    *exists = false;
    kept *mine = kept_with(call);
    if (mine == NULL) return BCFG_DEVICE_MEMORY;
    plan *at = find(mine, number, place);
    if (at == NULL) return BCFG_DEVICE_OK;
    *exists = true;
    const bcfg_handle *handle = call->handle;
    if (handle->captured && !at->captured) /* the handle says so from the first capture on */
        at->captured = bcfg_place_captures(handle->driver, handle->stream);
    return execute(call, at->descriptor, pack);
}

#define DRIVE(name, ...)                                                                           \
    do {                                                                                           \
        if (outcome == BCFG_DEVICE_OK)                                                             \
            outcome = driven(call, driver, #name, bcfg_cuda(driver)->name(__VA_ARGS__));           \
    } while (0)

static bcfg_outcome driven(bcfg_cudnn_call *call, const bcfg_device_library *driver,
                           const char *function, int status) {
    if (status == BCFG_CUDA_SUCCESS) return BCFG_DEVICE_OK;
    const char *name = NULL;
    (void)bcfg_cuda(driver)->cuGetErrorName(status, &name);
    call->fault = (bcfg_fault){function, status, name != NULL ? name : ""};
    call->said[0] = '\0';
    return BCFG_DEVICE_FAULT;
}

bcfg_outcome bcfg_cudnn_time(bcfg_cudnn_call *call, uint64_t number, int32_t place,
                             const bcfg_cudnn_pack *pack, bool *exists, float *milliseconds) {
    const bcfg_device_library *driver = call->handle->driver;
    void *stream = call->handle->stream;
    int capturing = BCFG_CU_STREAM_CAPTURE_STATUS_NONE;
    void *start = NULL, *end = NULL;
    *exists = true;
    bcfg_outcome outcome = BCFG_DEVICE_OK;
    DRIVE(cuStreamIsCapturing, stream, &capturing);
    if (outcome == BCFG_DEVICE_OK && capturing != BCFG_CU_STREAM_CAPTURE_STATUS_NONE)
        outcome = driven(call, driver, "cuEventSynchronize",
                         BCFG_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    /* The first run loads code. */
    if (outcome == BCFG_DEVICE_OK) outcome = bcfg_cudnn_run(call, number, place, pack, exists);
    if (!*exists) return outcome;
    DRIVE(cuEventCreate, &start, BCFG_CU_EVENT_DEFAULT);
    DRIVE(cuEventCreate, &end, BCFG_CU_EVENT_DEFAULT);
    DRIVE(cuEventRecord, start, stream);
    if (outcome == BCFG_DEVICE_OK) outcome = bcfg_cudnn_run(call, number, place, pack, exists);
    DRIVE(cuEventRecord, end, stream);
    DRIVE(cuEventSynchronize, end);
    DRIVE(cuEventElapsedTime, milliseconds, start, end);
    if (start != NULL) (void)bcfg_cuda(driver)->cuEventDestroy_v2(start);
    if (end != NULL) (void)bcfg_cuda(driver)->cuEventDestroy_v2(end);
    return outcome;
}
