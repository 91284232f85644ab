/* Finding PyTorch's functions, and what they share. */
#include "torch_interface.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "backendcfg.h"
#include "glue.h"

torch_interface bcfg_torch;
static bool is_found; /* all of it: kernels may be using it, so it is not written any more */

/* Not of the stable interface: the function behind PyTorch's own TORCH_CHECK. */
static void (*check_fail)(const char *function, const char *file, uint32_t line, const char *text);
/* From PyTorch 2.13 on; before, such values are freed as C++ frees them, and errors have no words. */
static int32_t (*delete_value)(uint64_t *value);
/* A tensor's memory, to be read. NULL in releases that lack it: `get_data` serves there, which first copies memory
 * that two tensors share. */
static int32_t (*get_const_data)(torch_tensor, const void **);
static const char *(*last_error)(void);
static void (*delete_plain)(void *memory);

#define CHECK_FAIL "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"
#define DELETE_PLAIN "_ZdlPv"

static bool find(void *library, const char *name, void *pointer) {
    void *found = dlsym(library, name);
    memcpy(pointer, &found, sizeof found); /* C has no conversion between functions and memory */
    return found != NULL;
}

/* Finds the functions from a library of the process and from what that one needs. Returns NULL, or the
 * name of one that is missing; then `bcfg_torch` is not to be used. */
static const char *find_all(const char *file) {
#define TORCH_NAME(name, arguments, exported) {exported, offsetof(torch_interface, name)},
    static const struct {
        const char *name;
        size_t at;
    } functions[] = {TORCH_FUNCTIONS(TORCH_NAME)};
#undef TORCH_NAME
    if (is_found) return NULL;
    void *library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) return file;
    const char *missing = NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!find(library, functions[i].name, (char *)&bcfg_torch + functions[i].at) &&
            missing == NULL)
            missing = functions[i].name;
    if (!find(library, CHECK_FAIL, &check_fail) && missing == NULL) missing = CHECK_FAIL;
    find(library, "torch_exception_get_what_without_backtrace", &last_error);
    find(library, "torch_get_const_data_ptr", &get_const_data);
    if (!find(library, "torch_delete_stable_ivalue", &delete_value) &&
        !find(library, DELETE_PLAIN, &delete_plain) && missing == NULL)
        missing = DELETE_PLAIN;
    (void)dlclose(library); /* the process keeps it */
    is_found = missing == NULL;
    return missing;
}

PyObject *bcfg_torch_lacks(PyObject *module, PyObject *file) {
    (void)module;
    const char *path = PyUnicode_AsUTF8(file);
    if (path == NULL) return NULL;
    const char *missing = find_all(path);
    return missing != NULL ? PyUnicode_FromString(missing) : Py_NewRef(Py_None);
}

/* Registers kernels; false with an exception set. */
static bool replace(PyObject *file, const bcfg_torch_kernel *kernels, torch_library *library) {
    const char *path = PyUnicode_AsUTF8(file), *missing = path != NULL ? find_all(path) : NULL;
    if (missing != NULL) PyErr_Format(PyExc_RuntimeError, "PyTorch lacks the function %s", missing);
    if (PyErr_Occurred()) return false;
    torch_library made = NULL;
    int failed = bcfg_torch.new_library("aten", "CPU", "backendcfg", 0, &made);
    for (; !failed && kernels->operator != NULL; kernels++)
        failed = bcfg_torch.add_kernel(made, kernels->operator, kernels->kernel);
    if (!failed) {
        *library = made;
        return true;
    }
    if (made != NULL) (void)bcfg_torch.delete_library(made);
    PyErr_Format(PyExc_RuntimeError, "PyTorch does not take a kernel of %s",
                 kernels->operator != NULL ? kernels->operator : "ours");
    return false;
}

PyObject *bcfg_torch_serve(bcfg_torch_route *route, PyObject *file) {
    if (file != Py_None && route->library == NULL && !replace(file, route->kernels, &route->library))
        return NULL;
    atomic_store(&route->is_on, file != Py_None);
    Py_RETURN_NONE;
}

PyObject *bcfg_torch_restore(bcfg_torch_route *route) {
    atomic_store(&route->is_on, false);
    if (route->library != NULL) (void)bcfg_torch.delete_library(route->library);
    route->library = NULL;
    Py_RETURN_NONE;
}

bool bcfg_torch_describe(torch_tensor tensor, torch_array *array) {
    const void *data;
    void *writable;
    int64_t *sizes, *strides;
    bool is_defined; /* a gradient that nobody wants is not; asking it for strides throws */
    if (bcfg_torch.get_is_defined(tensor, &is_defined) || !is_defined ||
        bcfg_torch.get_dimensions(tensor, &array->dimensions) ||
        bcfg_torch.get_type(tensor, &array->type) ||
        bcfg_torch.get_sizes(tensor, &sizes) || bcfg_torch.get_strides(tensor, &strides))
        return false;
    if (get_const_data != NULL) {
        if (get_const_data(tensor, &data)) return false;
    } else {
        if (bcfg_torch.get_data(tensor, &writable)) return false;
        data = writable;
    }
    array->data = (char *)(uintptr_t)data, array->sizes = sizes, array->strides = strides;
    if (data != NULL) return true;
    /* Nothing is stored, or what was is freed. */
    for (int64_t d = 0; d < array->dimensions; d++)
        if (sizes[d] == 0) return true;
    return false;
}

int32_t bcfg_torch_element(int32_t type) {
    if (type == bcfg_torch.type_float32()) return BCFG_FLOAT32;
    if (type == bcfg_torch.type_float64()) return BCFG_FLOAT64;
    if (type == bcfg_torch.type_bfloat16()) return BCFG_BFLOAT16;
    return type == bcfg_torch.type_float16() ? BCFG_FLOAT16 : -1;
}

static int32_t type_of(int32_t element) {
    if (element == BCFG_FLOAT32) return bcfg_torch.type_float32();
    if (element == BCFG_FLOAT64) return bcfg_torch.type_float64();
    return element == BCFG_BFLOAT16 ? bcfg_torch.type_bfloat16() : bcfg_torch.type_float16();
}

torch_tensor bcfg_torch_new(int dimensions, const int64_t *shape, const int64_t *steps,
                            int32_t element, int64_t *strides) {
    int order[4];
    for (int d = 0; d < dimensions; d++) {
        int at = d;
        for (; at > 0 && steps[order[at - 1]] < steps[d]; at--) order[at] = order[at - 1];
        order[at] = d;
    }
    int64_t dense = 1;
    for (int i = dimensions - 1; i >= 0; i--) {
        strides[order[i]] = dense;
        dense *= shape[order[i]];
    }
    torch_tensor made;
    int failed = bcfg_torch.empty(dimensions, shape, strides, type_of(element), bcfg_torch.cpu(), -1,
                                  &made);
    return failed ? NULL : made;
}

bool bcfg_torch_optional(uint64_t argument, uint64_t *value) {
    uint64_t *held = (uint64_t *)(uintptr_t)argument;
    if (held == NULL) return false;
    *value = *held;
    if (delete_value != NULL)
        (void)delete_value(held);
    else
        delete_plain(held);
    return true;
}

_Noreturn void bcfg_torch_raise(const char *text) {
    check_fail("backendcfg", "backendcfg", 0, text);
    __builtin_unreachable();
}

_Noreturn void bcfg_torch_raise_theirs(void) {
    bcfg_torch_raise(last_error != NULL ? last_error() : "PyTorch's own kernel refused this call");
}
