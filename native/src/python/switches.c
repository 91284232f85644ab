/* The switches of a scope, set and given back one after the other: the loops of `registry.owners`,
 * which says what they mean. A line is (cell, wanted, read, write, setting), `owners.Line`. */
#include "glue.h"

enum { CELL, WANTED, READ, WRITE, FIELDS = 5 };

static PyObject *claims_name, *known_name, *base_name;

int bcfg_switches_ready(void) {
    claims_name = PyUnicode_InternFromString("_claims");
    known_name = PyUnicode_InternFromString("known");
    base_name = PyUnicode_InternFromString("_base");
    return claims_name != NULL && known_name != NULL && base_name != NULL ? 0 : -1;
}

/* 1 or 0; -1 with an exception set. */
static int are_equal(PyObject *one, PyObject *other) {
    return PyObject_RichCompareBool(one, other, Py_EQ);
}

/* Whether an attribute of an object is true; -1 with an exception set. */
static int is_true(PyObject *object, PyObject *name) {
    PyObject *value = PyObject_GetAttr(object, name);
    int found = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return found;
}

/* The line at a place, a new reference: what is called may change the list. */
static PyObject *line_at(PyObject *lines, Py_ssize_t at) {
    PyObject *line = PyList_GET_ITEM(lines, at);
    if (PyTuple_CheckExact(line) && PyTuple_GET_SIZE(line) == FIELDS) return Py_NewRef(line);
    PyErr_SetString(PyExc_TypeError, "a line is a tuple of five");
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
        PyErr_SetString(PyExc_RuntimeError, "refusing a value raises");
    return same > 0 ? 0 : -1;
}

/* Sets one switch. Whether it changes: now, or when it is given back; -1 with an exception set. */
static int enter_line(PyObject *line, PyObject *begun, PyObject *targets, PyObject *refuse) {
    PyObject *cell = PyTuple_GET_ITEM(line, CELL), *wanted = PyTuple_GET_ITEM(line, WANTED);
    PyObject *before = PyObject_CallNoArgs(PyTuple_GET_ITEM(line, READ));
    if (before == NULL) return -1;
    int same = are_equal(before, wanted);
    if (same == 0 && change(line, before, begun, refuse) < 0) same = -1;
    int known = same < 0 ? -1 : is_true(cell, known_name);
    if (known > 0) {
        Py_SETREF(before, PyObject_GetAttr(cell, base_name));
        if (before == NULL) return -1;
        if (same > 0) same = are_equal(before, wanted);
    }
    if (known < 0 || same < 0 || PyList_Append(targets, before) < 0) same = -1;
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
    PyObject *lines = given[0], *held = given[1], *begun = given[2], *targets = given[3];
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(lines); i++) {
        PyObject *line = line_at(lines, i);
        int claimed = line == NULL ? -1 : is_true(PyTuple_GET_ITEM(line, CELL), claims_name);
        Py_XDECREF(line);
        if (claimed < 0) return NULL;
        if (claimed) Py_RETURN_FALSE;
    }
    bool any = false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(lines); i++) {
        PyObject *line = line_at(lines, i);
        int changes = line == NULL ? -1 : enter_line(line, begun, targets, given[4]);
        if (changes >= 0 && PyList_Append(held, line) < 0) changes = -1;
        Py_XDECREF(line);
        if (changes < 0) return NULL;
        any |= changes;
    }
    if (!any && PyList_SetSlice(targets, 0, PY_SSIZE_T_MAX, NULL) < 0) return NULL;
    Py_RETURN_TRUE;
}

/* Gives back one switch. Whether it holds its target then; -1 with an exception set. */
static int leave_line(PyObject *line, PyObject *target) {
    int same = are_equal(target, PyTuple_GET_ITEM(line, WANTED));
    if (same < 0 || (same == 0 && call_write(line, target) < 0)) return -1;
    PyObject *found = PyObject_CallNoArgs(PyTuple_GET_ITEM(line, READ));
    int holds = found == NULL ? -1 : are_equal(found, target);
    Py_XDECREF(found);
    return holds;
}

PyObject *bcfg_leave_lines(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    (void)module;
    if (count != 2 || !PyList_Check(given[0]) || !PyList_Check(given[1])) {
        PyErr_SetString(PyExc_TypeError, "leave_lines takes two lists");
        return NULL;
    }
    PyObject *held = given[0], *targets = given[1];
    bool is_quiet = PyList_GET_SIZE(targets) == 0;
    for (Py_ssize_t last; (last = PyList_GET_SIZE(held) - 1) >= 0;) {
        if (!is_quiet && last >= PyList_GET_SIZE(targets)) {
            PyErr_SetString(PyExc_IndexError, "more lines are held than have targets");
            return NULL;
        }
        PyObject *line = line_at(held, last);
        if (line == NULL) return NULL;
        PyObject *target =
            Py_NewRef(is_quiet ? PyTuple_GET_ITEM(line, WANTED) : PyList_GET_ITEM(targets, last));
        int holds = leave_line(line, target);
        Py_DECREF(target);
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
