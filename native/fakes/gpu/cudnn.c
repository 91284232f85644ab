/* A libcudnn.so.9 that computes on host memory. See recorded.h, and graph.h for its descriptors.
 *
 * Operation graphs are of one operation; `families` below says which, and has its engines: their notes,
 * their workspaces, which calls they take, and what they compute. A run writes over its whole workspace.
 *
 * Settings: version (92800 is 9.28.0); unsupported, a mask of engines whose plans are refused; untrained,
 * of engines whose plans for gradients of attention are; broken, of engines whose runs fail; spent_0 to
 * spent_5, milliseconds that a run of an engine takes, instead of the engine's own, where not 0. Time is
 * told to the driver's double by the function of fake_clock.
 */
#ifndef VERSION
#define VERSION 92800
#endif
#define SETTINGS                                                                                   \
    SETTING(version, VERSION)                                                                      \
    SETTING(unsupported, 0)                                                                        \
    SETTING(untrained, 0)                                                                          \
    SETTING(broken, 0)                                                                             \
    SETTING(spent_0, 0)                                                                            \
    SETTING(spent_1, 0)                                                                            \
    SETTING(spent_2, 0)                                                                            \
    SETTING(spent_3, 0)                                                                            \
    SETTING(spent_4, 0)                                                                            \
    SETTING(spent_5, 0)
#include "recorded.h"

#include "gpu/abi_cudnn.h"
/* Of which only the numbers are used, and how they are rounded. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "products.h"
#pragma GCC diagnostic pop

/* The prototypes of the table are those of the definitions below. */
#define DECLARE(result, name, parameters) API result name parameters;
BCFG_CUDNN_SYMBOLS(DECLARE, DECLARE)
#undef DECLARE

#include "graph.h"

/* The memory of a tensor by its number; NULL for none. */
typedef void *pointer_of(const void *pack, int64_t number);

/* What is known of an engine: its notes as masks, the bytes of its workspace, and what a run takes. */
typedef struct {
    uint32_t numerical, behaviour;
    int64_t workspace;
    double spent;                                  /* milliseconds */
} engine;
typedef engine engine_of(int number);

#include "convolutions.h"
#include "attention_graph.h"

/* What an operation, or a graph of several, is computed by. An engine's number is its place in cuDNN's list of all. */
static const struct family {
    int operation;
    int (*check)(const descriptor *operation);     /* when it is finalised */
    int (*name)(const descriptor *operation, int64_t mode, int *engines); /* how many, in order */
    int (*take)(const descriptor *operation, int engine);
    int (*run)(const descriptor *operation, int engine, pointer_of *pointer, const void *pack);
    engine_of *about;
} families[] = {
    {N(BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR), check_convolution, name_convolutions,
     take_convolution, run_convolution, about_convolution},
    {N(BACKEND_OPERATIONGRAPH_DESCRIPTOR), NULL, name_attention, take_attention, run_attention,
     about_attention},
};

static const struct family *family_of(int operation) {
    for (size_t at = 0; at < sizeof families / sizeof *families; at++)
        if (families[at].operation == operation) return &families[at];
    return NULL;
}

enum { ANY = VALUES, ONE = -1 };
/* (type of descriptor, attribute, type of its values, least, most, required, refers to) */
#define RULES                                                                                      \
    RULE(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, 1, 1, ONE)                                            \
    RULE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, 1, 1, ONE)                                        \
    RULE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, 1, 1, ONE)                                       \
    RULE(TENSOR, TENSOR_DIMENSIONS, INT64, 1, 8, 1, ONE)                                           \
    RULE(TENSOR, TENSOR_STRIDES, INT64, 1, 8, 1, ONE)                                              \
    RULE(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1, 1, 0, ONE)                                         \
    RULE(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 1, 1, 0, ONE)                                        \
    RULE(CONVOLUTION, CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, 1, 1, ONE)                              \
    RULE(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, 1, 1, ONE)                       \
    RULE(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64, 1, 1, 1, ONE)                               \
    RULE(CONVOLUTION, CONVOLUTION_DILATIONS, INT64, 1, 8, 1, ONE)                                  \
    RULE(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 1, 8, 1, ONE)                             \
    RULE(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 1, 8, 1, ONE)                               \
    RULE(CONVOLUTION, CONVOLUTION_POST_PADDINGS, INT64, 1, 8, 1, ONE)                              \
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_ALPHA, FLOAT, 1, 1, 0, ONE)  \
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_BETA, FLOAT, 1, 1, 0, ONE)   \
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_CONV_DESC,                   \
         BACKEND_DESCRIPTOR, 1, 1, 1, N(BACKEND_CONVOLUTION_DESCRIPTOR))                           \
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_X, BACKEND_DESCRIPTOR, 1, 1, \
         1, N(BACKEND_TENSOR_DESCRIPTOR))                                                          \
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_W, BACKEND_DESCRIPTOR, 1, 1, \
         1, N(BACKEND_TENSOR_DESCRIPTOR))                                                          \
    RULE(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_Y, BACKEND_DESCRIPTOR, 1, 1, \
         1, N(BACKEND_TENSOR_DESCRIPTOR))                                                          \
    RULE(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, 1, 1, ONE)                              \
    RULE(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 1, ANY, 1, ONE)                   \
    RULE(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, 1, 1,                      \
         N(BACKEND_OPERATIONGRAPH_DESCRIPTOR))                                                     \
    RULE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, 1, 1, ONE)                                     \
    RULE(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, 1, 1, ONE)                              \
    RULE(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, 1, 1,                \
         N(BACKEND_ENGINECFG_DESCRIPTOR))                                                          \
    RULE(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 1, ANY, 1, ONE)                             \
    RULE(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 1, ANY, 1, ONE)                       \
    RULE(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, 1, 1, ONE)

