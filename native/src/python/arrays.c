/* What calls need of NumPy's arrays. Its C API is imported only when asked, so that scopes cost no
 * import of NumPy. */
#define BACKENDCFG_FILLS_ARRAY_API
#include "arrays.h"

bool bcfg_array_api_ready;

const char *const bcfg_element_names[BCFG_ELEMENTS] = {"float32",    "float64",  "complex64",
                                                       "complex128", "bfloat16", "float16"};
const int bcfg_element_types[BCFG_ELEMENTS] = {NPY_FLOAT,   NPY_DOUBLE, NPY_CFLOAT,
                                               NPY_CDOUBLE, NPY_USHORT, NPY_HALF};

int bcfg_element_of(int type) {
    for (int element = 0; element < BCFG_ELEMENTS; element++)
        if (bcfg_element_types[element] == type && element != BCFG_BFLOAT16) return element;
    return -1;
}

PyArrayObject *bcfg_converted(PyArrayObject *array, int type) {
    if (PyArray_TYPE(array) == type && PyArray_ISNOTSWAPPED(array))
        return (PyArrayObject *)Py_NewRef((PyObject *)array);
    PyArray_Descr *descriptor = PyArray_DescrFromType(type);
    return (PyArrayObject *)PyArray_FromArray(array, descriptor, NPY_ARRAY_DEFAULT);
}

bool bcfg_join_shape(PyArrayObject *array, int inner, int64_t *shape, int32_t *dimensions) {
    int own = PyArray_NDIM(array) - inner, more = own - *dimensions;
    const npy_intp *from = PyArray_DIMS(array);
    if (more > 0) {
        for (int d = own - 1; d >= 0; d--) shape[d] = d < more ? 1 : shape[d - more];
        *dimensions = own;
    }
    for (int d = 0; d < own; d++) {
        int64_t *joined = &shape[*dimensions - own + d];
        if (*joined != from[d] && *joined != 1 && from[d] != 1) return false;
        if (*joined == 1) *joined = from[d];
    }
    return true;
}

PyObject *bcfg_set_array_api(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    if (!bcfg_array_api_ready && PyArray_ImportNumPyAPI() < 0) return NULL;
    bcfg_array_api_ready = true;
    Py_RETURN_NONE;
}
