/* cuDNN's descriptors: graphs, the engines for them, plans, and running those. */
#include "device/cudnn.h"

#include <stdlib.h>
#include <string.h>

/* 64 places of 8 plans: a plan may hold some hundred kilobytes of the host's memory. */
enum { SETS = 64, WAYS = 8, NOTES = 32 };

typedef struct {
    uint64_t number, used;             /* used: when, on the state's clock; 0 for an empty place */
    int32_t place;
    void *descriptor;
    int64_t workspace;
} plan;

/* A graph whose engines were asked for. Its descriptors are kept while it is the latest: most problems
 * prepare one or more plans right after. */
typedef struct {
    uint64_t number;
    int32_t descriptor_count, engine_count;
    void *descriptors[BCFG_CUDNN_DESCRIPTORS], *configurations[BCFG_CUDNN_ENGINES];
    bcfg_cudnn_engine engines[BCFG_CUDNN_ENGINES];
} search;

/* What belongs to a handle. Only who has the handle touches it, but for the list. */
typedef struct state {
    struct state *next;
    const bcfg_device_library *library;
    const void *handle;
    uint64_t clock;
    search *latest;                    /* NULL for none */
    plan plans[SETS][WAYS];
} state;

static state *all; /* under the lock; never freed, as the handles */

const char *bcfg_cudnn_name_of(const bcfg_device_library *library, int status) {
    return bcfg_cudnn(library)->cudnnGetErrorString(status);
}