static const rule rules[] = {
#define RULE(descriptor, name, type, least, most, required, refers_to)                             \
    {N(BACKEND_##descriptor##_DESCRIPTOR), N(ATTR_##name), N(TYPE_##type), least, most, required,  \
     refers_to},
    RULES ATTENTION_RULES
#undef RULE
};

static const rule *rule_of(int type, int name) {
    for (size_t at = 0; at < sizeof rules / sizeof *rules; at++)
        if (rules[at].descriptor == type && rules[at].name == name) return &rules[at];
    return NULL;
}

static int check_tensor(const descriptor *fresh) {
    int64_t count, steps, type = value_of(fresh, N(ATTR_TENSOR_DATA_TYPE), -1);
    int64_t alignment = value_of(fresh, N(ATTR_TENSOR_BYTE_ALIGNMENT), 0);
    (void)values_of(fresh, N(ATTR_TENSOR_DIMENSIONS), &count);
    const int64_t *strides = values_of(fresh, N(ATTR_TENSOR_STRIDES), &steps);
    NEED(count == steps, BAD_PARAM)
    for (int64_t at = 0; at < steps; at++) NEED(strides[at] >= 0, BAD_PARAM)
    int64_t bytes = type == N(DATA_DOUBLE) ? 8 : type == N(DATA_FLOAT) ? 4 : 2;
    NEED(alignment > 0 && alignment % bytes == 0, BAD_PARAM)
    return 0;
}

static int check_parameters(const descriptor *fresh) {
    static const int names[] = {N(ATTR_CONVOLUTION_DILATIONS), N(ATTR_CONVOLUTION_FILTER_STRIDES),
                                N(ATTR_CONVOLUTION_PRE_PADDINGS),
                                N(ATTR_CONVOLUTION_POST_PADDINGS)};
    for (int at = 0; at < 4; at++) {
        int64_t count;
        (void)values_of(fresh, names[at], &count);
        NEED(count == value_of(fresh, N(ATTR_CONVOLUTION_SPATIAL_DIMS), 0), BAD_PARAM)
    }
    return 0;
}

/* The operation of a graph; of one with several, itself. */
static const descriptor *operation_of(const descriptor *graph) {
    int64_t count;
    (void)values_of(graph, N(ATTR_OPERATIONGRAPH_OPS), &count);
    return count == 1 ? referred(graph, N(ATTR_OPERATIONGRAPH_OPS)) : graph;
}

static int check_graph(const descriptor *fresh) {
    NEED(family_of(operation_of(fresh)->type), NOT_SUPPORTED_GRAPH_PATTERN)
    return 0;
}

static int check_plan(descriptor *fresh) {
    const descriptor *chosen = referred(fresh, N(ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
    const descriptor *operation = operation_of(chosen->graph);
    NEED((setting_unsupported >> chosen->engine & 1) == 0, NOT_SUPPORTED)
    keep_graph(fresh, chosen->graph);
    fresh->engine = chosen->engine;
    return family_of(operation->type)->take(operation, chosen->engine);
}

static int check_heuristic(descriptor *fresh) {
    descriptor *graph = referred(fresh, N(ATTR_ENGINEHEUR_OPERATION_GRAPH));
    const descriptor *operation = operation_of(graph);
    keep_graph(fresh, graph);
    fresh->result_count = family_of(operation->type)
                              ->name(operation, value_of(fresh, N(ATTR_ENGINEHEUR_MODE), 0),
                                     fresh->results);
    return 0;
}

static int check_pack(const descriptor *fresh) {
    int64_t pointers, numbers;
    (void)values_of(fresh, N(ATTR_VARIANT_PACK_DATA_POINTERS), &pointers);
    (void)values_of(fresh, N(ATTR_VARIANT_PACK_UNIQUE_IDS), &numbers);
    NEED(pointers == numbers, BAD_PARAM)
    return 0;
}

static int finalise(descriptor *fresh) {
    for (size_t at = 0; at < sizeof rules / sizeof *rules; at++) {
        int64_t count = 1;
        if (rules[at].descriptor == fresh->type && rules[at].is_required)
            (void)values_of(fresh, rules[at].name, &count);
        NEED(count > 0, BAD_PARAM)
    }
    switch (fresh->type) {
    case N(BACKEND_TENSOR_DESCRIPTOR): return check_tensor(fresh);
    case N(BACKEND_CONVOLUTION_DESCRIPTOR): return check_parameters(fresh);
    case N(BACKEND_OPERATIONGRAPH_DESCRIPTOR): return check_graph(fresh);
    case N(BACKEND_ENGINEHEUR_DESCRIPTOR): return check_heuristic(fresh);
    case N(BACKEND_EXECUTION_PLAN_DESCRIPTOR): return check_plan(fresh);
    case N(BACKEND_VARIANT_PACK_DESCRIPTOR): return check_pack(fresh);
    default: {
        const struct family *known = family_of(fresh->type);
        return known && known->check ? known->check(fresh) : 0;
    }
    }
}

static engine about(const descriptor *of) {
    engine found = family_of(operation_of(of->graph)->type)->about(of->engine);
    const int64_t spent[] = {setting_spent_0, setting_spent_1, setting_spent_2,
                             setting_spent_3, setting_spent_4, setting_spent_5};
    if (of->engine < 6 && spent[of->engine] != 0) found.spent = (double)spent[of->engine];
    return found;
}

/* Writes what an array of descriptors is to be filled with. */
static int fill(void *const *places, int64_t room, int type, descriptor *graph,
                const int *engines) {
    for (int64_t at = 0; at < room; at++) {
        NEED(is_descriptor(places[at], type), BAD_PARAM)
        descriptor *filled = places[at];
        NEED(!filled->is_finalised, BAD_PARAM)
        keep_graph(filled, graph);
        filled->engine = engines[at];
        filled->is_finalised = 1;
    }
    return 0;
}

static int write_notes(uint32_t mask, int64_t room, int64_t *count, int32_t *notes) {
    *count = 0;
    for (int32_t bit = 0; bit < 32; bit++)
        if (mask >> bit & 1 && *count < room) notes[(*count)++] = bit;
    return 0;
}

int cudnnBackendGetAttribute(void *place, int name, int type, int64_t room, int64_t *count,
                             void *values) {
    ENTER("cudnnBackendGetAttribute", P(place), I(name), I(type), I(room), P(count), P(values))
    NEED(place && count, BAD_PARAM_NULL_POINTER)
    NEED(is_descriptor(place, -1), BAD_PARAM)
    const descriptor *of = place;
    NEED(of->is_finalised, NOT_INITIALIZED)
    *count = 1;
    switch (name) {
    case N(ATTR_ENGINEHEUR_RESULTS):
        NEED(type == N(TYPE_BACKEND_DESCRIPTOR), BAD_PARAM_ATTRIBUTE_TYPE)
        NEED(of->type == N(BACKEND_ENGINEHEUR_DESCRIPTOR), BAD_PARAM)
        *count = of->result_count;
        if (room > *count) room = *count;
        return fill(values, room, N(BACKEND_ENGINECFG_DESCRIPTOR), of->graph, of->results);
    case N(ATTR_ENGINECFG_ENGINE):
        NEED(type == N(TYPE_BACKEND_DESCRIPTOR), BAD_PARAM_ATTRIBUTE_TYPE)
        NEED(of->type == N(BACKEND_ENGINECFG_DESCRIPTOR) && room == 1, BAD_PARAM)
        return fill(values, 1, N(BACKEND_ENGINE_DESCRIPTOR), of->graph, &of->engine);
    case N(ATTR_ENGINE_GLOBAL_INDEX):
        NEED(type == N(TYPE_INT64), BAD_PARAM_ATTRIBUTE_TYPE)
        NEED(of->type == N(BACKEND_ENGINE_DESCRIPTOR) && room == 1, BAD_PARAM)
        *(int64_t *)values = of->engine;
        return 0;
    case N(ATTR_ENGINE_NUMERICAL_NOTE):
        NEED(type == N(TYPE_NUMERICAL_NOTE), BAD_PARAM_ATTRIBUTE_TYPE)
        NEED(of->type == N(BACKEND_ENGINE_DESCRIPTOR), BAD_PARAM)
        return write_notes(about(of).numerical, room, count, values);
    case N(ATTR_ENGINE_BEHAVIOR_NOTE):
        NEED(type == N(TYPE_BEHAVIOR_NOTE), BAD_PARAM_ATTRIBUTE_TYPE)
        NEED(of->type == N(BACKEND_ENGINE_DESCRIPTOR), BAD_PARAM)
        return write_notes(about(of).behaviour, room, count, values);
    case N(ATTR_EXECUTION_PLAN_WORKSPACE_SIZE):
        NEED(type == N(TYPE_INT64), BAD_PARAM_ATTRIBUTE_TYPE)
        NEED(of->type == N(BACKEND_EXECUTION_PLAN_DESCRIPTOR) && room == 1, BAD_PARAM)
        *(int64_t *)values = about(of).workspace;
        return 0;
    default: return refuse(N(STATUS_BAD_PARAM), "no such attribute can be read");
    }
}

enum { HANDLES = 1024 };
static struct handle {
    int is_there;
    void *stream;
} handles[HANDLES];

static struct handle *handle_of(void *place) {
    for (int at = 0; at < HANDLES; at++)
        if (place == &handles[at] && handles[at].is_there) return place;
    return NULL;
}

size_t cudnnGetVersion(void) { return (size_t)setting_version; }

const char *cudnnGetErrorString(int status) {
    switch (status) {
#define CONSTANT(name, value)                                                                      \
    case value: return #name;
        BCFG_CUDNN_STATUS_CONSTANTS(CONSTANT)
#undef CONSTANT
    default: return "CUDNN_UNKNOWN_STATUS";
    }
}

void cudnnGetLastErrorString(char *message, size_t bytes) {
    snprintf(message, bytes, "%s", last_error);
    last_error[0] = '\0';
}

int cudnnCreate(void **place) {
    ENTER("cudnnCreate", P(place))
    int at = 0;
    pthread_mutex_lock(&making);
    while (at < HANDLES && handles[at].is_there) at++;
    if (at < HANDLES) handles[at] = (struct handle){1, NULL};
    pthread_mutex_unlock(&making);
    NEED(at < HANDLES, INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
    *place = &handles[at];
    return 0;
}

int cudnnDestroy(void *place) {
    ENTER("cudnnDestroy", P(place))
    NEED(handle_of(place), BAD_PARAM)
    handle_of(place)->is_there = 0;
    return 0;
}

int cudnnSetStream(void *place, void *stream) {
    ENTER("cudnnSetStream", P(place), P(stream))
    NEED(handle_of(place), BAD_PARAM)
    handle_of(place)->stream = stream;
    return 0;
}

static void (*spend)(double milliseconds);
API void fake_clock(void (*spends)(double)) { spend = spends; }

static void *pointer_in(const void *pack, int64_t number) {
    int64_t count;
    const int64_t *numbers = values_of(pack, N(ATTR_VARIANT_PACK_UNIQUE_IDS), &count);
    const int64_t *pointers = values_of(pack, N(ATTR_VARIANT_PACK_DATA_POINTERS), &count);
    for (int64_t at = 0; at < count; at++)
        if (numbers[at] == number) return (void *)(intptr_t)pointers[at];
    return NULL;
}

int cudnnBackendExecute(void *handle, void *plan, void *pack) {
    IDLE
    const struct handle *known = handle_of(handle);
    const descriptor *made = is_descriptor(plan, -1) ? plan : NULL;
    int status = recorded("cudnnBackendExecute", "P(handle), P(plan), P(pack), P(stream), I(engine)",
                          (argument[]){P(handle), P(plan), P(pack), P(known ? known->stream : NULL),
                                       I(made ? made->engine : -1)});
    if (status != 0) return status;
    NEED(known, BAD_PARAM)
    NEED(is_descriptor(plan, N(BACKEND_EXECUTION_PLAN_DESCRIPTOR)) && made->is_finalised, BAD_PARAM)
    NEED(is_descriptor(pack, N(BACKEND_VARIANT_PACK_DESCRIPTOR)), BAD_PARAM)
    NEED(((const descriptor *)pack)->is_finalised, BAD_PARAM_NOT_FINALIZED)
    NEED((void *)(intptr_t)value_of(made, N(ATTR_EXECUTION_PLAN_HANDLE), 0) == handle, BAD_PARAM)
    NEED((setting_broken >> made->engine & 1) == 0, EXECUTION_FAILED)
    engine chosen = about(made);
    void *workspace = (void *)(intptr_t)value_of(pack, N(ATTR_VARIANT_PACK_WORKSPACE), 0);
    NEED(chosen.workspace == 0 || workspace, BAD_PARAM_NULL_POINTER)
    if (workspace) memset(workspace, 0x5a, (size_t)chosen.workspace);
    if (spend) spend(chosen.spent);
    const descriptor *operation = operation_of(made->graph);
    return family_of(operation->type)->run(operation, made->engine, pointer_in, pack);
}
