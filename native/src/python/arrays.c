/* Where NumPy's C API is imported: only when asked, so that scopes cost no import of NumPy. */
#define BACKENDCFG_FILLS_ARRAY_API
#include "arrays.h"

bool bcfg_array_api_ready;

PyObject *bcfg_set_array_api(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    if (!bcfg_array_api_ready && PyArray_ImportNumPyAPI() < 0) return NULL;
    bcfg_array_api_ready = true;
    Py_RETURN_NONE;
}
