/* What a loaded library calls itself. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dlinfo */
#endif
#include "gpu/device/library.h"

#if defined(__linux__)
#include <dlfcn.h>
#include <link.h>

const char *bcfg_soname_of(void *handle) {
    const struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == NULL || map->l_ld == NULL) return NULL;
    uintptr_t strings = 0, name = 0;
    bool named = false;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB) strings = entry->d_un.d_ptr;
        if (entry->d_tag == DT_SONAME) {
            name = entry->d_un.d_val;
            named = true;
        }
    }
    if (!named || strings == 0) return NULL;
    /* glibc makes the address absolute in place; musl leaves it relative to the library. */
    if (strings < map->l_addr) strings += map->l_addr;
    return (const char *)(strings + name);
}
#else
/* No vendor has such libraries for other systems. */
const char *bcfg_soname_of(void *handle) {
    (void)handle;
    return NULL;
}
#endif
