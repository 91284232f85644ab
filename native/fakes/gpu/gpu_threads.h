/* The threads of a block of a GPU on the host: their stacks, who goes on, and what is reported. See
 * gpu_block.h. */
#ifndef BACKENDCFG_GPU_THREADS_H
#define BACKENDCFG_GPU_THREADS_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { GPU_LANES = 32, GPU_WARPS = 8, GPU_SHARED = 232448, GPU_STACK = 65536, GPU_RANGES = 16 };

enum gpu_operation {
    GPU_SYNC, GPU_EXCHANGE, GPU_MULTIPLY, GPU_MATRIX, GPU_MATRIX_TRANSPOSED, GPU_COPY,
    GPU_LOAD_SHARED, GPU_STORE_SHARED, GPU_STORE_WORD, GPU_LOAD_WORD,
    GPU_OPERATIONS
};

typedef struct {
    enum gpu_operation operation;
    bool bfloat16;
    unsigned mask, address;
    uint32_t bits, *to;
    const uint32_t *a;
    uint32_t b[2];
    float *c;
} gpu_request;

typedef struct {
    uint32_t to;
    const void *from; /* NULL: zeros */
    unsigned group;
} gpu_copy;

typedef struct {
    ucontext_t start;
    jmp_buf state;
    bool started, done;
    gpu_request *request;
    gpu_copy *copies;
    unsigned count, room, group, awaited;
    char *stack;
} gpu_thread;

/* What was handed to the kernel. */
typedef struct {
    const char *begin;
    uint64_t bytes;
    uint64_t is_written;
} gpu_range;

typedef struct {
    char fault[256]; /* the first one */
    uint64_t count[GPU_OPERATIONS];
    uint64_t ways[GPU_OPERATIONS]; /* the most accesses of one phase to one bank */
} gpu_report;

static struct {
    gpu_thread threads[GPU_WARPS * GPU_LANES];
    uint32_t ready[GPU_WARPS]; /* lanes that can go on */
    unsigned warps, current, block, at_barrier, arrived[GPU_WARPS];
    int schedule;
    uint32_t random;
    uint64_t shared_bytes;
    _Alignas(128) unsigned char shared[GPU_SHARED];
    gpu_range ranges[GPU_RANGES];
    jmp_buf scheduler;
    void (*body)(const void *);
    const void *job;
    gpu_report report;
} gpu;

static void gpu_fault(const char *what, uint64_t detail) {
    if (gpu.report.fault[0] == 0)
        snprintf(gpu.report.fault, sizeof gpu.report.fault, "%s (%llu), thread %u of block %u", what,
                 (unsigned long long)detail, gpu.current, gpu.block);
}

/* --- threads ---------------------------------------------------------------------------------- */

/* Back to the scheduler until this thread is ready again. */
static void gpu_wait(void) {
    if (!_setjmp(gpu.threads[gpu.current].state)) _longjmp(gpu.scheduler, 1);
}

static void gpu_enter(void) {
    gpu.body(gpu.job);
    gpu_thread *it = &gpu.threads[gpu.current];
    for (unsigned i = 0; i < it->count; i++)
        if (it->copies[i].group >= it->awaited) gpu_fault("a copy that nobody awaits", i);
    it->done = true;
    _longjmp(gpu.scheduler, 1);
}

/* The next warp with a lane that can go on: the first, the last, or any one. */
static int gpu_next_warp(void) {
    unsigned first = 0;
    if (gpu.schedule >= 2) {
        gpu.random ^= gpu.random << 13, gpu.random ^= gpu.random >> 17, gpu.random ^= gpu.random << 5;
        first = gpu.random % gpu.warps;
    }
    for (unsigned i = 0; i < gpu.warps; i++) {
        unsigned warp = gpu.schedule == 1 ? gpu.warps - 1 - i : (first + i) % gpu.warps;
        if (gpu.ready[warp]) return (int)warp;
    }
    return -1;
}

static void gpu_schedule(void) {
    /* volatile: written between setjmp and longjmp */
    static volatile int warp;
    (void)_setjmp(gpu.scheduler);
    warp = gpu_next_warp();
    if (warp < 0) {
        for (unsigned i = 0; i < gpu.warps * GPU_LANES; i++)
            if (!gpu.threads[i].done) {
                gpu_fault("threads that wait for ever", i);
                break;
            }
        return;
    }
    uint32_t ready = gpu.ready[warp];
    unsigned lane = gpu.schedule == 1 ? 31 - (unsigned)__builtin_clz(ready)
                                      : (unsigned)__builtin_ctz(ready);
    gpu.ready[warp] &= ~((uint32_t)1 << lane);
    gpu.current = (unsigned)warp * GPU_LANES + lane;
    gpu_thread *it = &gpu.threads[gpu.current];
    if (it->started) _longjmp(it->state, 1);
    it->started = true;
    setcontext(&it->start);
}

static void gpu_block_run(unsigned block) {
    gpu.block = block;
    gpu.at_barrier = 0;
    memset(gpu.shared, 0xff, gpu.shared_bytes); /* NaN */
    for (unsigned i = 0; i < gpu.warps * GPU_LANES; i++) {
        gpu_thread *it = &gpu.threads[i];
        it->started = it->done = false;
        it->count = it->group = it->awaited = 0;
        getcontext(&it->start);
        it->start.uc_stack.ss_sp = it->stack;
        it->start.uc_stack.ss_size = GPU_STACK;
        it->start.uc_link = NULL;
        makecontext(&it->start, gpu_enter, 0);
    }
    for (unsigned i = 0; i < gpu.warps; i++) gpu.ready[i] = ~(uint32_t)0, gpu.arrived[i] = 0;
    gpu_schedule();
}

/* --- running ---------------------------------------------------------------------------------- */

/* Runs a kernel over a grid; false where there was a fault, which the report then tells. `schedule`
 * is 0: the first warp that can, 1: the last one, more: any, by this seed. */
static bool gpu_run(void (*body)(const void *), const void *job, unsigned blocks, unsigned warps,
                    uint64_t shared_bytes, int schedule, const gpu_range ranges[GPU_RANGES],
                    gpu_report *report) {
    memset(&gpu.report, 0, sizeof gpu.report);
    gpu.body = body, gpu.job = job, gpu.warps = warps, gpu.shared_bytes = shared_bytes;
    gpu.schedule = schedule, gpu.random = 2463534242u + (uint32_t)schedule;
    memcpy(gpu.ranges, ranges, sizeof gpu.ranges);
    if (warps > GPU_WARPS || shared_bytes > GPU_SHARED) gpu_fault("more than a block has", warps);
    char *stacks = malloc((size_t)GPU_WARPS * GPU_LANES * GPU_STACK);
    if (stacks == NULL) gpu_fault("no memory", 0);
    for (unsigned i = 0; i < GPU_WARPS * GPU_LANES; i++) gpu.threads[i].stack = stacks + i * GPU_STACK;
    for (unsigned block = 0; block < blocks && gpu.report.fault[0] == 0; block++) gpu_block_run(block);
    for (unsigned i = 0; i < GPU_WARPS * GPU_LANES; i++) {
        free(gpu.threads[i].copies);
        gpu.threads[i].copies = NULL;
        gpu.threads[i].room = 0;
    }
    free(stacks);
    *report = gpu.report;
    return report->fault[0] == 0;
}

#endif
