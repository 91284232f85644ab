/* Operation graphs of cuDNN, from what Python says of them: see gpu/libraries/cudnn.h and
 * backendcfg/gpu/cudnn/graph.py. */
#include "gpu/python/device.h"

#include <stdlib.h>

#include "gpu/libraries/cudnn.h"

enum { MOST_ATTRIBUTES = 1024, MOST_VALUES = 4096, MOST_TENSORS = 32 };

/* A graph with the memory of all that it refers to. */
typedef struct {
    bcfg_cudnn_graph is;
    bcfg_cudnn_descriptor descriptors[BCFG_CUDNN_DESCRIPTORS];
    bcfg_cudnn_attribute attributes[MOST_ATTRIBUTES];
    int64_t values[MOST_VALUES];       /* each attribute's begin at one of them */
    int32_t attribute_count;
    Py_ssize_t value_count;
} Graph;

/* Puts one value where an attribute of a type has its value number `at`. */
static int put(int type, void *values, Py_ssize_t at, PyObject *value) {
    switch (type) {
    case BCFG_CUDNN_TYPE_DOUBLE: ((double *)values)[at] = PyFloat_AsDouble(value); break;
    case BCFG_CUDNN_TYPE_FLOAT: ((float *)values)[at] = (float)PyFloat_AsDouble(value); break;
    case BCFG_CUDNN_TYPE_INT64:
    case BCFG_CUDNN_TYPE_BACKEND_DESCRIPTOR:
        ((int64_t *)values)[at] = PyLong_AsLongLong(value);
        break;
    case BCFG_CUDNN_TYPE_BOOLEAN:
        ((unsigned char *)values)[at] = (unsigned char)(PyObject_IsTrue(value) == 1);
        break;
    default: ((int32_t *)values)[at] = (int32_t)PyLong_AsLong(value);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int parse_attribute(Graph *graph, PyObject *said) {
    PyObject *values;
    bcfg_cudnn_attribute *to = &graph->attributes[graph->attribute_count];
    if (!PyTuple_Check(said) || graph->attribute_count == MOST_ATTRIBUTES ||
        !PyArg_ParseTuple(said, "iiO!:attribute", &to->name, &to->type, &PyTuple_Type, &values)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "graph: no attribute");
        return -1;
    }
    graph->attribute_count++;
    to->count = PyTuple_GET_SIZE(values);
    if (to->count > MOST_VALUES - graph->value_count) {
        PyErr_SetString(PyExc_ValueError, "graph: too many values");
        return -1;
    }
    void *room = &graph->values[graph->value_count];
    graph->value_count += to->count; /* none is wider */
    to->values = room;
    for (Py_ssize_t at = 0; at < to->count; at++)
        if (put(to->type, room, at, PyTuple_GET_ITEM(values, at)) < 0) return -1;
    if (to->type == BCFG_CUDNN_TYPE_HANDLE) to->count = 1; /* which is put there later */
    return 0;
}

static int parse_graph(PyObject *said, Graph *graph) {
    unsigned long long number;
    PyObject *descriptors;
    if (!PyArg_ParseTuple(said, "KO!:graph", &number, &PyTuple_Type, &descriptors)) return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(descriptors);
    if (count < 1 || count > BCFG_CUDNN_DESCRIPTORS) {
        PyErr_SetString(PyExc_ValueError, "graph: too many descriptors, or none");
        return -1;
    }
    graph->is = (bcfg_cudnn_graph){number, (int32_t)count, graph->descriptors};
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *attributes;
        bcfg_cudnn_descriptor *to = &graph->descriptors[at];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(descriptors, at), "iO!:descriptor", &to->type,
                              &PyTuple_Type, &attributes))
            return -1;
        to->attributes = &graph->attributes[graph->attribute_count];
        to->attribute_count = (int32_t)PyTuple_GET_SIZE(attributes);
        for (int32_t each = 0; each < to->attribute_count; each++)
            if (parse_attribute(graph, PyTuple_GET_ITEM(attributes, each)) < 0) return -1;
    }
    return 0;
}

static PyObject *failed(bcfg_outcome outcome, const bcfg_cudnn_call *call) {
    if (outcome == BCFG_DEVICE_MEMORY) return PyErr_NoMemory();
    if (outcome == BCFG_DEVICE_FORKED) return Py_BuildValue("(siss)", "", 0, "", "");
    PyObject *said = PyUnicode_DecodeUTF8(call->said, (Py_ssize_t)strlen(call->said), "replace");
    if (said == NULL) return NULL;
    return Py_BuildValue("(sisN)", call->fault.function, call->fault.status, call->fault.name,
                         said);
}

/* Borrows a handle. Where cuDNN cannot make one, it says why. */
static bcfg_outcome begin(const bcfg_work *work, bcfg_session *session, bcfg_cudnn_call *call) {
    bcfg_outcome outcome = bcfg_work_begin(work, session, &call->fault);
    call->handle = session->handle;
    if (outcome == BCFG_DEVICE_FAULT && strncmp(call->fault.function, "cudnn", 5) == 0)
        bcfg_cudnn(work->library)->cudnnGetLastErrorString(call->said, sizeof call->said - 1);
    return outcome;
}

static int parse_call(PyObject *said, DeviceWork *work) {
    if (bcfg_parse_work(said, work) < 0) return -1;
    bcfg_device_description about = {.abi = BCFG_ABI, .size = sizeof about};
    if (bcfg_device_describe(work->is.library, &about) == BCFG_OK && about.kind == BCFG_CUDNN &&
        bcfg_device_describe(work->is.driver, &about) == BCFG_OK && about.kind == BCFG_CUDA)
        return 0;
    PyErr_SetString(PyExc_ValueError, "work: no cuDNN, or no driver of CUDA");
    return -1;
}

