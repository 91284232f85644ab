/* Prepared, and the base of the process: what holds where no scope is open. */
#include "glue.h"

#include <structmember.h>

Prepared *bcfg_base;

static int prepared_init(PyObject *object, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"name", "payload", "switches", NULL};
    Prepared *self = (Prepared *)object;
    PyObject *name, *payload, *switches = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "UO|O:Prepared", names, &name, &payload,
                                     &switches))
        return -1;
    Py_XSETREF(self->name, Py_NewRef(name));
    Py_XSETREF(self->payload, Py_NewRef(payload));
    Py_XSETREF(self->switches, Py_NewRef(switches));
    Py_XSETREF(self->listing, Py_NewRef(Py_None));
    return 0;
}

static int prepared_traverse(PyObject *object, visitproc visit, void *arg) {
    Prepared *self = (Prepared *)object;
    Py_VISIT(self->payload);
    Py_VISIT(self->switches);
    Py_VISIT(self->listing);
    Py_VISIT(self->attention);
    return 0;
}

static int prepared_clear(PyObject *object) {
    Prepared *self = (Prepared *)object;
    Py_CLEAR(self->payload);
    Py_CLEAR(self->switches);
    Py_CLEAR(self->listing);
    Py_CLEAR(self->attention);
    return 0;
}

static void prepared_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    prepared_clear(object);
    Py_CLEAR(((Prepared *)object)->name);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *prepared_repr(PyObject *object) {
    return PyUnicode_FromFormat("Prepared(%R)", ((Prepared *)object)->name);
}

static PyObject *snapshot_get(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromVoidPtr((void *)((Prepared *)object)->snapshot);
}

static int snapshot_set(PyObject *object, PyObject *value, void *closure) {
    (void)closure;
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "snapshot cannot be deleted");
        return -1;
    }
    const bcfg_snapshot *snapshot = PyLong_AsVoidPtr(value);
    if (PyErr_Occurred()) return -1;
    /* The next product would dereference any other address. */
    if (snapshot != NULL && !bcfg_snapshot_known(snapshot)) {
        PyErr_SetString(PyExc_ValueError, "not the address of a snapshot");
        return -1;
    }
    Prepared *self = (Prepared *)object;
    self->snapshot = snapshot;
    if (self == bcfg_base) bcfg_publish(snapshot);
    return 0;
}

static PyMemberDef members[] = {
    {"name", T_OBJECT_EX, offsetof(Prepared, name), READONLY, "What was asked for."},
    {"payload", T_OBJECT_EX, offsetof(Prepared, payload), 0,
     "The compiled plan. Who replaces it sets the snapshot to 0."},
    {"switches", T_OBJECT, offsetof(Prepared, switches), 0,
     "What enter_switches sets; None when a scope has nothing process-wide to set."},
    {"listing", T_OBJECT, offsetof(Prepared, listing), 0,
     "How the providers of its snapshot were found; None until materialised."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"snapshot", snapshot_get, snapshot_set, "Address of its snapshot; 0 until materialised.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject bcfg_PreparedType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "backendcfg._native.Prepared",
    .tp_basicsize = sizeof(Prepared),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Prepared(name, payload, switches=None)\n--\n\nA resolved profile, ready to enter.",
    .tp_new = PyType_GenericNew,
    .tp_init = prepared_init,
    .tp_dealloc = prepared_dealloc,
    .tp_traverse = prepared_traverse,
    .tp_clear = prepared_clear,
    .tp_repr = prepared_repr,
    .tp_members = members,
    .tp_getset = getters,
};

int bcfg_innermost(Prepared **prepared) {
    Frame *frame;
    if (bcfg_top(&frame) < 0) return -1;
    while (frame != NULL && frame->closed_elsewhere) frame = frame->outer;
    *prepared = frame != NULL ? frame->prepared : bcfg_base;
    return 0;
}

PyObject *bcfg_current_prepared(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    Prepared *prepared;
    if (bcfg_innermost(&prepared) < 0) return NULL;
    return Py_NewRef(prepared != NULL ? (PyObject *)prepared : Py_None);
}

PyObject *bcfg_set_base(PyObject *module, PyObject *value) {
    (void)module;
    if (value != Py_None && !Py_IS_TYPE(value, &bcfg_PreparedType))
        return PyErr_Format(PyExc_TypeError, "set_base takes a Prepared or None, not %.100s",
                            Py_TYPE(value)->tp_name);
    Prepared *old = bcfg_base;
    bcfg_base = value == Py_None ? NULL : (Prepared *)Py_NewRef(value);
    bcfg_publish(bcfg_base != NULL ? bcfg_base->snapshot : NULL);
    Py_XDECREF(old); /* last: freeing it may run Python */
    Py_RETURN_NONE;
}
