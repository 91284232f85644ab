/* Calls of our own kernels whose kind was seen before. Python has made the argument blocks of the first
 * one; here they are kept, and a call of the same kind puts its own addresses into copies. So a block
 * has one description, and where its fields are is said by who made it. */
#include "device.h"

#include <stdlib.h>

enum {
    MOST_ARRAYS = 7,
    MOST_RESULTS = 5,
    MOST_LAUNCHES = 5,
    MOST_DIMENSIONS = 4,
    MOST_BYTES = 512,                  /* of a block */
    MOST_KINDS = 256,
    SLOTS = 512                        /* a power of two */
};

/* What calls must have in common, besides options and flags. */
typedef struct {
    int64_t words[1 + MOST_ARRAYS * (1 + 2 * MOST_DIMENSIONS)];
    int count;
} Kind;

typedef struct {
    int32_t type, dimensions;
    int64_t shape[MOST_DIMENSIONS];
} Result;

/* Places are those of addresses, and of the seed, in the block, in bytes; -1: none. */
typedef struct {
    const bcfg_kernel *kernel;         /* for ever */
    uint32_t grid, threads;
    int32_t array_places[MOST_ARRAYS], result_places[MOST_RESULTS], seed_place;
    Py_ssize_t bytes;
    _Alignas(16) char block[MOST_BYTES];
} Launch;

/* What such a call does. */
typedef struct {
    PyObject *about;                   /* given back with the results; owned */
    int result_count, launch_count;
    Result results[MOST_RESULTS];
    Launch launches[MOST_LAUNCHES];
} Recipe;

typedef struct {
    Kind kind;
    PyObject *options, *flags;         /* owned */
    Recipe recipe;
} Known;

static Known *known_calls[SLOTS];
static int known_count;

/* --- kinds ------------------------------------------------------------------------------------ */

typedef struct {
    DeviceArray arrays[MOST_ARRAYS];
    bool is_taken[MOST_ARRAYS];        /* the others are None */
    Kind kind;
} Call;

static void drop(Call *call) {
    for (int i = 0; i < MOST_ARRAYS; i++)
        if (call->is_taken[i]) bcfg_drop_device(&call->arrays[i]);
}

/* Whether autograd may want to know of it, as far as an array says. */
static int needs_gradient(PyObject *value) {
    static PyObject *name;
    if (name == NULL && (name = PyUnicode_InternFromString("requires_grad")) == NULL) return -1;
    PyObject *needs = PyObject_GetAttr(value, name);
    if (needs == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
        PyErr_Clear();
        return 0;
    }
    int answer = needs != Py_False;
    Py_DECREF(needs);
    return answer;
}

static void describe(const DeviceArray *array, Kind *kind) {
    int32_t count = array->dimensions;
    bool aligned = (uintptr_t)array->data % 16 == 0;
    kind->words[kind->count++] = 1 + array->type + ((int64_t)count << 8) + ((int64_t)aligned << 16);
    for (int32_t d = 0; d < count; d++) {
        kind->words[kind->count++] = array->shape[d];
        kind->words[kind->count++] = array->strides[d];
    }
}

/* 1 where the arrays can make a call of a known kind, and are taken; 0 where they cannot, one that needs
 * a gradient unless autograd itself calls; -1 with an exception set. Only after 1 they must be
 * dropped. */
