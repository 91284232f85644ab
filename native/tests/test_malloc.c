/* Whose malloc serves a program that is not position-independent, as Debian's Python is. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "check.h"
#include "core/core.h"

#if defined(__GLIBC__)
#include <dlfcn.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EXPECTED false /* theirs */
#else
#define EXPECTED true
#endif

int main(int count, char **words) {
    Dl_info of_malloc, of_main;
    void *(*allocate)(size_t) = malloc;
    int (*start)(int, char **) = main;
    CHECK(dladdr(*(void **)&allocate, &of_malloc) && dladdr(*(void **)&start, &of_main));
#if defined(__x86_64__) && !defined(__PIE__)
    CHECK(of_malloc.dli_fbase == of_main.dli_fbase); /* a stub, or this would test nothing */
#endif
    /* The second argument says that a library with another malloc was loaded before. */
    (void)words;
    CHECK(bcfg_malloc_is_glibc() == (count < 3 && EXPECTED));
    return 0;
}
#else
int main(void) {
    CHECK(!bcfg_malloc_is_glibc());
    return 0;
}
#endif
