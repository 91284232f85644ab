/* Products of 2:4 sparse matrices on devices. What a call is, and what it needs, Python decides: see
 * backendcfg/gpu/sparse/calls.py. */
#include "gpu/python/device.h"
#include "gpu/libraries/cusparselt.h"

typedef struct {
    DeviceWork work;
    bcfg_sparse_matrix matrix;
    bcfg_sparse_product product;
} Request;

static int take_work(PyObject *where, DeviceWork *work) {
    if (bcfg_parse_work(where, work) < 0) return -1;
    bcfg_device_description about = {.abi = BCFG_ABI, .size = sizeof about};
    if (bcfg_device_describe(work->is.library, &about) == BCFG_OK && about.kind == BCFG_CUSPARSELT)
        return 0;
    PyErr_SetString(PyExc_ValueError, "work: no cuSPARSELt");
    return -1;
}

static int take_matrix(PyObject *where, PyObject *matrix, Request *is) {
    long long rows, columns, leading;
    if (!PyArg_ParseTuple(matrix, "LLLi:matrix", &rows, &columns, &leading, &is->matrix.type))
        return -1;
    is->matrix.rows = rows, is->matrix.columns = columns, is->matrix.leading = leading;
    return take_work(where, &is->work);
}

static int take_product(PyObject *where, PyObject *product, Request *is) {
    long long m, n, k, leading;
    unsigned long long bias;
    bcfg_sparse_product *to = &is->product;
    *to = (bcfg_sparse_product){.unused = 0};
    if (!PyArg_ParseTuple(product, "LLLLKiiiiiii:product", &m, &n, &k, &leading, &bias, &to->type,
                          &to->result_type, &to->compute, &to->transposes_b, &to->algorithm,
                          &to->split_k, &to->split_k_mode))
        return -1;
    to->m = m, to->n = n, to->k = k, to->b_leading = leading;
    to->bias = (const void *)(uintptr_t)bias;
    return take_work(where, &is->work);
}

/* Runs without the GIL what fills in `outcome`. */
#define RUN(call)                                                                                  \
    bcfg_fault fault = {"", 0, ""};                                                                \
    bcfg_outcome outcome;                                                                          \
    Py_BEGIN_ALLOW_THREADS                                                                         \
    outcome = (call);                                                                              \
    Py_END_ALLOW_THREADS                                                                           \
    PyObject *failed = bcfg_fault_object(outcome, &fault);                                         \
    if (failed == NULL) return NULL;

PyObject *bcfg_device_sparse_sizes(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *where, *matrix;
    Request is;
    size_t bytes = 0, buffer = 0;
    if (!PyArg_ParseTuple(arguments, "O!O!:device_sparse_sizes", &PyTuple_Type, &where,
                          &PyTuple_Type, &matrix) ||
        take_matrix(where, matrix, &is) < 0)
        return NULL;
    RUN(bcfg_cusparselt_sizes(&is.work.is, &is.matrix, &bytes, &buffer, &fault))
    return Py_BuildValue("(KKN)", (unsigned long long)bytes, (unsigned long long)buffer, failed);
}

PyObject *bcfg_device_sparse_check(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *where, *matrix;
    unsigned long long dense, invalid;
    Request is;
    if (!PyArg_ParseTuple(arguments, "O!O!KK:device_sparse_check", &PyTuple_Type, &where,
                          &PyTuple_Type, &matrix, &dense, &invalid) ||
        take_matrix(where, matrix, &is) < 0)
        return NULL;
    RUN(bcfg_cusparselt_check(&is.work.is, &is.matrix, (const void *)(uintptr_t)dense,
                              (int *)(uintptr_t)invalid, &fault))
    return failed;
}

PyObject *bcfg_device_sparse_compress(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *where, *matrix;
    unsigned long long dense, compressed, buffer;
    Request is;
    if (!PyArg_ParseTuple(arguments, "O!O!KKK:device_sparse_compress", &PyTuple_Type, &where,
                          &PyTuple_Type, &matrix, &dense, &compressed, &buffer) ||
        take_matrix(where, matrix, &is) < 0)
        return NULL;
    RUN(bcfg_cusparselt_compress(&is.work.is, &is.matrix, (const void *)(uintptr_t)dense,
                                 (void *)(uintptr_t)compressed, (void *)(uintptr_t)buffer, &fault))
    return failed;
}

PyObject *bcfg_device_sparse_area(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *where, *product;
    Request is;
    size_t bytes = 0;
    if (!PyArg_ParseTuple(arguments, "O!O!:device_sparse_area", &PyTuple_Type, &where,
                          &PyTuple_Type, &product) ||
        take_product(where, product, &is) < 0)
        return NULL;
    RUN(bcfg_cusparselt_area(&is.work.is, &is.product, &bytes, &fault))
    return Py_BuildValue("(KN)", (unsigned long long)bytes, failed);
}

static int take_operands(PyObject *arguments, Request *is, bcfg_sparse_operands *operands) {
    PyObject *where, *product;
    unsigned long long a, b, d, area;
    if (!PyArg_ParseTuple(arguments, "O!O!KKKK:device_sparse", &PyTuple_Type, &where,
                          &PyTuple_Type, &product, &a, &b, &d, &area) ||
        take_product(where, product, is) < 0)
        return -1;
    operands->a = (const void *)(uintptr_t)a;
    operands->b = (const void *)(uintptr_t)b;
    operands->d = (void *)(uintptr_t)d;
    operands->area = (void *)(uintptr_t)area;
    return 0;
}

PyObject *bcfg_device_sparse_multiply(PyObject *module, PyObject *arguments) {
    (void)module;
    Request is;
    bcfg_sparse_operands operands;
    if (take_operands(arguments, &is, &operands) < 0) return NULL;
    RUN(bcfg_cusparselt_multiply(&is.work.is, &is.product, &operands, &fault))
    return failed;
}

PyObject *bcfg_device_sparse_search(PyObject *module, PyObject *arguments) {
    (void)module;
    Request is;
    bcfg_sparse_operands operands;
    bcfg_sparse_found found = {0, 1, 0, 0};
    if (take_operands(arguments, &is, &operands) < 0) return NULL;
    RUN(bcfg_cusparselt_search(&is.work.is, &is.product, &operands, &found, &fault))
    return Py_BuildValue("((iiii)N)", found.algorithm, found.split_k, found.split_k_mode,
                         found.most, failed);
}
