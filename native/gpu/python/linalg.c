/* Linear algebra on devices: a plan holds the steps of a function for one kind of call, and a call
 * runs them on a stream. Python writes the plan and makes the arrays: see
 * backendcfg/gpu/linalg/solver.py. */
#include "gpu/python/device.h"

#include "gpu/libraries/factorisation.h"

#include <stdlib.h>

static const char capsule_name[] = "backendcfg.device_linalg_plan";

enum { A, B, C, VALUES, PIVOTS, INFO, A_POINTERS, B_POINTERS, REFERENCES, MOST_STEPS = 4 };
enum { NOWHERE = -1, AREA = -2 };

/* Where an operand is: an array of the call, one that was made for it, or part of the work area. */
typedef struct {
    int place;
    long long offset, step;
} Reference;

typedef struct {
    const bcfg_device_library *library;
    const bcfg_solver *solver;
    bcfg_step is;
    Reference of[REFERENCES];
} Planned;

typedef struct {
    const bcfg_device_library *driver;
    int32_t index;
    int count;
    bool is_sized;                     /* the workspaces are known */
    size_t area, host_bytes;           /* area: what steps share, without the workspace */
    size_t workspace_bytes;            /* the most that a step needs */
    Planned steps[MOST_STEPS];
} Plan;

/* A step as Python writes it, in the order of `Step` in backendcfg/gpu/linalg/steps.py. */
static bool parse_step(PyObject *tuple, Planned *planned) {
    unsigned long long library;
    int upper, transpose, vectors;
    long long matrices, m, n, k;
    bcfg_step *step = &planned->is;
    Reference *of = planned->of;
#define REFERENCE(name) &of[name].place, &of[name].offset, &of[name].step
    if (!PyArg_ParseTuple(
            tuple, "KiipCCiLLLL(iLL)(iLL)(iLL)(iLL)(iLL)(iLL)(iLL)(iLL):step", &library,
            &step->kind, &step->element, &upper, &transpose, &vectors, &step->deterministic,
            &matrices, &m, &n, &k, REFERENCE(A), REFERENCE(B), REFERENCE(C), REFERENCE(VALUES),
            REFERENCE(PIVOTS), REFERENCE(INFO), REFERENCE(A_POINTERS), REFERENCE(B_POINTERS)))
        return false;
#undef REFERENCE
    bool fine = step->kind >= 0 && step->kind < BCFG_STEPS && step->element >= BCFG_FLOAT32 &&
                step->element <= BCFG_COMPLEX128 && matrices >= 1 && m >= 1 && n >= 1 && k >= 0;
    for (int i = 0; i < REFERENCES; i++)
        fine = fine && of[i].place >= AREA && of[i].place < DEVICE_VIEWED + DEVICE_MADE;
    bool is_together = of[A_POINTERS].place != NOWHERE;
    if (is_together && of[B].place != NOWHERE && of[B_POINTERS].place == NOWHERE) fine = false;
    if (!fine) {
        PyErr_SetString(PyExc_ValueError, "no such step of linear algebra");
        return false;
    }
    step->upper = upper;
    step->transpose = (char)transpose;
    step->vectors = (char)vectors;
    step->matrices = matrices;
    step->m = m;
    step->n = n;
    step->k = k;
    step->a_stride = of[A].step;
    step->b_stride = of[B].step;
    step->c_stride = of[C].step;
    step->values_stride = of[VALUES].step;
    step->pivots_stride = of[PIVOTS].step;
    step->info_stride = of[INFO].step;
    step->is_together = is_together;
    planned->library = (const bcfg_device_library *)(uintptr_t)library;
    bcfg_device_description about = {.abi = BCFG_ABI, .size = sizeof about};
    if (bcfg_device_describe(planned->library, &about) == BCFG_OK)
        planned->solver = bcfg_solver_of(planned->library);
    if (planned->solver == NULL) PyErr_SetString(PyExc_ValueError, "no library of linear algebra");
    return planned->solver != NULL;
}

static void destroy(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, capsule_name)); }