static int take(PyObject *arrays, bool is_recorded, Call *call) {
    Py_ssize_t count = PyTuple_GET_SIZE(arrays);
    memset(call->is_taken, 0, sizeof call->is_taken);
    call->kind.count = 0;
    int status = count > 0 && count <= MOST_ARRAYS;
    for (Py_ssize_t i = 0; i < count && status == 1; i++) {
        PyObject *value = PyTuple_GET_ITEM(arrays, i);
        DeviceArray *array = &call->arrays[i];
        if (value == Py_None && i > 0) {
            call->kind.words[call->kind.count++] = 0;
            continue;
        }
        int needs = is_recorded ? 0 : needs_gradient(value);
        if (needs != 0) {
            status = needs < 0 ? -1 : 0;
            break;
        }
        if ((status = bcfg_take_device(value, array)) != 1) break;
        call->is_taken[i] = true;
        const DeviceArray *first = &call->arrays[0];
        if (array->type < 0 || array->dimensions > MOST_DIMENSIONS || array->kind != first->kind ||
            array->index != first->index || first->exchange == NULL)
            status = 0;
        else if (i == 0)
            call->kind.words[call->kind.count++] = ((int64_t)array->index << 8) + array->kind;
        if (status == 1) describe(array, &call->kind);
    }
    if (status != 1) drop(call);
    if (status < 0 && PyErr_ExceptionMatches(PyExc_Exception) &&
        !PyErr_ExceptionMatches(PyExc_MemoryError)) {
        PyErr_Clear(); /* who takes it next says what is wrong with it */
        status = 0;
    }
    return status;
}

