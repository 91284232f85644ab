/* The switches of a scope, set and given back one after the other: the quick way of `take` and
 * `give_back` of `registry/owners.py`, where the rest is. What changes here changes there.
 *
 * A line is (cell, wanted, read, write, setting), `owners.Line`. */
#include "glue.h"

#include <structmember.h>

enum { CELL, WANTED, READ, WRITE, FIELDS = 5 };

/* What the loops look at of `owners.Cell`, which says what it means. */
typedef struct {
    PyObject_HEAD
    PyObject *claims, *base;
    char known;
} Cell;

static int cell_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(((Cell *)object)->claims);
    Py_VISIT(((Cell *)object)->base);
    return 0;
}

static int cell_clear(PyObject *object) {
    Py_CLEAR(((Cell *)object)->claims);
    Py_CLEAR(((Cell *)object)->base);
    return 0;
}

static void cell_dealloc(PyObject *object) {
    PyObject_GC_UnTrack(object);
    cell_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static bool is_claimed(const Cell *cell) {
    return cell->claims != NULL && PyDict_Check(cell->claims) && PyDict_GET_SIZE(cell->claims) > 0;
}

/* Its base, borrowed; None where there is none yet. */
static PyObject *base_of(const Cell *cell) { return cell->base == NULL ? Py_None : cell->base; }

static PyMemberDef cell_members[] = {
    {"_claims", T_OBJECT_EX, offsetof(Cell, claims), 0, "The values wanted, a dictionary."},
    {"_base", T_OBJECT, offsetof(Cell, base), 0, "The value while nobody claims it."},
    {"known", T_BOOL, offsetof(Cell, known), 0, "Whether the base was recorded."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject bcfg_CellType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "backendcfg._native.CellFields",
    .tp_basicsize = sizeof(Cell),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "What C looks at of a cell of the owner table.",
    .tp_new = PyType_GenericNew,
    .tp_dealloc = cell_dealloc,
    .tp_traverse = cell_traverse,
    .tp_clear = cell_clear,
    .tp_members = cell_members,
};

/* 1 or 0; -1 with an exception set. */
static int are_equal(PyObject *one, PyObject *other) {
    return PyObject_RichCompareBool(one, other, Py_EQ);
}

/* The line at a place, a new reference: what is called may change the list. */
static PyObject *line_at(PyObject *lines, Py_ssize_t at) {
    PyObject *line = PyList_GET_ITEM(lines, at);
    if (PyTuple_CheckExact(line) && PyTuple_GET_SIZE(line) == FIELDS &&
        PyObject_TypeCheck(PyTuple_GET_ITEM(line, CELL), &bcfg_CellType))
        return Py_NewRef(line);
    PyErr_SetString(PyExc_TypeError, "a line is a tuple of five, a cell first");
    return NULL;
}

static int call_write(PyObject *line, PyObject *value) {
    PyObject *done = PyObject_CallOneArg(PyTuple_GET_ITEM(line, WRITE), value);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Writes what is wanted, over `before`, and reads it back. */
static int change(PyObject *line, PyObject *before, PyObject *begun, PyObject *refuse) {
    PyObject *wanted = PyTuple_GET_ITEM(line, WANTED);
    PyObject *pair = PyTuple_Pack(2, line, before);
    int done = pair == NULL ? -1 : PyList_Append(begun, pair);
    Py_XDECREF(pair);
    if (done < 0 || call_write(line, wanted) < 0) return -1;
    PyObject *found = PyObject_CallNoArgs(PyTuple_GET_ITEM(line, READ));
    if (found == NULL) return -1;
    int same = are_equal(found, wanted);
    if (same == 0) Py_XDECREF(PyObject_CallFunctionObjArgs(refuse, wanted, found, NULL));
    Py_DECREF(found);
    if (same == 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "refuse() has to raise");
    return same > 0 ? 0 : -1;
}

/* Sets one switch. 1 if that changes it, or giving it back will; 0 if neither does; -1 with an exception
 * set. */
static int enter_line(PyObject *line, PyObject *begun, PyObject *values, PyObject *refuse) {
    const Cell *cell = (Cell *)PyTuple_GET_ITEM(line, CELL);
    PyObject *wanted = PyTuple_GET_ITEM(line, WANTED);
    PyObject *before = PyObject_CallNoArgs(PyTuple_GET_ITEM(line, READ));
    if (before == NULL) return -1;
    int same = are_equal(before, wanted);
    if (same == 0 && change(line, before, begun, refuse) < 0) same = -1;
    if (same >= 0 && PyList_Append(values, before) < 0) same = -1;
    if (same > 0 && cell->known) same = are_equal(base_of(cell), wanted);
    Py_DECREF(before);
    return same < 0 ? -1 : !same;
}

PyObject *bcfg_enter_lines(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    (void)module;
    if (count != 5 || !PyList_Check(given[0]) || !PyList_Check(given[1]) ||
        !PyList_Check(given[2]) || !PyList_Check(given[3])) {
        PyErr_SetString(PyExc_TypeError, "enter_lines takes four lists and a function");
        return NULL;
    }
    PyObject *lines = given[0], *held = given[1], *begun = given[2], *before = given[3];
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(lines); i++) {
        PyObject *line = line_at(lines, i);
        if (line == NULL) return NULL;
        bool taken = is_claimed((Cell *)PyTuple_GET_ITEM(line, CELL));
        Py_DECREF(line);
        if (taken) Py_RETURN_FALSE;
    }
    bool any = false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(lines); i++) {
        PyObject *line = line_at(lines, i);
        int changes = line == NULL ? -1 : enter_line(line, begun, before, given[4]);
        if (changes >= 0 && PyList_Append(held, line) < 0) changes = -1;
        Py_XDECREF(line);
        if (changes < 0) return NULL;
        any |= changes;
    }
    if (!any && PyList_SetSlice(before, 0, PY_SSIZE_T_MAX, NULL) < 0) return NULL;
    Py_RETURN_TRUE;
}

/* Gives back one switch: its recorded base, or what it held before. 1 if it holds that then; 0 if not, or
 * if its cell has claims, which the caller does not know; -1 with an exception set. */
static int leave_line(PyObject *line, PyObject *before) {
    const Cell *cell = (Cell *)PyTuple_GET_ITEM(line, CELL);
    if (is_claimed(cell)) return 0;
    PyObject *target = Py_NewRef(cell->known ? base_of(cell) : before);
    int same = are_equal(target, PyTuple_GET_ITEM(line, WANTED)), holds = -1;
    if (same > 0 || (same == 0 && call_write(line, target) == 0)) {
        PyObject *found = PyObject_CallNoArgs(PyTuple_GET_ITEM(line, READ));
        if (found != NULL) holds = are_equal(found, target);
        Py_XDECREF(found);
    }
    Py_DECREF(target);
    /* A setter may have looked at the cells, which then have the claims, or changed their bases. */
    return holds > 0 && is_claimed(cell) ? 0 : holds;
}

PyObject *bcfg_leave_lines(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    (void)module;
    if (count != 2 || !PyList_Check(given[0]) || !PyList_Check(given[1])) {
        PyErr_SetString(PyExc_TypeError, "leave_lines takes two lists");
        return NULL;
    }
    PyObject *held = given[0], *before = given[1];
    bool is_quiet = PyList_GET_SIZE(before) == 0;
    for (Py_ssize_t last; (last = PyList_GET_SIZE(held) - 1) >= 0;) {
        if (!is_quiet && last >= PyList_GET_SIZE(before)) {
            PyErr_SetString(PyExc_IndexError, "more lines are held than have a value before");
            return NULL;
        }
        PyObject *line = line_at(held, last);
        if (line == NULL) return NULL;
        int holds =
            leave_line(line, is_quiet ? PyTuple_GET_ITEM(line, WANTED) : PyList_GET_ITEM(before, last));
        Py_DECREF(line);
        if (holds < 0) {
            if (!PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
            PyErr_Clear();
        }
        if (holds <= 0) Py_RETURN_FALSE;
        if (PyList_SetSlice(held, last, PY_SSIZE_T_MAX, NULL) < 0) return NULL;
    }
    Py_RETURN_TRUE;
}
