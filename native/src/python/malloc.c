/* How much freed memory glibc's malloc keeps instead of giving it back to the kernel.
 *
 * glibc gives back the end of its heap beyond M_TRIM_THRESHOLD, and maps an array of
 * M_MMAP_THRESHOLD bytes or more for itself, so that freeing it unmaps it. A program that makes and
 * frees large arrays in a loop then has the kernel clear every page of them anew each time. Neither
 * threshold has a getter (mallopt(3)), so what was set last is remembered here.
 */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* dladdr */
#endif
#include "glue.h"

#include <limits.h>
#if defined(__GLIBC__)
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <malloc.h>

/* What glibc before 2.35 takes at most for M_MMAP_THRESHOLD: half a heap of its other arenas. */
#define LARGEST_BEFORE_2_35 (32 << 20)

static int kept; /* bytes; 0 while nobody set it */

/* Whether malloc is glibc's own, and not that of a preloaded library or a sanitizer. */
static bool serves(void) {
    Dl_info of_malloc, of_libc;
    void *(*allocate)(size_t) = malloc;
    const char *(*version)(void) = gnu_get_libc_version;
    return dladdr(*(void **)&allocate, &of_malloc) && dladdr(*(void **)&version, &of_libc) &&
           of_malloc.dli_fbase == of_libc.dli_fbase;
}
#endif

PyObject *bcfg_keep_freed(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (given > 1) {
        PyErr_SetString(PyExc_TypeError, "keep_freed takes at most one argument");
        return NULL;
    }
#if defined(__GLIBC__)
    if (!serves()) Py_RETURN_NONE;
    if (given == 1) {
        long bytes = PyLong_AsLong(arguments[0]);
        if (bytes == -1 && PyErr_Occurred()) return NULL;
        if (bytes < 1 || bytes > INT_MAX)
            return PyErr_Format(PyExc_ValueError, "cannot keep %ld bytes: 1 to %d", bytes, INT_MAX);
        int array = (int)(bytes / 2);
        if (mallopt(M_MMAP_THRESHOLD, array) != 1 &&
            mallopt(M_MMAP_THRESHOLD, LARGEST_BEFORE_2_35) != 1)
            return PyErr_Format(PyExc_OSError, "mallopt(M_MMAP_THRESHOLD, %d) was refused", array);
        if (mallopt(M_TRIM_THRESHOLD, (int)bytes) != 1)
            return PyErr_Format(PyExc_OSError, "mallopt(M_TRIM_THRESHOLD, %ld) was refused", bytes);
        kept = (int)bytes;
    }
    return PyLong_FromLong(kept);
#else
    (void)arguments;
    Py_RETURN_NONE;
#endif
}
