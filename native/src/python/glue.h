/* What the files of the Python side share. Everything here runs with the GIL held. */
#ifndef BACKENDCFG_GLUE_H
#define BACKENDCFG_GLUE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

#include "backendcfg.h"

#ifdef Py_GIL_DISABLED
#error "backendcfg is not tested on the free-threaded build; use the default build of CPython"
#endif

/* A resolved profile: what `Scope` enters and what the base is. */
typedef struct {
    PyObject_HEAD
    PyObject *name;
    PyObject *payload;
    PyObject *switches;                 /* None: nothing process-wide to set, the pure C path */
    const bcfg_snapshot *snapshot;   /* NULL until materialised */
    PyObject *listing;               /* how its providers were found, for `explain`; None till then */
    PyObject *attention;             /* what attention_choice returned under it; NULL till then */
} Prepared;

typedef struct Frame Frame;

/* What `with` sees. One scope may be entered many times, in many contexts. */
typedef struct {
    PyObject_HEAD
    Prepared *prepared;
    int busy;
    Frame *open;                     /* its open frames, newest first; borrowed */
} Scope;

/* One entry of one scope: an immutable link of the chain in the context variable. */
struct Frame {
    PyObject_HEAD
    Prepared *prepared;
    Scope *scope;
    Frame *outer;                    /* the frame under it, or NULL */
    PyObject *claim;                 /* what enter_switches returned, or NULL on the pure path */
    PyObject *token;                 /* undoes the push in the context where it was made */
    Frame *next_open;                /* in scope->open */
    int open;                        /* still in scope->open */
    int closed_elsewhere;            /* left in another context: skipped where it is still seen */
};

extern PyTypeObject bcfg_PreparedType, bcfg_ScopeType, bcfg_FrameType, bcfg_BoundType;

/* Python callables handed in by the composition root; NULL until bound. */
typedef struct {
    PyObject *enter_switches, *leave_switches, *materialise, *decorate, *aenter, *aexit, *misplaced;
    PyObject *refuse, *foreign, *traced;
    PyObject *linalg_refuse, *linalg_foreign, *linalg_failed, *linalg_result;
    PyObject *computing, *computed, *attention_choice;
} Callbacks;
extern Callbacks bcfg_callbacks;
PyObject *bcfg_bind(PyObject *module, PyObject *arguments, PyObject *keywords);
/* The callback, or NULL with RuntimeError when it is not bound. Borrowed. */
PyObject *bcfg_need(PyObject *callback, const char *name);

/* Whether an object is that text. */
static inline bool bcfg_is(PyObject *object, const char *text) {
    return PyUnicode_Check(object) && PyUnicode_CompareWithASCIIString(object, text) == 0;
}

/* The exception that is set, taken away; to be put back while Python runs in between. */
static inline PyObject *bcfg_take_exception(void) {
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
#endif
}

/* Steals `exception`, which may be NULL for none. */
static inline void bcfg_put_exception(PyObject *exception) {
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(exception);
#else
    PyObject *type = exception == NULL ? NULL : Py_NewRef(Py_TYPE(exception));
    PyErr_Restore(type, exception, exception == NULL ? NULL : PyException_GetTraceback(exception));
#endif
}

/* frames.c */
int bcfg_frames_ready(void);
/* Top of this context's chain in *top, borrowed from the context until the next allocation of a
 * Python object; NULL at the base. -1 on error. */
int bcfg_top(Frame **top);
/* Pushes a frame that holds `claim`, or NULL on the pure path. */
int bcfg_push(Scope *scope, PyObject *claim);
/* Calls leave_switches. -1 with an exception set when it was interrupted. */
int bcfg_give_back(Scope *scope, Prepared *prepared, PyObject *claim);
/* Removes the newest frame of `scope` from this context and calls leave_switches for it. */
int bcfg_pop(Scope *scope);
PyObject *bcfg_chain_names(PyObject *module, PyObject *ignored);
PyObject *bcfg_chain_claims(PyObject *module, PyObject *ignored);

/* scope.c: its types, ready to be added to the module. */
int bcfg_scope_ready(void);

