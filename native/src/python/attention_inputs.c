/* The arguments that both passes of attention share. Their callers are in Python and have checked
 * what a user gave; what is refused here would read memory that is not there. */
#include "attention_inputs.h"

enum { QUERY, KEY, VALUE, MASK };
enum { IS_CAUSAL, SCALE, DROPOUT, SEED, ELEMENT, THREADS };

static const struct {
    const char *name;
    int type;
} elements[] = {
    [ATTENTION_FLOAT32] = {"float32", NPY_FLOAT},
    [ATTENTION_FLOAT64] = {"float64", NPY_DOUBLE},
    [ATTENTION_BFLOAT16] = {"bfloat16", NPY_USHORT},
    [ATTENTION_FLOAT16] = {"float16", NPY_HALF},
};

int bcfg_attention_type(attention_element element) { return elements[element].type; }

static int take_element(const char *call, PyObject *given, attention_inputs *in) {
    for (int i = 0; i < (int)(sizeof elements / sizeof *elements); i++)
        if (PyUnicode_Check(given) &&
            PyUnicode_CompareWithASCIIString(given, elements[i].name) == 0) {
            in->element = (attention_element)i;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "%s: no element %R", call, given);
    return -1;
}

int bcfg_take_attention_array(const char *call, PyObject *given, const char *name, int type,
                              int dimensions, const int64_t *shape, attention_array *array) {
    PyArrayObject *it = (PyArrayObject *)given;
    if (!PyArray_Check(given) || PyArray_TYPE(it) != type || !PyArray_ISNOTSWAPPED(it) ||
        PyArray_NDIM(it) != dimensions) {
        PyErr_Format(PyExc_ValueError, "%s: %s must have %d dimensions and be of the element's type",
                     call, name, dimensions);
        return -1;
    }
    *array = (attention_array){.data = PyArray_DATA(it)};
    for (int d = 0; d < dimensions; d++) {
        array->strides[d] = PyArray_STRIDES(it)[d];
        if (PyArray_DIMS(it)[d] == shape[d]) continue;
        PyErr_Format(PyExc_ValueError, "%s: dimension %d of %s is %zd, and %lld is needed", call, d,
                     name, (Py_ssize_t)PyArray_DIMS(it)[d], (long long)shape[d]);
        return -1;
    }
    return 0;
}

static int take_sizes(const char *call, PyObject *const *arrays, attention_inputs *in) {
    for (int i = QUERY; i <= VALUE; i++)
        if (!PyArray_Check(arrays[i]) || PyArray_NDIM((PyArrayObject *)arrays[i]) != 4) {
            PyErr_Format(PyExc_ValueError,
                         "%s: query, key and value must be four-dimensional arrays", call);
            return -1;
        }
    const npy_intp *query = PyArray_DIMS((PyArrayObject *)arrays[QUERY]);
    in->batch = query[0];
    in->heads = query[1];
    in->queries = query[2];
    in->width = query[3];
    in->key_heads = PyArray_DIMS((PyArrayObject *)arrays[KEY])[1];
    in->keys = PyArray_DIMS((PyArrayObject *)arrays[KEY])[2];
    in->value_width = PyArray_DIMS((PyArrayObject *)arrays[VALUE])[3];
    if (in->key_heads == 0 ? in->heads == 0 : in->heads % in->key_heads == 0) return 0;
    PyErr_Format(PyExc_ValueError, "%s: %lld heads of query are no multiple of %lld heads of key",
                 call, (long long)in->heads, (long long)in->key_heads);
    return -1;
}

static int take_mask(const char *call, PyObject *given, attention_inputs *in) {
    in->mask.data = NULL;
    if (given == Py_None) return 0;
    int64_t shape[] = {in->batch, in->heads, in->queries, in->keys};
    int type = PyArray_Check(given) ? PyArray_TYPE((PyArrayObject *)given) : NPY_NOTYPE;
    if (type == NPY_BOOL) {
        in->mask_element = ATTENTION_BOOL;
    } else if (type == NPY_FLOAT) {
        in->mask_element = ATTENTION_FLOAT32;
    } else {
        in->mask_element = in->element;
        type = elements[in->element].type;
    }
    return bcfg_take_attention_array(call, given, "mask", type, 4, shape, &in->mask);
}

static int take_arrays(const char *call, PyObject *const *arrays, attention_inputs *in) {
    int64_t query[] = {in->batch, in->heads, in->queries, in->width};
    int64_t key[] = {in->batch, in->key_heads, in->keys, in->width};
    int64_t value[] = {in->batch, in->key_heads, in->keys, in->value_width};
    const struct {
        const char *name;
        const int64_t *shape;
        attention_array *array;
    } wanted[] = {{"query", query, &in->query}, {"key", key, &in->key}, {"value", value, &in->value}};
    for (int i = QUERY; i <= VALUE; i++)
        if (bcfg_take_attention_array(call, arrays[i], wanted[i].name, elements[in->element].type, 4,
                                      wanted[i].shape, wanted[i].array) < 0)
            return -1;
    return take_mask(call, arrays[MASK], in);
}

static int take_numbers(const char *call, PyObject *const *numbers, Py_ssize_t count,
                        attention_inputs *in, int32_t *threads) {
    int is_causal = PyObject_IsTrue(numbers[IS_CAUSAL]);
    in->is_causal = is_causal > 0;
    in->scale = PyFloat_AsDouble(numbers[SCALE]);
    in->dropout = PyFloat_AsDouble(numbers[DROPOUT]);
    in->seed = PyLong_AsUnsignedLongLongMask(numbers[SEED]);
    *threads = count > THREADS ? (int32_t)PyLong_AsLong(numbers[THREADS]) : 0;
    if (PyErr_Occurred()) return -1;
    if (in->dropout >= 0 && in->dropout <= 1) return 0;
    PyErr_Format(PyExc_ValueError, "%s: dropout_p must be between 0 and 1", call);
    return -1;
}

int bcfg_take_attention_inputs(const char *call, PyObject *const *arrays,
                               PyObject *const *numbers, Py_ssize_t count, attention_inputs *in,
                               int32_t *threads) {
    if (!bcfg_array_api_ready) {
        PyErr_SetString(PyExc_RuntimeError, "set_array_api() has not been called");
        return -1;
    }
    return take_element(call, numbers[ELEMENT], in) < 0 || take_sizes(call, arrays, in) < 0 ||
                   take_arrays(call, arrays, in) < 0 ||
                   take_numbers(call, numbers, count, in, threads) < 0
               ? -1
               : 0;
}
