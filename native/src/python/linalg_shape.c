/* The arrays of a call as a problem: types, shapes and strides, checked before anything is made. */
#include "linalg_call.h"

static int element_of(PyArrayObject *array) {
    int element = bcfg_element_of(PyArray_TYPE(array));
    return element <= BCFG_COMPLEX128 ? element : -1;
}

static int take_array(LinearCall *call, int at, int least, PyArrayObject **taken) {
    PyArrayObject *array = (PyArrayObject *)call->given[at];
    const char *name = call->spec->arguments[at];
    int element = element_of(array);
    if (element < 0) return bcfg_linear_refused(call, "type", name);
    if (at > 0 && element != call->problem.element)
        return bcfg_linear_refused(call, "types", name);
    if (PyArray_NDIM(array) < least)
        return bcfg_linear_refused(call, least == 2 ? "matrix" : "dimensions", name);
    call->problem.element = element;
    *taken = bcfg_converted(array, PyArray_TYPE(array));
    return *taken == NULL ? -1 : 0;
}

static bool is_vector(PyArrayObject *a, PyArrayObject *b) {
    int dimensions = PyArray_NDIM(b);
    return dimensions == 1 || (PyArray_NDIM(a) - 1 == dimensions &&
                               PyArray_CompareLists(PyArray_DIMS(a), PyArray_DIMS(b), dimensions));
}

static int take_right_side(LinearCall *call, int at) {
    bcfg_problem *p = &call->problem;
    bool may_be_vector = p->operation == BCFG_SOLVE;
    if (take_array(call, at, may_be_vector ? 1 : 2, &call->b) < 0) return -1;
    const char *name = call->spec->arguments[at];
    int dimensions = PyArray_NDIM(call->b);
    const npy_intp *shape = PyArray_DIMS(call->b);
    call->is_vector = may_be_vector && is_vector(call->a, call->b);
    if (call->is_vector && p->from_right) return bcfg_linear_refused(call, "vector-right", name);
    int64_t rows = shape[dimensions - (call->is_vector ? 1 : 2)];
    int64_t columns = call->is_vector ? 1 : shape[dimensions - 1];
    if ((p->from_right ? columns : rows) != p->n)
        return bcfg_linear_refused(call, p->from_right ? "columns" : "rows", name);
    p->k = p->from_right ? rows : columns;
    if (!bcfg_join_shape(call->b, call->is_vector ? 1 : 2, call->shape, &p->dimensions))
        return bcfg_linear_refused(call, "batch", name);
    return 0;
}

static int take_pivots(LinearCall *call, int at) {
    PyArrayObject *given = (PyArrayObject *)call->given[at];
    int dimensions = PyArray_NDIM(call->a) - 1;
    if (PyArray_TYPE(given) != NPY_INT32) return bcfg_linear_refused(call, "pivot-type", "pivots");
    if (PyArray_NDIM(given) != dimensions ||
        !PyArray_CompareLists(PyArray_DIMS(given), PyArray_DIMS(call->a), dimensions))
        return bcfg_linear_refused(call, "pivot-shape", "pivots");
    call->pivots = bcfg_converted(given, NPY_INT32);
    return call->pivots == NULL ? -1 : 0;
}

static bool must_be_square(int operation) {
    return operation != BCFG_LU_FACTOR && operation != BCFG_LU && operation != BCFG_QR &&
           operation != BCFG_SVD && operation != BCFG_SVDVALS;
}

int bcfg_linear_take(LinearCall *call) {
    bcfg_problem *p = &call->problem;
    /* torch.cholesky_solve(B, L) has the matrix behind the right-hand side. */
    int first = p->operation == BCFG_CHOLESKY_SOLVE ? 1 : 0;
    p->element = element_of((PyArrayObject *)call->given[0]);
    if (take_array(call, first, 2, &call->a) < 0) return -1;
    int dimensions = PyArray_NDIM(call->a);
    p->m = PyArray_DIM(call->a, dimensions - 2);
    p->n = PyArray_DIM(call->a, dimensions - 1);
    if (must_be_square(p->operation) && p->m != p->n)
        return bcfg_linear_refused(call, "square", call->spec->arguments[first]);
    (void)bcfg_join_shape(call->a, 2, call->shape, &p->dimensions);
    if (p->operation == BCFG_LU_SOLVE && take_pivots(call, 1) < 0) return -1;
    if (p->operation == BCFG_CHOLESKY_SOLVE && take_right_side(call, 0) < 0) return -1;
    if (p->operation == BCFG_LU_SOLVE && take_right_side(call, 2) < 0) return -1;
    if (p->operation == BCFG_SOLVE && take_right_side(call, 1) < 0) return -1;
    p->a = bcfg_operand_of(call->a, p->dimensions, call->a_strides, true, true);
    if (call->b != NULL)
        p->b = bcfg_operand_of(call->b, p->dimensions, call->b_strides, true, !call->is_vector);
    if (call->pivots != NULL)
        p->pivots = bcfg_operand_of(call->pivots, p->dimensions, call->pivot_strides, true, false);
    p->shape = call->shape;
    p->matrices = 1;
    for (int d = 0; d < p->dimensions; d++)
        if (__builtin_mul_overflow(p->matrices, call->shape[d], &p->matrices))
            return bcfg_linear_refused(call, "large", "");
    int64_t size = bcfg_element_size[p->element];
    p->by_rows = !(p->a.row_stride == size && p->a.column_stride != size);
    return 0;
}
