/* The functions of backendcfg.ops.linalg: arguments, choice, computation. */
#include "linalg_call.h"

/* Below this many multiplications a call takes less time than other threads would gain. */
#define WORTH_RELEASING 20000.0

PyObject *bcfg_linear_refuse, *bcfg_linear_foreign, *bcfg_linear_failed, *bcfg_linear_types;

const char *const bcfg_linear_reasons[BCFG_LINEAR_REASONS] = {"first", "able", "small", "steady",
                                                              "fastest"};
static const char *const type_names[] = {"float32", "float64", "complex64", "complex128"};

const LinearSpec bcfg_linear_specs[LINEAR_FUNCTIONS] = {
    {"inv", BCFG_INV, 1, 1, 1, {"A"}, true},
    {"inv_ex", BCFG_INV, 1, 1, 1, {"A", "check_errors"}, false},
    {"cholesky", BCFG_CHOLESKY, 1, 1, 1, {"A", "upper"}, true},
    {"cholesky_ex", BCFG_CHOLESKY, 1, 1, 1, {"A", "upper", "check_errors"}, false},
    {"cholesky_solve", BCFG_CHOLESKY_SOLVE, 2, 2, 3, {"B", "L", "upper"}, true},
    {"cholesky_inverse", BCFG_CHOLESKY_INVERSE, 1, 1, 2, {"L", "upper"}, true},
    {"lu_factor", BCFG_LU_FACTOR, 1, 1, 1, {"A", "pivot"}, true},
    {"lu_factor_ex", BCFG_LU_FACTOR, 1, 1, 1, {"A", "pivot", "check_errors"}, false},
    {"lu", BCFG_LU, 1, 1, 1, {"A", "pivot"}, false},
    {"lu_solve", BCFG_LU_SOLVE, 3, 3, 3, {"LU", "pivots", "B", "left", "adjoint"}, true},
    {"qr", BCFG_QR, 1, 1, 2, {"A", "mode"}, true},
    {"eigh", BCFG_EIGH, 1, 1, 2, {"A", "UPLO"}, true},
    {"eigvalsh", BCFG_EIGVALSH, 1, 1, 2, {"A", "UPLO"}, true},
    {"svd", BCFG_SVD, 1, 1, 2, {"A", "full_matrices", "driver"}, true},
    {"svdvals", BCFG_SVDVALS, 1, 1, 1, {"A", "driver"}, true},
    {"solve", BCFG_SOLVE, 2, 2, 2, {"A", "B", "left"}, true},
    {"solve_ex", BCFG_SOLVE, 2, 2, 2, {"A", "B", "left", "check_errors"}, false},
};

int bcfg_linear_refused(const LinearCall *call, const char *reason, const char *detail) {
    PyObject *given = PyDict_New();
    for (int i = 0; given != NULL && i < MOST_ARGUMENTS; i++)
        if (call->given[i] != NULL &&
            PyDict_SetItemString(given, call->spec->arguments[i], call->given[i]) < 0)
            Py_CLEAR(given);
    if (given == NULL) return -1;
    PyObject *done = PyObject_CallFunction(bcfg_linear_refuse, "sssO", call->spec->name, reason,
                                           detail, given);
    Py_DECREF(given);
    if (done != NULL) PyErr_Format(PyExc_RuntimeError, "refuse did not raise: %s", reason);
    Py_XDECREF(done);
    return -1;
}

static int wrong_call(const LinearSpec *spec) {
    char names[128] = "";
    for (int i = 0; i < MOST_ARGUMENTS && spec->arguments[i] != NULL; i++) {
        const char *before = i == spec->positional ? ", *, " : i > 0 ? ", " : "";
        size_t at = strlen(names);
        PyOS_snprintf(names + at, sizeof names - at, "%s%s", before, spec->arguments[i]);
    }
    PyErr_Format(PyExc_TypeError, "%s takes (%s)", spec->name, names);
    return -1;
}

static int take_arguments(LinearCall *call, PyObject *const *arguments, Py_ssize_t given,
                          PyObject *keywords) {
    const LinearSpec *spec = call->spec;
    if (given > spec->positional) return wrong_call(spec);
    for (Py_ssize_t i = 0; i < given; i++) call->given[i] = arguments[i];
    for (Py_ssize_t i = 0; keywords != NULL && i < PyTuple_GET_SIZE(keywords); i++) {
        PyObject *name = PyTuple_GET_ITEM(keywords, i);
        int at = 0;
        while (at < MOST_ARGUMENTS && spec->arguments[at] != NULL &&
               PyUnicode_CompareWithASCIIString(name, spec->arguments[at]) != 0)
            at++;
        if (at == MOST_ARGUMENTS || spec->arguments[at] == NULL || call->given[at] != NULL)
            return wrong_call(spec);
        call->given[at] = arguments[given + i];
    }
    for (int i = 0; i < spec->required; i++)
        if (call->given[i] == NULL) return wrong_call(spec);
    return 0;
}

