/* Allocates the results of a call, and makes of them what the caller gets. */
#include "linalg_call.h"

/* A stack of `inner` (0, 1 or 2) more dimensions; matrices by columns unless `by_rows`. */
static PyArrayObject *stacked(LinearCall *call, int type, int inner, int64_t m, int64_t n,
                              bool by_rows, bcfg_result *result) {
    npy_intp shape[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    int at = call->problem.dimensions;
    for (int d = 0; d < at; d++) shape[d] = call->shape[d];
    if (inner > 0) shape[at] = m;
    if (inner > 1) shape[at + 1] = n;
    PyArrayObject *array;
    int64_t size = type == NPY_INT32 ? 4 : type == NPY_FLOAT ? 4 : type == NPY_CDOUBLE ? 16 : 8;
    if (inner == 2 && !by_rows && m > 1 && n > 1) {
        int64_t step = (int64_t)((uint64_t)m * (uint64_t)n * (uint64_t)size);
        strides[at] = size;
        strides[at + 1] = m * size;
        for (int d = at - 1; d >= 0; d--) {
            strides[d] = step;
            step = (int64_t)((uint64_t)step * (uint64_t)shape[d]); /* NumPy refuses too many */
        }
        array = call->problem.matrices == 0
                    ? (PyArrayObject *)PyArray_SimpleNew(at + inner, shape, type)
                    : (PyArrayObject *)PyArray_New(&PyArray_Type, at + inner, shape, type, strides,
                                                   NULL, 0, 0, NULL);
    } else {
        array = (PyArrayObject *)PyArray_SimpleNew(at + inner, shape, type);
    }
    if (array != NULL && result != NULL)
        *result = (bcfg_result){PyArray_DATA(array),
                                (int64_t)((uint64_t)size * (uint64_t)(inner > 0 ? m : 1) *
                                          (uint64_t)(inner > 1 ? n : 1))};
    return array;
}

static int keep(LinearCall *call, PyArrayObject *array) {
    if (array == NULL) return -1;
    call->results[call->result_count++] = array;
    return 0;
}

static int matrix(LinearCall *call, int64_t m, int64_t n, bool by_rows, bcfg_result *result) {
    int type = bcfg_element_types[call->problem.element];
    return keep(call, stacked(call, type, 2, m, n, by_rows, result));
}

static int values(LinearCall *call, int64_t count) {
    int type = bcfg_element_types[call->problem.element % 2];
    return keep(call, stacked(call, type, 1, count, 0, true, &call->problem.values));
}

static int solution(LinearCall *call) {
    bcfg_problem *p = &call->problem;
    if (call->is_vector) {
        int type = bcfg_element_types[p->element];
        return keep(call, stacked(call, type, 1, p->n, 0, true, &p->x));
    }
    if (p->from_right) return matrix(call, p->k, p->n, true, &p->x);
    return matrix(call, p->n, p->k, false, &p->x);
}

static int orthogonal(LinearCall *call) {
    bcfg_problem *p = &call->problem;
    int64_t least = p->m < p->n ? p->m : p->n, inner = p->mode == 'A' ? p->m : least;
    if (p->mode == 'r') {
        npy_intp nothing[1] = {0};
        int type = bcfg_element_types[p->element];
        if (keep(call, (PyArrayObject *)PyArray_SimpleNew(1, nothing, type)) < 0) return -1;
    } else if (matrix(call, p->m, inner, false, &p->x) < 0) {
        return -1;
    }
    return matrix(call, inner, p->n, false, &p->y);
}

static int singular_vectors(LinearCall *call) {
    bcfg_problem *p = &call->problem;
    int64_t least = p->m < p->n ? p->m : p->n, m = p->m, n = p->n;
    bool whole = p->mode == 'A';
    if (matrix(call, m, whole ? m : least, p->by_rows, &p->x) < 0) return -1;
    if (values(call, least) < 0) return -1;
    return matrix(call, whole ? n : least, n, p->by_rows, &p->y);
}

static int factors(LinearCall *call) {
    bcfg_problem *p = &call->problem;
    int64_t least = p->m < p->n ? p->m : p->n;
    if (matrix(call, p->m, p->n, false, &p->x) < 0) return -1;
    return keep(call, stacked(call, NPY_INT32, 1, least, 0, true, &p->out_pivots));
}

static int of_operation(LinearCall *call) {
    bcfg_problem *p = &call->problem;
    int64_t least = p->m < p->n ? p->m : p->n;
    switch (p->operation) {
    case BCFG_CHOLESKY_SOLVE:
    case BCFG_LU_SOLVE:
    case BCFG_SOLVE: return solution(call);
    case BCFG_LU_FACTOR: return factors(call);
    case BCFG_LU:
        if (matrix(call, p->m, p->m, false, &p->x) < 0) return -1;
        if (matrix(call, p->m, least, false, &p->y) < 0) return -1;
        return matrix(call, least, p->n, false, &p->z);
    case BCFG_QR: return orthogonal(call);
    case BCFG_EIGH:
        if (values(call, p->n) < 0) return -1;
        /* A real symmetric matrix that lies by rows is its own transpose: decompose it as it lies. */
        return matrix(call, p->n, p->n, false, &p->x);
    case BCFG_EIGVALSH: return values(call, p->n);
    case BCFG_SVD: return singular_vectors(call);
    case BCFG_SVDVALS: return values(call, least);
    default: return matrix(call, p->n, p->n, p->by_rows, &p->x);
    }
}

static bool gives_info(const LinearCall *call) {
    size_t length = strlen(call->spec->name);
    return length > 3 && strcmp(call->spec->name + length - 3, "_ex") == 0;
}

int bcfg_linear_allocate(LinearCall *call) {
    bcfg_problem *p = &call->problem;
    if (of_operation(call) < 0) return -1;
    p->info = &call->one_info;
    if (p->dimensions == 0 && !gives_info(call)) return 0;
    call->info = stacked(call, NPY_INT32, 0, 0, 0, true, NULL);
    if (call->info == NULL) return -1;
    p->info = PyArray_DATA(call->info);
    return 0;
}

/* Raises for the first matrix that could not be served, by way of Python. */
static int failed(LinearCall *call) {
    bcfg_problem *p = &call->problem;
    int64_t at = 0;
    while (at < p->matrices && p->info[at] == 0) at++;
    if (at == p->matrices) return 0;
    if (p->info[at] < BCFG_NOT_FINITE_INFO) {
        PyErr_Format(PyExc_SystemError, "%s: LAPACK refused its argument %d", call->spec->name,
                     -p->info[at]);
        return -1;
    }
    if (!call->raises) return 0;
    PyObject *stack = PyTuple_New(p->dimensions);
    for (int d = 0; stack != NULL && d < p->dimensions; d++) {
        PyObject *count = PyLong_FromLongLong(call->shape[d]);
        if (count == NULL) Py_CLEAR(stack);
        else PyTuple_SET_ITEM(stack, d, count);
    }
    if (stack == NULL) return -1;
    PyObject *done =
        PyObject_CallFunction(bcfg_callbacks.linalg_failed, "siLON", call->spec->name, p->info[at],
                              (long long)(p->dimensions > 0 ? at : -1),
                              call->given[p->operation == BCFG_CHOLESKY_SOLVE ? 1 : 0], stack);
    if (done != NULL) PyErr_Format(PyExc_RuntimeError, "failed did not raise");
    Py_XDECREF(done);
    return -1;
}

/* Refuses results that are not finite. A function that returns `info` marks failed matrices there. */
static int check_finite(const LinearCall *call) {
    for (int i = 0; i < call->result_count; i++) {
        PyArrayObject *array = call->results[i];
        int element = bcfg_element_of(PyArray_TYPE(array));
        /* Results are dense, by rows or by columns: one long row either way. */
        if (element >= 0 && bcfg_not_finite(element, PyArray_DATA(array), 0, 1,
                                           PyArray_SIZE(array)) >= 0)
            return bcfg_linear_refused(call, "not-finite", "");
    }
    return 0;
}

PyObject *bcfg_linear_returned(LinearCall *call) {
    if (failed(call) < 0) return NULL;
    if (call->finite && !gives_info(call) && check_finite(call) < 0) return NULL;
    int count = call->result_count + (call->info != NULL && gives_info(call));
    if (count == 1) {
        PyObject *only = (PyObject *)call->results[0];
        call->results[0] = NULL;
        return only;
    }
    PyObject *tuple = PyTuple_New(count);
    if (tuple == NULL) return NULL;
    for (int i = 0; i < count; i++) {
        PyObject *item = (PyObject *)(i < call->result_count ? call->results[i] : call->info);
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(item));
    }
    if (bcfg_callbacks.linalg_result == NULL) return tuple;
    return PyObject_CallFunction(bcfg_callbacks.linalg_result, "sN", call->spec->name, tuple);
}
