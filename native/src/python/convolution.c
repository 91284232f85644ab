/* convolve(...) and unfold(...): what ops.conv2d computes by, over arrays that it has checked.
 *
 * What would read or write outside of an array is checked here again. */
#include "arrays.h"
#include "convolution/convolution.h"

static PyArrayObject *array_of(PyObject *given, int type, int dimensions, const char *name) {
    PyArrayObject *array = (PyArrayObject *)given;
    if (!PyArray_Check(given) || PyArray_TYPE(array) != type ||
        PyArray_NDIM(array) != dimensions || !PyArray_ISBEHAVED_RO(array)) {
        PyErr_Format(PyExc_ValueError, "%s must be a plain array of %d dimensions and the input's "
                     "type", name, dimensions);
        return NULL;
    }
    return array;
}

static bool dense(PyArrayObject *array, const char *name, bool written) {
    if (PyArray_IS_C_CONTIGUOUS(array) && (!written || PyArray_ISWRITEABLE(array))) return true;
    PyErr_Format(PyExc_ValueError, "%s must be dense%s", name, written ? " and writeable" : "");
    return false;
}

/* The input's strides in elements; its last dimension is dense. */
static bool take_input(bcfg_convolution *call, PyObject *given) {
    if (!PyArray_Check(given) || (PyArray_TYPE((PyArrayObject *)given) != NPY_FLOAT &&
                                  PyArray_TYPE((PyArrayObject *)given) != NPY_DOUBLE)) {
        PyErr_SetString(PyExc_ValueError, "input must be an array of float32 or float64");
        return false;
    }
    int type = PyArray_TYPE((PyArrayObject *)given);
    PyArrayObject *input = array_of(given, type, 4, "input");
    if (input == NULL) return false;
    npy_intp size = PyArray_ITEMSIZE(input);
    const npy_intp *shape = PyArray_DIMS(input), *strides = PyArray_STRIDES(input);
    bool is_dense = PyArray_SIZE(input) == 0 || shape[3] <= 1 || strides[3] == size;
    for (int d = 0; d < 3; d++) is_dense = is_dense && strides[d] % size == 0;
    if (!is_dense || shape[1] % call->groups != 0) {
        PyErr_SetString(PyExc_ValueError, "input must have dense rows and whole groups");
        return false;
    }
    call->element = type == NPY_FLOAT ? BCFG_FLOAT32 : BCFG_FLOAT64;
    call->input = PyArray_BYTES(input);
    call->batch = shape[0];
    call->channels = shape[1] / call->groups;
    call->height = shape[2];
    call->width = shape[3];
    call->batch_stride = strides[0] / size;
    call->channel_stride = strides[1] / size;
    call->row_stride = strides[2] / size;
    return true;
}

/* Numbers that are left to the caller are bounded, so that no product of a few overflows. */
static bool bounded(const int64_t *values, int count, int64_t least) {
    for (int i = 0; i < count; i++)
        if (values[i] < least || values[i] > (int64_t)1 << 40) {
            PyErr_SetString(PyExc_ValueError, "a size is out of range");
            return false;
        }
    return true;
}

static bool take_window(bcfg_convolution *call) {
    int64_t area[] = {call->kernel_height, call->kernel_width, call->out_height, call->out_width};
    return bounded(area, 4, 1) && bounded(call->stride, 2, 1) && bounded(call->dilation, 2, 1) &&
           bounded(call->padding, 2, 0) && bounded(&call->groups, 1, 1);
}

/* Where PyArg_ParseTuple puts "(nn)(nn)(nn)n". */
_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "sizes are parsed where they belong");
#define WINDOW(call)                                                                               \
    &(call).stride[0], &(call).stride[1], &(call).padding[0], &(call).padding[1],                  \
        &(call).dilation[0], &(call).dilation[1], &(call).groups

PyObject *bcfg_convolve_call(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *input, *weight, *bias, *out;
    bcfg_convolution call = {0};
    int threads;
    if (!PyArg_ParseTuple(arguments, "OOOO(nn)(nn)(nn)ni:convolve", &input, &weight, &bias, &out,
                          WINDOW(call), &threads))
        return NULL;
    if (!bounded(&call.groups, 1, 1) || !take_input(&call, input)) return NULL;
    int type = PyArray_TYPE((PyArrayObject *)input);
    PyArrayObject *w = array_of(weight, type, 4, "weight"), *o = array_of(out, type, 4, "out");
    if (w == NULL || o == NULL || !dense(w, "weight", false) || !dense(o, "out", true))
        return NULL;
    const npy_intp *shape = PyArray_DIMS(w), *result = PyArray_DIMS(o);
    call.kernel_height = shape[2], call.kernel_width = shape[3];
    call.out_height = result[2], call.out_width = result[3];
    call.outputs = shape[0] / call.groups;
    call.weight = PyArray_BYTES(w);
    call.out = PyArray_BYTES(o);
    if (!take_window(&call)) return NULL;
    if (bias != Py_None) {
        PyArrayObject *b = array_of(bias, type, 1, "bias");
        if (b == NULL || !dense(b, "bias", false)) return NULL;
        if (PyArray_DIM(b, 0) != shape[0]) shape = NULL;
        call.bias = PyArray_BYTES(b);
    }
    if (shape == NULL || shape[0] % call.groups != 0 || shape[1] != call.channels ||
        result[0] != call.batch || result[1] != shape[0]) {
        PyErr_SetString(PyExc_ValueError, "the shapes do not fit each other");
        return NULL;
    }
    bcfg_status status;
    Py_BEGIN_ALLOW_THREADS
    status = bcfg_convolve(&call, bcfg_kernels_for(call.element, false), threads);
    Py_END_ALLOW_THREADS
    if (status != BCFG_OK) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

PyObject *bcfg_unfold_call(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *input, *columns;
    bcfg_convolution call = {0};
    Py_ssize_t image, group, first;
    int threads;
    if (!PyArg_ParseTuple(arguments, "OO(nn)(nn)(nn)(nn)(nn)n(nnn)i:unfold", &input, &columns,
                          &call.kernel_height, &call.kernel_width, &call.out_height,
                          &call.out_width, WINDOW(call), &image, &group, &first, &threads))
        return NULL;
    if (!take_window(&call) || !take_input(&call, input)) return NULL;
    PyArrayObject *c = array_of(columns, PyArray_TYPE((PyArrayObject *)input), 2, "columns");
    if (c == NULL || !dense(c, "columns", true)) return NULL;
    int64_t count = PyArray_DIM(c, 1), pixels = call.out_height * call.out_width;
    if (PyArray_DIM(c, 0) != call.channels * call.kernel_height * call.kernel_width || image < 0 ||
        image >= call.batch || group < 0 || group >= call.groups || first < 0 ||
        first > pixels - count) {
        PyErr_SetString(PyExc_ValueError, "columns does not fit the windows");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    bcfg_convolution_unfold(&call, image, group, first, count, PyArray_BYTES(c), count, threads);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
