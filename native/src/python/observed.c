/* Calls of NumPy's functions, told to Python with a digest of what they computed.
 *
 * No object is replaced, and no inner loop is touched. What Python calls has an address that it calls
 * at: in the object itself where it has the vectorcall protocol, as ufuncs and the methods of NumPy's
 * generators have; in the definition of a method where C defines it, as those of arrays, those of
 * ufuncs (`add.reduce`) and the functions of NumPy's modules are. Such an address is exchanged for one
 * of here, which calls the original with the same arguments and returns what it returned. Operators
 * take the same way: `a @ b` makes NumPy call its ufunc as a program would.
 *
 * A call in which others were told is not told itself: it consists of them. Only numbers are told
 * whose bytes mean something: no objects, no text, and no `longdouble`, which has bytes that nobody
 * writes.
 */
#include "observed.h"

#include <numpy/ufuncobject.h>
#include <stddef.h>
#include <unistd.h>

enum {
    PLACES = 4096,                       /* of the table; a power of two */
    MOST = 3072,                         /* entries in it */
    SLOTS = 32,                          /* methods that C defines */
    TYPES = NPY_HALF + 1,               /* NumPy's own number the half type last */
};

/* What is known of something that is observed. It stays to the end of the process. */
typedef struct {
    uintptr_t key;                       /* the object, or the definition; see `derived` */
    PyObject *held;                      /* what keeps the key valid */
    PyObject *name;
    vectorcallfunc original;
    PyCFunction method;
    bool has_keywords;                   /* of the method */
    int written;                         /* the argument that it writes to, `self` being 0, or -1 */
    int inputs;                          /* of a ufunc, else -1 */
    bool hides;                          /* whether calls that it makes are not told */
    PyObject *names[TYPES];              /* its name with the type of what it computed */
} Entry;

static Entry *table[PLACES];
static int entries, slots;
static Entry *slot_entries[SLOTS];

static _Thread_local bool hidden;        /* whether nothing is told now */
static _Thread_local uint64_t told;      /* calls of this thread */

/* ---- the table --------------------------------------------------------------------------------- */

static Entry **place_of(uintptr_t key) {
    size_t at = (size_t)((key >> 3) * 0x9e3779b97f4a7c15u >> 20) % PLACES;
    while (table[at] != NULL && table[at]->key != key) at = (at + 1) % PLACES;
    return &table[at];
}

/* An entry that is in no table yet; NULL with an exception set. */
static Entry *make(uintptr_t key, PyObject *held, PyObject *name, int written, bool hides) {
    Entry *made = PyMem_Calloc(1, sizeof *made);
    if (made == NULL) return (Entry *)PyErr_NoMemory();
    made->key = key, made->held = Py_NewRef(held), made->name = Py_NewRef(name);
    made->written = written, made->hides = hides, made->inputs = -1;
    return made;
}

static void enter(Entry *made) {
    *place_of(made->key) = made;
    entries++;
}

/* The entry of a ufunc's method, whose key is an address within the ufunc: no other object has it. */
static Entry *derived(Entry *method, int slot, PyObject *self) {
    if (self == NULL || !PyObject_TypeCheck(self, &PyUFunc_Type)) return method;
    uintptr_t key = (uintptr_t)self + (uintptr_t)slot + 1;
    Entry *found = *place_of(key), *own = *place_of((uintptr_t)self);
    if (found != NULL || entries >= MOST) return found != NULL ? found : method;
    PyObject *name = own != NULL
                         ? PyUnicode_FromFormat("%U.%U", own->name, method->name)
                         : PyUnicode_FromFormat("%s.%U", ((PyUFuncObject *)self)->name, method->name);
    if (name != NULL) found = make(key, self, name, method->written, method->hides);
    Py_XDECREF(name);
    if (found == NULL) {
        PyErr_Clear();
        return method;
    }
    enter(found);
    return found;
}

/* ---- a call ------------------------------------------------------------------------------------ */

