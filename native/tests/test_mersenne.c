/* MT19937 by vectors, against one word after another: every instruction set that runs here, wherever in
 * a state the drawing begins and ends, every size of numbers. */
#include <math.h>

#include "../src/kernels/kernels.h"
#include "check.h"

const char *fakes;
enum { MOST = 2000 };

static void seed(bcfg_mersenne *state, uint32_t number) {
    state->words[0] = number;
    for (uint32_t i = 1; i < MERSENNE_WORDS; i++) {
        uint32_t before = state->words[i - 1];
        state->words[i] = 1812433253u * (before ^ before >> 30) + i;
    }
    state->next = MERSENNE_WORDS;
}

/* As its authors wrote it. */
static uint32_t draw(bcfg_mersenne *state) {
    uint32_t *w = state->words;
    if (state->next == MERSENNE_WORDS) {
        for (int i = 0; i < MERSENNE_WORDS; i++) {
            uint32_t y = (w[i] & 0x80000000u) | (w[(i + 1) % MERSENNE_WORDS] & 0x7fffffffu);
            w[i] = w[(i + 397) % MERSENNE_WORDS] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        state->next = 0;
    }
    uint32_t y = w[state->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

static bool is_below(bcfg_mersenne *state, double p) {
    uint64_t high = draw(state), low = draw(state);
    return (double)((high << 32 | low) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53 < p;
}

static void compare(const bcfg_kernels *kernels, int32_t begin, int64_t count, int32_t size,
                    double p) {
    static const uint64_t ones[] = {[1] = 1, [2] = 0x3f80, [4] = 0x3f800000, [8] = UINT64_MAX};
    bcfg_mersenne one_by_one, at_once;
    seed(&one_by_one, 7);
    for (int32_t i = 0; i < begin; i++) draw(&one_by_one);
    at_once = one_by_one;
    unsigned char out[MOST * 8 + 1];
    memset(out, 0xaa, sizeof out);
    kernels->bernoulli(&at_once, (int64_t)ceil(ldexp(p, 53)), count, size, ones[size], out);
    for (int64_t i = 0; i < count; i++) {
        uint64_t found = 0, wanted = is_below(&one_by_one, p) ? ones[size] : 0;
        memcpy(&found, out + i * size, (size_t)size); /* the processors here are little-endian */
        CHECK(found == wanted);
    }
    CHECK(out[count * size] == 0xaa);
    CHECK(at_once.next == one_by_one.next);
    CHECK(memcmp(at_once.words, one_by_one.words, sizeof at_once.words) == 0);
}

int main(int count, char **arguments) {
    fakes = count > 1 ? arguments[1] : "";
    bcfg_mersenne state;
    seed(&state, 5489); /* the number that the C++ standard names for std::mt19937 */
    for (int i = 0; i < 9999; i++) draw(&state);
    CHECK(draw(&state) == 4123659995u);

    for (int32_t isa = 0; isa < BCFG_ISAS; isa++) {
        if (!bcfg_isa_available(isa)) continue;
        CHECK(bcfg_force_isa(isa) == BCFG_OK);
        const bcfg_kernels *kernels = bcfg_kernels_for(BCFG_FLOAT32, false);
        CHECK(kernels->isa == (bcfg_isa)isa);
        for (int32_t begin = 0; begin <= MERSENNE_WORDS + 1; begin++)
            for (int64_t numbers = 0; numbers < 4; numbers++)
                compare(kernels, begin, numbers, 4, 0.75);
        for (int32_t begin = 620; begin < 630; begin++)
            for (int64_t numbers = 309; numbers < MOST; numbers += 137)
                for (int32_t size = 1; size <= 8; size *= 2)
                    compare(kernels, begin, numbers, size, 0.1);
        static const double edges[] = {0, 0x1p-60, 0x1p-53, 0.3, 1 - 0x1p-53, 1};
        for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
            compare(kernels, 5, MOST, 4, edges[i]);
    }
    CHECK(bcfg_force_isa(-1) == BCFG_OK);
    return 0;
}
