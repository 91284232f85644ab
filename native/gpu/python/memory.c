/* Memory of the driver for results of arrays whose library makes none, exported by DLPack. */
#include "gpu/python/device.h"

#include <stdlib.h>

static const char memory_name[] = "backendcfg.device_memory";
static const char versioned[] = "dltensor_versioned", unversioned[] = "dltensor";

typedef struct {
    const bcfg_device_library *driver;
    int32_t index;
    void *memory;                      /* NULL where none was wanted */
} owned;

static bcfg_outcome allocate(owned *into, size_t bytes, bcfg_fault *fault) {
    bcfg_visit visit;
    bcfg_outcome outcome = bcfg_place_enter(into->driver, into->index, &visit, fault);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    outcome = bcfg_place_allocate(into->driver, bytes, &into->memory, fault);
    bcfg_place_leave(into->driver, &visit);
    return outcome;
}

/* Waits for the device, so that nothing that was put on a stream writes there afterwards. A child of
 * the process that made it leaves it to its parent. */
static void discard(owned *held) {
    bcfg_visit visit;
    bcfg_fault fault;
    if (held->memory != NULL &&
        bcfg_place_enter(held->driver, held->index, &visit, &fault) == BCFG_DEVICE_OK) {
        bcfg_place_free(held->driver, held->memory);
        bcfg_place_leave(held->driver, &visit);
    }
    free(held);
}

static void give_back(PyObject *capsule) {
    owned *held = PyCapsule_GetPointer(capsule, memory_name);
    /* While the process ends the driver may be gone already, and its memory with it. */
    if (!Py_IsInitialized()) return;
    /* Freeing waits for the device, where a host function on a stream may need the GIL. */
    Py_BEGIN_ALLOW_THREADS
    discard(held);
    Py_END_ALLOW_THREADS
}

PyObject *bcfg_device_memory(PyObject *module, PyObject *arguments) {
    (void)module;
    unsigned long long driver;
    int index;
    long long bytes;
    if (!PyArg_ParseTuple(arguments, "KiL:device_memory", &driver, &index, &bytes)) return NULL;
    bcfg_device_description about = {.abi = BCFG_ABI, .size = sizeof about};
    owned fresh = {(const bcfg_device_library *)(uintptr_t)driver, index, NULL};
    if (bcfg_device_describe(fresh.driver, &about) != BCFG_OK ||
        (about.kind != BCFG_CUDA && about.kind != BCFG_HIP) || bytes < 0)
        return PyErr_Format(PyExc_ValueError, "device_memory: no driver or size");
    owned *kept = malloc(sizeof *kept);
    if (kept == NULL) return PyErr_NoMemory();
    bcfg_fault fault = {"", 0, ""};
    bcfg_outcome outcome = BCFG_DEVICE_OK;
    if (bytes > 0) {
        Py_BEGIN_ALLOW_THREADS
        outcome = allocate(&fresh, (size_t)bytes, &fault);
        Py_END_ALLOW_THREADS
    }
    *kept = fresh; /* without memory where there was none */
    PyObject *capsule = PyCapsule_New(kept, memory_name, give_back);
    if (capsule == NULL) {
        discard(kept);
        return NULL;
    }
    if (outcome == BCFG_DEVICE_OK)
        return Py_BuildValue("(NN)", capsule, PyLong_FromVoidPtr(fresh.memory));
    Py_DECREF(capsule);
    return bcfg_fault_object(outcome, &fault);
}

/* A tensor that is lent, in either form: what it says lies behind it. */
typedef struct {
    union {
        DLManagedTensor old;
        DLManagedTensorVersioned now;
    } tensor;
    PyObject *owner;
    int64_t numbers[2 * BCFG_DEVICE_DIMENSIONS];
} lent;

static void end(lent *of) {
    /* A library's own memory may outlive the interpreter, which then takes no calls. */
    if (!Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure(); /* whoever borrowed it may end it anywhere */
    Py_DECREF(of->owner);
    PyGILState_Release(state);
    free(of);
}

static void end_old(DLManagedTensor *self) { end(self->context); }
static void end_now(DLManagedTensorVersioned *self) { end(self->context); }

/* Nobody imported it. */
static void end_unused(PyObject *capsule) {
    const char *name = PyCapsule_GetName(capsule);
    if (name != NULL && strcmp(name, versioned) == 0)
        end_now(PyCapsule_GetPointer(capsule, versioned));
    else if (name != NULL && strcmp(name, unversioned) == 0)
        end_old(PyCapsule_GetPointer(capsule, unversioned));
}

PyObject *bcfg_device_lend(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *owner, *shape;
    unsigned long long address;
    int kind, index, code, bits, is_versioned;
    if (!PyArg_ParseTuple(arguments, "OKiiiiO!p:device_lend", &owner, &address, &kind, &index,
                          &code, &bits, &PyTuple_Type, &shape, &is_versioned))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(shape);
    if (count > BCFG_DEVICE_DIMENSIONS)
        return PyErr_Format(PyExc_ValueError, "device_lend: too many dimensions");
    lent *made = calloc(1, sizeof *made);
    if (made == NULL) return PyErr_NoMemory();
    int64_t *sizes = made->numbers, *strides = made->numbers + BCFG_DEVICE_DIMENSIONS, step = 1;
    for (Py_ssize_t d = count - 1; d >= 0; d--) {
        sizes[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
        strides[d] = step;
        if (sizes[d] > 1) step *= sizes[d];
    }
    DLTensor tensor = {.data = (void *)(uintptr_t)address, .device = {kind, index},
                       .dimensions = (int32_t)count, .type = {(uint8_t)code, (uint8_t)bits, 1},
                       .shape = sizes, .strides = strides};
    if (is_versioned)
        made->tensor.now = (DLManagedTensorVersioned){1, 0, made, end_now, 0, tensor};
    else
        made->tensor.old = (DLManagedTensor){tensor, made, end_old};
    PyObject *capsule = NULL;
    if (!PyErr_Occurred())
        capsule = PyCapsule_New(&made->tensor, is_versioned ? versioned : unversioned, end_unused);
    if (capsule == NULL) free(made);
    else made->owner = Py_NewRef(owner);
    return capsule;
}
