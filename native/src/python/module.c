/* backendcfg._native: the module, and the callbacks that Python hands in. */
#include "gpu/python/device.h"

Callbacks bcfg_callbacks;

#define SLOT(name) {#name, &bcfg_callbacks.name}
static const struct {
    const char *name;
    PyObject **slot;
} slots[] = {
    SLOT(enter_switches), SLOT(leave_switches), SLOT(materialise),    SLOT(decorate),
    SLOT(aenter),         SLOT(aexit),          SLOT(misplaced),      SLOT(refuse),
    SLOT(foreign),        SLOT(traced),         SLOT(linalg_refuse),  SLOT(linalg_foreign),
    SLOT(linalg_failed),  SLOT(linalg_result),  SLOT(computing),      SLOT(computed),
    SLOT(attention_choice),
};
enum { SLOTS = sizeof slots / sizeof *slots };

static PyObject **slot_of(PyObject *name) {
    for (int i = 0; i < SLOTS; i++)
        if (PyUnicode_CompareWithASCIIString(name, slots[i].name) == 0) return slots[i].slot;
    return NULL;
}

PyObject *bcfg_bind(PyObject *module, PyObject *arguments, PyObject *keywords) {
    (void)module;
    if (PyTuple_GET_SIZE(arguments) != 0) {
        PyErr_SetString(PyExc_TypeError, "bind takes keywords only");
        return NULL;
    }
    PyObject *name, *value;
    for (Py_ssize_t at = 0; keywords != NULL && PyDict_Next(keywords, &at, &name, &value);) {
        if (slot_of(name) == NULL)
            return PyErr_Format(PyExc_TypeError, "bind has no callback %R", name);
        if (value != Py_None && !PyCallable_Check(value))
            return PyErr_Format(PyExc_TypeError, "%U must be callable or None", name);
    }
    PyObject *before = PyDict_New();
    for (Py_ssize_t at = 0; before != NULL && keywords != NULL &&
                            PyDict_Next(keywords, &at, &name, &value);) {
        PyObject **slot = slot_of(name);
        if (PyDict_SetItem(before, name, *slot != NULL ? *slot : Py_None) < 0) Py_CLEAR(before);
        if (before != NULL) Py_XSETREF(*slot, value == Py_None ? NULL : Py_NewRef(value));
    }
    return before;
}

PyObject *bcfg_need(PyObject *callback, const char *name) {
    if (callback == NULL)
        PyErr_Format(PyExc_RuntimeError, "backendcfg._native: %s is not bound", name);
    return callback;
}