/* Where a kind is, or would be; -1 with an exception set. */
static int slot_of(const Kind *kind, PyObject *options, PyObject *flags) {
    Py_hash_t hashed = PyObject_Hash(options);
    if (hashed == -1) return -1;
    uint64_t hash = (uint64_t)hashed ^ (uint64_t)(uintptr_t)flags;
    for (int i = 0; i < kind->count; i++) {
        hash = (hash ^ (uint64_t)kind->words[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    for (int slot = (int)(hash % SLOTS);; slot = (slot + 1) % SLOTS) {
        const Known *known = known_calls[slot];
        if (known == NULL) return slot;
        if (known->flags != flags || known->kind.count != kind->count ||
            memcmp(known->kind.words, kind->words, (size_t)kind->count * sizeof *kind->words) != 0)
            continue;
        int same = PyObject_RichCompareBool(known->options, options, Py_EQ);
        if (same != 0) return same < 0 ? -1 : slot;
    }
}

/* --- calls of a known kind -------------------------------------------------------------------- */

static void put(Launch *launch, int32_t place, uint64_t number) {
    if (place >= 0) memcpy(launch->block + place, &number, sizeof number);
}

/* The results, new references; and their memory. 1 made, 0 not as the kernels were chosen for, -1 with an
 * exception set. */
static int make(const Call *call, const Recipe *recipe, PyObject **results, void **memory) {
    for (int i = 0; i < recipe->result_count; i++) {
        const Result *result = &recipe->results[i];
        DeviceArray like = call->arrays[0], made;
        bcfg_set_type(&like, result->type);
        results[i] = bcfg_make_by_exchange(&like, result->dimensions, result->shape, &made);
        if (results[i] == NULL) return -1;
        memory[i] = made.data;
        if ((uintptr_t)made.data % 16 != 0) return 0;
    }
    return 1;
}

/* Streams of other arrays, each once. */
static int others_of(const Call *call, void **others, bool *settles) {
    int count = 0;
    *settles = false;
    for (int i = 0; i < MOST_ARRAYS; i++) {
        if (!call->is_taken[i]) continue;
        void *stream = call->arrays[i].stream;
        *settles = *settles || call->arrays[i].settles;
        bool counts = stream != call->arrays[0].stream;
        for (int k = 0; k < count; k++) counts = counts && others[k] != stream;
        if (counts) others[count++] = stream;
    }
    return count;
}

static bcfg_outcome put_on_stream(const Call *call, const Recipe *recipe, bcfg_fault *fault) {
    void *others[MOST_ARRAYS];
    bool settles;
    int other_count = others_of(call, others, &settles);
    bcfg_outcome outcome = BCFG_DEVICE_OK;
    for (int i = 0; i < recipe->launch_count && outcome == BCFG_DEVICE_OK; i++) {
        const Launch *launch = &recipe->launches[i];
        bcfg_kernel_call launched = {
            .work = {.driver = launch->kernel->driver, .index = launch->kernel->index,
                     .settles = settles, .stream = call->arrays[0].stream, .others = others,
                     .other_count = other_count},
            .grid = launch->grid, .threads = launch->threads, .argument = (void *)launch->block};
        outcome = bcfg_kernel_launch(launch->kernel, &launched, fault);
    }
    return outcome;
}

/* (about, what failed or None, results ...); or None, where the call is of another kind after all. */
static PyObject *carry_out(const Call *call, Recipe *recipe, uint64_t seed) {
    PyObject *results[MOST_RESULTS] = {NULL}, *answer = NULL, *failed = NULL;
    void *memory[MOST_RESULTS];
    int status = make(call, recipe, results, memory);
    if (status == 1) {
        for (int i = 0; i < recipe->launch_count; i++) {
            Launch *launch = &recipe->launches[i];
            put(launch, launch->seed_place, seed);
            for (int k = 0; k < MOST_ARRAYS; k++)
                if (call->is_taken[k])
                    put(launch, launch->array_places[k], (uintptr_t)call->arrays[k].data);
            for (int k = 0; k < recipe->result_count; k++)
                put(launch, launch->result_places[k], (uintptr_t)memory[k]);
        }
        bcfg_fault fault = {"", 0, ""};
        bcfg_outcome outcome;
        Py_BEGIN_ALLOW_THREADS
        outcome = put_on_stream(call, recipe, &fault);
        Py_END_ALLOW_THREADS
        failed = bcfg_fault_object(outcome, &fault);
        if (failed != NULL) answer = PyTuple_New(2 + recipe->result_count);
    } else if (status == 0) {
        answer = Py_NewRef(Py_None);
    }
    bool is_whole = status == 1 && answer != NULL;
    if (is_whole) {
        PyTuple_SET_ITEM(answer, 0, Py_NewRef(recipe->about));
        PyTuple_SET_ITEM(answer, 1, failed);
    } else {
        Py_XDECREF(failed);
    }
    for (int i = 0; i < MOST_RESULTS; i++)
        if (is_whole && i < recipe->result_count) PyTuple_SET_ITEM(answer, 2 + i, results[i]);
        else Py_XDECREF(results[i]);
    return answer;
}

PyObject *bcfg_device_recall(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 4 || !PyTuple_Check(arguments[0]))
        return PyErr_Format(PyExc_TypeError, "device_recall: (arrays, options, seed, is_recorded)");
    if (known_count == 0) Py_RETURN_NONE;
    Call call;
    int status = take(arguments[0], arguments[3] == Py_True, &call);
    if (status != 1) return status < 0 ? NULL : Py_NewRef(Py_None);
    PyObject *flags = bcfg_current_prepared(NULL, NULL), *answer = NULL;
    int slot = flags != NULL ? slot_of(&call.kind, arguments[1], flags) : -1;
    if (slot >= 0 && known_calls[slot] == NULL) {
        answer = Py_NewRef(Py_None);
    } else if (slot >= 0) {
        /* A copy: results are made by others, and what they run may forget all that is known. */
        Recipe recipe = known_calls[slot]->recipe;
        uint64_t seed = PyLong_AsUnsignedLongLong(arguments[2]);
        Py_INCREF(recipe.about);
        if (!PyErr_Occurred()) answer = carry_out(&call, &recipe, seed);
        Py_DECREF(recipe.about);
    }
    Py_XDECREF(flags);
    drop(&call);
    return answer;
}

/* --- what is known ---------------------------------------------------------------------------- */

static void forget(Known *known) {
    Py_XDECREF(known->options);
    Py_XDECREF(known->flags);
    Py_XDECREF(known->recipe.about);
    free(known);
}

PyObject *bcfg_device_forget(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    Known *all[SLOTS];
    memcpy(all, known_calls, sizeof all);
    memset(known_calls, 0, sizeof known_calls);
    known_count = 0;
    for (int i = 0; i < SLOTS; i++)
        if (all[i] != NULL) forget(all[i]);
    Py_RETURN_NONE;
}

/* Places in a block; those that are not named are none. */
static bool parse_places(PyObject *tuple, int most, Py_ssize_t bytes, int32_t *places) {
    for (int i = 0; i < most; i++) places[i] = -1;
    if (PyTuple_GET_SIZE(tuple) > most) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        long place = PyLong_AsLong(PyTuple_GET_ITEM(tuple, i));
        if (PyErr_Occurred() || place < -1 || place > bytes - (long)sizeof(uint64_t)) return false;
        places[i] = (int32_t)place;
    }
    return true;
}

static bool parse_launch(PyObject *tuple, Launch *launch) {
    PyObject *capsule, *arrays, *results, *seed;
    Py_buffer block;
    if (!PyArg_ParseTuple(tuple, "OIIy*O!O!O!", &capsule, &launch->grid, &launch->threads, &block,
                          &PyTuple_Type, &arrays, &PyTuple_Type, &results, &PyTuple_Type, &seed))
        return false;
    launch->kernel = bcfg_kernel_of(capsule);
    launch->bytes = block.len;
    bool fine = launch->kernel != NULL && block.len <= MOST_BYTES &&
                parse_places(arrays, MOST_ARRAYS, block.len, launch->array_places) &&
                parse_places(results, MOST_RESULTS, block.len, launch->result_places) &&
                parse_places(seed, 1, block.len, &launch->seed_place);
    if (fine) memcpy(launch->block, block.buf, (size_t)block.len);
    PyBuffer_Release(&block);
    return fine;
}

static bool parse_result(PyObject *tuple, Result *result) {
    const char *element;
    PyObject *shape;
    if (!PyArg_ParseTuple(tuple, "sO!", &element, &PyTuple_Type, &shape)) return false;
    result->type = bcfg_device_type(element);
    result->dimensions = (int32_t)PyTuple_GET_SIZE(shape);
    if (result->type < 0 || result->dimensions > MOST_DIMENSIONS) return false;
    for (int32_t d = 0; d < result->dimensions; d++)
        result->shape[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
    return !PyErr_Occurred();
}

static bool parse_recipe(PyObject *launches, PyObject *results, Recipe *recipe) {
    recipe->launch_count = (int)PyTuple_GET_SIZE(launches);
    recipe->result_count = (int)PyTuple_GET_SIZE(results);
    bool fine = recipe->launch_count <= MOST_LAUNCHES && recipe->result_count <= MOST_RESULTS;
    for (int i = 0; fine && i < recipe->launch_count; i++)
        fine = parse_launch(PyTuple_GET_ITEM(launches, i), &recipe->launches[i]);
    for (int i = 0; fine && i < recipe->result_count; i++)
        fine = parse_result(PyTuple_GET_ITEM(results, i), &recipe->results[i]);
    if (!fine && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "device_remember: more than is kept of a call");
    return fine;
}

PyObject *bcfg_device_remember(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *arrays, *options, *launches, *results;
    Recipe recipe = {.about = NULL};
    int is_recorded;
    if (!PyArg_ParseTuple(arguments, "O!O!pO!O!O:device_remember", &PyTuple_Type, &arrays,
                          &PyTuple_Type, &options, &is_recorded, &PyTuple_Type, &launches,
                          &PyTuple_Type, &results, &recipe.about) ||
        !parse_recipe(launches, results, &recipe))
        return NULL;
    Call call;
    int status = take(arrays, is_recorded, &call);
    if (status == 1) drop(&call);
    if (status != 1) return status < 0 ? NULL : Py_NewRef(Py_None);
    if (known_count == MOST_KINDS) Py_DECREF(bcfg_device_forget(NULL, NULL));
    PyObject *flags = bcfg_current_prepared(NULL, NULL);
    Known *known = calloc(1, sizeof *known);
    int slot = flags != NULL && known != NULL ? slot_of(&call.kind, options, flags) : -1;
    if (slot < 0 || known_calls[slot] != NULL) { /* another thread may have been faster */
        bool has_memory = known != NULL;
        free(known);
        Py_XDECREF(flags);
        if (slot >= 0) Py_RETURN_NONE;
        return has_memory ? NULL : PyErr_NoMemory();
    }
    *known = (Known){call.kind, Py_NewRef(options), flags, recipe};
    Py_INCREF(recipe.about);
    known_calls[slot] = known;
    known_count++;
    Py_RETURN_NONE;
}
