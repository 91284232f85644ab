/* What is dropped: the generator of every attention kernel, on a GPU and, in
 * native/src/kernels/philox.h, on the CPU. */
#ifndef BACKENDCFG_DROPOUT_H
#define BACKENDCFG_DROPOUT_H

#include "instructions.h"

/* Four words of Philox 4x32-10, of a counter: the first of four keys / 4, the query, the head and batch,
 * and 0. */
DEVICE void philox(unsigned long long seed, unsigned words[4]) {
    unsigned low = (unsigned)seed, high = (unsigned)(seed >> 32);
    UNROLL
    for (int round = 0; round < 10; round++) {
        unsigned left = upper_product(words[0], 0xD2511F53u), left_low = words[0] * 0xD2511F53u;
        unsigned right = upper_product(words[2], 0xCD9E8D57u), right_low = words[2] * 0xCD9E8D57u;
        words[0] = right ^ words[1] ^ low;
        words[2] = left ^ words[3] ^ high;
        words[1] = right_low;
        words[3] = left_low;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
}

#endif
