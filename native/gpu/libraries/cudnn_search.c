/* Graphs of cuDNN's descriptors, and the engines that its heuristics name for them. */
#include <string.h>

#include "gpu/libraries/cudnn_search.h"

enum { NOTES = 32 };

bcfg_outcome bcfg_cudnn_said(bcfg_cudnn_call *call, const char *function, int status) {
    if (status == BCFG_CUDNN_STATUS_SUCCESS) return BCFG_DEVICE_OK;
    memset(call->said, 0, sizeof call->said);
    bcfg_cudnn_of(call)->cudnnGetLastErrorString(call->said, sizeof call->said - 1);
    return bcfg_library_fault(call->handle->library, function, status, &call->fault);
}

void bcfg_cudnn_destroy(const bcfg_cudnn_call *call, void *descriptor) {
    if (descriptor != NULL) (void)bcfg_cudnn_of(call)->cudnnBackendDestroyDescriptor(descriptor);
}

bcfg_outcome bcfg_cudnn_make(bcfg_cudnn_call *call, int type, void **made) {
    *made = NULL;
    bcfg_outcome outcome = CUDNN(cudnnBackendCreateDescriptor, type, made);
    if (outcome != BCFG_DEVICE_OK) *made = NULL;
    return outcome;
}

static bcfg_outcome set_attribute(bcfg_cudnn_call *call, void *descriptor,
                                  const bcfg_cudnn_attribute *attribute, void *const *earlier,
                                  int32_t earlier_count) {
    const void *values = attribute->values;
    void *others[BCFG_CUDNN_DESCRIPTORS];
    if (attribute->type == BCFG_CUDNN_TYPE_HANDLE) {
        values = &call->handle->handle;
    } else if (attribute->type == BCFG_CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        const int64_t *places = attribute->values;
        if (attribute->count < 0 || attribute->count > BCFG_CUDNN_DESCRIPTORS)
            return bcfg_cudnn_said(call, "cudnnBackendSetAttribute", BCFG_CUDNN_STATUS_BAD_PARAM);
        for (int64_t i = 0; i < attribute->count; i++) {
            if (places[i] < 0 || places[i] >= earlier_count)
                return bcfg_cudnn_said(call, "cudnnBackendSetAttribute",
                                       BCFG_CUDNN_STATUS_BAD_PARAM);
            others[i] = earlier[places[i]];
        }
        values = others;
    }
    return CUDNN(cudnnBackendSetAttribute, descriptor, attribute->name, attribute->type,
                attribute->count, values);
}

void bcfg_cudnn_forget(const bcfg_cudnn_call *call, bcfg_cudnn_search *old) {
    for (int32_t i = 0; i < old->engine_count; i++)
        bcfg_cudnn_destroy(call, old->configurations[i]);
    /* A descriptor that refers to others comes after them. */
    for (int32_t i = old->descriptor_count; i-- > 0;) bcfg_cudnn_destroy(call, old->descriptors[i]);
    old->engine_count = old->descriptor_count = 0;
}