/* 1, 0 where a library has no such step for such sizes, or -1 with an exception set. */
static int fill(Plan *plan, PyObject *steps) {
    plan->count = (int)PyTuple_GET_SIZE(steps);
    for (int i = 0; i < plan->count; i++) {
        Planned *planned = &plan->steps[i];
        if (!parse_step(PyTuple_GET_ITEM(steps, i), planned)) return -1;
        if (!planned->solver->supports(planned->library, &planned->is)) return 0;
    }
    return 1;
}

PyObject *bcfg_device_linalg_plan(PyObject *module, PyObject *arguments) {
    (void)module;
    unsigned long long driver;
    long long area;
    int index;
    PyObject *steps;
    if (!PyArg_ParseTuple(arguments, "KiLO!:device_linalg_plan", &driver, &index, &area,
                          &PyTuple_Type, &steps))
        return NULL;
    bcfg_device_description about = {.abi = BCFG_ABI, .size = sizeof about};
    const bcfg_device_library *opened = (const bcfg_device_library *)(uintptr_t)driver;
    if (bcfg_device_describe(opened, &about) != BCFG_OK ||
        (about.kind != BCFG_CUDA && about.kind != BCFG_HIP) || area < 0 ||
        PyTuple_GET_SIZE(steps) > MOST_STEPS)
        return PyErr_Format(PyExc_ValueError, "device_linalg_plan: no driver, or too much");
    Plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) return PyErr_NoMemory();
    plan->driver = opened;
    plan->index = index;
    plan->area = (size_t)area;
    int status = fill(plan, steps);
    PyObject *capsule = status == 1 ? PyCapsule_New(plan, capsule_name, destroy) : NULL;
    if (capsule == NULL) free(plan);
    return status == 0 ? Py_NewRef(Py_None) : capsule;
}

static char *address_of(const Reference *reference, const DeviceViews *views, char *area) {
    if (reference->place == NOWHERE) return NULL;
    char *base = reference->place == AREA           ? area
                 : reference->place < DEVICE_VIEWED ? views->arrays[reference->place].data
                                                   : views->made[reference->place - DEVICE_VIEWED];
    return base != NULL ? base + reference->offset : NULL;
}

/* The steps of a call; `area` is NULL while it is not known how large it must be. */
static void address(const Plan *plan, const DeviceViews *views, char *area, bcfg_step *steps) {
    for (int i = 0; i < plan->count; i++) {
        const Reference *of = plan->steps[i].of;
        bcfg_step *step = &steps[i];
        *step = plan->steps[i].is;
        step->a = address_of(&of[A], views, area);
        step->b = address_of(&of[B], views, area);
        step->c = address_of(&of[C], views, area);
        step->values = address_of(&of[VALUES], views, area);
        step->pivots = address_of(&of[PIVOTS], views, area);
        step->info = address_of(&of[INFO], views, area);
        step->a_pointers = (void *)address_of(&of[A_POINTERS], views, area);
        step->b_pointers = (void *)address_of(&of[B_POINTERS], views, area);
        if (area != NULL) step->workspace = area + plan->area;
        step->workspace_bytes = plan->steps[i].is.workspace_bytes;
    }
}

/* What is done with each step: its sizes are asked for, or it is put on the stream. */
typedef int (*Doing)(const Planned *planned, bcfg_handle *handle, bcfg_step *step,
                     const char **function);

static int ask(const Planned *planned, bcfg_handle *handle, bcfg_step *step,
               const char **function) {
    return planned->solver->sizes(planned->library, handle, step, &step->workspace_bytes,
                                  &step->host_bytes, function);
}

static int compute(const Planned *planned, bcfg_handle *handle, bcfg_step *step,
                   const char **function) {
    return planned->solver->compute(planned->library, handle, step, function);
}

