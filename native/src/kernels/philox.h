/* The generator of dropout: Philox 4x32-10 (Salmon et al., 2011), a function of where an element
 * is and of nothing else. Tiles, threads and instruction sets therefore cannot change what is
 * dropped, and the backward pass asks again instead of keeping a mask.
 *
 *     key      the seed, 64 bits
 *     counter  (key position / 4, query position, batch * heads + head: low, high word)
 *     element  word `key position % 4` of the result
 *
 * Shared by the forward and the backward pass; changing anything here changes the results of both.
 */
#ifndef BACKENDCFG_PHILOX_H
#define BACKENDCFG_PHILOX_H

#include <stdint.h>

enum { PHILOX_LANES = 16 };

/* What a kept element is multiplied by; nothing is kept at 1. */
static inline double bcfg_dropout_factor(double probability) {
    return probability < 1 ? 1 / (1 - probability) : 0;
}

/* The words of PHILOX_LANES consecutive groups of four elements, from group `first` on. */
static inline void bcfg_philox(uint64_t seed, uint32_t first, uint32_t query, uint64_t batch_head,
                               uint32_t words[4 * PHILOX_LANES]) {
    uint32_t a[PHILOX_LANES], b[PHILOX_LANES], c[PHILOX_LANES], d[PHILOX_LANES];
    uint32_t low = (uint32_t)seed, high = (uint32_t)(seed >> 32);
    for (int i = 0; i < PHILOX_LANES; i++) {
        a[i] = first + (uint32_t)i;
        b[i] = query;
        c[i] = (uint32_t)batch_head;
        d[i] = (uint32_t)(batch_head >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < PHILOX_LANES; i++) {
            uint64_t left = (uint64_t)a[i] * 0xD2511F53u, right = (uint64_t)c[i] * 0xCD9E8D57u;
            a[i] = (uint32_t)(right >> 32) ^ b[i] ^ low;
            c[i] = (uint32_t)(left >> 32) ^ d[i] ^ high;
            b[i] = (uint32_t)right;
            d[i] = (uint32_t)left;
        }
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    for (int i = 0; i < PHILOX_LANES; i++) {
        words[4 * i] = a[i];
        words[4 * i + 1] = b[i];
        words[4 * i + 2] = c[i];
        words[4 * i + 3] = d[i];
    }
}

/* factors[j] = 0 where key `first + j` is dropped for a query, else 1. `probability` is in [0, 1],
 * `first` a multiple of 4; `factors` has room for `count` rounded up to a multiple of
 * 4 * PHILOX_LANES. */
static inline void bcfg_dropout_row(uint64_t seed, double probability, uint64_t batch_head,
                                    int64_t query, int64_t first, int64_t count, float *factors) {
    const uint64_t threshold = (uint64_t)(probability * 4294967296.0);
    uint32_t words[4 * PHILOX_LANES];
    for (int64_t j = 0; j < count; j += 4 * PHILOX_LANES) {
        bcfg_philox(seed, (uint32_t)((first + j) / 4), (uint32_t)query, batch_head, words);
        for (int i = 0; i < 4 * PHILOX_LANES; i++)
            factors[j + i] = words[i] < threshold ? 0.0f : 1.0f;
    }
}

#endif
