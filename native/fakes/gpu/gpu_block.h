/* A block of GPU threads on the host: the other implementation of
 * backendcfg/gpu/kernels/instructions.h, so that tests run the source of a kernel without a GPU.
 *
 * Each thread has a stack of its own, and only one runs at a time. An instruction of a warp is
 * carried out when all 32 lanes have come to it, from what each brought; that they came to the same
 * one is checked. Which warp goes on is decided by the schedule: a missing barrier shows as bits
 * that depend on it. A copy to shared memory happens as late as is allowed, when it is awaited; one
 * that nobody awaits, an access outside of what was handed in or of shared memory, and one that is
 * not aligned, are faults. Accesses to shared memory are followed bank by bank.
 *
 * Fragments are laid out as instructions.h quotes them from the PTX ISA, written down from there and
 * not from the kernel. */
#ifndef BACKENDCFG_GPU_BLOCK_H
#define BACKENDCFG_GPU_BLOCK_H

#include <math.h>

#include "gpu_threads.h"

#define DEVICE static inline
#define KERNEL(threads, blocks) static void
#define UNROLL
#define MINUS_INFINITY (-INFINITY)

/* --- instructions of a warp ------------------------------------------------------------------- */

static float gpu_wide(bool bfloat16, uint32_t half) {
    half &= 0xffff;
    if (bfloat16) {
        uint32_t bits = half << 16;
        float it;
        memcpy(&it, &bits, 4);
        return it;
    }
    int exponent = half >> 10 & 31;
    float fraction = (float)(half & 1023), it;
    if (exponent == 31)
        it = half & 1023 ? NAN : INFINITY;
    else if (exponent == 0)
        it = ldexpf(fraction, -24);
    else
        it = ldexpf(fraction + 1024, exponent - 25);
    return half & 0x8000 ? -it : it;
}

static uint32_t gpu_narrow(bool bfloat16, float it) {
    uint32_t bits, sign;
    memcpy(&bits, &it, 4);
    sign = bits >> 16 & 0x8000;
    if (it != it) return 0x7fff;
    if (bfloat16) return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    float size = fabsf(it);
    if (size >= 65520) return sign | 0x7c00;
    int exponent;
    (void)frexpf(size, &exponent);
    if (exponent < -13 || size == 0) exponent = -13; /* subnormal */
    uint32_t units = (uint32_t)rintf(ldexpf(size, 11 - exponent)); /* to even */
    return sign | (units + ((uint32_t)(exponent + 13) << 10)); /* a carry moves up */
}

/* How many of some accesses of one phase fall into one bank; the same word counts once. */
static void gpu_banks(enum gpu_operation operation, const unsigned *address, int count, int bytes) {
    uint32_t words[32][32];
    unsigned held[32] = {0}, most = 0;
    for (int i = 0; i < count; i++)
        for (int w = 0; w < bytes / 4; w++) {
            uint32_t word = address[i] / 4 + (uint32_t)w;
            unsigned bank = word % 32, k = 0;
            while (k < held[bank] && words[bank][k] != word) k++;
            if (k == held[bank]) words[bank][held[bank]++] = word;
            if (held[bank] > most) most = held[bank];
        }
    if (most > gpu.report.ways[operation]) gpu.report.ways[operation] = most;
}

static void gpu_warp_banks(gpu_request *const *lanes, int bytes) {
    unsigned address[GPU_LANES];
    for (int i = 0; i < GPU_LANES; i++) address[i] = lanes[i]->address;
    int phase = 128 / bytes; /* lanes whose accesses fill all banks once */
    for (int i = 0; i < GPU_LANES; i += phase)
        gpu_banks(lanes[0]->operation, address + i, phase, bytes);
}

static uint16_t gpu_half_at(unsigned address) {
    uint16_t it;
    memcpy(&it, gpu.shared + address, 2);
    return it;
}

static void gpu_matrices(gpu_request *const *lanes, bool transposed) {
    for (int lane = 0; lane < GPU_LANES; lane++)
        for (int r = 0; r < 4; r++) {
            int group = lane / 4, place = lane % 4;
            uint32_t two = 0;
            for (int i = 0; i < 2; i++) {
                int row = transposed ? 2 * place + i : group;
                int column = transposed ? group : 2 * place + i;
                unsigned begins = lanes[8 * r + row]->address;
                two |= (uint32_t)gpu_half_at(begins + 2 * (unsigned)column) << 16 * i;
            }
            lanes[lane]->to[r] = two;
        }
}