static PyMethodDef methods[] = {
    {"bind", (PyCFunction)(void (*)(void))bcfg_bind, METH_VARARGS | METH_KEYWORDS,
     "bind(**callbacks)\n--\n\nHand in Python callables, None for none; the others keep their "
     "value. Returns what the named ones were."},
    {"current", bcfg_current_prepared, METH_NOARGS,
     "current()\n--\n\nThe innermost Prepared of this context, else the base, else None."},
    {"chain", bcfg_chain_names, METH_NOARGS,
     "chain()\n--\n\nThe Prepared of every open scope of this context, innermost first."},
    {"claims", bcfg_chain_claims, METH_NOARGS,
     "claims()\n--\n\nWhat enter_switches returned for those scopes, innermost first."},
    {"enter_lines", (PyCFunction)(void (*)(void))bcfg_enter_lines, METH_FASTCALL,
     "enter_lines(lines, held, begun, before, refuse, /)\n--\n\nSet the switches of a scope; False "
     "where another scope claims one."},
    {"leave_lines", (PyCFunction)(void (*)(void))bcfg_leave_lines, METH_FASTCALL,
     "leave_lines(held, before, /)\n--\n\nGive them back; False at one that does not take it."},
    {"set_base", bcfg_set_base, METH_O,
     "set_base(prepared)\n--\n\nWhat holds where no scope is open; None for nothing."},
    {"snapshot", bcfg_snapshot_here, METH_NOARGS,
     "snapshot()\n--\n\nAddress of the snapshot that an operation would take here and now."},
    {"set_array_api", bcfg_set_array_api, METH_NOARGS,
     "set_array_api()\n--\n\nImport NumPy's C API, which matmul needs."},
    {"broadcast", (PyCFunction)(void (*)(void))bcfg_broadcast, METH_FASTCALL,
     "broadcast(array, shape)\n--\n\nA read-only view of that shape."},
    {"from_dlpack", bcfg_from_dlpack, METH_O,
     "from_dlpack(capsule)\n--\n\nAn array over the memory of a DLPack capsule, and its element."},
    {"matmul", (PyCFunction)(void (*)(void))bcfg_matmul_call, METH_FASTCALL | METH_KEYWORDS,
     "matmul(a, b, /, out=None)\n--\n\nMatrix product of two arrays; see backendcfg.ops."},
    {"attention", (PyCFunction)(void (*)(void))bcfg_attention_call, METH_FASTCALL,
     "attention(kernel, query, key, value, mask, is_causal, scale, dropout_p, seed, element, "
     "threads=0, /)\n--\n\nAttention and the logarithms of its sums. The seed of dropout, or uint8 "
     "(batch, heads, queries, keys): 1 for each weight that is kept."},
    {"kernel_isas", bcfg_kernel_isas, METH_NOARGS,
     "kernel_isas()\n--\n\nFor each instruction set (name, whether it runs here, calls served)."},
    {"has_tiles", bcfg_has_tiles, METH_NOARGS,
     "has_tiles()\n--\n\nWhether our kernels multiply bfloat16 by AMX here and now."},
    {"force_kernel_isa", bcfg_force_kernel_isa, METH_O,
     "force_kernel_isa(name, /)\n--\n\nUse one instruction set from now on; None for the best."},
    {"attention_backward", (PyCFunction)(void (*)(void))bcfg_attention_backward_call,
     METH_FASTCALL,
     "attention_backward(grad_out, query, key, value, mask, out, logsumexp, is_causal, scale, "
     "dropout_p, seed, element, threads=0, results=None, /)\n--\n\nGradients of query, key and "
     "value; see backendcfg.ops."},
    {"torch_lacks", bcfg_torch_lacks, METH_O,
     "torch_lacks(file, /)\n--\n\nWhich function PyTorch, by the file of `torch._C`, lacks for kernels "
     "of ours to take the place of its own; None for none."},
    {"serve_torch_attention", bcfg_serve_torch_attention, METH_O,
     "serve_torch_attention(file, /)\n--\n\nReplace PyTorch's kernels of attention by ours; None lets "
     "ours pass every call on."},
    {"restore_torch_attention", bcfg_restore_torch_attention, METH_NOARGS,
     "restore_torch_attention()\n--\n\nGive PyTorch its kernels of attention back."},
    {"serve_torch_products", bcfg_serve_torch_products, METH_O,
     "serve_torch_products(file, /)\n--\n\nReplace PyTorch's kernels of mm and bmm by ours, which compute "
     "float32; None lets ours pass every call on."},
    {"restore_torch_products", bcfg_restore_torch_products, METH_NOARGS,
     "restore_torch_products()\n--\n\nGive PyTorch its kernels of mm and bmm back."},
    {"numpy_matmul", (PyCFunction)(void (*)(void))bcfg_numpy_matmul, METH_FASTCALL,
     "numpy_matmul(dtype, ours=None, /)\n--\n\nHave our kernels compute NumPy's matmul of a type, or "
     "give it back; whether they compute it now."},
    {"numpy_elementwise", (PyCFunction)(void (*)(void))bcfg_numpy_elementwise, METH_FASTCALL,
     "numpy_elementwise(threads=None, /)\n--\n\nHave NumPy's element-wise functions compute large arrays "
     "on all threads, or give them back; of how many loops they do now."},
    {"addmm", (PyCFunction)(void (*)(void))bcfg_addmm_call, METH_FASTCALL,
     "addmm(added, a, b, out, /)\n--\n\nout = added + a @ b of float16, or of bfloat16 as uint16, "
     "rounded once."},
    {"matmul_bfloat16", (PyCFunction)(void (*)(void))bcfg_matmul_bfloat16,
     METH_FASTCALL | METH_KEYWORDS,
     "matmul_bfloat16(a, b, /, out=None)\n--\n\nThe same where uint16 arrays hold bfloat16."},
    {"bernoulli", (PyCFunction)(void (*)(void))bcfg_bernoulli, METH_FASTCALL,
     "bernoulli(words, start, p, one, out, /)\n--\n\nWrite `one` to out with probability p, else 0, by "
     "the state of an MT19937, and change the state; the word that is drawn next."},
    {"exchange_state", (PyCFunction)(void (*)(void))bcfg_exchange_state, METH_FASTCALL,
     "exchange_state(generator, before, after, /)\n--\n\nSet the state of PyTorch's generator, unless "
     "numbers were drawn since it was `before`; whether it was set."},
    {"convolve", bcfg_convolve_call, METH_VARARGS,
     "convolve(input, weight, bias, out, stride, padding, dilation, groups, threads)\n--\n\n"
     "Write a convolution of dense arrays; see backendcfg.ops.conv2d."},
    {"unfold", bcfg_unfold_call, METH_VARARGS,
     "unfold(input, columns, kernel, out, stride, padding, dilation, groups, place, threads)\n--\n\n"
     "Write what each kernel element sees; place is (image, group, first pixel)."},
    {"digest", (PyCFunction)(void (*)(void))bcfg_digest_call, METH_FASTCALL,
     "digest(address, size, seed=0, /)\n--\n\nA number of 64 bits for the bytes there."},
    {"observe", bcfg_observe, METH_VARARGS,
     "observe(target, name, written, hides, /)\n--\n\nTell `computed` of its calls from now on; "
     "whether that is done."},
    {"sampled", (PyCFunction)(void (*)(void))bcfg_sampled, METH_FASTCALL,
     "sampled(function, microseconds, /)\n--\n\nCall a function; give the addresses of the "
     "instructions that this thread was at every so many microseconds. None where nobody can tell, "
     "where no signal is free, or while another thread is sampled."},
    {"mapped", bcfg_mapped, METH_NOARGS,
     "mapped()\n--\n\nLibraries ever loaded and unloaded here; None where nobody counts."},
    {"keep_freed", (PyCFunction)(void (*)(void))bcfg_keep_freed, METH_FASTCALL,
     "keep_freed(kept=None, /)\n--\n\nHow much freed memory malloc keeps from now on; returns what "
     "was set last, 0 for nothing yet, None where another malloc serves."},
    {"asking", bcfg_asking, METH_O,
     "asking(address)\n--\n\nThe C function `int f(void)` there, as a function of Python."},
    {"asking_whether", bcfg_asking_whether, METH_O,
     "asking_whether(address)\n--\n\nThe same, which answers True or False."},
    {"telling", bcfg_telling, METH_O,
     "telling(address)\n--\n\nThe C function `void f(int)` there, as a function of Python."},
    {"exchanging", bcfg_exchanging, METH_O,
     "exchanging(address)\n--\n\nThe C function `int f(int)` there, as a function of Python."},
    {"stats", bcfg_stats, METH_NOARGS,
     "stats()\n--\n\nFor each open provider (name, path, integer width, {operation: calls}), and of "
     "these calls those by speed and by need."},
    {"served", (PyCFunction)(void (*)(void))bcfg_served, METH_FASTCALL,
     "served(operation, provider, because, sizes=(), dtype='', /)\n--\n\nCount a call that was "
     "served, and tell the traces."},
    {"served_counts", bcfg_served_counts, METH_NOARGS,
     "served_counts()\n--\n\n{(operation, provider, because): calls} of `served`."},
    {"set_tracing", bcfg_set_tracing, METH_O,
     "set_tracing(on)\n--\n\nWhether the callback `traced` hears of every call."},
    {"reset_stats", bcfg_reset_stats, METH_NOARGS,
     "reset_stats()\n--\n\nSet every counter to zero, those of `served` too."},
    {"linalg_choice", bcfg_linear_verdicts, METH_VARARGS,
     "linalg_choice(function, element, m, n, k)\n--\n\nFor each provider of the order (name, "
     "path, verdict, what it lacks); why the one that serves does; the factorisation it goes by."},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module) {
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "backendcfg does not work in subinterpreters");
        return -1;
    }
    if (bcfg_frames_ready() < 0 || PyType_Ready(&bcfg_FrameType) < 0 || bcfg_scope_ready() < 0)
        return -1;
    if (PyModule_AddType(module, &bcfg_PreparedType) < 0) return -1;
    if (PyModule_AddType(module, &bcfg_CellType) < 0) return -1;
    bcfg_linear_ready();
    if (PyModule_AddFunctions(module, bcfg_linear_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, bcfg_device_methods) < 0) return -1;
    if (PyModule_AddType(module, &bcfg_ScopeType) < 0) return -1;
    return PyModule_AddIntConstant(module, "ABI", BCFG_ABI);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)execute},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "backendcfg._native",
    .m_doc = "Scopes and products; see include/backendcfg.h for the C side.",
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
