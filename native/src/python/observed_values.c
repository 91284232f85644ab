/* The arguments of a call that is observed, and a digest of what it computed. */
#include "observed.h"
#include "digest.h"

enum { LARGEST_NUMBER = 16 }; /* bytes of a scalar */

/* ---- arguments --------------------------------------------------------------------------------- */

PyObject *bcfg_argument(const Given *given, Py_ssize_t number) {
    if (given->self != NULL && number-- == 0) return given->self;
    return number < given->count ? given->items[number] : NULL;
}

PyObject *bcfg_named(const Given *given, const char *name) {
    if (given->keywords != NULL) return PyDict_GetItemString(given->keywords, name);
    for (Py_ssize_t i = 0; given->names != NULL && i < PyTuple_GET_SIZE(given->names); i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(given->names, i), name) == 0)
            return given->items[given->count + i];
    return NULL;
}

PyObject *bcfg_packed(const Given *given, int most) {
    Py_ssize_t own = given->self != NULL, count = given->count;
    if (most >= 0 && count > most) count = most;
    PyObject *made = PyTuple_New(own + count);
    if (made == NULL) return NULL;
    if (own) PyTuple_SET_ITEM(made, 0, Py_NewRef(given->self));
    for (Py_ssize_t i = 0; i < count; i++)
        PyTuple_SET_ITEM(made, own + i, Py_NewRef(given->items[i]));
    return made;
}

PyObject *bcfg_packed_keywords(const Given *given) {
    PyObject *made = given->keywords != NULL ? PyDict_Copy(given->keywords) : PyDict_New();
    for (Py_ssize_t i = 0; made != NULL && given->names != NULL &&
                           i < PyTuple_GET_SIZE(given->names); i++)
        if (PyDict_SetItem(made, PyTuple_GET_ITEM(given->names, i), given->items[given->count + i]) < 0)
            Py_CLEAR(made);
    return made;
}

/* ---- results ----------------------------------------------------------------------------------- */

static bool has_plain_numbers(int type) {
    bool number = (type >= NPY_BOOL && type <= NPY_CDOUBLE) || type == NPY_HALF;
    return (number && type != NPY_LONGDOUBLE) || type == NPY_DATETIME || type == NPY_TIMEDELTA;
}

/* Digests an array in the order of its indices, or of its memory where that has no gaps. */
static bool digest_array(PyArrayObject *array, uint64_t *value) {
    PyObject *copy = NULL;
    if (!PyArray_IS_C_CONTIGUOUS(array) && !PyArray_IS_F_CONTIGUOUS(array)) {
        // No subclass, whose code would run.
        copy = PyArray_NewLikeArray(array, NPY_CORDER, NULL, 0);
        if (copy == NULL || PyArray_CopyInto((PyArrayObject *)copy, array) < 0) {
            Py_XDECREF(copy);
            return false;
        }
        array = (PyArrayObject *)copy;
    }
    *value = bcfg_digest_unlocked(PyArray_DATA(array), (size_t)PyArray_NBYTES(array), *value);
    Py_XDECREF(copy);
    return true;
}

/* NumPy's number of the type of a result, and a digest over `value`; -1 for no numbers. */
static int digest_result(PyObject *result, uint64_t *value) {
    if (PyArray_Check(result)) {
        PyArrayObject *array = (PyArrayObject *)result;
        int type = PyArray_TYPE(array);
        return has_plain_numbers(type) && digest_array(array, value) ? type : -1;
    }
    if (PyArray_IsScalar(result, Generic)) {
        unsigned char bytes[LARGEST_NUMBER] = {0};
        PyArray_Descr *descriptor = PyArray_DescrFromScalar(result);
        if (descriptor == NULL) return -1;
        int type = descriptor->type_num;
        size_t size = (size_t)PyDataType_ELSIZE(descriptor);
        Py_DECREF(descriptor);
        if (!has_plain_numbers(type) || size > sizeof bytes) return -1;
        PyArray_ScalarAsCtype(result, bytes);
        *value = bcfg_digest(bytes, size, *value);
        return type;
    }
    if (PyFloat_CheckExact(result)) {
        double number = PyFloat_AS_DOUBLE(result);
        *value = bcfg_digest(&number, sizeof number, *value);
        return NPY_DOUBLE;
    }
    if (PyLong_Check(result)) {
        uint64_t number = PyLong_AsUnsignedLongLongMask(result);
        *value = bcfg_digest(&number, sizeof number, *value);
        return PyBool_Check(result) ? NPY_BOOL : NPY_INT64;
    }
    return -1;
}

int bcfg_digest_results(PyObject *results, uint64_t *value) {
    if (!PyTuple_Check(results)) return digest_result(results, value);
    int first = -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(results); i++) {
        int type = digest_result(PyTuple_GET_ITEM(results, i), value);
        if (first < 0) first = type;
    }
    return first;
}