/* The value of an argument, NULL where it was not given. Borrowed. */
static PyObject *option(const LinearCall *call, const char *name) {
    for (int i = call->spec->arrays; i < MOST_ARGUMENTS && call->spec->arguments[i] != NULL; i++)
        if (strcmp(call->spec->arguments[i], name) == 0) return call->given[i];
    return NULL;
}

/* Python's True or False or NumPy's, where it was given. */
static int take_flag(const LinearCall *call, const char *name, bool *flag) {
    PyObject *value = option(call, name);
    if (value == NULL) return 0;
    if (!PyBool_Check(value) && !PyArray_IsScalar(value, Bool))
        return bcfg_linear_refused(call, "flag", name);
    *flag = PyObject_IsTrue(value) > 0;
    return 0;
}

static int take_mode(LinearCall *call) {
    PyObject *mode = option(call, "mode");
    call->problem.mode = 'S';
    if (mode == NULL) return 0;
    static const char *const names[] = {"reduced", "complete", "r"};
    for (int i = 0; PyUnicode_Check(mode) && i < 3; i++)
        if (PyUnicode_CompareWithASCIIString(mode, names[i]) == 0) {
            call->problem.mode = "SAr"[i];
            return 0;
        }
    return bcfg_linear_refused(call, "mode", "mode");
}

static int take_triangle(LinearCall *call) {
    PyObject *word = option(call, "UPLO");
    if (word == NULL) return 0;
    for (int i = 0; PyUnicode_Check(word) && i < 4; i++)
        if (PyUnicode_GET_LENGTH(word) == 1 && PyUnicode_READ_CHAR(word, 0) == (Py_UCS4)"LlUu"[i]) {
            call->problem.upper = i >= 2;
            return 0;
        }
    return bcfg_linear_refused(call, "triangle", "UPLO");
}

static int take_options(LinearCall *call) {
    bcfg_problem *p = &call->problem;
    bool left = true, full = true, pivot = true;
    call->checks = call->spec->checks;
    if (take_flag(call, "upper", &p->upper) < 0 || take_flag(call, "left", &left) < 0 ||
        take_flag(call, "adjoint", &p->adjoint) < 0 ||
        take_flag(call, "full_matrices", &full) < 0 ||
        take_flag(call, "check_errors", &call->checks) < 0 ||
        take_flag(call, "pivot", &pivot) < 0)
        return -1;
    if (!pivot) return bcfg_linear_refused(call, "pivot", "pivot");
    PyObject *driver = option(call, "driver");
    if (driver != NULL && driver != Py_None) return bcfg_linear_refused(call, "driver", "driver");
    p->from_right = !left;
    if (take_mode(call) < 0 || take_triangle(call) < 0) return -1;
    if (p->operation == BCFG_SVD) p->mode = full ? 'A' : 'S';
    return 0;
}

/* "linalg.inv" and the like, and the reasons of the choice; made once. Borrowed. */
static PyObject *text(PyObject **kept, const char *before, const char *word) {
    if (*kept == NULL) *kept = PyUnicode_FromFormat("%s%s", before, word);
    return *kept;
}

static PyObject *sizes_of(const bcfg_problem *p) {
    return Py_BuildValue("(LLLL)", (long long)p->matrices, (long long)p->m, (long long)p->n,
                         (long long)p->k);
}

/* Counts the call, and tells the traces that are open. */
static int tell(const LinearCall *call, const bcfg_provider *provider, int32_t why) {
    static PyObject *functions[LINEAR_FUNCTIONS], *reasons[BCFG_LINEAR_REASONS], *name;
    static const bcfg_provider *named;
    const bcfg_problem *p = &call->problem;
    if (named != provider) Py_CLEAR(name);
    named = provider;
    PyObject *arguments[5] = {
        text(&functions[call->spec - bcfg_linear_specs], "linalg.", call->spec->name),
        text(&name, "", provider->name), text(&reasons[why], "", bcfg_linear_reasons[why])};
    if (arguments[0] == NULL || arguments[1] == NULL || arguments[2] == NULL) return -1;
    if (bcfg_tracing) {
        arguments[3] = sizes_of(p);
        arguments[4] = PyUnicode_FromString(type_names[p->element]);
    }
    PyObject *done = NULL;
    if (!bcfg_tracing || (arguments[3] != NULL && arguments[4] != NULL))
        done = bcfg_served(NULL, arguments, bcfg_tracing ? 5 : 3);
    Py_XDECREF(done);
    Py_XDECREF(arguments[3]);
    Py_XDECREF(arguments[4]);
    return done == NULL ? -1 : 0;
}

