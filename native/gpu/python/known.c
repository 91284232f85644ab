/* Which kinds of calls were seen. Python has made the first call of a kind, and says what the next ones
 * do: see replay.c. A kind is known by the types, shapes, strides, alignment and places of its
 * arrays, by options, and by the flags in force. */
#include "gpu/python/known.h"

#include <stdlib.h>

enum {
    MOST_KINDS = 256,
    SLOTS = 512,                       /* a power of two */
    MOST_ALIGNED = 5                   /* 32 bytes: no library asks for more */
};

typedef struct {
    KnownKind kind;
    uint64_t hash;
    PyObject *options, *flags;         /* owned */
    Script *script;                    /* owned */
} Known;

static Known *known_calls[SLOTS];
static int known_count;

/* --- kinds ------------------------------------------------------------------------------------ */

static void drop(KnownCall *call) {
    for (int i = 0; i < KNOWN_ARRAYS; i++)
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

static void describe(const DeviceArray *array, const DeviceArray *first, KnownKind *kind) {
    int32_t count = array->dimensions;
    uintptr_t address = (uintptr_t)array->data | (uintptr_t)1 << MOST_ALIGNED;
    int64_t aligned = __builtin_ctzll(address), is_alike = array->exchange == first->exchange;
    kind->words[kind->count++] =
        1 + array->type + ((int64_t)count << 8) + (aligned << 16) + (is_alike << 24);
    for (int32_t d = 0; d < count; d++) {
        kind->words[kind->count++] = array->shape[d];
        kind->words[kind->count++] = array->strides[d];
    }
}

/* The place, and whose array the first is: results are made by its library, and methods are of theirs. */
static void begin(const DeviceArray *first, KnownKind *kind) {
    kind->words[0] = ((int64_t)first->index << 8) + first->kind;
    kind->words[1] = (int64_t)(intptr_t)first->exchange;
    kind->count = 2;
}

/* 1 where the arrays can make a call of a known kind, and are taken; 0 where they cannot, one that needs
 * a gradient unless that is nobody's business; -1 with an exception set. Only after 1 they must be
 * dropped. */
static int take(PyObject *arrays, bool is_recorded, KnownCall *call) {
    Py_ssize_t count = PyTuple_GET_SIZE(arrays);
    memset(call->is_taken, 0, sizeof call->is_taken);
    call->kind.count = 0;
    int status = count > 0 && count <= KNOWN_ARRAYS;
    const DeviceArray *first = &call->arrays[0];
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
        /* The first is of a library that makes the results; nothing else is tried with it. */
        status = i == 0 ? bcfg_take_by_table(value, array) : bcfg_take_device(value, array);
        if (status != 1) break;
        call->is_taken[i] = true;
        if (array->type < 0 || array->dimensions > KNOWN_DIMENSIONS ||
            array->kind != first->kind || array->index != first->index)
            status = 0;
        else if (i == 0)
            begin(first, &call->kind);
        if (status == 1) describe(array, first, &call->kind);
    }
    if (status != 1) drop(call);
    if (status < 0 && PyErr_ExceptionMatches(PyExc_Exception) &&
        !PyErr_ExceptionMatches(PyExc_MemoryError)) {
        PyErr_Clear(); /* who takes it next says what is wrong with it */
        status = 0;
    }
    return status;
}

/* Whether it stays what it is, and comparing it runs nobody's code. */
static bool is_constant(PyObject *value) {
    if (PyTuple_CheckExact(value)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++)
            if (!is_constant(PyTuple_GET_ITEM(value, i))) return false;
        return true;
    }
    return value == Py_None || PyUnicode_CheckExact(value) || PyLong_CheckExact(value) ||
           PyBool_Check(value) || PyFloat_CheckExact(value);
}

/* Equal and of one type: 1 is equal to True, and another option. */
static int is_same(PyObject *one, PyObject *other) {
    if (one == other) return 1;
    if (Py_TYPE(one) != Py_TYPE(other)) return 0;
    if (!PyTuple_CheckExact(one)) return PyObject_RichCompareBool(one, other, Py_EQ);
    int same = PyTuple_GET_SIZE(one) == PyTuple_GET_SIZE(other);
    for (Py_ssize_t i = 0; same == 1 && i < PyTuple_GET_SIZE(one); i++)
        same = is_same(PyTuple_GET_ITEM(one, i), PyTuple_GET_ITEM(other, i));
    return same;
}

/* Where a kind is, or would be; -1 with an exception set. */
static int slot_of(const KnownKind *kind, PyObject *options, PyObject *flags, uint64_t *hash) {
    Py_hash_t hashed = PyObject_Hash(options);
    if (hashed == -1) return -1;
    *hash = (uint64_t)hashed ^ (uint64_t)(uintptr_t)flags;
    for (int i = 0; i < kind->count; i++) {
        *hash = (*hash ^ (uint64_t)kind->words[i]) * 0x9E3779B97F4A7C15u;
        *hash ^= *hash >> 29;
    }
    for (int slot = (int)(*hash % SLOTS);; slot = (slot + 1) % SLOTS) {
        const Known *known = known_calls[slot];
        if (known == NULL) return slot;
        if (known->flags != flags || known->hash != *hash || known->kind.count != kind->count ||
            memcmp(known->kind.words, kind->words, (size_t)kind->count * sizeof *kind->words) != 0)
            continue;
        int same = is_same(known->options, options);
        if (same != 0) return same < 0 ? -1 : slot;
    }
}

