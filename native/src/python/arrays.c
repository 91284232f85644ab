/* Where NumPy's C API is imported: only when asked, so that scopes cost no import of NumPy. */
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

PyObject *bcfg_set_array_api(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    if (!bcfg_array_api_ready && PyArray_ImportNumPyAPI() < 0) return NULL;
    bcfg_array_api_ready = true;
    Py_RETURN_NONE;
}
