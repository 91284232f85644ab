/* How much freed memory glibc's malloc keeps instead of giving it back to the kernel.
 *
 * glibc gives back the end of its heap beyond M_TRIM_THRESHOLD, and maps an array of
 * M_MMAP_THRESHOLD bytes or more for itself, so that freeing it unmaps it. A program that makes and
 * frees large arrays in a loop then has the kernel clear every page of them anew each time. Neither
 * threshold has a getter (mallopt(3)), so what was set last is remembered here.
 */
#include "core/core.h"
#include "glue.h"

#include <limits.h>
#if defined(__GLIBC__)
#include <malloc.h>

/* What glibc before 2.35 takes at most for M_MMAP_THRESHOLD: half a heap of its other arenas. */
#define LARGEST_BEFORE_2_35 (32 << 20)

static int kept; /* bytes; 0 while nobody set it */
#endif

PyObject *bcfg_keep_freed(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (given > 1) {
        PyErr_SetString(PyExc_TypeError, "keep_freed takes at most one argument");
        return NULL;
    }
#if defined(__GLIBC__)
    if (!bcfg_malloc_is_glibc()) Py_RETURN_NONE;
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
