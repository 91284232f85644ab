/* Memory that kernels work in, kept between calls: fresh pages cost more than a small product. */
#ifndef BACKENDCFG_WORKSPACE_H
#define BACKENDCFG_WORKSPACE_H

#include <stddef.h>

/* At least `size` bytes that start at a multiple of 64, with any content; NULL without memory. */
void *bcfg_workspace_take(size_t size);
/* Gives back what bcfg_workspace_take returned; NULL is allowed. One is kept, at most 64 MiB. */
void bcfg_workspace_give(void *space);

#endif