#define FLAG(name, NAME, kind, choices) FLAG_##NAME,
enum {
#include "backendcfg_flags.inc"
};
#undef FLAG

static int compute(LinearCall *call) {
    const bcfg_snapshot *snapshot = bcfg_take_snapshot();
    if (snapshot == NULL || take_options(call) < 0 || bcfg_linear_take(call) < 0) return -1;
    call->finite = bcfg_value(snapshot, FLAG_OPS_CHECK_FINITE) != 0;
    bcfg_problem *p = &call->problem;
    bcfg_linear_choice choice;
    const bcfg_lapack *lapack = bcfg_linalg_choose(snapshot, p->operation, p->element, p->m, p->n,
                                                   p->k, NULL, &choice);
    if (lapack == NULL) return bcfg_linear_refused(call, "unserved", "");
    if (bcfg_linear_allocate(call) < 0) return -1;
    bcfg_error error = {.abi = BCFG_ABI, .size = sizeof error};
    double work = (double)p->m * (double)p->n * (double)(p->m + p->k) * (double)p->matrices;
    bcfg_status status;
    if (work < WORTH_RELEASING) {
        status = bcfg_linalg(lapack, p, &error);
    } else {
        Py_BEGIN_ALLOW_THREADS
        status = bcfg_linalg(lapack, p, &error);
        Py_END_ALLOW_THREADS
    }
    if (status == BCFG_E_ARGUMENT) return bcfg_linear_refused(call, "pivot-value", error.detail);
    if (status != BCFG_OK) {
        PyErr_NoMemory();
        return -1;
    }
    return tell(call, choice.provider, choice.why);
}

static bool all_arrays(const LinearCall *call) {
    for (int i = 0; i < call->spec->arrays; i++)
        if (!PyArray_Check(call->given[i])) return false;
    return true;
}

/* Arguments that are no ndarray go to Python, which calls again with arrays over their memory. */
static PyObject *foreign(const LinearCall *call) {
    PyObject *given = PyDict_New();
    for (int i = 0; given != NULL && i < MOST_ARGUMENTS; i++)
        if (call->given[i] != NULL &&
            PyDict_SetItemString(given, call->spec->arguments[i], call->given[i]) < 0)
            Py_CLEAR(given);
    if (given == NULL) return NULL;
    PyObject *result = PyObject_CallFunction(bcfg_linear_foreign, "siO", call->spec->name,
                                             call->spec->arrays, given);
    Py_DECREF(given);
    return result;
}

static PyObject *called(int number, PyObject *const *arguments, Py_ssize_t given,
                        PyObject *keywords) {
    const LinearSpec *spec = &bcfg_linear_specs[number];
    LinearCall call;
    memset(&call, 0, offsetof(LinearCall, shape));
    call.spec = spec;
    call.problem.operation = spec->operation;
    if (bcfg_linear_refuse == NULL || !bcfg_array_api_ready) {
        PyErr_SetString(PyExc_RuntimeError, "linalg_bind() has not been called");
        return NULL;
    }
    if (take_arguments(&call, arguments, given, keywords) < 0) return NULL;
    if (!all_arrays(&call)) return foreign(&call);
    PyObject *result = compute(&call) < 0 ? NULL : bcfg_linear_returned(&call);
    Py_XDECREF(call.a);
    Py_XDECREF(call.b);
    Py_XDECREF(call.pivots);
    Py_XDECREF(call.info);
    for (int i = 0; i < MOST_RESULTS; i++) Py_XDECREF(call.results[i]);
    return result;
}

#define LINEAR_FUNCTION(number, name, signature, text)                                             \
    static PyObject *name##_call(PyObject *module, PyObject *const *arguments, Py_ssize_t given,   \
                                 PyObject *keywords) {                                             \
        (void)module;                                                                              \
        return called(number, arguments, given, keywords);                                         \
    }
#include "linalg_functions.inc"
#undef LINEAR_FUNCTION

PyMethodDef bcfg_linear_methods[LINEAR_FUNCTIONS + 1] = {
#define LINEAR_FUNCTION(number, name, signature, text)                                             \
    [number] = {"linalg_" #name, (PyCFunction)(void (*)(void))name##_call,                         \
                METH_FASTCALL | METH_KEYWORDS, "linalg_" #name signature "\n--\n\n" text},
#include "linalg_functions.inc"
#undef LINEAR_FUNCTION
};
