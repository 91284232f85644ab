/* The chain of open scopes: an immutable list of frames in one context variable.
 *
 * Immutable, because contextvars.copy_context() shares the list with tasks and threads that outlive
 * the scope; entering makes a new head and leaving moves the variable back. */
#include "glue.h"

static PyObject *variable;

/* Scopes open and close by the hundred thousand; the last few frames are kept for reuse. */
enum { SPARE = 16 };
static Frame *spare[SPARE];
static int spares;

int bcfg_frames_ready(void) {
    if (variable == NULL) variable = PyContextVar_New("backendcfg.scopes", NULL);
    return variable == NULL ? -1 : 0;
}

int bcfg_top(Frame **top) {
    PyObject *value;
    if (PyContextVar_Get(variable, NULL, &value) < 0) return -1;
    *top = value != NULL && value != Py_None ? (Frame *)value : NULL;
    /* The context keeps it alive until this context changes: allocating an object may do that, when
     * it makes the collector close a forgotten generator. */
    Py_XDECREF(value);
    return 0;
}

/* CPython 3.11 collects garbage inside allocations, those of a change of the context included; a
 * scope that the collector closes then (a forgotten generator's) would be open again after it. */
static bool pause_collector(void) {
#if PY_VERSION_HEX < 0x030C0000
    return PyGC_Disable() != 0;
#else
    return false;
#endif
}

static void resume_collector(bool paused) {
    if (paused) (void)PyGC_Enable();
}

static int set_top(Frame *top) {
    bool paused = pause_collector();
    PyObject *token = PyContextVar_Set(variable, top != NULL ? (PyObject *)top : Py_None);
    resume_collector(paused);
    Py_XDECREF(token);
    return token == NULL ? -1 : 0;
}

/* Takes the top frame off. Its token does that with one allocation less than setting the frame
 * under it, but only in the context that pushed it: a copied context refuses. */
static int drop_top(Frame *top) {
    PyObject *token = top->token;
    top->token = NULL;
    if (token == NULL) return set_top(top->outer);
    bool paused = pause_collector();
    int done = PyContextVar_Reset(variable, token);
    resume_collector(paused);
    Py_DECREF(token);
    if (done == 0) return 0;
    PyErr_Clear();
    return set_top(top->outer);
}

/* Steals `claim`, also on failure. */
static Frame *frame_new(Scope *scope, Prepared *prepared, PyObject *claim) {
    Frame *frame;
    if (spares > 0) {
        frame = spare[--spares];
        (void)PyObject_Init((PyObject *)frame, &bcfg_FrameType);
    } else {
        frame = PyObject_GC_New(Frame, &bcfg_FrameType);
    }
    if (frame == NULL) {
        Py_XDECREF(claim);
        return NULL;
    }
    frame->prepared = (Prepared *)Py_NewRef(prepared);
    frame->scope = (Scope *)Py_NewRef(scope);
    frame->claim = claim;
    frame->outer = frame->next_open = NULL;
    frame->token = NULL;
    frame->open = frame->closed_elsewhere = 0;
    PyObject_GC_Track(frame);
    return frame;
}

static void unlink_open(Frame *frame) {
    for (Frame **at = &frame->scope->open; *at != NULL; at = &(*at)->next_open)
        if (*at == frame) {
            *at = frame->next_open;
            break;
        }
    frame->open = 0;
}

/* Leaving a scope never raises: a failure goes to sys.unraisablehook, except what is not an
 * Exception (KeyboardInterrupt), which must reach the user, and -1 is returned. */
int bcfg_give_back(Scope *scope, Prepared *prepared, PyObject *claim) {
    PyObject *interrupt = NULL;
    /* CPython runs signal handlers at the entry of a Python function, before its first line: an
     * interrupt there is kept, and the claim is given back by calling once more. */
    for (int attempt = 0; attempt < 3; attempt++) {
        PyObject *done = NULL;
        if (bcfg_need(bcfg_callbacks.leave_switches, "leave_switches") != NULL)
            done = PyObject_CallFunctionObjArgs(bcfg_callbacks.leave_switches, prepared, scope, claim,
                                                NULL);
        Py_XDECREF(done);
        if (done != NULL) break;
        if (PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_WriteUnraisable((PyObject *)scope);
            break;
        }
        Py_XSETREF(interrupt, bcfg_take_exception());
    }
    if (interrupt == NULL) return 0;
    bcfg_put_exception(interrupt);
    return -1;
}

static int release(Frame *frame) {
    return frame->claim == NULL ? 0 : bcfg_give_back(frame->scope, frame->prepared, frame->claim);
}

static void frame_dealloc(PyObject *object) {
    Frame *frame = (Frame *)object;
    PyObject_GC_UnTrack(object);
    if (frame->open) {
        /* Its context died without an exit (an abandoned task): the claim must not outlive it. */
        PyObject *exception = bcfg_take_exception();
        unlink_open(frame);
        if (release(frame) < 0) PyErr_WriteUnraisable((PyObject *)frame->scope);
        bcfg_put_exception(exception);
    }
    Frame *outer = frame->outer;
    Py_CLEAR(frame->claim);
    Py_CLEAR(frame->token);
    Py_DECREF(frame->prepared);
    Py_DECREF(frame->scope);
    if (spares < SPARE)
        spare[spares++] = frame;
    else
        PyObject_GC_Del(frame);
    /* A loop, because the last holder of a deep chain would recurse as deep as it is. */
    while (outer != NULL && Py_REFCNT(outer) == 1) {
        Frame *next = outer->outer;
        outer->outer = NULL;
        Py_DECREF(outer);
        outer = next;
    }
    Py_XDECREF(outer);
}

