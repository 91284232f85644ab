/* Scope: the context manager that `profile()` returns. */
#include "glue.h"

#include <structmember.h>

static PyObject *scope_vectorcall(PyObject *type, PyObject *const *arguments, size_t flags,
                                  PyObject *keywords) {
    Py_ssize_t given = PyVectorcall_NARGS(flags);
    if (given < 1 || given > 2 || (keywords != NULL && PyTuple_GET_SIZE(keywords) != 0)) {
        PyErr_SetString(PyExc_TypeError, "Scope takes (prepared, busy=0), by position");
        return NULL;
    }
    if (!Py_IS_TYPE(arguments[0], &bcfg_PreparedType))
        return PyErr_Format(PyExc_TypeError, "Scope takes a Prepared, not %.100s",
                            Py_TYPE(arguments[0])->tp_name);
    int busy = 0;
    if (given == 2) {
        busy = (int)PyLong_AsLong(arguments[1]);
        if (busy == -1 && PyErr_Occurred()) return NULL;
    }
    Scope *self = PyObject_New(Scope, (PyTypeObject *)type);
    if (self == NULL) return NULL;
    self->prepared = (Prepared *)Py_NewRef(arguments[0]);
    self->busy = busy;
    self->open = NULL;
    return (PyObject *)self;
}

static void scope_dealloc(PyObject *object) {
    /* `open` is empty here: every frame in it holds a reference to the scope. */
    Py_DECREF(((Scope *)object)->prepared);
    PyObject_Free(object);
}

/* For a profile with switches: Python sets them first, and what it returns goes into the frame. */
static PyObject *enter_with_switches(Scope *self) {
    if (bcfg_need(bcfg_callbacks.enter_switches, "enter_switches") == NULL) return NULL;
    PyObject *claims = bcfg_chain_claims(NULL, NULL);
    if (claims == NULL) return NULL;
    PyObject *claim = PyObject_CallFunctionObjArgs(bcfg_callbacks.enter_switches, self->prepared, self,
                                                   claims, NULL);
    Py_DECREF(claims);
    if (claim == NULL) return NULL;
    bool failed = bcfg_push(self, claim) < 0;
    if (failed) {
        PyObject *exception = bcfg_take_exception();
        if (bcfg_give_back(self, self->prepared, claim) < 0) PyErr_Clear();
        bcfg_put_exception(exception);
    }
    Py_DECREF(claim);
    return failed ? NULL : Py_NewRef(self);
}

static PyObject *enter(Scope *self) {
    if (self->prepared->switches != Py_None) return enter_with_switches(self);
    return bcfg_push(self, NULL) < 0 ? NULL : Py_NewRef(self);
}

/* `scope.__enter__` and `scope.__exit__`. The `with` statement makes both for every block, and
 * CPython's own bound methods, which the collector tracks, are a quarter of the cost of a scope.
 * Without a scope it is what the class holds, which contextlib.ExitStack calls with the scope. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Scope *scope;
} Bound;
enum { SPARE = 8 };
static Bound *spare[SPARE];
static int spares;

/* The scope of a call, also when it is the first argument. Borrowed. */
static Scope *scope_of(PyObject *object, PyObject *const *arguments, size_t flags) {
    Scope *scope = ((Bound *)object)->scope;
    if (scope != NULL) return scope;
    if (PyVectorcall_NARGS(flags) > 0 && Py_IS_TYPE(arguments[0], &bcfg_ScopeType))
        return (Scope *)arguments[0];
    PyErr_SetString(PyExc_TypeError, "a method of Scope takes a Scope first");
    return NULL;
}

static PyObject *call_enter(PyObject *object, PyObject *const *arguments, size_t flags,
                            PyObject *keywords) {
    Scope *scope = scope_of(object, arguments, flags);
    if (scope == NULL) return NULL;
    if (PyVectorcall_NARGS(flags) != (((Bound *)object)->scope == NULL) || keywords != NULL) {
        PyErr_SetString(PyExc_TypeError, "__enter__ takes no arguments");
        return NULL;
    }
    return enter(scope);
}

