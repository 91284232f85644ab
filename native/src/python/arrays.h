/* NumPy's C API for the files that need it; the table is filled by set_array_api. */
#ifndef BACKENDCFG_ARRAYS_H
#define BACKENDCFG_ARRAYS_H

#include "glue.h"

#define PY_ARRAY_UNIQUE_SYMBOL bcfg_array_api
#ifndef BACKENDCFG_FILLS_ARRAY_API
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

extern bool bcfg_array_api_ready;

/* By bcfg_element: its name, and NumPy's number of its type, which has no bfloat16. */
extern const char *const bcfg_element_names[BCFG_ELEMENTS];
extern const int bcfg_element_types[BCFG_ELEMENTS];
/* The element of one of NumPy's types, -1 for none. */
int bcfg_element_of(int type);

/* The array with elements of one of NumPy's types in the machine's byte order. A new reference. */
PyArrayObject *bcfg_converted(PyArrayObject *array, int type);
/* Joins the dimensions of an array, all but its last `inner`, into a shape by NumPy's rules; whether
 * they broadcast. */
bool bcfg_join_shape(PyArrayObject *array, int inner, int64_t *shape, int32_t *dimensions);
/* An array as a stack of `dimensions` dimensions; its last dimensions are rows and columns. */
static inline bcfg_operand bcfg_operand_of(PyArrayObject *array, int dimensions, int64_t *strides,
                                           bool has_rows, bool has_columns) {
    int at = PyArray_NDIM(array);
    const npy_intp *shape = PyArray_DIMS(array), *from = PyArray_STRIDES(array);
    bcfg_operand made = {.data = PyArray_DATA(array), .batch_strides = strides};
    if (has_columns) made.column_stride = from[--at];
    if (has_rows) made.row_stride = from[--at];
    for (int d = dimensions - 1; d >= 0; d--)
        strides[d] = --at >= 0 && shape[at] != 1 ? from[at] : 0;
    return made;
}

#endif