/* --- functions of the module ------------------------------------------------------------------ */

PyObject *bcfg_device_recall(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count < 2 || count > 4 || !PyTuple_Check(arguments[0]) || !PyTuple_Check(arguments[1]))
        return PyErr_Format(PyExc_TypeError,
                            "device_recall: (arrays, options, seed=0, is_recorded=False)");
    if (known_count == 0 || !is_constant(arguments[1])) Py_RETURN_NONE;
    uint64_t seed = count > 2 ? PyLong_AsUnsignedLongLong(arguments[2]) : 0, hash;
    if (seed == (uint64_t)-1 && PyErr_Occurred()) return NULL;
    KnownCall call;
    int status = take(arguments[0], count > 3 && arguments[3] == Py_True, &call);
    if (status != 1) return status < 0 ? NULL : Py_NewRef(Py_None);
    PyObject *flags = bcfg_current_prepared(NULL, NULL), *answer = NULL;
    int slot = flags != NULL ? slot_of(&call.kind, arguments[1], flags, &hash) : -1;
    if (slot >= 0 && known_calls[slot] == NULL) {
        answer = Py_NewRef(Py_None);
    } else if (slot >= 0) {
        /* What others run while results are made may forget all that is known. */
        Script *script = bcfg_script_keep(known_calls[slot]->script);
        answer = bcfg_script_run(script, &call, seed);
        bcfg_script_drop(script);
    }
    Py_XDECREF(flags);
    drop(&call);
    return answer;
}

static void forget(Known *known) {
    Py_XDECREF(known->options);
    Py_XDECREF(known->flags);
    bcfg_script_drop(known->script);
    free(known);
}

PyObject *bcfg_device_forget(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    const PyObject *owner = count > 0 && arguments[0] != Py_None ? arguments[0] : NULL;
    Known *gone[SLOTS], *all[SLOTS];
    int gone_count = 0;
    memcpy(all, known_calls, sizeof all);
    memset(known_calls, 0, sizeof known_calls);
    for (int i = 0; i < SLOTS; i++) {
        if (all[i] == NULL) continue;
        if (owner == NULL || bcfg_script_uses(all[i]->script, owner)) {
            gone[gone_count++] = all[i];
            continue;
        }
        uint64_t slot = all[i]->hash % SLOTS;
        while (known_calls[slot] != NULL) slot = (slot + 1) % SLOTS;
        known_calls[slot] = all[i];
    }
    known_count -= gone_count;
    for (int i = 0; i < gone_count; i++) forget(gone[i]); /* last: it may run Python */
    Py_RETURN_NONE;
}

/* Takes the script over, also on failure. */
static PyObject *keep(const KnownCall *call, PyObject *options, Script *script) {
    if (known_count == MOST_KINDS) Py_XDECREF(bcfg_device_forget(NULL, NULL, 0));
    PyObject *flags = bcfg_current_prepared(NULL, NULL);
    Known *known = calloc(1, sizeof *known);
    if (known == NULL) PyErr_NoMemory();
    int slot = flags != NULL && known != NULL
                   ? slot_of(&call->kind, options, flags, &known->hash)
                   : -1;
    if (slot < 0 || known_calls[slot] != NULL) { /* another thread may have been faster */
        free(known);
        Py_XDECREF(flags);
        bcfg_script_drop(script);
        return slot < 0 ? NULL : Py_NewRef(Py_None);
    }
    *known = (Known){call->kind, known->hash, Py_NewRef(options), flags, script};
    known_calls[slot] = known;
    known_count++;
    Py_RETURN_NONE;
}

PyObject *bcfg_device_remember(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *arrays, *options, *steps, *results, *about;
    int is_recorded, given = -1;
    if (!PyArg_ParseTuple(arguments, "O!O!pO!O!O!|i:device_remember", &PyTuple_Type, &arrays,
                          &PyTuple_Type, &options, &is_recorded, &PyTuple_Type, &steps,
                          &PyTuple_Type, &results, &PyTuple_Type, &about, &given))
        return NULL;
    if (!is_constant(options)) Py_RETURN_NONE;
    KnownCall call;
    int status = take(arrays, is_recorded, &call);
    if (status != 1) return status < 0 ? NULL : Py_NewRef(Py_None);
    drop(&call);
    Script *script =
        bcfg_script_parse(steps, results, given, (int)PyTuple_GET_SIZE(arrays), about);
    return script != NULL ? keep(&call, options, script) : NULL;
}