/* Whether a ufunc or `copyto` leaves elements of its result as the memory was. */
static bool leaves_gaps(const Entry *entry, const Given *given) {
    PyObject *where = bcfg_named(given, "where");
    if (where == NULL || where == Py_True) return false;
    if (entry->inputs < 0) return entry->written >= 0;
    if (given->count > entry->inputs) return false;
    PyObject *out = bcfg_named(given, "out");
    return out == NULL || out == Py_None;
}

static PyObject *name_with_type(Entry *entry, int type) {
    if (entry->names[type] == NULL) {
        PyArray_Descr *descriptor = PyArray_DescrFromType(type);
        if (descriptor == NULL) return NULL;
        entry->names[type] = PyUnicode_FromFormat("%U %S", entry->name, (PyObject *)descriptor);
        Py_DECREF(descriptor);
    }
    return entry->names[type];
}

/* Drops an exception that the program would not have met without us: our callback may be one call too
 * deep, or need memory that is gone. Any other comes from the program, as from a handler of signals. */
static bool forgive(void) {
    if (!PyErr_ExceptionMatches(PyExc_RecursionError) && !PyErr_ExceptionMatches(PyExc_MemoryError))
        return false;
    PyErr_Clear();
    return true;
}

/* Asks, before a call, whether more is wanted of it: what Python wants back after it, NULL for
 * nothing, or with an exception set that is the program's. */
static PyObject *ask(const Entry *entry, const Given *given) {
    if (bcfg_callbacks.computing == NULL) return NULL;
    PyObject *arguments = bcfg_packed(given, entry->inputs), *keywords = bcfg_packed_keywords(given), *token = NULL;
    if (arguments != NULL && keywords != NULL)
        token = PyObject_CallFunctionObjArgs(bcfg_callbacks.computing, entry->name, arguments,
                                             keywords, NULL);
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    if (token == Py_None) Py_CLEAR(token);
    if (token == NULL && PyErr_Occurred()) forgive();
    return token;
}

/* Tells of a call that returned; -1 with an exception set that is the program's. */
static int tell(Entry *entry, const Given *given, PyObject *result, PyObject *token) {
    PyObject *results = result;
    if (result == Py_None && entry->written >= 0) results = bcfg_argument(given, entry->written);
    if (results == NULL) return 0;
    uint64_t value = 0;
    int type = bcfg_digest_results(results, &value);
    if (type < 0) {
        PyErr_Clear(); // no memory for a copy
        return 0;
    }
    if (leaves_gaps(entry, given)) value = 0;
    PyObject *name = name_with_type(entry, type), *number = PyLong_FromUnsignedLongLong(value);
    PyObject *done = NULL;
    if (name != NULL && number != NULL && bcfg_callbacks.computed != NULL)
        done = PyObject_CallFunctionObjArgs(bcfg_callbacks.computed, name, number,
                                            token != NULL ? token : Py_None,
                                            token != NULL ? results : Py_None, NULL);
    Py_XDECREF(number);
    if (done != NULL) told++;
    Py_XDECREF(done);
    return PyErr_Occurred() && !forgive() ? -1 : 0;
}

typedef struct {
    bool was_hidden;
    uint64_t before;
    PyObject *token;
} Begun;

static bool begin(const Entry *entry, const Given *given, Begun *begun) {
    *begun = (Begun){.was_hidden = hidden, .before = told};
    hidden = true;
    begun->token = ask(entry, given);
    hidden = entry->hides;
    return !PyErr_Occurred();
}

static PyObject *finish(Entry *entry, const Given *given, PyObject *result, Begun *begun) {
    if (result != NULL && told == begun->before) {
        hidden = true;
        if (tell(entry, given, result, begun->token) < 0) Py_CLEAR(result);
    }
    if (begun->token != NULL) {
        PyObject *exception = bcfg_take_exception();
        Py_DECREF(begun->token);
        bcfg_put_exception(exception);
    }
    hidden = begun->was_hidden;
    return result;
}

static bool is_told(void) {
    return !hidden && bcfg_callbacks.computed != NULL;
}