/* Does it for all steps, each with the handle of its library. */
static bcfg_outcome each(const Plan *plan, const DeviceViews *views, bcfg_step *steps, Doing doing,
                         bcfg_fault *fault) {
    bcfg_outcome outcome = BCFG_DEVICE_OK;
    for (int i = 0; i < plan->count && outcome == BCFG_DEVICE_OK;) {
        const bcfg_device_library *library = plan->steps[i].library;
        bcfg_work work = {.library = library, .driver = plan->driver, .index = plan->index,
                          .synchronizes = views->synchronizes, .stream = views->arrays[0].stream,
                          .others = views->others, .other_count = views->other_count};
        bcfg_session session;
        outcome = bcfg_work_begin(&work, &session, fault);
        if (outcome != BCFG_DEVICE_OK) break;
        for (; i < plan->count && plan->steps[i].library == library && outcome == BCFG_DEVICE_OK;
             i++) {
            int status = doing(&plan->steps[i], session.handle, &steps[i], &fault->function);
            if (status != 0) outcome = bcfg_library_fault(library, fault->function, status, fault);
        }
        outcome = bcfg_work_end(&session, outcome, fault);
    }
    return outcome;
}

/* Asks once for what the steps of a plan need. */
static bcfg_outcome size(Plan *plan, const DeviceViews *views, bcfg_fault *fault) {
    bcfg_step steps[MOST_STEPS];
    bcfg_outcome outcome;
    address(plan, views, NULL, steps);
    Py_BEGIN_ALLOW_THREADS
    outcome = each(plan, views, steps, ask, fault);
    Py_END_ALLOW_THREADS
    if (outcome != BCFG_DEVICE_OK) return outcome;
    for (int i = 0; i < plan->count; i++) {
        bcfg_step *is = &plan->steps[i].is;
        is->workspace_bytes = steps[i].workspace_bytes;
        is->host_bytes = steps[i].host_bytes;
        if (is->workspace_bytes > plan->workspace_bytes)
            plan->workspace_bytes = is->workspace_bytes;
        if (is->host_bytes > plan->host_bytes) plan->host_bytes = is->host_bytes;
    }
    plan->is_sized = true;
    return BCFG_DEVICE_OK;
}

/* Memory until the call returns, by the library that owns the first array. New reference. */
static PyObject *make_area(const DeviceViews *views, size_t bytes, char **area) {
    if (bytes == 0) return Py_NewRef(Py_None);
    PyObject *shape = Py_BuildValue("(K)", (unsigned long long)bytes), *made = NULL;
    if (shape != NULL && views->arrays[0].exchange != NULL) {
        made = bcfg_device_make_like(views, "uint8", shape, area);
    } else if (shape != NULL) {
        const DeviceArray *first = &views->arrays[0];
        DeviceArray described;
        made = PyObject_CallFunction(bcfg_device_callbacks.make, "OOsii", first->object, shape,
                                     "uint8", first->kind, first->index);
        if (made != NULL && bcfg_view_device(made, &described) == 1) {
            *area = described.data;
            bcfg_release_view(&described);
        } else {
            Py_CLEAR(made);
        }
    }
    Py_XDECREF(shape);
    return made;
}

PyObject *bcfg_device_linalg(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
    (void)module;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "device_linalg: (plan, views)");
    Plan *plan = PyCapsule_GetPointer(arguments[0], capsule_name);
    const DeviceViews *views = plan != NULL ? bcfg_device_views_of(arguments[1]) : NULL;
    if (views == NULL) return NULL;
    bcfg_fault fault = {"", 0, ""};
    bcfg_outcome outcome = plan->is_sized ? BCFG_DEVICE_OK : size(plan, views, &fault);
    if (outcome != BCFG_DEVICE_OK) return bcfg_fault_object(outcome, &fault);
    char *area = NULL;
    PyObject *memory = make_area(views, plan->area + plan->workspace_bytes, &area);
    void *host = memory != NULL && plan->host_bytes > 0 ? malloc(plan->host_bytes) : NULL;
    if (memory == NULL || (plan->host_bytes > 0 && host == NULL)) {
        if (memory != NULL) PyErr_NoMemory();
        Py_XDECREF(memory);
        return NULL;
    }
    bcfg_step steps[MOST_STEPS];
    address(plan, views, area, steps);
    for (int i = 0; i < plan->count; i++) steps[i].host = host;
    Py_BEGIN_ALLOW_THREADS
    outcome = each(plan, views, steps, compute, &fault);
    Py_END_ALLOW_THREADS
    free(host);
    Py_DECREF(memory);
    return bcfg_fault_object(outcome, &fault);
}
