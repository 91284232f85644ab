/* Device arrays by DLPack's table of C functions: nothing is allocated, no Python runs. */
#include "gpu/python/device.h"

/* The tables of types that were asked before, cached because asking costs more than the call; that
 * a type has none is cached too. Each entry holds a reference, so that a type's address is not
 * reused. */
typedef struct {
    PyTypeObject *type;
    const DLExchange *exchange;
    bool lazy;                         /* its arrays may stand for the conjugate or the negative */
} Known;

enum { MOST_KNOWN = 16, MOST_BYTES = 16 };
static Known known_types[MOST_KNOWN];
static int next_known;

/* The table behind a capsule of version 1, or NULL. */
static const DLExchange *table_of(PyObject *capsule) {
    const DLExchangeHeader *header = PyCapsule_GetPointer(capsule, DLPACK_EXCHANGE_API);
    if (header == NULL) PyErr_Clear();
    while (header != NULL && header->major != 1) header = header->previous;
    const DLExchange *exchange = (const DLExchange *)header;
    return exchange != NULL && exchange->tensor_from_object != NULL ? exchange : NULL;
}

/* An attribute of a type; NULL without an exception where it has none. New reference. */
static PyObject *attribute(PyTypeObject *type, const char *name) {
    PyObject *found = PyObject_GetAttrString((PyObject *)type, name);
    if (found == NULL) PyErr_Clear();
    return found;
}

/* Whether a subclass changes what its arrays are. It inherits the table, but PyTorch's fake and
 * wrapped tensors set another `__torch_dispatch__` and have no memory that the table could
 * describe. */
static bool changes(PyTypeObject *type) {
    PyTypeObject *owner = type;
    while (owner != NULL && (owner->tp_dict == NULL ||
                             PyDict_GetItemString(owner->tp_dict, "__dlpack_c_exchange_api__") == NULL))
        owner = owner->tp_base;
    if (owner == NULL || owner == type) return false;
    PyObject *mine = attribute(type, "__torch_dispatch__");
    PyObject *theirs = attribute(owner, "__torch_dispatch__");
    bool differs = mine != theirs;
    Py_XDECREF(mine);
    Py_XDECREF(theirs);
    return differs;
}

static const Known *ask(PyTypeObject *type) {
    Known fresh = {.type = type};
    PyObject *capsule = attribute(type, "__dlpack_c_exchange_api__");
    if (capsule != NULL && PyCapsule_IsValid(capsule, DLPACK_EXCHANGE_API) && !changes(type))
        fresh.exchange = table_of(capsule);
    Py_XDECREF(capsule);
    PyObject *lazy = attribute(type, "is_conj");
    fresh.lazy = lazy != NULL;
    Py_XDECREF(lazy);
    Known *slot = &known_types[next_known++ % MOST_KNOWN];
    PyTypeObject *old = slot->type;
    Py_INCREF(type);
    *slot = fresh;
    Py_XDECREF(old);
    return slot;
}

static const Known *known_of(PyTypeObject *type) {
    for (int i = 0; i < MOST_KNOWN; i++)
        if (known_types[i].type == type) return &known_types[i];
    return ask(type);
}

/* In the order of bcfg_element, then of DeviceType. */
static const DLDataType types[DEVICE_TYPES] = {{2, 32, 1}, {2, 64, 1}, {5, 64, 1}, {5, 128, 1},
                                               {4, 16, 1}, {2, 16, 1}, {6, 8, 1},  {0, 8, 1},
                                               {1, 8, 1},  {0, 32, 1}, {0, 64, 1}};

void bcfg_set_type(DeviceArray *array, int32_t type) {
    array->type = type;
    array->element = type < BCFG_ELEMENTS ? type : -1; /* also where it is -1 */
}

int32_t bcfg_type_of_dlpack(DLDataType type) {
    for (int32_t i = 0; i < DEVICE_TYPES; i++)
        if (types[i].code == type.code && types[i].bits == type.bits && type.lanes == 1) return i;
    return -1;
}

/* Names of methods, made once: making them costs more than the calls. */
static PyObject *is_conj, *is_neg;

static bool have_names(void) {
    if (is_conj == NULL) is_conj = PyUnicode_InternFromString("is_conj");
    if (is_neg == NULL) is_neg = PyUnicode_InternFromString("is_neg");
    return is_conj != NULL && is_neg != NULL;
}

/* Whether a method without arguments says yes; -1 with an exception set. */
static int says(PyObject *value, PyObject *method) {
    PyObject *answer = PyObject_CallMethodNoArgs(value, method);
    int yes = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return yes;
}

PyObject *bcfg_resolved(PyObject *value, int32_t element) {
    bool is_complex = element == BCFG_COMPLEX64 || element == BCFG_COMPLEX128;
    if (!have_names()) return NULL;
    int conjugate = is_complex ? says(value, is_conj) : 0;
    int negative = conjugate < 0 ? -1 : says(value, is_neg);
    if (conjugate < 0 || negative < 0 || (!conjugate && !negative)) return NULL;
    PyObject *half = PyObject_CallMethod(value, "resolve_conj", NULL);
    PyObject *whole = half == NULL ? NULL : PyObject_CallMethod(half, "resolve_neg", NULL);
    Py_XDECREF(half);
    return whole;
}

static bool is_device(int32_t kind) { return kind == BCFG_PLACE_CUDA || kind == BCFG_PLACE_ROCM; }