static void gpu_product(gpu_request *const *lanes) {
    float a[16][16], b[16][8];
    bool bfloat16 = lanes[0]->bfloat16;
    for (int lane = 0; lane < GPU_LANES; lane++) {
        int group = lane / 4, place = lane % 4;
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < 2; i++)
                a[group + 8 * (r % 2)][2 * place + 8 * (r / 2) + i] =
                    gpu_wide(bfloat16, lanes[lane]->a[r] >> 16 * i);
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < 2; i++)
                b[2 * place + 8 * r + i][group] = gpu_wide(bfloat16, lanes[lane]->b[r] >> 16 * i);
    }
    for (int lane = 0; lane < GPU_LANES; lane++)
        for (int r = 0; r < 4; r++) {
            const float *row = a[lane / 4 + 8 * (r / 2)];
            int column = 2 * (lane % 4) + r % 2;
            float sum = lanes[lane]->c[r];
            for (int k = 0; k < 16; k++) sum += row[k] * b[k][column];
            lanes[lane]->c[r] = sum;
        }
}

static void gpu_carry_out(unsigned warp) {
    gpu_request *lanes[GPU_LANES];
    for (int i = 0; i < GPU_LANES; i++) lanes[i] = gpu.threads[warp * GPU_LANES + (unsigned)i].request;
    enum gpu_operation operation = lanes[0]->operation;
    gpu.report.count[operation]++;
    uint32_t before[GPU_LANES];
    for (int i = 0; i < GPU_LANES; i++) {
        before[i] = lanes[i]->bits;
        if (lanes[i]->operation != operation) gpu_fault("a warp at two instructions", operation);
    }
    if (gpu.report.fault[0]) return;
    switch (operation) {
    case GPU_EXCHANGE:
        for (int i = 0; i < GPU_LANES; i++) lanes[i]->bits = before[(unsigned)i ^ lanes[i]->mask];
        break;
    case GPU_MULTIPLY: gpu_product(lanes); break;
    case GPU_MATRIX:
    case GPU_MATRIX_TRANSPOSED:
        gpu_warp_banks(lanes, 16);
        gpu_matrices(lanes, operation == GPU_MATRIX_TRANSPOSED);
        break;
    case GPU_COPY: gpu_warp_banks(lanes, 16); break;
    case GPU_LOAD_SHARED: gpu_warp_banks(lanes, 16); break;
    case GPU_STORE_SHARED: gpu_warp_banks(lanes, 16); break;
    case GPU_STORE_WORD:
    case GPU_LOAD_WORD: gpu_warp_banks(lanes, 4); break;
    default: break;
    }
}

/* Until all lanes of the warp have come, and the last one has done the work. */
static void gpu_meet(gpu_request *request) {
    unsigned warp = gpu.current / GPU_LANES;
    gpu.threads[gpu.current].request = request;
    if (++gpu.arrived[warp] < GPU_LANES) {
        gpu_wait();
        return;
    }
    gpu.arrived[warp] = 0;
    gpu_carry_out(warp);
    gpu.ready[warp] = ~(uint32_t)0;
    gpu_wait();
}

/* --- the functions of instructions.h ---------------------------------------------------------- */

DEVICE unsigned thread_index(void) { return gpu.current; }
DEVICE unsigned thread_index_anew(void) { return gpu.current; }
DEVICE unsigned block_index(void) { return gpu.block; }
DEVICE unsigned shared_window(void) { return 0; }

DEVICE void block_barrier(void) {
    if (++gpu.at_barrier < gpu.warps * GPU_LANES) {
        gpu_wait();
        return;
    }
    gpu.at_barrier = 0;
    for (unsigned i = 0; i < gpu.warps; i++) gpu.ready[i] = ~(uint32_t)0;
    gpu_wait();
}
DEVICE void warp_barrier(void) {
    gpu_request it = {.operation = GPU_SYNC};
    gpu_meet(&it);
}

DEVICE unsigned exchange_bits(unsigned value, unsigned mask) {
    gpu_request it = {.operation = GPU_EXCHANGE, .bits = value, .mask = mask};
    gpu_meet(&it);
    return it.bits;
}
DEVICE float exchange(float value, unsigned mask) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    bits = exchange_bits(bits, mask);
    memcpy(&value, &bits, 4);
    return value;
}

static bool gpu_may(const void *at, uint64_t bytes, bool writes) {
    const char *place = at;
    if ((uintptr_t)at % bytes != 0) gpu_fault("global memory, not aligned", (uintptr_t)at % bytes);
    for (int i = 0; i < GPU_RANGES; i++) {
        const gpu_range *range = &gpu.ranges[i];
        if (range->begin != NULL && place >= range->begin &&
            place + bytes <= range->begin + range->bytes && (!writes || range->is_written))
            return true;
    }
    gpu_fault(writes ? "global memory, written outside" : "global memory, read outside", bytes);
    return false;
}

static bool gpu_shared_may(unsigned at, unsigned bytes) {
    if (at % bytes == 0 && at + bytes <= gpu.shared_bytes) return true;
    gpu_fault("shared memory, outside or not aligned", at);
    return false;
}