PyObject *bcfg_device_engines(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *tuple, *said, *list = NULL;
    DeviceWork work;
    if (!PyArg_ParseTuple(arguments, "O!O!:device_engines", &PyTuple_Type, &tuple, &PyTuple_Type,
                          &said) ||
        parse_call(tuple, &work) < 0)
        return NULL;
    Graph *graph = calloc(1, sizeof *graph);
    bcfg_cudnn_engine *engines = calloc(BCFG_CUDNN_ENGINES, sizeof *engines);
    if (graph == NULL || engines == NULL) {
        PyErr_NoMemory();
    } else if (parse_graph(said, graph) == 0) {
        int32_t count = 0;
        bcfg_session session;
        bcfg_cudnn_call call = {.said = ""};
        bcfg_outcome outcome;
        Py_BEGIN_ALLOW_THREADS
        outcome = begin(&work.is, &session, &call);
        if (outcome == BCFG_DEVICE_OK) {
            outcome = bcfg_cudnn_engines(&call, &graph->is, engines, &count);
            outcome = bcfg_work_end(&session, outcome, &call.fault);
        }
        Py_END_ALLOW_THREADS
        list = outcome == BCFG_DEVICE_OK ? PyList_New(0) : failed(outcome, &call);
        for (int32_t at = 0; at < count && outcome == BCFG_DEVICE_OK && list != NULL; at++) {
            PyObject *one = Py_BuildValue("(LIIO)", (long long)engines[at].index,
                                          engines[at].numerical, engines[at].behaviour,
                                          engines[at].is_fallback ? Py_True : Py_False);
            if (one == NULL || PyList_Append(list, one) < 0) Py_CLEAR(list);
            Py_XDECREF(one);
        }
    }
    free(engines);
    free(graph);
    return list;
}

PyObject *bcfg_device_prepare(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *tuple, *said, *result = NULL;
    DeviceWork work;
    int place;
    if (!PyArg_ParseTuple(arguments, "O!O!i:device_prepare", &PyTuple_Type, &tuple, &PyTuple_Type,
                          &said, &place) ||
        parse_call(tuple, &work) < 0)
        return NULL;
    Graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL) return PyErr_NoMemory();
    if (parse_graph(said, graph) == 0) {
        int64_t workspace = 0;
        bcfg_session session;
        bcfg_cudnn_call call = {.said = ""};
        bcfg_outcome outcome;
        Py_BEGIN_ALLOW_THREADS
        outcome = begin(&work.is, &session, &call);
        if (outcome == BCFG_DEVICE_OK) {
            outcome = bcfg_cudnn_prepare(&call, &graph->is, place, &workspace);
            outcome = bcfg_work_end(&session, outcome, &call.fault);
        }
        Py_END_ALLOW_THREADS
        result = outcome == BCFG_DEVICE_OK ? PyLong_FromLongLong(workspace)
                                           : failed(outcome, &call);
    }
    free(graph);
    return result;
}

/* What a run is given. */
typedef struct {
    DeviceWork work;
    unsigned long long number;
    int place;
    int64_t numbers[MOST_TENSORS];
    void *pointers[MOST_TENSORS];
    bcfg_cudnn_pack pack;
} Run;

static int parse_run(PyObject *arguments, Run *run) {
    PyObject *tuple, *numbers, *pointers;
    unsigned long long workspace;
    if (!PyArg_ParseTuple(arguments, "O!KiO!O!K:device_run", &PyTuple_Type, &tuple, &run->number,
                          &run->place, &PyTuple_Type, &numbers, &PyTuple_Type, &pointers,
                          &workspace) ||
        parse_call(tuple, &run->work) < 0)
        return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(numbers);
    if (count > MOST_TENSORS || PyTuple_GET_SIZE(pointers) != count) {
        PyErr_SetString(PyExc_ValueError, "device_run: too many tensors, or not a pointer for each");
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        run->numbers[at] = PyLong_AsLongLong(PyTuple_GET_ITEM(numbers, at));
        run->pointers[at] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(pointers, at));
    }
    run->pack = (bcfg_cudnn_pack){(int32_t)count, run->numbers, run->pointers,
                                  (void *)(uintptr_t)workspace};
    return PyErr_Occurred() ? -1 : 0;
}

/* Runs a plan, or times it where there is room for the time. */
static PyObject *run_plan(PyObject *arguments, float *milliseconds) {
    Run run;
    if (parse_run(arguments, &run) < 0) return NULL;
    bool exists = false;
    bcfg_session session;
    bcfg_cudnn_call call = {.said = ""};
    bcfg_outcome outcome;
    Py_BEGIN_ALLOW_THREADS
    outcome = begin(&run.work.is, &session, &call);
    if (outcome == BCFG_DEVICE_OK) {
        outcome = milliseconds == NULL
                      ? bcfg_cudnn_run(&call, run.number, run.place, &run.pack, &exists)
                      : bcfg_cudnn_time(&call, run.number, run.place, &run.pack, &exists,
                                        milliseconds);
        outcome = bcfg_work_end(&session, outcome, &call.fault);
    }
    Py_END_ALLOW_THREADS
    if (outcome != BCFG_DEVICE_OK) return failed(outcome, &call);
    if (!exists) Py_RETURN_FALSE;
    if (milliseconds != NULL) return PyFloat_FromDouble(*milliseconds);
    Py_RETURN_NONE;
}

PyObject *bcfg_device_run(PyObject *module, PyObject *arguments) {
    (void)module;
    return run_plan(arguments, NULL);
}

PyObject *bcfg_device_time(PyObject *module, PyObject *arguments) {
    (void)module;
    float milliseconds = 0;
    return run_plan(arguments, &milliseconds);
}
