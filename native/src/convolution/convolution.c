/* A convolution in tiles of outputs by pixels, over a padded copy of the images or, where no window
 * leaves them, over themselves. Which thread computes a tile changes no bit. */
#include <stdlib.h>
#include <string.h>

#include "core/team.h"
#include "work.h"

/* Elements of padded images for each thread at a time: what stays in a second-level cache. A group
 * that is no larger is padded by the worker that reads it, where there are groups enough. */
enum { ROWS = 6, PADDED_AT_ONCE = 1 << 17, TASKS_OF_A_THREAD = 4 };
/* Multiplications below which other threads cost more than they gain. */
enum { WORTH_THREADS = 1 << 20 };
/* Outputs of a group that pay for the copy of a tile's pixels; bytes of a panel, which stays in a
 * first-level cache with the weights and results that meet it; the most parts of rows in a tile;
 * and the outputs of a group, and pixels of a task, that are computed by lines. */
enum { WORTH_PANELS = 32, PANEL_BYTES = 24 << 10, MOST_RUNS = 64, FEW_OUTPUTS = 2,
       PIXELS_OF_LINES = 4096 };

static void pad(void *context, int64_t index, int32_t worker) {
    (void)worker;
    const Work *work = context;
    int64_t channels = work->call->groups * work->call->channels;
    bcfg_padding_channel(work, work->first_image + index / channels, index % channels,
                         work->padded + index * work->channel * work->size);
}

/* Where an output of an image starts. */
static char *out_at(const Work *work, int64_t image, int64_t channel) {
    const bcfg_convolution *call = work->call;
    return call->out + (image * call->groups * call->outputs + channel) * call->out_height *
                           call->out_width * work->size;
}

/* A tile of results to where they belong, without what fell on margins. */
static void place(const Work *work, const char *tile, char *plane, int64_t first) {
    int64_t row = work->columns, width = work->call->out_width, size = work->size;
    int64_t last = bcfg_smaller(first + work->tile, work->pixels);
    int64_t y = first / row, x = first % row;
    for (int64_t pixel = first; pixel < last; y++, x = 0) {
        int64_t run = bcfg_smaller(row - x, last - pixel);
        if (x < width)
            memcpy(plane + (y * width + x) * size, tile + (pixel - first) * size,
                   (size_t)(bcfg_smaller(run, width - x) * size));
        pixel += run;
    }
}

/* Outputs [output, end) of one group at the pixels of one tile, which are numbered through a plane,
 * its margins included; what falls on a margin is computed and dropped. */
static void by_windows(const Work *work, int64_t image, int64_t group, int64_t output, int64_t end,
                       int64_t first, const char *base, char *results) {
    const bcfg_convolution *call = work->call;
    int64_t size = work->size, pixels = bcfg_smaller(work->tile, work->pixels - first);
    base += first * size;
    for (; output < end; output += ROWS) {
        int64_t rows = bcfg_smaller(ROWS, end - output), channel = group * call->outputs + output;
        const char *weight = call->weight + channel * work->depth * size;
        const char *bias = call->bias != NULL ? call->bias + channel * size : NULL;
        work->kernels->window(rows, pixels, work->depth, weight, bias, base, work->offsets, results);
        for (int64_t r = 0; r < rows; r++)
            place(work, results + r * work->tile * size, out_at(work, image, channel + r), first);
    }
}

/* Where the pixels [first, first + count) of a result lie in a plane: runs of a vector at most. */
static int64_t runs_of(const Work *work, int64_t first, int64_t count, bcfg_run *runs) {
    int64_t width = work->call->out_width, vector = 64 / work->size, found = 0;
    if (work->columns == width) width = work->pixels; /* nothing lies between two rows */
    int64_t y = first / width, x = first % width;
    while (count > 0) {
        int64_t run = bcfg_smaller(bcfg_smaller(width - x, count), vector);
        runs[found++] = (bcfg_run){y * work->columns + x, run};
        count -= run;
        x += run;
        if (x == width) y++, x = 0;
    }
    return found;
}

/* The chains of 1 to 6 outputs through the terms of a panel, the first of which is term k. */
static void through_panel(const Work *work, int64_t channel, int64_t rows, int64_t pixels,
                          int64_t k, int64_t inner, const char *panel, char *out) {
    const bcfg_convolution *call = work->call;
    int64_t size = work->size, area = call->out_height * call->out_width;
    const char *weight = call->weight + (channel * work->depth + k) * size;
    int accumulate = k == 0 && call->bias == NULL ? TILE_WRITE : TILE_CHAIN;
    if (k == 0 && call->bias != NULL)
        work->kernels->fill(rows, pixels, call->bias + channel * size, out, area);
    work->kernels->tile(rows, pixels, inner, weight, work->depth, 1, panel, work->tile, out, area,
                        accumulate);
}

