/* The driver of attention's forward pass: cuts the work into tasks and shares them among threads. */
#include "attention.h"

#include "core/core.h"
#include "core/team.h"
#include "kernels.h"
#include "workspace.h"

/* Packed keys and values that are kept at once, and multiply-adds that are worth a second thread. */
static const int64_t most_packed = (int64_t)48 << 20;
static const double worth_a_team = 1 << 18;

typedef struct {
    const attention_job *job;
    const attention_kernels *kernels;
    char *scratch;
    int64_t scratch_bytes;
    int64_t each; /* tasks to a head of keys */
} Work;

static void *scratch_of(const Work *work, int32_t worker) {
    return work->scratch + worker * work->scratch_bytes;
}

static void pack(void *context, int64_t index, int32_t worker) {
    const Work *work = context;
    work->kernels->pack(work->job, work->job->first_head + index / work->each, index % work->each,
                        scratch_of(work, worker));
}

/* Under a causal mask later blocks have more to do, so they come first. */
static void block(void *context, int64_t index, int32_t worker) {
    const Work *work = context;
    int64_t within = index % work->each;
    if (work->job->in.is_causal) within = work->each - 1 - within;
    work->kernels->block(work->job, work->job->first_head + index / work->each,
                         within / work->job->splits, within % work->job->splits,
                         scratch_of(work, worker));
}

static void merge(void *context, int64_t index, int32_t worker) {
    const Work *work = context;
    work->kernels->merge(work->job, index, scratch_of(work, worker));
}

/* Whether the micro-kernels can read the values where they lie: aligned numbers in dense rows. */
static bool lies_well(const attention_job *job) {
    int64_t size = job->real;
    if (job->in.element != (size == 8 ? BCFG_FLOAT64 : BCFG_FLOAT32)) return false;
    if (job->in.value.strides[3] != size && job->in.value_width > 1) return false;
    bool aligned = (uintptr_t)job->in.value.data % (uintptr_t)size == 0;
    for (int d = 0; d < 3; d++) aligned = aligned && job->in.value.strides[d] % size == 0;
    return aligned;
}

/* Decides by shapes alone, never by the number of threads, so that the bits do not depend on it. */
static const attention_kernels *plan(attention_job *job, const bcfg_kernels *kernels) {
    /* No query sees a key behind its own position. */
    if (job->in.is_causal && job->in.keys > job->in.queries) job->in.keys = job->in.queries;
    job->group = job->in.heads / job->in.key_heads;
    job->few = attention_is_few(&job->in);
    job->pairs = job->in.element == BCFG_BFLOAT16 && kernels->pairs != NULL &&
                 !job->few;
    const attention_kernels *chosen =
        job->pairs ? kernels->pairs->attention
                   : kernels->of[job->in.element == BCFG_FLOAT64]->attention;
    int64_t fitting = ATTENTION_ROWS / job->in.queries;
    job->stacked = fitting < 1 ? 1 : fitting < job->group ? fitting : job->group;
    job->blocks = job->stacked > 1
                      ? (job->group + job->stacked - 1) / job->stacked
                      : job->group * ((job->in.queries + ATTENTION_ROWS - 1) / ATTENTION_ROWS);
    bool cut = !job->streams && job->blocks == 1 && job->in.keys > ATTENTION_SPLIT;
    job->split = cut ? ATTENTION_SPLIT : job->in.keys;
    job->splits = cut ? (job->in.keys + ATTENTION_SPLIT - 1) / ATTENTION_SPLIT : 1;
    job->depth = attention_up(job->pairs ? (job->in.width + 1) / 2 : job->in.width, chosen->at_once);
    job->tile_rows = chosen->rows;
    job->out_row = attention_up(job->in.value_width, 16);
    job->real = job->in.element == BCFG_FLOAT64 ? 8 : 4;
    job->in_place = lies_well(job);
    return chosen;
}

