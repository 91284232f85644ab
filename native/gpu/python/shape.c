/* Whether the arguments of a product on a device fit each other, and what is multiplied. */
#include "gpu/python/call.h"

int bcfg_device_refused(const DeviceCall *call, const char *reason, const char *detail) {
    if (bcfg_need(bcfg_device_callbacks.refuse, "refuse") == NULL) return -1;
    PyObject *names = PyTuple_New(DEVICE_ARGUMENTS), *values = PyTuple_New(DEVICE_ARGUMENTS);
    for (int i = 0; i < DEVICE_ARGUMENTS && names != NULL && values != NULL; i++) {
        const char *name = call->operation->arguments[i];
        PyObject *text = PyUnicode_FromString(name != NULL ? name : "");
        if (text == NULL) Py_CLEAR(names);
        else PyTuple_SET_ITEM(names, i, text);
        PyTuple_SET_ITEM(values, i, Py_NewRef(call->given[i]));
    }
    if (names != NULL && values != NULL) {
        PyObject *done = PyObject_CallFunction(bcfg_device_callbacks.refuse, "sssOO",
                                               call->operation->name, reason, detail, names, values);
        if (done != NULL) PyErr_Format(PyExc_RuntimeError, "refuse did not raise: %s", reason);
        Py_XDECREF(done);
    }
    Py_XDECREF(names);
    Py_XDECREF(values);
    return -1;
}

const char *bcfg_device_element(int32_t type) {
    static const char *const names[DEVICE_TYPES] = {
        "float32", "float64", "complex64", "complex128", "bfloat16", "float16",
        "bool",    "int8",    "uint8",     "int32",      "int64"};
    return type >= 0 && type < DEVICE_TYPES ? names[type] : "";
}

/* Names a place as PyTorch does. */
static void name_place(const DeviceArray *array, char *text, size_t size) {
    (void)snprintf(text, size, "%s:%d", array->kind == BCFG_PLACE_CUDA ? "cuda" : "rocm",
                   array->index);
}

static int fit_places(const DeviceCall *call) {
    const char *const *names = call->operation->arguments;
    int first = 0; /* one of them is on a device, or nobody had come here */
    while (!call->viewed[first]) first++;
    const DeviceArray *at = &call->arrays[first];
    char where[32], other[32], said[160];
    name_place(at, where, sizeof where);
    for (int i = 0; i < DEVICE_ARGUMENTS; i++) {
        if (call->given[i] == Py_None) continue;
        const DeviceArray *array = &call->arrays[i];
        if (call->viewed[i] && array->kind == at->kind && array->index == at->index) continue;
        if (call->viewed[i]) {
            name_place(array, other, sizeof other);
            (void)snprintf(said, sizeof said, "`%s` must be on %s, as `%s` is, not on %s", names[i],
                           where, names[first], other);
        } else {
            (void)snprintf(said, sizeof said, "`%s` must be an array on %s, as `%s` is", names[i],
                           where, names[first]);
        }
        return bcfg_device_refused(call, "place", said);
    }
    return 0;
}

static int fit_elements(const DeviceCall *call) {
    for (int i = 0; i < DEVICE_ARGUMENTS; i++)
        if (call->viewed[i] && call->arrays[i].element < 0)
            return bcfg_device_refused(call, "type", call->operation->arguments[i]);
    for (int i = DEVICE_B; i < DEVICE_ARGUMENTS; i++)
        if (call->viewed[i] && call->arrays[i].element != call->arrays[DEVICE_A].element)
            return bcfg_device_refused(call, "element", call->operation->arguments[i]);
    return 0;
}