/* The same as by_windows; pixels are those of the result alone, and copied to a panel that fits
 * the first-level cache before the outputs meet them. */
static void by_panels(const Work *work, int64_t image, int64_t group, int64_t output, int64_t end,
                      int64_t first, const char *base, char *panel) {
    const bcfg_convolution *call = work->call;
    int64_t size = work->size, pixels = bcfg_smaller(work->tile, work->pixels - first);
    bcfg_run runs[MOST_RUNS];
    int64_t count = runs_of(work, first, pixels, runs);
    for (int64_t k = 0; k < work->depth; k += work->inner) {
        int64_t inner = bcfg_smaller(work->inner, work->depth - k);
        work->kernels->panel(inner, base, work->offsets + k, runs, count, !work->in_place, panel);
        for (int64_t at = output; at < end; at += ROWS) {
            int64_t channel = group * call->outputs + at;
            through_panel(work, channel, bcfg_smaller(ROWS, end - at), pixels, k, inner, panel,
                          out_at(work, image, channel) + first * size);
        }
    }
}

/* Outputs [output, end) of one group in a few rows of the result. */
static void by_lines(const Work *work, int64_t image, int64_t group, int64_t output, int64_t end,
                     int64_t first, const char *base) {
    const bcfg_convolution *call = work->call;
    int64_t size = work->size, width = call->out_width;
    int64_t lines = bcfg_smaller(work->lines, call->out_height - first);
    base += first * work->columns * size;
    for (; output < end; output++) {
        int64_t channel = group * call->outputs + output;
        const char *weight = call->weight + channel * work->depth * size;
        char *out = out_at(work, image, channel) + first * width * size;
        work->kernels->lines(work->depth, weight,
                             call->bias != NULL ? call->bias + channel * size : NULL, base,
                             work->offsets, lines, work->columns, width, out);
    }
}

/* Outputs [output, end) of one group in tile `tile`; `base` is where the group's pixels start. */
static void compute_tile(const Work *work, int64_t image, int64_t group, int64_t output,
                         int64_t end, int64_t tile, const char *base, char *scratch) {
    if (work->manner == BY_LINES)
        by_lines(work, image, group, output, end, tile * work->lines, base);
    else if (work->manner == BY_PANELS)
        by_panels(work, image, group, output, end, tile * work->tile, base, scratch);
    else
        by_windows(work, image, group, output, end, tile * work->tile, base, scratch);
}

static void compute(void *context, int64_t index, int32_t worker) {
    const Work *work = context;
    const bcfg_convolution *call = work->call;
    int64_t tile = index % work->tiles, piece = index / work->tiles % work->pieces;
    int64_t group = index / work->tiles / work->pieces % call->groups;
    int64_t image = index / work->tiles / work->pieces / call->groups;
    compute_tile(work, work->first_image + image, group, piece * work->piece,
                 bcfg_smaller((piece + 1) * work->piece, call->outputs), tile,
                 work->source + (image * work->image + group * call->channels * work->channel) *
                                    work->size,
                 work->scratch + worker * work->scratch_size);
}

static void compute_group(void *context, int64_t index, int32_t worker) {
    const Work *work = context;
    const bcfg_convolution *call = work->call;
    int64_t image = index / call->groups, group = index % call->groups, size = work->size;
    char *padded = work->scratch + worker * work->scratch_size;
    char *scratch = padded + (call->channels * work->channel + work->tile) * size;
    for (int64_t c = 0; c < call->channels; c++)
        bcfg_padding_channel(work, image, group * call->channels + c,
                             padded + c * work->channel * size);
    memset(padded + call->channels * work->channel * size, 0, (size_t)(work->tile * size));
    for (int64_t tile = 0; tile < work->tiles; tile++)
        compute_tile(work, image, group, 0, call->outputs, tile, padded, scratch);
}