DEVICE void copy_ahead(unsigned to, const void *from, bool inside) {
    gpu_request request = {.operation = GPU_COPY, .address = to};
    gpu_thread *it = &gpu.threads[gpu.current];
    if (gpu_shared_may(to, 16) && (!inside || gpu_may(from, 16, false))) {
        if (it->count == it->room) {
            unsigned room = it->room ? 2 * it->room : 64;
            gpu_copy *more = realloc(it->copies, room * sizeof *more);
            if (more == NULL) {
                gpu_fault("no memory", room);
                return;
            }
            it->copies = more, it->room = room;
        }
        it->copies[it->count++] = (gpu_copy){to, inside ? from : NULL, it->group};
    }
    gpu_meet(&request);
}
DEVICE void end_copies(void) { gpu.threads[gpu.current].group++; }
DEVICE void await_copies(int left) {
    gpu_thread *it = &gpu.threads[gpu.current];
    unsigned kept = 0, until = it->group > (unsigned)left ? it->group - (unsigned)left : 0;
    for (unsigned i = 0; i < it->count; i++) {
        const gpu_copy *copy = &it->copies[i];
        if (copy->group >= until)
            it->copies[kept++] = *copy;
        else if (copy->from == NULL)
            memset(gpu.shared + copy->to, 0, 16);
        else
            memcpy(gpu.shared + copy->to, copy->from, 16);
    }
    it->count = kept;
    it->awaited = until;
}

DEVICE sixteen_bytes load_shared(unsigned from) {
    gpu_request request = {.operation = GPU_LOAD_SHARED, .address = from};
    gpu_meet(&request);
    sixteen_bytes it = {{0}};
    if (gpu_shared_may(from, 16)) memcpy(&it, gpu.shared + from, 16);
    return it;
}
DEVICE void store_shared(unsigned to, sixteen_bytes it) {
    gpu_request request = {.operation = GPU_STORE_SHARED, .address = to};
    gpu_meet(&request);
    if (gpu_shared_may(to, 16)) memcpy(gpu.shared + to, &it, 16);
}
DEVICE void store_shared_word(unsigned to, unsigned it) {
    gpu_request request = {.operation = GPU_STORE_WORD, .address = to};
    gpu_meet(&request);
    if (gpu_shared_may(to, 4)) memcpy(gpu.shared + to, &it, 4);
}

DEVICE unsigned load_shared_word(unsigned from) {
    gpu_request request = {.operation = GPU_LOAD_WORD, .address = from};
    gpu_meet(&request);
    unsigned it = 0;
    if (gpu_shared_may(from, 4)) memcpy(&it, gpu.shared + from, 4);
    return it;
}

DEVICE unsigned char load_byte(const unsigned char *from) {
    return gpu_may(from, 1, false) ? *from : 0;
}
DEVICE half_bits load_half(const half_bits *from) { return gpu_may(from, 2, false) ? *from : 0; }
DEVICE float load_float(const float *from) { return gpu_may(from, 4, false) ? *from : 0; }
DEVICE sixteen_bytes load_chunk(const void *from) {
    sixteen_bytes it = {{0}};
    if (gpu_may(from, 16, false)) memcpy(&it, from, 16);
    return it;
}
DEVICE void store_half(half_bits *to, half_bits it) {
    if (gpu_may(to, 2, true)) *to = it;
}
DEVICE void store_float(float *to, float it) {
    if (gpu_may(to, 4, true)) *to = it;
}
DEVICE void store_sixteen(void *to, sixteen_bytes it) {
    if (gpu_may(to, 16, true)) memcpy(to, &it, 16);
}

DEVICE void load_matrix(unsigned to[4], unsigned from) {
    gpu_request request = {.operation = GPU_MATRIX, .to = to, .address = from};
    (void)gpu_shared_may(from, 16);
    gpu_meet(&request);
}
DEVICE void load_matrix_transposed(unsigned to[4], unsigned from) {
    gpu_request request = {.operation = GPU_MATRIX_TRANSPOSED, .to = to, .address = from};
    (void)gpu_shared_may(from, 16);
    gpu_meet(&request);
}
DEVICE void multiply(bool bfloat16, float c[4], const unsigned a[4], unsigned b0, unsigned b1) {
    gpu_request request = {
        .operation = GPU_MULTIPLY, .bfloat16 = bfloat16, .a = a, .b = {b0, b1}, .c = c};
    gpu_meet(&request);
}

DEVICE unsigned pack(bool bfloat16, float low, float high) {
    return gpu_narrow(bfloat16, low) | gpu_narrow(bfloat16, high) << 16;
}
DEVICE float widen(bool bfloat16, half_bits it) { return gpu_wide(bfloat16, it); }
/* ftz: what would be subnormal is 0. */
DEVICE float power_of_two(float it) { return it < -126 ? 0 : exp2f(it); }
DEVICE float reciprocal(float it) { return 1 / it; }
DEVICE float logarithm_of_two(float it) { return log2f(it); }
DEVICE float greater(float a, float b) { return fmaxf(a, b); }
DEVICE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE unsigned upper_product(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}

#endif