/* Sizes by NumPy's rules, as in matmul.c. */
static int fit_product(DeviceCall *call) {
    const DeviceArray *a = &call->arrays[DEVICE_A], *b = &call->arrays[DEVICE_B];
    int wanted = call->operation->dimensions;
    for (int i = DEVICE_A; i <= DEVICE_B; i++)
        if (wanted != 0 ? call->arrays[i].dimensions != wanted : call->arrays[i].dimensions == 0)
            return bcfg_device_refused(call, "dimensions", call->operation->arguments[i]);
    bcfg_product *p = &call->product;
    p->element = a->element;
    p->m = a->dimensions > 1 ? a->shape[a->dimensions - 2] : 1;
    p->k = a->shape[a->dimensions - 1];
    p->n = b->dimensions > 1 ? b->shape[b->dimensions - 1] : 1;
    if (b->shape[b->dimensions > 1 ? b->dimensions - 2 : 0] != p->k)
        return bcfg_device_refused(call, "inner", "");
    int32_t most = a->dimensions > b->dimensions ? a->dimensions : b->dimensions;
    p->batch_dimensions = most > 2 ? most - 2 : 0;
    p->batch_shape = call->batch_shape;
    for (int32_t d = 0; d < p->batch_dimensions; d++) {
        int32_t a_at = d - p->batch_dimensions + a->dimensions - 2;
        int32_t b_at = d - p->batch_dimensions + b->dimensions - 2;
        int64_t from_a = a_at >= 0 ? a->shape[a_at] : 1, from_b = b_at >= 0 ? b->shape[b_at] : 1;
        if (from_a != from_b && (wanted != 0 || (from_a != 1 && from_b != 1)))
            return bcfg_device_refused(call, "batch", "");
        call->batch_shape[d] = from_a == 1 ? from_b : from_a;
    }
    call->has_rows = a->dimensions > 1;
    call->has_columns = b->dimensions > 1;
    for (call->dimensions = 0; call->dimensions < p->batch_dimensions; call->dimensions++)
        call->shape[call->dimensions] = call->batch_shape[call->dimensions];
    if (call->has_rows) call->shape[call->dimensions++] = p->m;
    if (call->has_columns) call->shape[call->dimensions++] = p->n;
    return 0;
}

/* Whether an array broadcasts to the shape of the result. */
static bool broadcasts(const DeviceCall *call, const DeviceArray *array) {
    int32_t more = call->dimensions - array->dimensions;
    for (int32_t d = 0; d < array->dimensions; d++)
        if (more < 0 || (array->shape[d] != 1 && array->shape[d] != call->shape[d + more]))
            return false;
    return true;
}

int bcfg_device_fit(DeviceCall *call) {
    if (fit_places(call) < 0 || fit_elements(call) < 0 || fit_product(call) < 0) return -1;
    if (call->viewed[DEVICE_ADDED] && !broadcasts(call, &call->arrays[DEVICE_ADDED]))
        return bcfg_device_refused(call, "broadcast", call->operation->arguments[DEVICE_ADDED]);
    return 0;
}

bcfg_operand bcfg_device_operand(const DeviceCall *call, int argument, int64_t *strides,
                                 bool has_rows, bool has_columns) {
    const DeviceArray *array = &call->arrays[argument];
    int32_t at = array->dimensions;
    bcfg_operand made = {.data = array->data, .batch_strides = strides};
    if (has_columns) made.column_stride = array->strides[--at];
    if (has_rows) made.row_stride = array->strides[--at];
    for (int32_t d = call->product.batch_dimensions - 1; d >= 0; d--)
        strides[d] = --at >= 0 && array->shape[at] != 1 ? array->strides[at] : 0;
    return made;
}

/* The first byte of an array and one past its last; equal when it is empty. */
static void extent(const DeviceArray *array, const char **from, const char **to) {
    const char *low = array->data, *high = array->data;
    *from = *to = array->data;
    for (int32_t d = 0; d < array->dimensions; d++) {
        if (array->shape[d] == 0) return;
        int64_t reach = (array->shape[d] - 1) * array->strides[d];
        if (reach < 0) low += reach;
        else high += reach;
    }
    *from = low;
    *to = high + bcfg_element_size[array->element];
}

static bool same(const DeviceArray *left, const DeviceArray *right) {
    if (left->data != right->data || left->dimensions != right->dimensions) return false;
    for (int32_t d = 0; d < left->dimensions; d++)
        if (left->shape[d] != right->shape[d] ||
            (left->shape[d] > 1 && left->strides[d] != right->strides[d]))
            return false;
    return true;
}

int bcfg_device_fit_out(DeviceCall *call) {
    const DeviceArray *out = &call->arrays[DEVICE_OUT];
    bool fits = out->dimensions == call->dimensions;
    for (int32_t d = 0; fits && d < out->dimensions; d++) fits = out->shape[d] == call->shape[d];
    if (!fits) return bcfg_device_refused(call, "out-shape", "out");
    if (out->read_only) return bcfg_device_refused(call, "read-only", "out");
    const char *from, *to, *other_from, *other_to;
    extent(out, &from, &to);
    for (int32_t d = 0; d < out->dimensions; d++)
        if (from != to && out->shape[d] > 1 && out->strides[d] == 0)
            return bcfg_device_refused(call, "repeats", "out");
    for (int i = DEVICE_A; i <= DEVICE_ADDED; i++) {
        if (!call->viewed[i] || (i == DEVICE_ADDED && same(out, &call->arrays[i]))) continue;
        extent(&call->arrays[i], &other_from, &other_to);
        if (from < other_to && other_from < to)
            return bcfg_device_refused(call, "overlap", call->operation->arguments[i]);
    }
    return 0;
}
