/* A malloc that is not glibc's own, as a preloaded tcmalloc has it. */
#include <stddef.h>

void *__libc_malloc(size_t bytes);
void *malloc(size_t bytes) { return __libc_malloc(bytes); }
