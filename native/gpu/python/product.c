/* Products of arrays on devices: checked, given to a library on their stream, and returned at once. */
#include "python/arrays.h"
#include "gpu/python/call.h"

#define FLAG(name, NAME, kind, choices) FLAG_##NAME,
enum {
#include "backendcfg_flags.inc"
};
#undef FLAG

static const DeviceOperation operations[] = {
    {"matmul", 0, {"a", "b", NULL, "out"}},
    {"bmm", 3, {"input", "mat2", NULL, "out"}},
    {"addmm", 2, {"mat1", "mat2", "input", "out"}},
    {"baddbmm", 3, {"batch1", "batch2", "input", "out"}},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* Replaces an argument by an array that was made from it. Steals the reference. */
static int replace(DeviceCall *call, int argument, PyObject *made) {
    if (made == NULL) return -1;
    if (call->viewed[argument]) bcfg_release_view(&call->arrays[argument]);
    call->viewed[argument] = false;
    Py_XSETREF(call->owned[argument], made);
    int status = bcfg_view_device(made, &call->arrays[argument]);
    call->viewed[argument] = status == 1;
    if (status == 0) PyErr_SetString(PyExc_TypeError, "an array was made that is on no device");
    return status == 1 ? 0 : -1;
}

static PyObject *shape_of(const DeviceCall *call) {
    PyObject *shape = PyTuple_New(call->dimensions);
    for (int32_t d = 0; shape != NULL && d < call->dimensions; d++) {
        PyObject *size = PyLong_FromLongLong(call->shape[d]);
        if (size == NULL) Py_CLEAR(shape);
        else PyTuple_SET_ITEM(shape, d, size);
    }
    return shape;
}

/* Memory for the result, by the library that owns the operands. */
static int make_result(DeviceCall *call) {
    const DeviceArray *like = &call->arrays[DEVICE_A];
    if (like->exchange != NULL) {
        if (call->viewed[DEVICE_OUT]) bcfg_release_view(&call->arrays[DEVICE_OUT]);
        call->viewed[DEVICE_OUT] = false;
        PyObject *made = bcfg_make_by_exchange(like, call->dimensions, call->shape,
                                               &call->arrays[DEVICE_OUT]);
        if (made == NULL) return -1;
        Py_XSETREF(call->owned[DEVICE_OUT], made);
        call->viewed[DEVICE_OUT] = true;
        return 0;
    }
    if (bcfg_need(bcfg_device_callbacks.make, "make") == NULL) return -1;
    PyObject *shape = shape_of(call);
    if (shape == NULL) return -1;
    PyObject *made = PyObject_CallFunction(bcfg_device_callbacks.make, "OOsii", like->object, shape,
                                           bcfg_device_element(like->element), like->kind,
                                           like->index);
    Py_DECREF(shape);
    return replace(call, DEVICE_OUT, made);
}

static int copy(const DeviceCall *call, PyObject *target, PyObject *source) {
    if (bcfg_need(bcfg_device_callbacks.copy, "copy") == NULL) return -1;
    PyObject *done = PyObject_CallFunction(bcfg_device_callbacks.copy, "sOO", call->operation->name,
                                           target, source);
    Py_XDECREF(done);
    return done != NULL ? 0 : -1;
}

/* The recipe of a snapshot for this call; borrowed, NULL with an exception set. */
static const bcfg_recipe *find_recipe(const DeviceCall *call, const bcfg_snapshot *snapshot) {
    const DeviceArray *a = &call->arrays[DEVICE_A];
    const bcfg_recipe *recipe = bcfg_recipe_of(snapshot, a->kind, a->index, a->element);
    if (recipe != NULL) return recipe;
    if (bcfg_need(bcfg_device_callbacks.recipe, "recipe") == NULL) return NULL;
    PyObject *address = PyObject_CallFunction(
        bcfg_device_callbacks.recipe, "sNiis", call->operation->name,
        PyLong_FromVoidPtr((void *)snapshot), a->kind, a->index, bcfg_device_element(a->element));
    if (address == NULL) return NULL;
    recipe = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    if (PyErr_Occurred()) return NULL;
    if (!bcfg_recipe_known(recipe)) {
        PyErr_SetString(PyExc_RuntimeError, "recipe returned no recipe");
        return NULL;
    }
    bcfg_recipe_keep(snapshot, a->kind, a->index, a->element, recipe);
    return recipe;
}

/* Operands and result as the core sees them, and the calls that they become. Where BLAS cannot read
 * an array as it lies, its library copies it. */
static int plan_of(DeviceCall *call, bcfg_gemm_plan *plan) {
    bcfg_product *p = &call->product;
    for (int tries = 0;; tries++) {
        p->a = bcfg_device_operand(call, DEVICE_A, call->a_strides, call->has_rows, true);
        p->b = bcfg_device_operand(call, DEVICE_B, call->b_strides, true, call->has_columns);
        p->c = bcfg_device_operand(call, DEVICE_OUT, call->c_strides, call->has_rows,
                                   call->has_columns);
        char which = bcfg_gemm_plan_of(p, plan);
        if (which == 0) return 0;
        if (tries == 3) {
            PyErr_SetString(PyExc_RuntimeError, "a copy is not dense");
            return -1;
        }
        if (which == 'c') {
            if (make_result(call) < 0) return -1;
            continue;
        }
        int argument = which == 'a' ? DEVICE_A : DEVICE_B;
        if (bcfg_need(bcfg_device_callbacks.dense, "dense") == NULL) return -1;
        PyObject *dense = PyObject_CallFunction(
            bcfg_device_callbacks.dense, "ssO", call->operation->name,
            call->operation->arguments[argument], call->arrays[argument].object);
        if (replace(call, argument, dense) < 0) return -1;
    }
}

static int failed(const DeviceCall *call, const bcfg_recipe *recipe, bcfg_outcome outcome,
                  const bcfg_fault *fault) {
    if (outcome == BCFG_DEVICE_MEMORY) {
        PyErr_NoMemory();
        return -1;
    }
    if (outcome == BCFG_DEVICE_FORKED) return bcfg_device_refused(call, "forked", "");
    if (bcfg_need(bcfg_device_callbacks.failed, "failed") == NULL) return -1;
    PyObject *done = PyObject_CallFunction(
        bcfg_device_callbacks.failed, "ss(sis)(LLL)s", call->operation->name,
        bcfg_device_kind_name(recipe->is.library->kind), fault->function, fault->status,
        fault->name, (long long)call->product.m, (long long)call->product.n,
        (long long)call->product.k, bcfg_device_element(call->product.element));
    if (done != NULL) PyErr_SetString(PyExc_RuntimeError, "failed did not raise");
    Py_XDECREF(done);
    return -1;
}

/* Streams of the arguments other than the one that is computed on, each once. */
static int other_streams(const DeviceCall *call, void *stream, void **others) {
    int count = 0;
    for (int i = 0; i < DEVICE_ARGUMENTS; i++) {
        if (!call->viewed[i] || call->arrays[i].stream == stream) continue;
        bool seen = false;
        for (int j = 0; j < count; j++) seen = seen || others[j] == call->arrays[i].stream;
        if (!seen) others[count++] = call->arrays[i].stream;
    }
    return count;
}

/* Puts the remaining calls of a plan on the stream. `goes_on`: another library follows where this
 * one has no algorithm. */
static bcfg_outcome run(const DeviceCall *call, const bcfg_recipe *recipe, bcfg_gemm_plan *plan,
                        const double beta[2], bool goes_on, bcfg_fault *fault) {
    const DeviceArray *a = &call->arrays[DEVICE_A];
    bcfg_allocator allocator = bcfg_allocator_of(a);
    bcfg_lease lease;
    void *others[DEVICE_ARGUMENTS];
    bcfg_work work = {.library = recipe->is.library, .driver = recipe->is.driver,
                      .index = a->index, .stream = a->stream, .others = others};
    work.other_count = other_streams(call, a->stream, others);
    for (int i = 0; i < DEVICE_ARGUMENTS; i++)
        work.synchronizes = work.synchronizes || (call->viewed[i] && call->arrays[i].synchronizes);
    bcfg_outcome outcome;
    /* Borrowing may wait for the device, where a host function on a stream may need the GIL. */
    Py_BEGIN_ALLOW_THREADS
    outcome = bcfg_lease_begin(recipe, a->index, a->stream, &allocator, &lease, fault);
    if (outcome == BCFG_DEVICE_OK) {
        outcome = bcfg_work_gather(&work, fault);
        if (outcome == BCFG_DEVICE_OK)
            outcome = bcfg_gemm_run_plan(&lease, plan, call->alpha, beta, fault);
        if (outcome != BCFG_DEVICE_UNSUPPORTED || !goes_on)
            outcome = bcfg_work_scatter(&work, outcome, fault);
        bcfg_lease_end(&lease);
    }
    Py_END_ALLOW_THREADS
    return outcome;
}

/* The recipe whose library can add the vector in the same call, under PyTorch's conditions; else
 * NULL. */
static const bcfg_recipe *adder_of(const DeviceCall *call, const bcfg_recipe *recipe,
                                   const bcfg_gemm_plan *plan) {
    const bcfg_recipe *adder = recipe->is.adder != NULL ? recipe->is.adder : recipe;
    const DeviceArray *added = &call->arrays[DEVICE_ADDED];
    const bcfg_product *p = &call->product;
    bool is_complex = p->element == BCFG_COMPLEX64 || p->element == BCFG_COMPLEX128;
    bool fits = call->operation->dimensions == 2 && added->dimensions == 1 &&
                added->shape[0] == p->n && added->strides[0] == bcfg_element_size[p->element] &&
                call->beta[0] == 1 && call->beta[1] == 0 && p->n > 1 && p->k > 1 && !is_complex;
    bool is_dense = plan->by_rows && (p->m == 1 || plan->call.c_leading == p->n);
    return fits && is_dense && bcfg_can_add(adder) ? adder : NULL;
}

/* Multiplies and adds; *recipe becomes the one that served. */
static int serve(DeviceCall *call, const bcfg_recipe **recipe, bcfg_gemm_plan *plan) {
    static const double nothing[2] = {0, 0};
    PyObject *target = call->arrays[DEVICE_OUT].object, *added = call->arrays[DEVICE_ADDED].object;
    bool adds = call->viewed[DEVICE_ADDED] && (call->beta[0] != 0 || call->beta[1] != 0);
    const bcfg_recipe *adder = adds ? adder_of(call, *recipe, plan) : NULL;
    bcfg_outcome outcome;
    bcfg_fault fault;
    if (adder != NULL) {
        plan->call.bias = call->arrays[DEVICE_ADDED].data;
        outcome = run(call, adder, plan, nothing, true, &fault);
        plan->call.bias = NULL;
        if (outcome != BCFG_DEVICE_UNSUPPORTED) {
            *recipe = adder;
            return outcome == BCFG_DEVICE_OK ? 0 : failed(call, adder, outcome, &fault);
        }
    }
    if (adds && target != added && copy(call, target, added) < 0) return -1;
    for (;;) {
        const bcfg_recipe *next = (*recipe)->is.fallback;
        outcome = run(call, *recipe, plan, adds ? call->beta : nothing, next != NULL, &fault);
        if (outcome == BCFG_DEVICE_OK) return 0;
        if (outcome != BCFG_DEVICE_UNSUPPORTED || next == NULL) break;
        *recipe = next;
    }
    return failed(call, *recipe, outcome, &fault);
}

static bool is_empty(const DeviceCall *call) {
    for (int32_t d = 0; d < call->dimensions; d++)
        if (call->shape[d] == 0) return true;
    return false;
}

/* Everything between the arguments, which fit, and the result, which is in `given` or `owned`. */
static int compute(DeviceCall *call, const bcfg_snapshot *snapshot) {
    const bcfg_recipe *recipe = find_recipe(call, snapshot);
    if (recipe == NULL) return -1;
    if (call->viewed[DEVICE_OUT]) {
        if (bcfg_device_fit_out(call) < 0) return -1;
        /* The view of a lazy conjugate or negative is a copy: compute into new memory and copy it
         * to `out`. */
        const DeviceArray *out = &call->arrays[DEVICE_OUT];
        if (out->lazy && !is_empty(call) && make_result(call) < 0) return -1;
    } else if (make_result(call) < 0) {
        return -1;
    }
    const char *provider = "", *reason = "empty";
    if (!is_empty(call)) {
        static const char *const reasons[] = {"first", "fastest", "able"};
        bcfg_gemm_plan plan;
        if (plan_of(call, &plan) < 0) return -1;
        PyObject *target = call->arrays[DEVICE_OUT].object;
        if (serve(call, &recipe, &plan) < 0) return -1;
        /* BLAS could not write `out` as it lies: copy the product there. */
        if (call->given[DEVICE_OUT] != Py_None && target != call->given[DEVICE_OUT] &&
            copy(call, call->given[DEVICE_OUT], target) < 0)
            return -1;
        if (bcfg_value(snapshot, FLAG_OPS_CHECK_FINITE) &&
            bcfg_need(bcfg_device_callbacks.finite, "finite") != NULL) {
            PyObject *done = PyObject_CallFunction(bcfg_device_callbacks.finite, "sO",
                                                   call->operation->name, target);
            Py_XDECREF(done);
        }
        if (PyErr_Occurred()) return -1;
        provider = bcfg_device_kind_name(recipe->is.library->kind);
        reason = reasons[recipe->is.reason];
    }
    return bcfg_tracing ? bcfg_trace_served(call->operation->name, provider, reason, &call->product,
                                            bcfg_device_element(call->product.element))
                        : 0;
}

/* alpha or beta: a number that the element can hold. */
static int take_factor(const DeviceCall *call, const char *name, PyObject *given, double *factor) {
    factor[0] = 1, factor[1] = 0;
    if (given == NULL) return 0;
    bool is_number = PyNumber_Check(given) && !PyBool_Check(given) && !PyUnicode_Check(given);
    Py_complex value = {0, 0};
    if (is_number) value = PyComplex_AsCComplex(given);
    /* Not every complex number is Python's: NumPy's complex64 and PyTorch's are not. */
    if (!is_number || PyErr_Occurred() ||
        ((PyComplex_Check(given) || value.imag != 0) && call->arrays[DEVICE_A].element != BCFG_COMPLEX64 &&
         call->arrays[DEVICE_A].element != BCFG_COMPLEX128)) {
        PyErr_Clear();
        PyObject *shown = PyUnicode_FromFormat("`%s` must be a number that %s can hold, not %R",
                                               name, bcfg_device_element(call->arrays[DEVICE_A].element),
                                               given);
        const char *text = shown == NULL ? NULL : PyUnicode_AsUTF8(shown);
        if (text != NULL) (void)bcfg_device_refused(call, "factor", text);
        Py_XDECREF(shown);
        return -1;
    }
    factor[0] = value.real, factor[1] = value.imag;
    return 0;
}

/* Views every argument: 1 when one of them is on a device, 0 when none is, -1 on error. */
static int take(DeviceCall *call) {
    bool any = false;
    for (int i = 0; i < DEVICE_ARGUMENTS; i++) {
        call->viewed[i] = false;
        call->owned[i] = NULL;
    }
    for (int i = 0; i < DEVICE_ARGUMENTS; i++) {
        if (call->given[i] == Py_None) continue;
        /* A NumPy array is on no device; asking it costs more than its product. */
        if (bcfg_array_api_ready && PyArray_Check(call->given[i])) continue;
        int status = bcfg_view_device(call->given[i], &call->arrays[i]);
        if (status < 0) {
            if (!PyErr_ExceptionMatches(PyExc_Exception) ||
                PyErr_ExceptionMatches(PyExc_MemoryError))
                return -1;
            PyObject *error = bcfg_take_exception(), *text = PyObject_Str(error);
            const char *said = text == NULL ? "" : PyUnicode_AsUTF8(text);
            PyObject *line = PyUnicode_FromFormat("`%s` cannot be read: %s",
                                                  call->operation->arguments[i], said);
            const char *detail = line == NULL ? NULL : PyUnicode_AsUTF8(line);
            if (detail != NULL) (void)bcfg_device_refused(call, "unreadable", detail);
            Py_XDECREF(line);
            Py_XDECREF(text);
            Py_XDECREF(error);
            return -1;
        }
        call->viewed[i] = status == 1;
        any = any || status == 1;
    }
    return any;
}

PyObject *bcfg_device_multiply(const char *name, PyObject *a, PyObject *b, PyObject *added,
                               PyObject *out, PyObject *alpha, PyObject *beta) {
    DeviceCall call;
    call.operation = NULL;
    for (int i = 0; i < OPERATIONS; i++)
        if (strcmp(operations[i].name, name) == 0) call.operation = &operations[i];
    if (call.operation == NULL) return PyErr_Format(PyExc_ValueError, "no operation %s", name);
    call.given[DEVICE_A] = a;
    call.given[DEVICE_B] = b;
    call.given[DEVICE_ADDED] = added;
    call.given[DEVICE_OUT] = out;
    int status = take(&call);
    if (status == 1) {
        const bcfg_snapshot *snapshot = bcfg_take_snapshot();
        status = snapshot == NULL || bcfg_device_fit(&call) < 0 ||
                         take_factor(&call, "alpha", alpha, call.alpha) < 0 ||
                         take_factor(&call, "beta", beta, call.beta) < 0
                     ? -1
                     : compute(&call, snapshot);
        if (status == 0) status = 1;
    }
    PyObject *result = NULL;
    if (status == 0) result = Py_NewRef(Py_NotImplemented);
    if (status == 1) result = Py_NewRef(out != Py_None ? out : call.owned[DEVICE_OUT]);
    for (int i = 0; i < DEVICE_ARGUMENTS; i++) {
        if (call.viewed[i]) bcfg_release_view(&call.arrays[i]);
        Py_XDECREF(call.owned[i]);
    }
    return result;
}