/* A frame whose context is abandoned is garbage in a circle: its token holds the context, which
 * holds the frame. */
static int frame_traverse(PyObject *object, visitproc visit, void *arg) {
    Frame *frame = (Frame *)object;
    Py_VISIT(frame->token);
    Py_VISIT(frame->claim);
    Py_VISIT(frame->outer);
    Py_VISIT(frame->prepared);
    return 0;
}

static int frame_clear(PyObject *object) {
    Py_CLEAR(((Frame *)object)->token);
    return 0;
}

PyTypeObject bcfg_FrameType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "backendcfg._native.Frame",
    .tp_basicsize = sizeof(Frame),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
    .tp_traverse = frame_traverse,
    .tp_clear = frame_clear,
    .tp_doc = "One open scope in one context.",
    .tp_dealloc = frame_dealloc,
};

int bcfg_push(Scope *scope, PyObject *claim) {
    Frame *frame = frame_new(scope, scope->prepared, Py_XNewRef(claim)), *top;
    if (frame != NULL && bcfg_top(&top) == 0) {
        bool paused = pause_collector();
        frame->outer = (Frame *)Py_XNewRef(top);
        frame->token = PyContextVar_Set(variable, (PyObject *)frame);
        resume_collector(paused);
    }
    if (frame == NULL || frame->token == NULL) {
        Py_XDECREF(frame);
        return -1;
    }
    frame->open = 1;
    frame->next_open = scope->open;
    scope->open = frame;
    Py_DECREF(frame); /* the context holds it now */
    return 0;
}

/* The chain without `gone`, which is in it under `top`: copies of the frames above it, set on what
 * is under it. NULL with an exception set. */
static Frame *without(Frame *top, Frame *gone) {
    Frame *head = NULL, *above = NULL;
    for (Frame *frame = top; frame != gone; frame = frame->outer) {
        Frame *copy = frame_new(frame->scope, frame->prepared, Py_XNewRef(frame->claim));
        if (copy == NULL) {
            Py_XDECREF(head);
            return NULL;
        }
        copy->closed_elsewhere = frame->closed_elsewhere;
        if (above == NULL)
            head = copy;
        else
            above->outer = copy;
        above = copy;
    }
    above->outer = (Frame *)Py_XNewRef(gone->outer);
    /* A claim is given back once, by whoever is among the open frames: now the copies. */
    for (Frame *frame = top, *copy = head; frame != gone; frame = frame->outer) {
        if (frame->open) {
            unlink_open(frame);
            copy->open = 1;
            copy->next_open = copy->scope->open;
            copy->scope->open = copy;
        }
        copy = copy->outer;
    }
    return head;
}

/* No frame of `scope` in this context: closes the newest one wherever it is. */
static int pop_elsewhere(Scope *scope) {
    Frame *frame = scope->open;
    if (frame != NULL) {
        Py_INCREF(frame);
        unlink_open(frame);
        frame->closed_elsewhere = 1;
        int failed = release(frame) < 0;
        Py_DECREF(frame);
        if (failed) return -1;
    }
    if (bcfg_callbacks.misplaced == NULL) return 0;
    PyObject *done = PyObject_CallOneArg(bcfg_callbacks.misplaced, (PyObject *)scope);
    if (done == NULL) PyErr_WriteUnraisable((PyObject *)scope);
    Py_XDECREF(done);
    return 0;
}

int bcfg_pop(Scope *scope) {
    Frame *top, *frame;
    if (bcfg_top(&top) < 0) return -1;
    for (frame = top; frame != NULL; frame = frame->outer)
        if (frame->scope == scope && !frame->closed_elsewhere) break;
    if (frame == NULL) return pop_elsewhere(scope);
    Py_INCREF(frame);
    int failed;
    if (frame == top) {
        failed = drop_top(frame) < 0;
    } else {
        Py_INCREF(top);
        Frame *rest = without(top, frame);
        failed = rest == NULL || set_top(rest) < 0;
        Py_XDECREF(rest);
        Py_DECREF(top);
    }
    if (frame->open) {
        unlink_open(frame);
        if (!failed) failed = release(frame) < 0;
    }
    Py_DECREF(frame);
    return failed ? -1 : 0;
}

/* The claims of the frames of this context, or their Prepareds but for those left elsewhere. */
static PyObject *chain(bool claims) {
    Frame *frame;
    PyObject *list = PyList_New(0), *tuple = NULL;
    if (list != NULL && bcfg_top(&frame) < 0) Py_CLEAR(list);
    for (; list != NULL && frame != NULL; frame = frame->outer) {
        PyObject *item = claims ? frame->claim : (PyObject *)frame->prepared;
        if (claims ? item == NULL : frame->closed_elsewhere) continue;
        if (PyList_Append(list, item) < 0) Py_CLEAR(list);
    }
    if (list != NULL) tuple = PyList_AsTuple(list);
    Py_XDECREF(list);
    return tuple;
}

PyObject *bcfg_chain_claims(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return chain(true);
}

PyObject *bcfg_chain_names(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return chain(false);
}
