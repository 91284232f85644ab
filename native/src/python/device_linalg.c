/* Linear algebra on devices: one step of a function, described by Python, put on a stream. What a
 * function is made of, and all memory, is Python's: see backendcfg/ops/device_linalg.py. */
#include "device.h"

#include "device/factorisation.h"

#include <stdlib.h>

/* A step as Python writes it: what it is, its sizes, and for each array an address and the bytes from
 * one matrix to the next, 0 for what a step has not. In the order of `Step` in
 * backendcfg/dispatch/device_linalg.py. */
static int parse_step(PyObject *tuple, bcfg_step *step) {
    unsigned long long a, b, c, values, pivots, info, workspace;
    long long m, n, k, matrices, bytes, host_bytes;
    long long a_step, b_step, c_step, values_step, pivots_step, info_step;
    int upper, transpose, vectors;
    *step = (bcfg_step){.kind = -1};
    if (!PyArg_ParseTuple(tuple, "iipCCiLLLL(KL)(KL)(KL)(KL)(KL)(KL)(KL)L:step", &step->kind,
                          &step->element, &upper, &transpose, &vectors, &step->deterministic,
                          &matrices, &m, &n, &k, &a, &a_step, &b, &b_step, &c, &c_step, &values,
                          &values_step, &pivots, &pivots_step, &info, &info_step, &workspace,
                          &bytes, &host_bytes))
        return -1;
    if (step->kind < 0 || step->kind >= BCFG_STEPS || step->element < BCFG_FLOAT32 ||
        step->element > BCFG_COMPLEX128 || matrices < 1 || m < 1 || n < 1 || k < 0 || bytes < 0 ||
        host_bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "no such step of linear algebra");
        return -1;
    }
    step->upper = upper;
    step->transpose = (char)transpose;
    step->vectors = (char)vectors;
    step->matrices = matrices;
    step->m = m;
    step->n = n;
    step->k = k;
#define ADDRESS(name) step->name = (char *)(uintptr_t)name, step->name##_step = name##_step
    ADDRESS(a), ADDRESS(b), ADDRESS(c), ADDRESS(values), ADDRESS(pivots), ADDRESS(info);
#undef ADDRESS
    step->workspace = (void *)(uintptr_t)workspace;
    step->workspace_bytes = (size_t)bytes;
    step->host_bytes = (size_t)host_bytes;
    return 0;
}

static const bcfg_solver *parse(PyObject *arguments, DeviceWork *work, bcfg_step *step) {
    PyObject *work_tuple, *step_tuple;
    if (!PyArg_ParseTuple(arguments, "O!O!:device_linalg", &PyTuple_Type, &work_tuple,
                          &PyTuple_Type, &step_tuple) ||
        bcfg_parse_work(work_tuple, work) < 0 || parse_step(step_tuple, step) < 0)
        return NULL;
    bcfg_device_description about = {.abi = BCFG_ABI, .size = sizeof about};
    const bcfg_solver *solver = bcfg_device_describe(work->is.library, &about) == BCFG_OK
                                    ? bcfg_solver_of(work->is.library)
                                    : NULL;
    if (solver == NULL) PyErr_SetString(PyExc_ValueError, "no library of linear algebra");
    return solver;
}

PyObject *bcfg_device_linalg_sizes(PyObject *module, PyObject *arguments) {
    (void)module;
    DeviceWork work;
    bcfg_step step;
    const bcfg_solver *solver = parse(arguments, &work, &step);
    if (solver == NULL) return NULL;
    if (!solver->supports(work.is.library, &step)) Py_RETURN_NONE;
    size_t bytes = 0, host_bytes = 0;
    bcfg_fault fault = {"", 0, ""};
    bcfg_outcome outcome;
    Py_BEGIN_ALLOW_THREADS
    bcfg_session session;
    outcome = bcfg_work_begin(&work.is, &session, &fault);
    if (outcome == BCFG_DEVICE_OK) {
        int status = solver->sizes(work.is.library, session.handle->handle, &step, &bytes,
                                   &host_bytes, &fault.function);
        if (status != 0)
            outcome = bcfg_library_fault(work.is.library, fault.function, status, &fault);
        outcome = bcfg_work_end(&session, outcome, &fault);
    }
    Py_END_ALLOW_THREADS
    if (outcome != BCFG_DEVICE_OK) return bcfg_fault_object(outcome, &fault);
    return Py_BuildValue("(KK)", (unsigned long long)bytes, (unsigned long long)host_bytes);
}

PyObject *bcfg_device_linalg(PyObject *module, PyObject *arguments) {
    (void)module;
    DeviceWork work;
    bcfg_step step;
    const bcfg_solver *solver = parse(arguments, &work, &step);
    if (solver == NULL) return NULL;
    if (step.host_bytes > 0 && (step.host = malloc(step.host_bytes)) == NULL)
        return PyErr_NoMemory();
    bcfg_fault fault = {"", 0, ""};
    bcfg_outcome outcome;
    Py_BEGIN_ALLOW_THREADS
    bcfg_session session;
    outcome = bcfg_work_begin(&work.is, &session, &fault);
    if (outcome == BCFG_DEVICE_OK) {
        int status = solver->compute(work.is.library, session.handle->handle, &step,
                                     &fault.function);
        if (status != 0)
            outcome = bcfg_library_fault(work.is.library, fault.function, status, &fault);
        outcome = bcfg_work_end(&session, outcome, &fault);
    }
    Py_END_ALLOW_THREADS
    free(step.host);
    return bcfg_fault_object(outcome, &fault);
}