/* Sizes in bytes; false where one does not fit. */
static bool sizes(attention_job *job, const attention_kernels *kernels, int64_t *part_bytes,
                  int64_t *head_bytes) {
    int64_t step = job->in.keys < ATTENTION_KEYS ? attention_up(job->in.keys, kernels->columns)
                                              : ATTENTION_KEYS;
    int64_t rows = attention_block_rows(job), steps = attention_steps(job);
    if (job->in.width > INT64_MAX / 65536 || job->in.value_width > INT64_MAX / 65536) return false;
    job->key_bytes = attention_up(step * job->depth * job->real, 64);
    job->value_bytes =
        job->in_place ? 0 : attention_up(step * job->out_row * job->real / (job->pairs ? 2 : 1), 64);
    *part_bytes = attention_up(
        (attention_up(2 * rows, 16) + attention_up(rows, job->tile_rows) * job->out_row) * job->real, 64);
    return !__builtin_mul_overflow(steps, job->key_bytes + job->value_bytes, head_bytes);
}

static void run(attention_job *job, Work *work, int64_t heads, int64_t round, int32_t threads) {
    for (job->first_head = 0; job->first_head < heads; job->first_head += round) {
        int64_t now = heads - job->first_head < round ? heads - job->first_head : round;
        if (job->packed != NULL) {
            work->each = attention_steps(job);
            bcfg_team_run(threads, now * work->each, pack, work);
        }
        work->each = job->blocks * job->splits;
        bcfg_team_run(threads, now * work->each, block, work);
    }
    if (job->parts != NULL) bcfg_team_run(threads, heads, merge, work);
}

bcfg_status bcfg_attention(attention_job *job, int32_t threads, bcfg_error *error) {
    bcfg_status status = bcfg_error_begin(error);
    const attention_inputs *in = &job->in;
    if (status != BCFG_OK || in->batch == 0 || in->heads == 0 || in->queries == 0) return status;
    const bcfg_kernels *set = bcfg_kernels_for(job->in.element, job->in.everywhere);
    const attention_kernels *kernels = plan(job, set);
    int64_t heads = job->in.batch * job->in.key_heads, round = heads;
    double work = (double)job->in.batch * (double)job->in.heads * (double)job->in.queries *
                  (double)job->in.keys * (double)(job->in.width + job->in.value_width + 1);
    if (work < worth_a_team) threads = 1;
    else if (threads <= 0) threads = bcfg_team_size();
    if (threads > BCFG_TEAM_MOST) threads = BCFG_TEAM_MOST;

    int64_t part = 0, head = 0, total = 0, packed = 0, parts = 0;
    bool fits = sizes(job, kernels, &part, &head);
    Work all = {.job = job, .kernels = kernels};
    job->part_bytes = part;
    if (fits) all.scratch_bytes = attention_layout(job).end;
    bool packs = !job->streams && !job->few && job->blocks > 1 && head > 0;
    if (fits && packs) {
        round = most_packed / head < threads ? threads : most_packed / head;
        round = round < heads ? round : heads;
        fits = !__builtin_mul_overflow(round, head, &packed);
    }
    if (fits && job->splits > 1)
        fits = !__builtin_mul_overflow(heads * job->splits, part, &parts);
    fits = fits && !__builtin_mul_overflow(all.scratch_bytes, (int64_t)threads, &total) &&
           !__builtin_add_overflow(total, packed, &total) &&
           !__builtin_add_overflow(total, parts, &total);
    char *space = fits ? bcfg_workspace_take((size_t)total) : NULL;
    if (space == NULL) return bcfg_fail(error, BCFG_E_MEMORY, "no memory to work in");
    all.scratch = space;
    job->packed = packed > 0 ? space + all.scratch_bytes * threads : NULL;
    job->parts = parts > 0 ? space + all.scratch_bytes * threads + packed : NULL;
    run(job, &all, heads, round, threads);
    bcfg_kernels_served(set->isa);
    bcfg_workspace_give(space);
    return BCFG_OK;
}