/* How the pixels of a group are cut. */
static void cut(Work *work, int32_t threads) {
    const bcfg_convolution *call = work->call;
    work->pixels = work->manner == BY_PANELS
                       ? call->out_height * call->out_width
                       : (call->out_height - 1) * work->columns + call->out_width;
    work->tiles = (work->pixels + work->tile - 1) / work->tile;
    work->lines = PIXELS_OF_LINES / call->out_width + 1;
    if (work->manner == BY_LINES) work->tiles = (call->out_height + work->lines - 1) / work->lines;
    work->inner = bcfg_smaller(PANEL_BYTES / (work->tile * work->size), work->depth);
    /* Few tiles: the outputs are divided too, so that every thread has something to do. */
    int64_t tasks = work->tiles * call->groups * work->images;
    int64_t blocks = (call->outputs + ROWS - 1) / ROWS;
    int64_t wanted = threads > 1 ? (threads * TASKS_OF_A_THREAD + tasks - 1) / tasks : 1;
    work->piece = blocks / bcfg_smaller(wanted, blocks) * ROWS;
    work->pieces = (call->outputs + work->piece - 1) / work->piece;
}

/* Sizes of everything; false when they do not fit. */
static bool measure(Work *work, int32_t threads) {
    const bcfg_convolution *call = work->call;
    work->manner = call->outputs <= FEW_OUTPUTS ? BY_LINES
                   : call->outputs >= WORTH_PANELS && call->channels > 0 ? BY_PANELS : BY_WINDOWS;
    if (!bcfg_padding_layout(work)) return false;
    int64_t whole = work->image, group = work->channel * call->channels;
    work->images = bcfg_smaller(threads * PADDED_AT_ONCE / (whole > 0 ? whole : 1), call->batch);
    if (work->in_place) work->images = call->batch;
    work->images = work->images > 0 ? work->images : 1;
    work->by_worker = !work->in_place && group <= PADDED_AT_ONCE &&
                      (threads == 1 || call->batch * call->groups >= TASKS_OF_A_THREAD * threads);
    cut(work, threads);
    /* Of a tile: its results, or its panel and the vector that is written behind it. */
    work->scratch_size = work->manner == BY_WINDOWS ? ROWS * work->tile
                         : work->manner == BY_PANELS ? (work->inner + 1) * work->tile : 0;
    if (work->by_worker) work->scratch_size += group + work->tile;
    work->scratch_size = (work->scratch_size * work->size + 63) & ~(int64_t)63;
    return true;
}

/* Memory that measure() found; the last tile of the last plane reads one tile further. */
static bool allocate(Work *work, int32_t threads) {
    int64_t bytes;
    work->offsets = malloc((size_t)(work->depth > 0 ? work->depth : 1) * sizeof *work->offsets);
    work->scratch = aligned_alloc(64, (size_t)(threads * work->scratch_size + 64));
    if (work->offsets == NULL || work->scratch == NULL) return false;
    if (work->by_worker || work->in_place) return true;
    if (__builtin_mul_overflow(work->images * work->size, work->image, &bytes)) return false;
    work->padded = malloc((size_t)(bytes + work->tile * work->size));
    work->source = work->padded;
    return work->padded != NULL;
}

static void run(Work *work, int32_t threads) {
    const bcfg_convolution *call = work->call;
    int64_t channels = call->groups * call->channels;
    bcfg_padding_offsets(work);
    if (work->by_worker) {
        bcfg_team_run(threads, call->batch * call->groups, compute_group, work);
        return;
    }
    for (int64_t left = call->batch; left > 0; left -= work->images) {
        work->first_image = call->batch - left;
        work->images = bcfg_smaller(work->images, left);
        if (!work->in_place) {
            memset(work->padded + work->images * work->image * work->size, 0,
                   (size_t)(work->tile * work->size));
            bcfg_team_run(threads, work->images * channels, pad, work);
        }
        bcfg_team_run(threads, work->images * call->groups * work->pieces * work->tiles, compute,
                      work);
    }
}

static double work_of(const bcfg_convolution *call) {
    return (double)call->batch * (double)call->groups * (double)call->outputs *
           (double)call->channels * (double)call->kernel_height * (double)call->kernel_width *
           (double)call->out_height * (double)call->out_width;
}

bcfg_status bcfg_convolve(const bcfg_convolution *call, const bcfg_kernels *kernels,
                          int32_t threads) {
    if (call->batch == 0 || call->outputs == 0) return BCFG_OK;
    if (threads < 1) threads = work_of(call) < WORTH_THREADS ? 1 : bcfg_team_size();
    if (threads > BCFG_TEAM_MOST) threads = BCFG_TEAM_MOST;
    Work work = {.call = call, .kernels = kernels->of[call->element]};
    work.size = bcfg_element_size[call->element];
    work.tile = work.kernels->columns;
    bool made = measure(&work, threads) && allocate(&work, threads);
    if (made) run(&work, threads);
    free(work.offsets);
    free(work.scratch);
    free(work.padded);
    if (made) bcfg_kernels_served(kernels->isa);
    return made ? BCFG_OK : BCFG_E_MEMORY;
}
