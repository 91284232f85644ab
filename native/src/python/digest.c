/* A digest of bytes, by which the values that operations produce are compared from run to run.
 *
 * Not against anybody who wants two values to look alike: against chance. Each of eight lanes maps
 * what it holds and the next word to a new value by a bijection in either, so that one changed word
 * always shows, and the order of words counts.
 */
#include "digest.h"
#include "glue.h"

#include <string.h>

#define LANES 8
#define BLOCK (LANES * 8)
#define WITHOUT_THE_LOCK (1 << 16) /* bytes; giving the interpreter lock away costs more than fewer */

static const uint64_t odd = 0x9e3779b97f4a7c15u; /* 2^64 divided by the golden ratio */

static uint64_t rotated(uint64_t word, int by) { return word << by | word >> (64 - by); }
static uint64_t next(uint64_t lane, uint64_t word) { return rotated(lane ^ word, 27) * odd; }

/* The last step of MurmurHash3: each bit of the argument reaches each of the result. */
static uint64_t spread(uint64_t word) {
    word = (word ^ word >> 33) * 0xff51afd7ed558ccdu;
    word = (word ^ word >> 33) * 0xc4ceb9fe1a85ec53u;
    return word ^ word >> 33;
}

static void take(uint64_t lanes[LANES], const unsigned char *block) {
    uint64_t words[LANES];
    memcpy(words, block, BLOCK);
    for (int i = 0; i < LANES; i++) lanes[i] = next(lanes[i], words[i]);
}

uint64_t bcfg_digest(const void *bytes, size_t size, uint64_t seed) {
    uint64_t lanes[LANES], result = spread(seed ^ size);
    const unsigned char *at = bytes, *end = at + size;
    for (int i = 0; i < LANES; i++) lanes[i] = seed + odd * (uint64_t)(i + 1);
    for (; end - at >= BLOCK; at += BLOCK) take(lanes, at);
    if (at != end) {
        unsigned char rest[BLOCK] = {0};
        memcpy(rest, at, (size_t)(end - at));
        take(lanes, rest);
    }
    for (int i = 0; i < LANES; i++) result = next(result, spread(lanes[i]));
    return spread(result);
}

uint64_t bcfg_digest_unlocked(const void *bytes, size_t size, uint64_t seed) {
    if (size < WITHOUT_THE_LOCK) return bcfg_digest(bytes, size, seed);
    uint64_t found;
    Py_BEGIN_ALLOW_THREADS
    found = bcfg_digest(bytes, size, seed);
    Py_END_ALLOW_THREADS
    return found;
}

PyObject *bcfg_digest_call(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (given < 2 || given > 3) {
        PyErr_SetString(PyExc_TypeError, "digest takes an address, a size and a seed");
        return NULL;
    }
    void *address = PyLong_AsVoidPtr(arguments[0]);
    if (address == NULL && PyErr_Occurred()) return NULL;
    Py_ssize_t size = PyLong_AsSsize_t(arguments[1]);
    if (size == -1 && PyErr_Occurred()) return NULL;
    if (size < 0 || (address == NULL && size > 0))
        return PyErr_Format(PyExc_ValueError, "no %zd bytes are at %p", size, address);
    unsigned long long seed = given == 3 ? PyLong_AsUnsignedLongLongMask(arguments[2]) : 0;
    if (PyErr_Occurred()) return NULL;
    return PyLong_FromUnsignedLongLong(bcfg_digest_unlocked(address, (size_t)size, seed));
}
