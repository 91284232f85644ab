/* What the calls of both passes of attention take alike, and refuse alike. */
#ifndef BACKENDCFG_PYTHON_ATTENTION_INPUTS_H
#define BACKENDCFG_PYTHON_ATTENTION_INPUTS_H

#include "arrays.h"
#include "kernels/attention_inputs.h"

/* Every function names `call` in its errors, and returns -1 where it has set one. */

/* NumPy's type of an element; bfloat16 is uint16. */
int bcfg_attention_type(attention_element element);

/* An array of that many dimensions, of these sizes and this type. */
int bcfg_take_attention_array(const char *call, PyObject *given, const char *name, int type,
                              int dimensions, const int64_t *shape, attention_array *array);

/* arrays: query, key, value, mask or None. numbers: is_causal, scale, dropout_p, seed, element and,
 * where there are more than five, threads; else those are 0. */
int bcfg_take_attention_inputs(const char *call, PyObject *const *arrays,
                               PyObject *const *numbers, Py_ssize_t count, attention_inputs *in,
                               int32_t *threads);

#endif
