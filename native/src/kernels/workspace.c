/* One spare block, taken and returned by one atomic exchange: there is no lock that a forked child
 * could inherit locked. */
#include "workspace.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

/* Before the bytes that a caller sees, in a line of their own. */
typedef union {
    size_t size;
    char line[64];
} Header;

static Header *_Atomic spare;
static const size_t most_kept = (size_t)64 << 20;

void *bcfg_workspace_take(size_t size) {
    Header *header = atomic_exchange_explicit(&spare, NULL, memory_order_acq_rel);
    if (header != NULL && header->size >= size) return header + 1;
    free(header);
    if (size > SIZE_MAX / 2) return NULL;
    size = (size + sizeof *header - 1) / sizeof *header * sizeof *header;
    header = aligned_alloc(sizeof *header, size + sizeof *header);
    if (header == NULL) return NULL;
    header->size = size;
    return header + 1;
}

void bcfg_workspace_give(void *space) {
    if (space == NULL) return;
    Header *header = (Header *)space - 1;
    if (header->size <= most_kept)
        header = atomic_exchange_explicit(&spare, header, memory_order_acq_rel);
    free(header);
}
