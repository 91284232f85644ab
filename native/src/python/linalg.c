/* The functions of backendcfg.ops.linalg: arguments, choice, computation; and who would serve. */
#include "linalg_call.h"

/* Below this many multiplications a call takes less time than other threads would gain. */
#define WORTH_RELEASING 20000.0

/* The words of each bcfg_linear_reason, which ops.serving has sentences for. */
static const char *const reasons[BCFG_LINEAR_REASONS] = {"first", "able", "small", "steady",
                                                         "fastest"};

enum {
#define LINEAR_FUNCTION(name, OPERATION, arrays, raises, signature, text) NUMBER_##name,
#include "linalg_functions.inc"
#undef LINEAR_FUNCTION
    LINEAR_FUNCTIONS
};

static LinearSpec specs[LINEAR_FUNCTIONS] = {
#define LINEAR_FUNCTION(name, OPERATION, arrays, raises, signature, text)                          \
    {#name, BCFG_##OPERATION, arrays, raises, signature, 0, 0, {""}},
#include "linalg_functions.inc"
#undef LINEAR_FUNCTION
};

void bcfg_linear_ready(void) {
    for (LinearSpec *spec = specs; spec < specs + LINEAR_FUNCTIONS; spec++) {
        int count = 0;
        spec->positional = MOST_ARGUMENTS;
        for (const char *at = spec->signature + 1; *at != '\0'; at += strspn(at, ",) ")) {
            size_t length = strcspn(at, "=,)");
            if (*at == '*') {
                spec->positional = count;
            } else {
                if (at[length] != '=') spec->required = count + 1;
                memcpy(spec->arguments[count++], at, length);
            }
            at += strcspn(at, ",)");
        }
        if (spec->positional > count) spec->positional = count;
    }
}

/* {name: what was given}. */
static PyObject *given_by_name(const LinearCall *call) {
    PyObject *given = PyDict_New();
    for (int i = 0; given != NULL && i < MOST_ARGUMENTS; i++)
        if (call->given[i] != NULL &&
            PyDict_SetItemString(given, call->spec->arguments[i], call->given[i]) < 0)
            Py_CLEAR(given);
    return given;
}

int bcfg_linear_refused(const LinearCall *call, const char *reason, const char *detail) {
    PyObject *given = given_by_name(call), *done = NULL;
    if (given != NULL)
        done = PyObject_CallFunction(bcfg_callbacks.linalg_refuse, "sssN", call->spec->name, reason,
                                     detail, given);
    if (done != NULL) PyErr_Format(PyExc_RuntimeError, "refuse did not raise: %s", reason);
    Py_XDECREF(done);
    return -1;
}

static int wrong_call(const LinearSpec *spec) {
    PyErr_Format(PyExc_TypeError, "%s takes %s", spec->name, spec->signature);
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
        while (at < MOST_ARGUMENTS &&
               PyUnicode_CompareWithASCIIString(name, spec->arguments[at]) != 0)
            at++;
        if (at == MOST_ARGUMENTS || spec->arguments[at][0] == '\0' || call->given[at] != NULL)
            return wrong_call(spec);
        call->given[at] = arguments[given + i];
    }
    for (int i = 0; i < spec->required; i++)
        if (call->given[i] == NULL) return wrong_call(spec);
    return 0;
}

