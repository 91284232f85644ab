/* Fourier transforms on devices: making plans and running them. Python decides which plan a call
 * needs and how long it is cached: see backendcfg/gpu/fft/calls.py. */
#include "gpu/python/device.h"
#include "gpu/libraries/cufft.h"

#include <stdlib.h>

static const char capsule_name[] = "backendcfg.device_transform_plan";

/* Python drops a plan when no cache and no call refers to it. */
static void drop(PyObject *capsule) {
    bcfg_transform_plan *plan = PyCapsule_GetPointer(capsule, capsule_name);
    /* While the process ends the driver may be gone already, and its plans with it. */
    if (!Py_IsInitialized()) return;
    Py_BEGIN_ALLOW_THREADS
    bcfg_cufft_destroy(plan);
    Py_END_ALLOW_THREADS
    free(plan);
}

static int take_numbers(PyObject *tuple, long long *numbers, int rank) {
    if (PyTuple_GET_SIZE(tuple) != rank) {
        PyErr_SetString(PyExc_ValueError, "device_transform_plan: the sizes do not fit");
        return -1;
    }
    for (int d = 0; d < rank; d++) numbers[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, d));
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *bcfg_device_transform_plan(PyObject *module, PyObject *arguments) {
    (void)module;
    unsigned long long library, driver;
    int index;
    PyObject *sizes, *input, *output;
    bcfg_transform is = {.rank = 0};
    if (!PyArg_ParseTuple(arguments, "KKiO!L(O!LLi)(O!LLi)i:device_transform_plan", &library,
                          &driver, &index, &PyTuple_Type, &sizes, &is.batch, &PyTuple_Type, &input,
                          &is.input.stride, &is.input.distance, &is.input.type, &PyTuple_Type,
                          &output, &is.output.stride, &is.output.distance, &is.output.type,
                          &is.execution))
        return NULL;
    const bcfg_device_library *cufft = (const bcfg_device_library *)(uintptr_t)library;
    bcfg_device_description about = {.abi = BCFG_ABI, .size = sizeof about};
    Py_ssize_t rank = PyTuple_GET_SIZE(sizes);
    if (bcfg_device_describe(cufft, &about) != BCFG_OK || about.kind != BCFG_CUFFT || rank < 1 ||
        rank > BCFG_TRANSFORM_RANK)
        return PyErr_Format(PyExc_ValueError, "device_transform_plan: no cuFFT, or no such rank");
    is.rank = (int)rank;
    if (take_numbers(sizes, is.sizes, is.rank) < 0 ||
        take_numbers(input, is.input.embed, is.rank) < 0 ||
        take_numbers(output, is.output.embed, is.rank) < 0)
        return NULL;
    bcfg_transform_plan *plan = malloc(sizeof *plan);
    if (plan == NULL) return PyErr_NoMemory();
    bcfg_fault fault = {"", 0, ""};
    bcfg_outcome outcome;
    Py_BEGIN_ALLOW_THREADS
    outcome = bcfg_cufft_make(cufft, (const bcfg_device_library *)(uintptr_t)driver, index, &is,
                              plan, &fault);
    Py_END_ALLOW_THREADS
    if (outcome != BCFG_DEVICE_OK) {
        free(plan);
        PyObject *said = bcfg_fault_object(outcome, &fault);
        return said == NULL ? NULL : Py_BuildValue("(OiN)", Py_None, 0, said);
    }
    PyObject *capsule = PyCapsule_New(plan, capsule_name, drop);
    if (capsule == NULL) {
        bcfg_cufft_destroy(plan);
        free(plan);
        return NULL;
    }
    return Py_BuildValue("(NKO)", capsule, (unsigned long long)plan->bytes, Py_None);
}

PyObject *bcfg_device_transform(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *capsule, *where;
    unsigned long long input, output, area;
    long long count, input_stride, output_stride;
    bcfg_transform_run run = {.input = NULL};
    if (!PyArg_ParseTuple(arguments, "OO!KKKiLLL:device_transform", &capsule, &PyTuple_Type, &where,
                          &input, &output, &area, &run.direction, &count, &input_stride,
                          &output_stride))
        return NULL;
    DeviceWork work;
    bcfg_transform_plan *plan = PyCapsule_GetPointer(capsule, capsule_name);
    if (plan == NULL || bcfg_parse_work(where, &work) < 0) return NULL;
    run.input = (void *)(uintptr_t)input;
    run.output = (void *)(uintptr_t)output;
    run.area = (void *)(uintptr_t)area;
    run.count = count;
    run.input_stride = input_stride;
    run.output_stride = output_stride;
    bcfg_fault fault = {"", 0, ""};
    bcfg_outcome outcome;
    Py_BEGIN_ALLOW_THREADS
    outcome = bcfg_cufft_run(plan, &work.is, &run, &fault);
    Py_END_ALLOW_THREADS
    return bcfg_fault_object(outcome, &fault);
}