int bcfg_read_dlpack(const DLTensor *tensor, DeviceArray *view) {
    if (tensor->dimensions < 0 || tensor->dimensions > BCFG_DEVICE_DIMENSIONS) {
        PyErr_Format(PyExc_ValueError, "it has %d dimensions", tensor->dimensions);
        return -1;
    }
    bool empty;
    const char *wrong = bcfg_dlpack_layout(tensor, view->shape, view->strides, &empty);
    if (wrong == NULL && !empty && tensor->data == NULL) wrong = "it has no memory";
    if (wrong == NULL && !empty &&
        !bcfg_can_be_memory(tensor->data, tensor->byte_offset, view->shape, view->strides,
                            tensor->dimensions, tensor->type.bits / 8))
        wrong = "it reaches beyond all memory";
    if (wrong != NULL) {
        PyErr_SetString(PyExc_ValueError, wrong);
        return -1;
    }
    view->dimensions = tensor->dimensions;
    view->data = (char *)tensor->data + tensor->byte_offset;
    return 1;
}

int bcfg_view_by_exchange(PyObject *value, DeviceArray *view, bool *known) {
    const Known *type = known_of(Py_TYPE(value));
    const DLExchange *exchange = type->exchange;
    bool lazy = type->lazy; /* what `type` points to may change when Python runs */
    *known = exchange != NULL;
    if (exchange == NULL) return 0;
    DLTensor tensor;
    if (exchange->tensor_from_object(value, &tensor) != 0) {
        /* Sparse, on no device, or traced: the protocols below say what is wrong. */
        PyErr_Clear();
        *known = false;
        return 0;
    }
    if (!is_device(tensor.device.type)) return 0;
    view->object = value;
    view->exchange = exchange;
    view->kind = tensor.device.type;
    view->index = tensor.device.id;
    bcfg_set_type(view, bcfg_type_of_dlpack(tensor.type));
    /* Read before its owner runs again: the numbers are borrowed until then. */
    if (bcfg_read_dlpack(&tensor, view) < 0) return -1;
    if (lazy && view->element >= 0) {
        PyObject *plain = bcfg_resolved(value, view->element);
        if (plain == NULL && PyErr_Occurred()) return -1;
        if (plain != NULL) {
            view->holder = plain;
            view->lazy = true;
            if (exchange->tensor_from_object(plain, &tensor) != 0 ||
                bcfg_read_dlpack(&tensor, view) < 0)
                return -1;
        }
    }
    view->stream = NULL;
    return exchange->current_stream(view->kind, view->index, &view->stream) != 0 ? -1 : 1;
}

/* What an allocator says is wrong; raised when it has returned. */
typedef struct {
    bool is_memory;
    char message[256];
} Complaint;

static void complain(void *context, const char *kind, const char *message) {
    Complaint *complaint = context;
    complaint->is_memory = strstr(kind, "Memory") != NULL;
    (void)snprintf(complaint->message, sizeof complaint->message, "%s", message);
}

PyObject *bcfg_make_by_exchange(const DeviceArray *like, int32_t dimensions, const int64_t *shape,
                                DeviceArray *made) {
    int64_t sizes[BCFG_DEVICE_DIMENSIONS], strides[BCFG_DEVICE_DIMENSIONS], step = 1;
    for (int32_t d = dimensions - 1; d >= 0; d--) {
        sizes[d] = shape[d];
        strides[d] = step;
        if (__builtin_mul_overflow(step, shape[d] > 1 ? shape[d] : 1, &step))
            return PyErr_NoMemory();
    }
    DLTensor prototype = {.device = {like->kind, like->index}, .dimensions = dimensions,
                          .type = types[like->type], .shape = sizes, .strides = strides};
    DLManagedTensorVersioned *managed = NULL;
    Complaint complaint = {.is_memory = true, .message = "the device has no memory for the result"};
    if (like->exchange->allocate(&prototype, &managed, &complaint, complain) != 0 ||
        managed == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(complaint.is_memory ? PyExc_MemoryError : PyExc_RuntimeError,
                            complaint.message);
        return NULL;
    }
    /* Fill in the view before the object is handed to its owner. */
    *made = (DeviceArray){.exchange = like->exchange, .kind = like->kind, .index = like->index,
                          .element = like->element, .type = like->type, .stream = like->stream};
    int status = bcfg_read_dlpack(&managed->tensor, made);
    void *object = NULL;
    if (like->exchange->object_from_managed(managed, &object) != 0) return NULL;
    made->object = object;
    if (status < 0) Py_CLEAR(made->object);
    return made->object;
}

/* Workspaces are allocated and freed without the GIL, which the allocator may need. */
static bool workspace_get(void *context, int64_t bytes, void **memory, void **holder) {
    const DeviceArray *array = context;
    int64_t shape[1] = {bytes}, strides[1] = {1};
    DLTensor prototype = {.device = {array->kind, array->index}, .dimensions = 1,
                          .type = {1, 8, 1}, .shape = shape, .strides = strides};
    DLManagedTensorVersioned *managed = NULL;
    Complaint complaint;
    PyGILState_STATE state = PyGILState_Ensure();
    bool got = array->exchange->allocate(&prototype, &managed, &complaint, complain) == 0 &&
               managed != NULL;
    if (!got) PyErr_Clear();
    PyGILState_Release(state);
    if (!got) return false;
    *memory = (char *)managed->tensor.data + managed->tensor.byte_offset;
    *holder = managed;
    return true;
}

static void workspace_release(void *holder) {
    DLManagedTensorVersioned *managed = holder;
    if (managed->deleter == NULL) return;
    PyGILState_STATE state = PyGILState_Ensure();
    managed->deleter(managed);
    PyGILState_Release(state);
}

bcfg_allocator bcfg_allocator_of(const DeviceArray *array) {
    if (array->exchange == NULL) return (bcfg_allocator){NULL, NULL, NULL};
    return (bcfg_allocator){workspace_get, workspace_release, (void *)array};
}