int bcfg_cudnn_create(const bcfg_device_library *library, void *stream, void **handle,
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

/* The outcome of a function of cuDNN's. What it says is asked at once: it is of the latest failure. */
static bcfg_outcome said(bcfg_cudnn_call *call, const char *function, int status) {
    if (status == BCFG_CUDNN_STATUS_SUCCESS) return BCFG_DEVICE_OK;
    const char *name = bcfg_cudnn_name_of(call->library, status);
    call->fault = (bcfg_fault){function, status, name != NULL ? name : ""};
    memset(call->said, 0, sizeof call->said);
    bcfg_cudnn(call->library)->cudnnGetLastErrorString(call->said, sizeof call->said - 1);
    return BCFG_DEVICE_FAULT;
}

#define CALL(name, ...) said(call, #name, bcfg_cudnn(call->library)->name(__VA_ARGS__))
/* Each step runs when those before it succeeded. */
#define STEP(name, ...)                                                                            \
    do {                                                                                           \
        if (outcome == BCFG_DEVICE_OK) outcome = CALL(name, __VA_ARGS__);                          \
    } while (0)

static void destroy(const bcfg_cudnn_call *call, void *descriptor) {
    if (descriptor != NULL)
        (void)bcfg_cudnn(call->library)->cudnnBackendDestroyDescriptor(descriptor);
}

static bcfg_outcome create(bcfg_cudnn_call *call, int type, void **made) {
    *made = NULL;
    bcfg_outcome outcome = CALL(cudnnBackendCreateDescriptor, type, made);
    if (outcome != BCFG_DEVICE_OK) *made = NULL;
    return outcome;
}

static bcfg_outcome set_attribute(bcfg_cudnn_call *call, void *descriptor,
                                  const bcfg_cudnn_attribute *attribute, void *const *earlier,
                                  int32_t earlier_count) {
    const void *values = attribute->values;
    void *others[BCFG_CUDNN_DESCRIPTORS];
    if (attribute->type == BCFG_CUDNN_TYPE_HANDLE) {
        values = &call->handle;
    } else if (attribute->type == BCFG_CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        const int64_t *places = attribute->values;
        if (attribute->count < 0 || attribute->count > BCFG_CUDNN_DESCRIPTORS)
            return said(call, "cudnnBackendSetAttribute", BCFG_CUDNN_STATUS_BAD_PARAM);
        for (int64_t i = 0; i < attribute->count; i++) {
            if (places[i] < 0 || places[i] >= earlier_count)
                return said(call, "cudnnBackendSetAttribute", BCFG_CUDNN_STATUS_BAD_PARAM);
            others[i] = earlier[places[i]];
        }
        values = others;
    }
    return CALL(cudnnBackendSetAttribute, descriptor, attribute->name, attribute->type,
                attribute->count, values);
}

static void discard_search(const bcfg_cudnn_call *call, search *old) {
    if (old == NULL) return;
    for (int32_t i = 0; i < old->engine_count; i++) destroy(call, old->configurations[i]);
    /* Those that refer to others come later. */
    for (int32_t i = old->descriptor_count; i-- > 0;) destroy(call, old->descriptors[i]);
    free(old);
}

static bcfg_outcome describe(bcfg_cudnn_call *call, const bcfg_cudnn_graph *graph, search *fresh) {
    bcfg_outcome outcome = BCFG_DEVICE_OK;
    if (graph->count < 1 || graph->count > BCFG_CUDNN_DESCRIPTORS)
        return said(call, "cudnnBackendCreateDescriptor", BCFG_CUDNN_STATUS_BAD_PARAM);
    for (int32_t i = 0; i < graph->count && outcome == BCFG_DEVICE_OK; i++) {
        const bcfg_cudnn_descriptor *wanted = &graph->descriptors[i];
        void **made = &fresh->descriptors[i];
        outcome = create(call, wanted->type, made);
        if (outcome == BCFG_DEVICE_OK) fresh->descriptor_count = i + 1;
        for (int32_t j = 0; j < wanted->attribute_count && outcome == BCFG_DEVICE_OK; j++)
            outcome = set_attribute(call, *made, &wanted->attributes[j], fresh->descriptors, i);
        STEP(cudnnBackendFinalize, *made);
    }
    return outcome;
}

/* The notes of one kind as a mask. */
static bcfg_outcome notes_of(bcfg_cudnn_call *call, void *engine, int name, int type,
                             uint32_t *mask) {
    int32_t notes[NOTES] = {0};
    int64_t count = 0;
    bcfg_outcome outcome =
        CALL(cudnnBackendGetAttribute, engine, name, type, NOTES, &count, notes);
    *mask = 0;
    for (int64_t i = 0; i < count && i < NOTES && outcome == BCFG_DEVICE_OK; i++)
        if (notes[i] >= 0 && notes[i] < 32) *mask |= (uint32_t)1 << notes[i];
    return outcome;
}

/* Which engine a configuration is of. */
static bcfg_outcome examine(bcfg_cudnn_call *call, void *configuration, bcfg_cudnn_engine *about) {
    void *engine;
    int64_t count = 0;
    bcfg_outcome outcome = create(call, BCFG_CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
    STEP(cudnnBackendGetAttribute, configuration, BCFG_CUDNN_ATTR_ENGINECFG_ENGINE,
         BCFG_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine);
    STEP(cudnnBackendGetAttribute, engine, BCFG_CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
         BCFG_CUDNN_TYPE_INT64, 1, &count, &about->index);
    if (outcome == BCFG_DEVICE_OK)
        outcome = notes_of(call, engine, BCFG_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                           BCFG_CUDNN_TYPE_NUMERICAL_NOTE, &about->numerical);
    if (outcome == BCFG_DEVICE_OK)
        outcome = notes_of(call, engine, BCFG_CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                           BCFG_CUDNN_TYPE_BEHAVIOR_NOTE, &about->behaviour);
    destroy(call, engine);
    return outcome;
}

/* Adds what a heuristic in one mode names. */
static bcfg_outcome ask(bcfg_cudnn_call *call, search *fresh, int32_t mode) {
    void *heuristic, *graph = fresh->descriptors[fresh->descriptor_count - 1];
    int32_t first = fresh->engine_count;
    int64_t room = BCFG_CUDNN_ENGINES - first, found = 0;
    bcfg_outcome outcome = create(call, BCFG_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic);
    STEP(cudnnBackendSetAttribute, heuristic, BCFG_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
         BCFG_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    STEP(cudnnBackendSetAttribute, heuristic, BCFG_CUDNN_ATTR_ENGINEHEUR_MODE,
         BCFG_CUDNN_TYPE_HEUR_MODE, 1, &mode);
    STEP(cudnnBackendFinalize, heuristic);
    STEP(cudnnBackendGetAttribute, heuristic, BCFG_CUDNN_ATTR_ENGINEHEUR_RESULTS,
         BCFG_CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &found, NULL);
    if (found < room) room = found;
    for (int64_t i = 0; i < room && outcome == BCFG_DEVICE_OK; i++) {
        outcome = create(call, BCFG_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                         &fresh->configurations[fresh->engine_count]);
        if (outcome == BCFG_DEVICE_OK) fresh->engine_count++;
    }
    if (outcome == BCFG_DEVICE_OK && room > 0)
        outcome = CALL(cudnnBackendGetAttribute, heuristic, BCFG_CUDNN_ATTR_ENGINEHEUR_RESULTS,
                       BCFG_CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &found,
                       &fresh->configurations[first]);
    /* It may now name fewer: those that it did not fill in are nobody's. */
    while (outcome == BCFG_DEVICE_OK && fresh->engine_count > first + found)
        destroy(call, fresh->configurations[--fresh->engine_count]);
    for (int32_t i = first; i < fresh->engine_count && outcome == BCFG_DEVICE_OK; i++) {
        fresh->engines[i].is_fallback = mode == BCFG_CUDNN_HEUR_MODE_FALLBACK;
        outcome = examine(call, fresh->configurations[i], &fresh->engines[i]);
    }
    destroy(call, heuristic);
    return outcome;
}

/* Of all failures, the ones that say that something else may do it. */
static bool is_unsupported(const bcfg_cudnn_call *call) {
    return call->fault.status / 1000 == BCFG_CUDNN_STATUS_NOT_SUPPORTED / 1000;
}

static bcfg_outcome find_engines(bcfg_cudnn_call *call, const bcfg_cudnn_graph *graph,
                                 search *fresh) {
    bcfg_outcome outcome = describe(call, graph, fresh);
    static const int32_t modes[] = {BCFG_CUDNN_HEUR_MODE_A, BCFG_CUDNN_HEUR_MODE_FALLBACK};
    for (int i = 0; i < 2 && outcome == BCFG_DEVICE_OK; i++) {
        int32_t before = fresh->engine_count;
        outcome = ask(call, fresh, modes[i]);
        if (outcome != BCFG_DEVICE_FAULT || !is_unsupported(call)) continue;
        /* Not in this mode. */
        while (fresh->engine_count > before)
            destroy(call, fresh->configurations[--fresh->engine_count]);
        outcome = BCFG_DEVICE_OK;
    }
    return outcome;
}

static state *state_of(const bcfg_cudnn_call *call) {
    bcfg_lock();
    state *at = all;
    while (at != NULL && (at->library != call->library || at->handle != call->handle))
        at = at->next;
    if (at == NULL && (at = calloc(1, sizeof *at)) != NULL) {
        at->library = call->library;
        at->handle = call->handle;
        at->next = all;
        all = at;
    }
    bcfg_unlock();
    return at;
}

static bcfg_outcome look_for(bcfg_cudnn_call *call, state *mine, const bcfg_cudnn_graph *graph) {
    if (mine->latest != NULL && mine->latest->number == graph->number) return BCFG_DEVICE_OK;
    discard_search(call, mine->latest);
    mine->latest = NULL;
    search *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) return BCFG_DEVICE_MEMORY;
    fresh->number = graph->number;
    bcfg_outcome outcome = find_engines(call, graph, fresh);
    if (outcome == BCFG_DEVICE_OK)
        mine->latest = fresh;
    else
        discard_search(call, fresh);
    return outcome;
}

bcfg_outcome bcfg_cudnn_engines(bcfg_cudnn_call *call, const bcfg_cudnn_graph *graph,
                                bcfg_cudnn_engine *engines, int32_t *count) {
    *count = 0;
    state *mine = state_of(call);
    if (mine == NULL) return BCFG_DEVICE_MEMORY;
    bcfg_outcome outcome = look_for(call, mine, graph);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    *count = mine->latest->engine_count;
    memcpy(engines, mine->latest->engines, (size_t)*count * sizeof *engines);
    return BCFG_DEVICE_OK;
}

static plan *set_of(state *mine, uint64_t number, int32_t place) {
    uint64_t mixed = (number * 131 + (uint64_t)place) * 0x9e3779b97f4a7c15;
    return mine->plans[(mixed >> 32) % SETS];
}

static plan *find(state *mine, uint64_t number, int32_t place) {
    plan *set = set_of(mine, number, place);
    for (int i = 0; i < WAYS; i++)
        if (set[i].used != 0 && set[i].number == number && set[i].place == place) {
            set[i].used = ++mine->clock;
            return &set[i];
        }
    return NULL;
}

static void keep(const bcfg_cudnn_call *call, state *mine, const plan *made) {
    plan *set = set_of(mine, made->number, made->place), *oldest = set;
    for (int i = 1; i < WAYS; i++)
        if (set[i].used < oldest->used) oldest = &set[i];
    destroy(call, oldest->descriptor);
    *oldest = *made;
    oldest->used = ++mine->clock;
}

bcfg_outcome bcfg_cudnn_prepare(bcfg_cudnn_call *call, const bcfg_cudnn_graph *graph, int32_t place,
                                int64_t *workspace) {
    state *mine = state_of(call);
    if (mine == NULL) return BCFG_DEVICE_MEMORY;
    const plan *known = find(mine, graph->number, place);
    if (known != NULL) {
        *workspace = known->workspace;
        return BCFG_DEVICE_OK;
    }
    bcfg_outcome outcome = look_for(call, mine, graph);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    if (place < 0 || place >= mine->latest->engine_count)
        return said(call, "cudnnBackendCreateDescriptor", BCFG_CUDNN_STATUS_NOT_SUPPORTED);
    plan made = {.number = graph->number, .place = place};
    int64_t count = 0;
    outcome = create(call, BCFG_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &made.descriptor);
    STEP(cudnnBackendSetAttribute, made.descriptor, BCFG_CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
         BCFG_CUDNN_TYPE_HANDLE, 1, &call->handle);
    STEP(cudnnBackendSetAttribute, made.descriptor, BCFG_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
         BCFG_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &mine->latest->configurations[place]);
    STEP(cudnnBackendFinalize, made.descriptor);
    STEP(cudnnBackendGetAttribute, made.descriptor, BCFG_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
         BCFG_CUDNN_TYPE_INT64, 1, &count, &made.workspace);
    if (outcome != BCFG_DEVICE_OK) {
        destroy(call, made.descriptor);
        return outcome;
    }
    keep(call, mine, &made);
    *workspace = made.workspace;
    return BCFG_DEVICE_OK;
}

static bcfg_outcome execute(bcfg_cudnn_call *call, void *descriptor, const bcfg_cudnn_pack *pack) {
    void *variant, *workspace = pack->workspace;
    bcfg_outcome outcome = create(call, BCFG_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &variant);
    STEP(cudnnBackendSetAttribute, variant, BCFG_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
         BCFG_CUDNN_TYPE_VOID_PTR, pack->count, pack->pointers);
    STEP(cudnnBackendSetAttribute, variant, BCFG_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
         BCFG_CUDNN_TYPE_INT64, pack->count, pack->numbers);
    STEP(cudnnBackendSetAttribute, variant, BCFG_CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
         BCFG_CUDNN_TYPE_VOID_PTR, 1, &workspace);
    STEP(cudnnBackendFinalize, variant);
    STEP(cudnnBackendExecute, call->handle, descriptor, variant);
    destroy(call, variant);
    return outcome;
}

bcfg_outcome bcfg_cudnn_run(bcfg_cudnn_call *call, uint64_t number, int32_t place,
                            const bcfg_cudnn_pack *pack, bool *known) {
    *known = false;
    state *mine = state_of(call);
    if (mine == NULL) return BCFG_DEVICE_MEMORY;
    const plan *at = find(mine, number, place);
    if (at == NULL) return BCFG_DEVICE_OK;
    *known = true;
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

bcfg_outcome bcfg_cudnn_time(bcfg_cudnn_call *call, const bcfg_device_library *driver, void *stream,
                             uint64_t number, int32_t place, const bcfg_cudnn_pack *pack,
                             bool *known, float *milliseconds) {
    int capturing = BCFG_CU_STREAM_CAPTURE_STATUS_NONE;
    void *start = NULL, *end = NULL;
    *known = true;
    bcfg_outcome outcome = BCFG_DEVICE_OK;
    DRIVE(cuStreamIsCapturing, stream, &capturing);
    if (outcome == BCFG_DEVICE_OK && capturing != BCFG_CU_STREAM_CAPTURE_STATUS_NONE)
        outcome = driven(call, driver, "cuEventSynchronize",
                         BCFG_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    /* The first run loads code. */
    if (outcome == BCFG_DEVICE_OK) outcome = bcfg_cudnn_run(call, number, place, pack, known);
    if (!*known) return outcome;
    DRIVE(cuEventCreate, &start, BCFG_CU_EVENT_DEFAULT);
    DRIVE(cuEventCreate, &end, BCFG_CU_EVENT_DEFAULT);
    DRIVE(cuEventRecord, start, stream);
    if (outcome == BCFG_DEVICE_OK) outcome = bcfg_cudnn_run(call, number, place, pack, known);
    DRIVE(cuEventRecord, end, stream);
    DRIVE(cuEventSynchronize, end);
    DRIVE(cuEventElapsedTime, milliseconds, start, end);
    if (start != NULL) (void)bcfg_cuda(driver)->cuEventDestroy_v2(start);
    if (end != NULL) (void)bcfg_cuda(driver)->cuEventDestroy_v2(end);
    return outcome;
}