static bcfg_outcome describe(bcfg_cudnn_call *call, const bcfg_cudnn_graph *graph,
                             bcfg_cudnn_search *fresh) {
    bcfg_outcome outcome = BCFG_DEVICE_OK;
    if (graph->count < 1 || graph->count > BCFG_CUDNN_DESCRIPTORS)
        return bcfg_cudnn_said(call, "cudnnBackendCreateDescriptor", BCFG_CUDNN_STATUS_BAD_PARAM);
    for (int32_t i = 0; i < graph->count && outcome == BCFG_DEVICE_OK; i++) {
        const bcfg_cudnn_descriptor *wanted = &graph->descriptors[i];
        void **made = &fresh->descriptors[i];
        outcome = bcfg_cudnn_make(call, wanted->type, made);
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
        CUDNN(cudnnBackendGetAttribute, engine, name, type, NOTES, &count, notes);
    *mask = 0;
    for (int64_t i = 0; i < count && i < NOTES && outcome == BCFG_DEVICE_OK; i++)
        if (notes[i] >= 0 && notes[i] < 32) *mask |= (uint32_t)1 << notes[i];
    return outcome;
}

/* Which engine a configuration is of. */
static bcfg_outcome examine(bcfg_cudnn_call *call, void *configuration, bcfg_cudnn_engine *about) {
    void *engine;
    int64_t count = 0;
    bcfg_outcome outcome = bcfg_cudnn_make(call, BCFG_CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
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
    bcfg_cudnn_destroy(call, engine);
    return outcome;
}

/* Adds what a heuristic in one mode names. */
static bcfg_outcome ask(bcfg_cudnn_call *call, bcfg_cudnn_search *fresh, int32_t mode) {
    void *heuristic, *graph = fresh->descriptors[fresh->descriptor_count - 1];
    int32_t first = fresh->engine_count;
    int64_t room = BCFG_CUDNN_ENGINES - first, found = 0;
    bcfg_outcome outcome =
        bcfg_cudnn_make(call, BCFG_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic);
    STEP(cudnnBackendSetAttribute, heuristic, BCFG_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
         BCFG_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    STEP(cudnnBackendSetAttribute, heuristic, BCFG_CUDNN_ATTR_ENGINEHEUR_MODE,
         BCFG_CUDNN_TYPE_HEUR_MODE, 1, &mode);
    STEP(cudnnBackendFinalize, heuristic);
    STEP(cudnnBackendGetAttribute, heuristic, BCFG_CUDNN_ATTR_ENGINEHEUR_RESULTS,
         BCFG_CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &found, NULL);
    if (found < room) room = found;
    for (int64_t i = 0; i < room && outcome == BCFG_DEVICE_OK; i++) {
        outcome = bcfg_cudnn_make(call, BCFG_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                         &fresh->configurations[fresh->engine_count]);
        if (outcome == BCFG_DEVICE_OK) fresh->engine_count++;
    }
    if (outcome == BCFG_DEVICE_OK && room > 0)
        outcome = CUDNN(cudnnBackendGetAttribute, heuristic, BCFG_CUDNN_ATTR_ENGINEHEUR_RESULTS,
                       BCFG_CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &found,
                       &fresh->configurations[first]);
    /* The second query may return fewer: only those that it filled in are valid. */
    while (outcome == BCFG_DEVICE_OK && fresh->engine_count > first + found)
        bcfg_cudnn_destroy(call, fresh->configurations[--fresh->engine_count]);
    for (int32_t i = first; i < fresh->engine_count && outcome == BCFG_DEVICE_OK; i++) {
        fresh->engines[i].is_fallback = mode == BCFG_CUDNN_HEUR_MODE_FALLBACK;
        outcome = examine(call, fresh->configurations[i], &fresh->engines[i]);
    }
    bcfg_cudnn_destroy(call, heuristic);
    return outcome;
}

/* Failures after which another engine may still serve. */
static bool is_unsupported(const bcfg_cudnn_call *call) {
    return call->fault.status / 1000 == BCFG_CUDNN_STATUS_NOT_SUPPORTED / 1000;
}

bcfg_outcome bcfg_cudnn_look(bcfg_cudnn_call *call, const bcfg_cudnn_graph *graph,
                             bcfg_cudnn_search *fresh) {
    fresh->number = graph->number;
    bcfg_outcome outcome = describe(call, graph, fresh);
    static const int32_t modes[] = {BCFG_CUDNN_HEUR_MODE_A, BCFG_CUDNN_HEUR_MODE_FALLBACK};
    for (int i = 0; i < 2 && outcome == BCFG_DEVICE_OK; i++) {
        int32_t before = fresh->engine_count;
        outcome = ask(call, fresh, modes[i]);
        if (outcome != BCFG_DEVICE_FAULT || !is_unsupported(call)) continue;
        /* This mode names no engine. */
        while (fresh->engine_count > before)
            bcfg_cudnn_destroy(call, fresh->configurations[--fresh->engine_count]);
        outcome = BCFG_DEVICE_OK;
    }
    return outcome;
}