/* The value of an argument, NULL where it was not given. Borrowed. */
static PyObject *option(const LinearCall *call, const char *name) {
    for (int i = call->spec->arrays; i < MOST_ARGUMENTS && call->spec->arguments[i][0] != '\0'; i++)
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
    call->raises = call->spec->raises;
    if (take_flag(call, "upper", &p->upper) < 0 || take_flag(call, "left", &left) < 0 ||
        take_flag(call, "adjoint", &p->adjoint) < 0 ||
        take_flag(call, "full_matrices", &full) < 0 ||
        take_flag(call, "check_errors", &call->raises) < 0 ||
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
    static PyObject *functions[LINEAR_FUNCTIONS], *words[BCFG_LINEAR_REASONS], *name;
    static const bcfg_provider *named;
    const bcfg_problem *p = &call->problem;
    if (named != provider) Py_CLEAR(name);
    named = provider;
    PyObject *arguments[5] = {
        text(&functions[call->spec - specs], "linalg.", call->spec->name),
        text(&name, "", provider->name), text(&words[why], "", reasons[why])};
    if (arguments[0] == NULL || arguments[1] == NULL || arguments[2] == NULL) return -1;
    if (bcfg_tracing) {
        arguments[3] = sizes_of(p);
        arguments[4] = PyUnicode_FromString(bcfg_element_names[p->element]);
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
        if (!PyArray_CheckExact(call->given[i])) return false;
    return true;
}

/* Arguments that are no plain ndarray go to Python, which calls again with arrays over their memory. */
static PyObject *foreign(const LinearCall *call) {
    PyObject *given = given_by_name(call);
    if (given == NULL) return NULL;
    return PyObject_CallFunction(bcfg_callbacks.linalg_foreign, "siN", call->spec->name,
                                 call->spec->arrays, given);
}

static PyObject *called(int number, PyObject *const *arguments, Py_ssize_t given,
                        PyObject *keywords) {
    const LinearSpec *spec = &specs[number];
    LinearCall call;
    memset(&call, 0, offsetof(LinearCall, shape));
    call.spec = spec;
    call.problem.operation = spec->operation;
    if (bcfg_need(bcfg_callbacks.linalg_refuse, "linalg_refuse") == NULL) return NULL;
    if (!bcfg_array_api_ready)
        return PyErr_Format(PyExc_RuntimeError, "set_array_api() has not been called");
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

#define LINEAR_FUNCTION(name, OPERATION, arrays, raises, signature, text)                          \
    static PyObject *name##_call(PyObject *module, PyObject *const *arguments, Py_ssize_t given,   \
                                 PyObject *keywords) {                                             \
        (void)module;                                                                              \
        return called(NUMBER_##name, arguments, given, keywords);                                  \
    }
#include "linalg_functions.inc"
#undef LINEAR_FUNCTION

PyMethodDef bcfg_linear_methods[LINEAR_FUNCTIONS + 1] = {
#define LINEAR_FUNCTION(name, OPERATION, arrays, raises, signature, text)                          \
    {"linalg_" #name, (PyCFunction)(void (*)(void))name##_call, METH_FASTCALL | METH_KEYWORDS,     \
     "linalg_" #name signature "\n--\n\n" text},
#include "linalg_functions.inc"
#undef LINEAR_FUNCTION
};

PyObject *bcfg_linear_verdicts(PyObject *module, PyObject *arguments) {
    (void)module;
    const char *function;
    int element;
    long long m, n, k;
    if (!PyArg_ParseTuple(arguments, "siLLL:linalg_choice", &function, &element, &m, &n, &k))
        return NULL;
    int operation = -1;
    for (int i = 0; i < LINEAR_FUNCTIONS; i++)
        if (strcmp(specs[i].name, function) == 0) operation = specs[i].operation;
    if (operation < 0 || element < BCFG_FLOAT32 || element > BCFG_COMPLEX128)
        return PyErr_Format(PyExc_ValueError, "no function %s of element %d", function, element);
    const bcfg_snapshot *snapshot = bcfg_take_snapshot();
    if (snapshot == NULL) return NULL;
    int32_t verdicts[64];
    uint32_t count = 0;
    while (count < 64 && bcfg_ordered(snapshot, BCFG_SGEMM + element, count) != NULL) count++;
    if (count == 64) return PyErr_Format(PyExc_ValueError, "more than 63 providers");
    bcfg_linear_choice choice;
    (void)bcfg_linalg_choose(snapshot, operation, element, m, n, k, verdicts, &choice);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        const bcfg_provider *provider = bcfg_ordered(snapshot, BCFG_SGEMM + element, i);
        bcfg_description is = {.abi = BCFG_ABI, .size = sizeof is};
        (void)bcfg_describe(provider, &is);
        const char *lacking =
            verdicts[i] == BCFG_LINEAR_LACKS ? bcfg_lapack_of(provider)->lacking : "";
        PyObject *one = Py_BuildValue("(ssis)", is.name, is.path, verdicts[i], lacking);
        if (one == NULL || PyList_Append(list, one) < 0) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    if (list == NULL) return NULL;
    const char *why = choice.provider != NULL ? reasons[choice.why] : "";
    return Py_BuildValue("(Nsi)", list, why, bcfg_linalg_measured_by(operation, element));
}