/* switches.c: what a scope does to the switches of other libraries. */
extern PyTypeObject bcfg_CellType;
PyObject *bcfg_enter_lines(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *bcfg_leave_lines(PyObject *module, PyObject *const *given, Py_ssize_t count);

/* prepared.c: the innermost Prepared of this context, else the base, else NULL. Borrowed. */
extern Prepared *bcfg_base;
int bcfg_innermost(Prepared **prepared);
PyObject *bcfg_current_prepared(PyObject *module, PyObject *ignored);
PyObject *bcfg_set_base(PyObject *module, PyObject *prepared);

/* The rest of the module's functions: arrays.c, matmul.c, stats.c. */
PyObject *bcfg_set_array_api(PyObject *module, PyObject *ignored);
PyObject *bcfg_from_dlpack(PyObject *module, PyObject *capsule);
PyObject *bcfg_broadcast(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *bcfg_convolve_call(PyObject *module, PyObject *arguments);
PyObject *bcfg_unfold_call(PyObject *module, PyObject *arguments);
PyObject *bcfg_matmul_call(PyObject *module, PyObject *const *arguments, Py_ssize_t given,
                           PyObject *keywords);
/* attention.c */
PyObject *bcfg_attention_call(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *bcfg_kernel_isas(PyObject *module, PyObject *ignored);
PyObject *bcfg_has_tiles(PyObject *module, PyObject *ignored);
PyObject *bcfg_force_kernel_isa(PyObject *module, PyObject *given);
PyObject *bcfg_attention_backward_call(PyObject *module, PyObject *const *given, Py_ssize_t count);
/* torch_interface.c, torch_attention.c, torch_products.c */
PyObject *bcfg_torch_lacks(PyObject *module, PyObject *file);
PyObject *bcfg_serve_torch_attention(PyObject *module, PyObject *file);
PyObject *bcfg_restore_torch_attention(PyObject *module, PyObject *ignored);
PyObject *bcfg_serve_torch_products(PyObject *module, PyObject *file);
PyObject *bcfg_restore_torch_products(PyObject *module, PyObject *ignored);
/* numpy_elementwise.c, numpy_matmul.c */
PyObject *bcfg_numpy_elementwise(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *bcfg_numpy_matmul(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *bcfg_addmm_call(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *bcfg_matmul_bfloat16(PyObject *module, PyObject *const *arguments, Py_ssize_t given,
                               PyObject *keywords);
PyObject *bcfg_snapshot_here(PyObject *module, PyObject *ignored);
/* The snapshot of this context, made now if this is its first use. NULL with an exception set. */
const bcfg_snapshot *bcfg_take_snapshot(void);
PyObject *bcfg_bernoulli(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *bcfg_exchange_state(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *bcfg_digest_call(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
/* observed.c */
PyObject *bcfg_observe(PyObject *module, PyObject *arguments);
PyObject *bcfg_mapped(PyObject *module, PyObject *ignored);
PyObject *bcfg_sampled(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *bcfg_keep_freed(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
/* calls.c */
PyObject *bcfg_asking(PyObject *module, PyObject *address);
PyObject *bcfg_asking_whether(PyObject *module, PyObject *address);
PyObject *bcfg_telling(PyObject *module, PyObject *address);
PyObject *bcfg_exchanging(PyObject *module, PyObject *address);
PyObject *bcfg_stats(PyObject *module, PyObject *ignored);
PyObject *bcfg_reset_stats(PyObject *module, PyObject *ignored);

/* serving.c: records of calls that were served, and the hook of traces. */
extern int bcfg_tracing;             /* whether a trace is open in any context */
PyObject *bcfg_served(PyObject *module, PyObject *const *arguments, Py_ssize_t given);
PyObject *bcfg_served_counts(PyObject *module, PyObject *ignored);
PyObject *bcfg_set_tracing(PyObject *module, PyObject *on);
void bcfg_forget_served(void);
/* Tells the traces of a product; -1 with an exception set. */
int bcfg_trace_served(const char *operation, const char *provider, const char *reason,
                      const bcfg_product *product, const char *dtype);
/* Tells the traces of a product that `snapshot` served; -1 with an exception set. */
int bcfg_trace_product(const char *operation, const bcfg_snapshot *snapshot,
                       const bcfg_product *product, const char *dtype);

/* linalg.c: the functions of backendcfg.ops.linalg, once bcfg_linear_ready has been called. */
extern PyMethodDef bcfg_linear_methods[];
void bcfg_linear_ready(void);
PyObject *bcfg_linear_verdicts(PyObject *module, PyObject *arguments);

#endif