/* In the place of an object's own address. */
static PyObject *by_vector(PyObject *callable, PyObject *const *items, size_t flags,
                           PyObject *names) {
    Entry *entry = *place_of((uintptr_t)callable);
    if (!is_told()) return entry->original(callable, items, flags, names);
    Given given = {.items = items, .count = PyVectorcall_NARGS(flags), .names = names};
    Begun begun;
    PyObject *result = NULL;
    if (begin(entry, &given, &begun))
        result = entry->original(callable, items, flags, names);
    return finish(entry, &given, result, &begun);
}

/* In the place of a method that C defines: `self` is the module for a function. */
static Given given_to(const Entry *entry, PyObject *self) {
    bool method = PyObject_TypeCheck(entry->held, &PyMethodDescr_Type);
    return (Given){.self = method ? self : NULL};
}

static PyObject *by_address(const Entry *method, PyObject *self, PyObject *const *items,
                            Py_ssize_t count, PyObject *names) {
    typedef PyObject *(*Named)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
    typedef PyObject *(*Unnamed)(PyObject *, PyObject *const *, Py_ssize_t);
    void (*address)(void) = (void (*)(void))method->method;
    return method->has_keywords ? ((Named)address)(self, items, count, names)
                                : ((Unnamed)address)(self, items, count);
}

static PyObject *by_position(int slot, PyObject *self, PyObject *const *items, Py_ssize_t count,
                             PyObject *names) {
    Entry *method = slot_entries[slot], *entry;
    if (!is_told()) return by_address(method, self, items, count, names);
    Given given = given_to(method, self);
    given.items = items, given.count = count, given.names = names;
    entry = derived(method, slot, self);
    Begun begun;
    PyObject *result = NULL;
    if (begin(entry, &given, &begun)) result = by_address(method, self, items, count, names);
    return finish(entry, &given, result, &begun);
}

static PyObject *by_original(const Entry *method, PyObject *self, PyObject *arguments,
                             PyObject *keywords) {
    if (!method->has_keywords) return method->method(self, arguments);
    return ((PyCFunctionWithKeywords)(void (*)(void))method->method)(self, arguments, keywords);
}

static PyObject *by_tuple(int slot, PyObject *self, PyObject *arguments, PyObject *keywords) {
    Entry *method = slot_entries[slot], *entry;
    if (!is_told()) return by_original(method, self, arguments, keywords);
    Given given = given_to(method, self);
    given.items = &PyTuple_GET_ITEM(arguments, 0), given.count = PyTuple_GET_SIZE(arguments);
    given.keywords = keywords;
    entry = derived(method, slot, self);
    Begun begun;
    PyObject *result = NULL;
    if (begin(entry, &given, &begun)) result = by_original(method, self, arguments, keywords);
    return finish(entry, &given, result, &begun);
}

/* C code that Python calls is not told which definition it was called by, so each slot has functions
 * of its own. */
#define EACH(X)                                                                                    \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16)    \
    X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
#define FUNCTIONS(n)                                                                               \
    static PyObject *position_##n(PyObject *self, PyObject *const *items, Py_ssize_t count,        \
                                  PyObject *names) {                                               \
        return by_position(n, self, items, count, names);                                          \
    }                                                                                              \
    static PyObject *unnamed_##n(PyObject *self, PyObject *const *items, Py_ssize_t count) {       \
        return by_position(n, self, items, count, NULL);                                           \
    }                                                                                              \
    static PyObject *tuple_##n(PyObject *self, PyObject *arguments, PyObject *keywords) {          \
        return by_tuple(n, self, arguments, keywords);                                             \
    }                                                                                              \
    static PyObject *without_keywords_##n(PyObject *self, PyObject *arguments) {                   \
        return by_tuple(n, self, arguments, NULL);                                                 \
    }
EACH(FUNCTIONS)
#define BY_POSITION(n) (PyCFunction)(void (*)(void))position_##n,
#define BY_TUPLE(n) (PyCFunction)(void (*)(void))tuple_##n,
#define UNNAMED(n) (PyCFunction)(void (*)(void))unnamed_##n,
#define WITHOUT_KEYWORDS(n) without_keywords_##n,
static const PyCFunction positions[SLOTS] = {EACH(BY_POSITION)}, unnamed[SLOTS] = {EACH(UNNAMED)},
                         tuples[SLOTS] = {EACH(BY_TUPLE)},
                         without_keywords[SLOTS] = {EACH(WITHOUT_KEYWORDS)};

