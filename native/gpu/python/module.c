/* The callbacks that backendcfg.ops hands in, and the table of the module's functions for devices. */
#include "gpu/python/device.h"

DeviceCallbacks bcfg_device_callbacks;

static PyObject *bind(PyObject *module, PyObject *arguments, PyObject *keywords) {
    (void)module;
    static char *names[] = {"refuse", "failed", "place", "recipe", "make",
                            "dense",  "copy",   "finite", "stream", NULL};
    DeviceCallbacks *to = &bcfg_device_callbacks;
    PyObject **slots[] = {&to->refuse, &to->failed, &to->place, &to->recipe,
                          &to->make,   &to->dense,  &to->copy,  &to->finite,
                          &to->stream};
    enum { COUNT = sizeof slots / sizeof *slots };
    PyObject *given[COUNT] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOOOOOOO:device_bind", names,
                                     &given[0], &given[1], &given[2], &given[3], &given[4],
                                     &given[5], &given[6], &given[7], &given[8]))
        return NULL;
    for (int i = 0; i < COUNT; i++)
        if (given[i] != NULL)
            Py_XSETREF(*slots[i], given[i] == Py_None ? NULL : Py_NewRef(given[i]));
    Py_RETURN_NONE;
}

static bool multiplies(int32_t kind) {
    return kind == BCFG_CUBLAS || kind == BCFG_CUBLASLT || kind == BCFG_HIPBLAS ||
           kind == BCFG_HIPBLASLT;
}

static int32_t driver_of(int32_t kind) {
    return kind == BCFG_HIPBLAS || kind == BCFG_HIPBLASLT ? BCFG_HIP : BCFG_CUDA;
}

static PyObject *make_recipe(PyObject *module, PyObject *arguments) {
    (void)module;
    unsigned long long library, driver, fallback, adder;
    long long workspace;
    bcfg_recipe_content is = {.unused = 0};
    if (!PyArg_ParseTuple(arguments, "KKKKLiiiiiiiii:device_recipe", &library, &driver,
                          &fallback, &adder, &workspace, &is.element, &is.reason, &is.data_type, &is.compute_type, &is.scale_type,
                          &is.math_mode, &is.atomics, &is.algorithm, &is.reduction))
        return NULL;
    is.library = (const bcfg_device_library *)(uintptr_t)library;
    is.driver = (const bcfg_device_library *)(uintptr_t)driver;
    is.fallback = (const bcfg_recipe *)(uintptr_t)fallback;
    is.adder = (const bcfg_recipe *)(uintptr_t)adder;
    is.workspace = workspace;
    bcfg_device_description about = {.abi = BCFG_ABI, .size = sizeof about};
    if (bcfg_device_describe(is.library, &about) != BCFG_OK ||
        !multiplies(about.kind) || bcfg_device_describe(is.driver, &about) != BCFG_OK ||
        about.kind != driver_of(is.library->kind) ||
        (is.fallback != NULL && !bcfg_recipe_known(is.fallback)) ||
        (is.adder != NULL && !bcfg_recipe_known(is.adder)) ||
        is.element < 0 || is.element >= BCFG_ELEMENTS || is.reason < BCFG_FIRST ||
        is.reason > BCFG_ABLE || workspace <= 0)
        return PyErr_Format(PyExc_ValueError, "device_recipe: no library, driver, element or size");
    const bcfg_recipe *recipe = bcfg_recipe_intern(&is);
    return recipe == NULL ? PyErr_NoMemory() : PyLong_FromVoidPtr((void *)recipe);
}

static PyObject *recipes(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    static const char *const reasons[] = {"first", "fastest", "able"};
    PyObject *list = PyList_New(0);
    const bcfg_recipe *at = NULL;
    while (list != NULL && (at = bcfg_recipe_next(at)) != NULL) {
        PyObject *one = Py_BuildValue(
            "(ssssK)", bcfg_operation_name(at->is.element < 4 ? at->is.element
                                           : at->is.element == BCFG_BFLOAT16 ? BCFG_BGEMM
                                                                             : BCFG_HGEMM),
            bcfg_device_kind_name(at->is.library->kind), at->is.library->path,
            reasons[at->is.reason],
            (unsigned long long)atomic_load_explicit(at->calls, memory_order_relaxed));
        if (one == NULL || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

static PyObject *product(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    (void)module;
    if (count != 7 || !PyUnicode_Check(given[0])) {
        PyErr_SetString(PyExc_TypeError,
                        "device_product takes (operation, a, b, added, out, alpha, beta)");
        return NULL;
    }
    return bcfg_device_multiply(PyUnicode_AsUTF8(given[0]), given[1], given[2], given[3], given[4],
                                given[5], given[6]);
}

PyMethodDef bcfg_device_methods[] = {
    {"device_bind", (PyCFunction)(void (*)(void))bind, METH_VARARGS | METH_KEYWORDS,
     "device_bind(**callbacks)\n--\n\nHand in what products on devices need of Python."},
    {"device_recipe", make_recipe, METH_VARARGS,
     "device_recipe(library, driver, fallback, adder, workspace, element, reason, data_type, compute_type, "
     "scale_type, math_mode, atomics, algorithm, reduction)\n--\n\nThe address of a recipe."},
    {"device_recipes", recipes, METH_NOARGS,
     "device_recipes()\n--\n\nFor each recipe (operation, provider, path, reason, calls)."},
    {"device_product", (PyCFunction)(void (*)(void))product, METH_FASTCALL,
     "device_product(operation, a, b, added, out, alpha, beta)\n--\n\nA product on a device; "
     "NotImplemented where no argument is on one."},
    {"device_holds", bcfg_device_holds, METH_O,
     "device_holds(value)\n--\n\nWhether it is an array on a device."},
    {"device_array", bcfg_device_array, METH_O,
     "device_array(value)\n--\n\nAn array on a device, described; None for another value."},
    {"device_make", bcfg_device_make, METH_VARARGS,
     "device_make(like, shape, element)\n--\n\nAn uninitialised array by the library of another; None "
     "where that has no table of functions."},
    {"device_kernel", bcfg_device_kernel, METH_VARARGS,
     "device_kernel(driver, index, code, name, shared_bytes)\n--\n\nA kernel on a device, loaded; or "
     "what failed."},
    {"device_launch", bcfg_device_launch, METH_VARARGS,
     "device_launch(kernel, stream, others, synchronizes, grid, threads, argument)\n--\n\nPut a kernel on "
     "a stream; None, or what failed."},
    {"device_begin", (PyCFunction)(void (*)(void))bcfg_device_begin, METH_FASTCALL,
     "device_begin(driver, index, stream, others)\n--\n\nMake a device current, and its stream wait for "
     "others: (what was current, whether the stream is captured); or what failed."},
    {"device_end", (PyCFunction)(void (*)(void))bcfg_device_end, METH_FASTCALL,
     "device_end(driver, index, stream, others, synchronizes, before, failed)\n--\n\nThe opposite: None, "
     "or what failed."},
    {"device_soname", bcfg_device_soname, METH_O,
     "device_soname(handle)\n--\n\nThe version that a library's SONAME has: 10000 * major + 100 * "
     "minor; -1 for none."},
    {"device_memory", bcfg_device_memory, METH_VARARGS,
     "device_memory(driver, index, bytes)\n--\n\nMemory of the driver's: what keeps it and its address, "
     "or what failed."},
    {"device_lend", bcfg_device_lend, METH_VARARGS,
     "device_lend(owner, address, kind, index, code, bits, shape, versioned)\n--\n\nA capsule of DLPack's "
     "over memory that its owner keeps."},
    {NULL, NULL, 0, NULL},
};
