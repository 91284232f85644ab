/* How many shared libraries this process ever loaded and unloaded, as the dynamic loader counts.
 *
 * Here and not in Python, because the loader calls back under its own lock: a callback that waits
 * for the interpreter lock deadlocks with a thread that holds it and loads a library.
 */
#include "glue.h"
#if defined(__linux__)
#include <link.h>

static int first(struct dl_phdr_info *info, size_t size, void *data) {
    unsigned long long *counts = data;
    if (size < offsetof(struct dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs) return 1;
    counts[0] = info->dlpi_adds;
    counts[1] = info->dlpi_subs;
    return 2;
}
#endif

PyObject *bcfg_mapped(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
#if defined(__linux__)
    unsigned long long counts[2];
    if (dl_iterate_phdr(first, counts) == 2) return Py_BuildValue("(KK)", counts[0], counts[1]);
#endif
    Py_RETURN_NONE;
}
