/* A digest of bytes; see digest.c. */
#ifndef BACKENDCFG_DIGEST_H
#define BACKENDCFG_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* A number of 64 bits for `size` bytes, which another seed makes another. Needs no interpreter lock. */
uint64_t bcfg_digest(const void *bytes, size_t size, uint64_t seed);
/* The same where the lock is held, which is released meanwhile for as many bytes as are worth it. */
uint64_t bcfg_digest_unlocked(const void *bytes, size_t size, uint64_t seed);

#endif
