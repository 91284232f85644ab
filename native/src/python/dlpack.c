/* from_dlpack: an array of another library as a NumPy array over the same memory. NumPy's own
 * reader knows no bfloat16. */
#include "arrays.h"
#include "dlpack.h"

enum { NEWEST_MAJOR = 1, READ_ONLY = 1, BFLOAT = 4 };
static const char unversioned[] = "dltensor", versioned[] = "dltensor_versioned";
static const char owned[] = "backendcfg.dlpack", owned_versioned[] = "backendcfg.dlpack_versioned";

/* How DLPack's types (code, bits) are called and held here. */
static const struct {
    uint8_t code, bits;
    int type;
    const char *name;
} elements[] = {
    {0, 8, NPY_INT8, "int8"},           {0, 16, NPY_INT16, "int16"},
    {0, 32, NPY_INT32, "int32"},        {0, 64, NPY_INT64, "int64"},
    {1, 8, NPY_UINT8, "uint8"},         {1, 16, NPY_UINT16, "uint16"},
    {1, 32, NPY_UINT32, "uint32"},      {1, 64, NPY_UINT64, "uint64"},
    {2, 16, NPY_FLOAT16, "float16"},    {2, 32, NPY_FLOAT32, "float32"},
    {2, 64, NPY_FLOAT64, "float64"},    {BFLOAT, 16, NPY_UINT16, "bfloat16"},
    {5, 64, NPY_COMPLEX64, "complex64"}, {5, 128, NPY_COMPLEX128, "complex128"},
    {6, 8, NPY_BOOL, "bool"},
};
enum { ELEMENTS = sizeof elements / sizeof *elements };

/* Releases the tensor under an array. Its owner's code may run Python, so a pending error is saved. */
static void let_go(PyObject *holder) {
    PyObject *pending = bcfg_take_exception();
    if (PyCapsule_IsValid(holder, owned_versioned)) {
        DLManagedTensorVersioned *held = PyCapsule_GetPointer(holder, owned_versioned);
        if (held->deleter != NULL) held->deleter(held);
    } else {
        DLManagedTensor *held = PyCapsule_GetPointer(holder, owned);
        if (held != NULL && held->deleter != NULL) held->deleter(held);
    }
    if (PyErr_Occurred()) PyErr_WriteUnraisable(holder);
    bcfg_put_exception(pending);
}

/* The row of `elements`, or -1 with a ValueError. */
static int element_of(const DLTensor *tensor) {
    for (int i = 0; i < ELEMENTS; i++)
        if (tensor->type.code == elements[i].code && tensor->type.bits == elements[i].bits &&
            tensor->type.lanes == 1)
            return i;
    PyErr_Format(PyExc_ValueError, "its elements (DLPack code %d, %d bits, %d lanes) are not known",
                 tensor->type.code, tensor->type.bits, tensor->type.lanes);
    return -1;
}

/* An array over the tensor's memory, which nothing keeps alive yet. */
static PyObject *over(const DLTensor *tensor, int element, bool writeable) {
    int64_t shape[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    npy_intp dimensions[NPY_MAXDIMS], steps[NPY_MAXDIMS];
    bool empty;
    const char *wrong = bcfg_dlpack_layout(tensor, shape, strides, &empty);
    if (wrong == NULL && !empty && tensor->data == NULL) wrong = "it has no memory";
    if (wrong == NULL && !empty &&
        !bcfg_can_be_memory(tensor->data, tensor->byte_offset, shape, strides, tensor->dimensions,
                            tensor->type.bits / 8))
        wrong = "it reaches beyond all memory";
    if (wrong != NULL) {
        PyErr_SetString(PyExc_ValueError, wrong);
        return NULL;
    }
    for (int d = 0; d < tensor->dimensions; d++) {
        dimensions[d] = shape[d];
        steps[d] = strides[d];
    }
    PyArray_Descr *type = PyArray_DescrFromType(elements[element].type);
    if (empty) /* its address may be NULL, which NumPy takes for "make me some" */
        return PyArray_NewFromDescr(&PyArray_Type, type, tensor->dimensions, dimensions, NULL,
                                    NULL, 0, NULL);
    return PyArray_NewFromDescr(&PyArray_Type, type, tensor->dimensions, dimensions, steps,
                                (char *)tensor->data + tensor->byte_offset,
                                writeable ? NPY_ARRAY_WRITEABLE : 0, NULL);
}

PyObject *bcfg_from_dlpack(PyObject *module, PyObject *capsule) {
    (void)module;
    if (!bcfg_array_api_ready) {
        PyErr_SetString(PyExc_RuntimeError, "from_dlpack: set_array_api was not called");
        return NULL;
    }
    const DLTensor *tensor = NULL;
    void *managed;
    bool has_version = PyCapsule_IsValid(capsule, versioned), writeable = true;
    if (has_version) {
        DLManagedTensorVersioned *given = managed = PyCapsule_GetPointer(capsule, versioned);
        /* What stands behind the version is only known for a version that is. */
        if (given->major > NEWEST_MAJOR)
            return PyErr_Format(PyExc_ValueError, "DLPack %u.%u is newer than what is known here",
                                given->major, given->minor);
        tensor = &given->tensor;
        writeable = !(given->flags & READ_ONLY);
    } else if (PyCapsule_IsValid(capsule, unversioned)) {
        DLManagedTensor *given = managed = PyCapsule_GetPointer(capsule, unversioned);
        tensor = &given->tensor;
    } else {
        PyErr_SetString(PyExc_ValueError, "its DLPack capsule is none, or was used before");
        return NULL;
    }
    if (tensor->device.type != 1 && tensor->device.type != 3 && tensor->device.type != 11 &&
        tensor->device.type != 13)
        return PyErr_Format(PyExc_ValueError, "its DLPack device %d is not the CPU",
                            tensor->device.type);
    if (tensor->dimensions < 0 || tensor->dimensions > NPY_MAXDIMS)
        return PyErr_Format(PyExc_ValueError, "it has %d dimensions", tensor->dimensions);
    int element = element_of(tensor);
    PyObject *array = element < 0 ? NULL : over(tensor, element, writeable);
    if (array == NULL) return NULL;
    /* From here the capsule is used up, and the holder gives the memory back. */
    PyObject *holder = PyCapsule_New(managed, has_version ? owned_versioned : owned, NULL);
    if (holder == NULL || PyCapsule_SetName(capsule, has_version ? "used_dltensor_versioned"
                                                                 : "used_dltensor") < 0) {
        Py_XDECREF(holder);
        Py_DECREF(array);
        return NULL;
    }
    PyCapsule_SetDestructor(holder, let_go);
    if (PyArray_SetBaseObject((PyArrayObject *)array, holder) < 0) { /* it took the holder */
        Py_DECREF(array);
        return NULL;
    }
    return Py_BuildValue("(Ns)", array, elements[element].name);
}