static PyObject *call_exit(PyObject *object, PyObject *const *arguments, size_t flags,
                           PyObject *keywords) {
    (void)keywords;
    Scope *scope = scope_of(object, arguments, flags);
    if (scope == NULL || bcfg_pop(scope) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *bound(PyObject *object, PyObject *scope, PyObject *type) {
    (void)type;
    if (scope == NULL || ((Bound *)object)->scope != NULL) return Py_NewRef(object);
    Bound *self = spares > 0 ? spare[--spares] : PyObject_New(Bound, &bcfg_BoundType);
    if (self == NULL) return NULL;
    if (Py_REFCNT(self) == 0) PyObject_Init((PyObject *)self, &bcfg_BoundType);
    self->scope = (Scope *)Py_NewRef(scope);
    self->call = ((Bound *)object)->call;
    return (PyObject *)self;
}

static void bound_dealloc(PyObject *object) {
    Scope *scope = ((Bound *)object)->scope;
    if (spares < SPARE)
        spare[spares++] = (Bound *)object;
    else
        PyObject_Free(object);
    Py_XDECREF(scope);
}

PyTypeObject bcfg_BoundType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "backendcfg._native.Bound",
    .tp_basicsize = sizeof(Bound),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "A method of one scope.",
    .tp_vectorcall_offset = offsetof(Bound, call),
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = bound,
    .tp_dealloc = bound_dealloc,
};

static int add_method(const char *name, vectorcallfunc call) {
    Bound *method = PyObject_New(Bound, &bcfg_BoundType);
    if (method == NULL) return -1;
    method->call = call;
    method->scope = NULL;
    int done = PyDict_SetItemString(bcfg_ScopeType.tp_dict, name, (PyObject *)method);
    Py_DECREF(method);
    return done;
}

int bcfg_scope_ready(void) {
    if (PyType_Ready(&bcfg_BoundType) < 0 || PyType_Ready(&bcfg_ScopeType) < 0) return -1;
    if (add_method("__enter__", call_enter) < 0 || add_method("__exit__", call_exit) < 0) return -1;
    PyType_Modified(&bcfg_ScopeType);
    return 0;
}

static PyObject *scope_call(PyObject *object, PyObject *arguments, PyObject *keywords) {
    PyObject *function;
    if (keywords != NULL && PyDict_GET_SIZE(keywords) != 0) {
        PyErr_SetString(PyExc_TypeError, "as a decorator a scope takes one function");
        return NULL;
    }
    if (!PyArg_UnpackTuple(arguments, "Scope", 1, 1, &function)) return NULL;
    if (bcfg_need(bcfg_callbacks.decorate, "decorate") == NULL) return NULL;
    return PyObject_CallFunctionObjArgs(bcfg_callbacks.decorate, object, function, NULL);
}

static PyObject *scope_aenter(PyObject *object, PyObject *ignored) {
    (void)ignored;
    if (bcfg_need(bcfg_callbacks.aenter, "aenter") == NULL) return NULL;
    return PyObject_CallOneArg(bcfg_callbacks.aenter, object);
}

static PyObject *scope_aexit(PyObject *object, PyObject *const *arguments, Py_ssize_t given) {
    if (bcfg_need(bcfg_callbacks.aexit, "aexit") == NULL) return NULL;
    PyObject *all[4] = {object, Py_None, Py_None, Py_None};
    for (Py_ssize_t i = 0; i < given && i < 3; i++) all[i + 1] = arguments[i];
    return PyObject_Vectorcall(bcfg_callbacks.aexit, all, 4, NULL);
}

static PyObject *scope_repr(PyObject *object) {
    return PyUnicode_FromFormat("profile(%R)", ((Scope *)object)->prepared->name);
}

static PyMethodDef methods[] = {
    {"__aenter__", scope_aenter, METH_NOARGS, "Open it, waiting without blocking the loop."},
    {"__aexit__", (PyCFunction)(void (*)(void))scope_aexit, METH_FASTCALL, "Close it."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"prepared", T_OBJECT_EX, offsetof(Scope, prepared), READONLY, "What it enters."},
    {"busy", T_INT, offsetof(Scope, busy), READONLY, "What to do when a switch is taken."},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *is_open_get(PyObject *object, void *closure) {
    (void)closure;
    return PyBool_FromLong(((Scope *)object)->open != NULL);
}

static PyGetSetDef getters[] = {
    {"is_open", is_open_get, NULL, "Whether it was entered anywhere and not left since.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject bcfg_ScopeType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "backendcfg._native.Scope",
    .tp_basicsize = sizeof(Scope),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Scope(prepared, busy=0)\n--\n\nA profile as a context manager or decorator.",
    .tp_vectorcall = scope_vectorcall,
    .tp_dealloc = scope_dealloc,
    .tp_call = scope_call,
    .tp_repr = scope_repr,
    .tp_methods = methods,
    .tp_members = members,
    .tp_getset = getters,
};