/* ---- beginning to observe ---------------------------------------------------------------------- */

/* Writes an address to memory that may be read-only: by a system call, which then fails where a
 * plain write would end the process. */
static bool exchanged(PyCFunction *at, PyCFunction ours) {
    int ends[2];
    if (pipe(ends) != 0) return false;
    bool done = write(ends[1], &ours, sizeof ours) == (ssize_t)sizeof ours &&
                read(ends[0], at, sizeof ours) == (ssize_t)sizeof ours;
    close(ends[0]);
    close(ends[1]);
    return done;
}

static PyMethodDef *definition_of(PyObject *callable) {
    if (PyCFunction_CheckExact(callable)) return ((PyCFunctionObject *)callable)->m_ml;
    if (PyObject_TypeCheck(callable, &PyMethodDescr_Type))
        return ((PyMethodDescrObject *)callable)->d_method;
    return NULL;
}

/* Where an object with the vectorcall protocol keeps its address, NULL for none. */
static vectorcallfunc *address_of(PyObject *callable) {
    PyTypeObject *type = Py_TYPE(callable);
    if (!PyType_HasFeature(type, Py_TPFLAGS_HAVE_VECTORCALL) || type->tp_vectorcall_offset <= 0)
        return NULL;
    vectorcallfunc *at = (vectorcallfunc *)(void *)((char *)callable + type->tp_vectorcall_offset);
    return *at == NULL ? NULL : at;
}

/* Whether it was done; -1 with an exception set. */
static int observe_method(PyObject *callable, PyMethodDef *definition, PyObject *name, int written,
                          bool hides) {
    if (slots == SLOTS) return 0;
    PyCFunction ours;
    switch (definition->ml_flags) {
    case METH_FASTCALL | METH_KEYWORDS: ours = positions[slots]; break;
    case METH_FASTCALL: ours = unnamed[slots]; break;
    case METH_VARARGS | METH_KEYWORDS: ours = tuples[slots]; break;
    case METH_VARARGS: ours = without_keywords[slots]; break;
    default: return 0;
    }
    Entry *made = make((uintptr_t)definition, callable, name, written, hides);
    if (made == NULL) return -1;
    made->method = definition->ml_meth;
    made->has_keywords = definition->ml_flags & METH_KEYWORDS;
    slot_entries[slots] = made;
    if (!exchanged(&definition->ml_meth, ours)) {
        Py_DECREF(made->held);
        Py_DECREF(made->name);
        PyMem_Free(made);
        return 0;
    }
    enter(made);
    slots++;
    return 1;
}

PyObject *bcfg_observe(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *callable, *name;
    int written, hides;
    if (!PyArg_ParseTuple(arguments, "OUip:observe", &callable, &name, &written, &hides)) return NULL;
    if (!bcfg_array_api_ready) {
        PyErr_SetString(PyExc_RuntimeError, "set_array_api was not called");
        return NULL;
    }
    if (PyUFunc_API == NULL && PyUFunc_ImportUFuncAPI() < 0) return NULL;
    PyMethodDef *definition = definition_of(callable);
    uintptr_t key = definition != NULL ? (uintptr_t)definition : (uintptr_t)callable;
    if (*place_of(key) != NULL) Py_RETURN_TRUE;
    if (entries >= MOST) Py_RETURN_FALSE;
    if (definition != NULL) {
        int done = observe_method(callable, definition, name, written, hides);
        return done < 0 ? NULL : PyBool_FromLong(done);
    }
    vectorcallfunc *at = address_of(callable);
    if (at == NULL) Py_RETURN_FALSE;
    Entry *made = make(key, callable, name, written, hides);
    if (made == NULL) return NULL;
    enter(made);
    made->original = *at;
    if (PyObject_TypeCheck(callable, &PyUFunc_Type)) made->inputs = ((PyUFuncObject *)callable)->nin;
    *at = by_vector;
    Py_RETURN_TRUE;
}
