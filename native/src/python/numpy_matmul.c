/* NumPy's matmul, and so `@`, by our own kernels.
 *
 * matmul's loop multiplies a stack of matrices; NumPy has checked shapes and types by then, and made
 * copies where the result would overlap an operand. So whatever ends in matmul gets ours: `@`, stacks,
 * `out`, casts, subclasses. A stack that does not lie evenly in memory comes in several calls.
 *
 * Small products, and those that BLAS computes by half the work, go on to NumPy's loop.
 */
#include "numpy_loops.h"

#include <fenv.h>
#include <string.h>

#include "../core/core.h"

/* Multiplications from which ours is faster than OpenBLAS, which computes a stack of small matrices on
 * one thread: those of two matrices of about 100 x 100. */
enum { LARGE = 1 << 20 };

/* Matrices times their own transposes, which BLAS computes by half the work (?SYRK). */
static bool are_squares(const bcfg_product *p) {
    bool alike = p->batch_shape[0] == 1 || p->a.batch_strides[0] == p->b.batch_strides[0];
    return alike && p->a.data == p->b.data && p->m == p->n && p->a.row_stride == p->b.column_stride &&
           p->a.column_stride == p->b.row_stride;
}

/* Whether ours should compute it, by what was measured. */
static bool pays(const bcfg_product *p) {
    double one = (double)p->m * (double)p->n * (double)p->k, all = one * (double)p->batch_shape[0];
    if (p->element == BCFG_FLOAT16) return all > 0; /* NumPy has no BLAS for it */
    return all >= LARGE && p->m > 1 && p->n > 1 && !(one >= LARGE && are_squares(p));
}

static bool is_nan(int32_t element, const char *at) {
    float narrow;
    double wide;
    uint16_t half;
    switch (element) {
    case BCFG_FLOAT32: memcpy(&narrow, at, sizeof narrow); return narrow != narrow;
    case BCFG_FLOAT64: memcpy(&wide, at, sizeof wide); return wide != wide;
    default: memcpy(&half, at, sizeof half); return (half & 0x7fff) > 0x7c00;
    }
}

static bool has_nan(const bcfg_product *p) {
    for (int64_t index = 0; index < p->batch_shape[0]; index++)
        for (int64_t i = 0; i < p->m; i++) {
            const char *row = (const char *)p->c.data + index * p->c.batch_strides[0] +
                              i * p->c.row_stride;
            for (int64_t j = 0; j < p->n; j++)
                if (is_nan(p->element, row + j * p->c.column_stride)) return true;
        }
    return false;
}

/* Computes by our kernels; false where they did not. Where columns fill no vector, these also multiply by
 * zeros that are stored nowhere, and infinity times zero is invalid: NumPy would warn of it. What is
 * invalid in the result leaves NaN there. */
static bool compute(const bcfg_product *product) {
    const int before = fetestexcept(FE_INVALID);
    if (bcfg_native_product(bcfg_current(), product, NULL, NULL) != BCFG_OK) return false;
    if (before == 0 && fetestexcept(FE_INVALID) != 0 && !has_nan(product))
        (void)feclearexcept(FE_INVALID);
    return true;
}

/* `dimensions`: how many products, m, k, n. `steps`, in bytes: from product to product for a, b, c, then
 * rows and columns of a, b, c. */
static void run(bcfg_numpy_loop *loop, int32_t element, char **data, const npy_intp *dimensions,
                const npy_intp *steps, void *own) {
    if (bcfg_numpy_only_asked()) return;
    int64_t count = dimensions[0], strides[3] = {steps[0], steps[1], steps[2]};
    bcfg_product product = {.element = element, .batch_dimensions = 1, .batch_shape = &count,
                            .m = dimensions[1], .k = dimensions[2], .n = dimensions[3],
                            .a = {data[0], steps[3], steps[4], &strides[0]},
                            .b = {data[1], steps[5], steps[6], &strides[1]},
                            .c = {data[2], steps[7], steps[8], &strides[2]}};
    if (atomic_load_explicit(&loop->wanted, memory_order_relaxed) && pays(&product) &&
        compute(&product))
        return;
    bcfg_numpy_go_on(loop, data, dimensions, steps, own);
}

static bcfg_numpy_loop loops[BCFG_ELEMENTS];

#define LOOP(name, element)                                                                        \
    static void name(char **data, const npy_intp *dimensions, const npy_intp *steps, void *own) {  \
        run(&loops[element], element, data, dimensions, steps, own);                               \
    }
LOOP(multiply_half, BCFG_FLOAT16)
LOOP(multiply_float, BCFG_FLOAT32)
LOOP(multiply_double, BCFG_FLOAT64)
#undef LOOP

#define MATMUL(type, function) {.ufunc = "matmul", .inputs = 2, .types = {type, type, type}, .ours = function}
static bcfg_numpy_loop loops[BCFG_ELEMENTS] = {
    [BCFG_FLOAT16] = MATMUL(NPY_HALF, multiply_half),
    [BCFG_FLOAT32] = MATMUL(NPY_FLOAT, multiply_float),
    [BCFG_FLOAT64] = MATMUL(NPY_DOUBLE, multiply_double),
};
#undef MATMUL

PyObject *bcfg_numpy_matmul(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    int32_t element = BCFG_ELEMENTS;
    if ((given == 1 || (given == 2 && PyBool_Check(arguments[1]))) && PyUnicode_Check(arguments[0]))
        for (element = 0; element < BCFG_ELEMENTS; element++)
            if (loops[element].ours != NULL && PyUnicode_CompareWithASCIIString(
                                                   arguments[0], bcfg_element_names[element]) == 0)
                break;
    if (element == BCFG_ELEMENTS) {
        PyErr_SetString(PyExc_TypeError, "numpy_matmul takes \"float16\", \"float32\" or \"float64\", "
                                         "and at most one bool");
        return NULL;
    }
    PyObject *ready = bcfg_set_array_api(module, NULL);
    if (ready == NULL) return NULL;
    Py_DECREF(ready);
    bcfg_numpy_loop *loop = &loops[element];
    if (given == 1 || arguments[1] == Py_False) {
        const int found = given == 1 ? bcfg_numpy_serves(loop) : bcfg_numpy_give_back(loop);
        if (found < 0) return NULL;
        return PyBool_FromLong(given == 1 && found > 0);
    }
    const int found = bcfg_numpy_serve(loop);
    if (found < 0) return NULL;
    if (found > 0) Py_RETURN_TRUE;
    return PyErr_Format(PyExc_RuntimeError,
                        "numpy.matmul of %s does not come to the loop that NumPy's C API replaces",
                        bcfg_element_names[element]);
}
