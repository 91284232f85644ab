/* Whose malloc serves the process: glibc's own, or that of a preloaded library or of the program. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* dladdr1, dlinfo */
#endif
#include "core.h"

#if defined(__GLIBC__)
#include <dlfcn.h>
#include <elf.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <stdlib.h>

/* Where the program or library that an address lies in begins; NULL for none. */
static void *begin_of(const void *address) {
    Dl_info found;
    return dladdr(address, &found) ? found.dli_fbase : NULL;
}

/* Where the first library begins that has a malloc, in the order in which the loader looks. */
static void *first_with_malloc(void) {
    void *program = dlopen(NULL, RTLD_LAZY), *found = NULL;
    struct link_map *map = NULL;
    if (!program || dlinfo(program, RTLD_DI_LINKMAP, &map)) return NULL;
    while (!found && (map = map->l_next)) {
        void *library = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
        if (!library) continue; /* the kernel's own, which has no file */
        void *own = dlsym(library, "malloc"); /* or that of a library that this one needs */
        if (own && begin_of(own) == begin_of(map->l_ld)) found = begin_of(own);
        dlclose(library);
    }
    dlclose(program);
    return found;
}

bool bcfg_malloc_is_glibc(void) {
    void *(*allocate)(size_t) = malloc;
    const char *(*version)(void) = gnu_get_libc_version;
    const void *address = *(void **)&allocate, *libc = begin_of(*(void **)&version);
    Dl_info found;
    const ElfW(Sym) *symbol = NULL;
    if (!libc || !dladdr1(address, &found, (void **)&symbol, RTLD_DL_SYMENT)) return false;
    /* In a program that is not position-independent, as Debian's Python is, the address of malloc
     * may be that of the program's own stub, which calls whichever malloc the loader found. */
    if (symbol && symbol->st_shndx == SHN_UNDEF) return first_with_malloc() == libc;
    return found.dli_fbase == libc;
}
#else
bool bcfg_malloc_is_glibc(void) { return false; }
#endif
