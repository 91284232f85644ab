/* A convolution in tiles of outputs by pixels, each read where it lies in a padded copy.
 *
 * The copy of a channel is divided into planes: one for each row and column that a kernel element
 * can have within a step of the window. So the pixels of a tile are neighbours for every kernel
 * element at every stride, and nothing is gathered. They are numbered through a plane, its margins
 * included; what falls on a margin is computed and dropped. */
#include <stdlib.h>
#include <string.h>

#include "convolution.h"
#include "core/team.h"

/* Elements of padded images that are made at a time: what stays in a second-level cache; and of
 * one group, for its worker to pad it. */
enum { ROWS = 6, PADDED_AT_ONCE = 1 << 20, PADDED_BY_WORKER = 1 << 14, TASKS_OF_A_THREAD = 4 };
/* Multiplications below which other threads cost more than they gain. */
enum { WORTH_THREADS = 1 << 20 };

typedef struct {
    const bcfg_convolution *call;
    const bcfg_kernels *kernels;
    int64_t size, depth, tile;
    int64_t rows, columns;                       /* of a plane */
    int64_t plane, planes[2], channel;           /* elements; planes by row and column; elements */
    int64_t first_image, images;                 /* those that are padded */
    int64_t pixels, tiles, pieces, piece;        /* of a plane; of the outputs of a group */
    bool by_worker;                              /* each worker pads a group for itself */
    char *padded;
    int64_t *offsets;
    char *scratch;                               /* of each worker */
    int64_t scratch_size;
} Work;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* How many different places within a step the kernel elements of one direction have: element i has
 * i * dilation % stride, and these repeat after stride / gcd of them. */
static int64_t places(int64_t kernel, int64_t stride, int64_t dilation) {
    int64_t a = stride, b = dilation;
    while (b != 0) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return smaller(kernel, stride / a);
}

/* One channel of one image in its planes, with margins of zeros. */
static void pad_channel(const Work *work, int64_t image, int64_t channel, char *to) {
    const bcfg_convolution *call = work->call;
    int64_t size = work->size, row_bytes = work->columns * size;
    const char *from = call->input +
                       (image * call->batch_stride + channel * call->channel_stride) * size;
    for (int64_t a = 0; a < work->planes[0]; a++)
        for (int64_t b = 0; b < work->planes[1]; b++) {
            int64_t y = a * call->dilation[0] % call->stride[0] - call->padding[0];
            int64_t x = b * call->dilation[1] % call->stride[1] - call->padding[1];
            for (int64_t row = 0; row < work->rows; row++, y += call->stride[0], to += row_bytes) {
                if (y < 0 || y >= call->height)
                    memset(to, 0, (size_t)row_bytes);
                else
                    bcfg_convolution_row(call, from + y * call->row_stride * size, x,
                                         work->columns, to);
            }
        }
}

static void pad(void *context, int64_t index, int32_t worker) {
    (void)worker;
    const Work *work = context;
    int64_t channels = work->call->groups * work->call->channels;
    pad_channel(work, work->first_image + index / channels, index % channels,
                work->padded + index * work->channel * work->size);
}

/* A tile of results to where they belong, without what fell on margins. */
static void place(const Work *work, const char *tile, char *plane, int64_t first) {
    int64_t row = work->columns, width = work->call->out_width, size = work->size;
    int64_t last = smaller(first + work->tile, work->pixels);
    int64_t y = first / row, x = first % row;
    for (int64_t pixel = first; pixel < last; y++, x = 0) {
        int64_t run = smaller(row - x, last - pixel);
        if (x < width)
            memcpy(plane + (y * width + x) * size, tile + (pixel - first) * size,
                   (size_t)(smaller(run, width - x) * size));
        pixel += run;
    }
}

/* Outputs [output, end) of one group at the pixels of one tile. */
static void compute_tile(const Work *work, int64_t image, int64_t group, int64_t output,
                         int64_t end, int64_t first, const char *base, char *results) {
    const bcfg_convolution *call = work->call;
    int64_t size = work->size, area = call->out_height * call->out_width;
    int64_t pixels = smaller(work->tile, work->pixels - first);
    for (; output < end; output += ROWS) {
        int64_t rows = smaller(ROWS, end - output), channel = group * call->outputs + output;
        const char *weight = call->weight + channel * work->depth * size;
        const char *bias = call->bias != NULL ? call->bias + channel * size : NULL;
        if (call->element == BCFG_FLOAT32)
            work->kernels->f32_window(rows, pixels, work->depth, (const float *)weight,
                                      (const float *)bias, (const float *)base, work->offsets,
                                      (float *)results);
        else
            work->kernels->f64_window(rows, pixels, work->depth, (const double *)weight,
                                      (const double *)bias, (const double *)base, work->offsets,
                                      (double *)results);
        char *out = call->out + (image * call->groups * call->outputs + channel) * area * size;
        for (int64_t r = 0; r < rows; r++)
            place(work, results + r * work->tile * size, out + r * area * size, first);
    }
}

static void compute(void *context, int64_t index, int32_t worker) {
    const Work *work = context;
    int64_t first = index % work->tiles * work->tile;
    int64_t piece = index / work->tiles % work->pieces, rest = index / work->tiles / work->pieces;
    int64_t channels = rest * work->call->channels; /* rest is image * groups + group */
    compute_tile(work, work->first_image + rest / work->call->groups, rest % work->call->groups,
                 piece * work->piece, smaller((piece + 1) * work->piece, work->call->outputs),
                 first, work->padded + (channels * work->channel + first) * work->size,
                 work->scratch + worker * work->scratch_size);
}

static void compute_group(void *context, int64_t index, int32_t worker) {
    const Work *work = context;
    const bcfg_convolution *call = work->call;
    int64_t image = index / call->groups, group = index % call->groups, size = work->size;
    char *results = work->scratch + worker * work->scratch_size;
    char *padded = results + ROWS * work->tile * size;
    for (int64_t c = 0; c < call->channels; c++)
        pad_channel(work, image, group * call->channels + c, padded + c * work->channel * size);
    memset(padded + call->channels * work->channel * size, 0, (size_t)(work->tile * size));
    for (int64_t first = 0; first < work->pixels; first += work->tile)
        compute_tile(work, image, group, 0, call->outputs, first, padded + first * size, results);
}

/* Where each kernel element reads, from the place of its pixel. */
static void find_offsets(Work *work) {
    const bcfg_convolution *call = work->call;
    int64_t k = 0;
    for (int64_t c = 0; c < call->channels; c++)
        for (int64_t y = 0; y < call->kernel_height; y++)
            for (int64_t x = 0; x < call->kernel_width; x++) {
                int64_t plane = y % work->planes[0] * work->planes[1] + x % work->planes[1];
                work->offsets[k++] = c * work->channel + plane * work->plane +
                                     y * call->dilation[0] / call->stride[0] * work->columns +
                                     x * call->dilation[1] / call->stride[1];
            }
}

static bool product(int64_t *result, int64_t a, int64_t b) {
    return !__builtin_mul_overflow(a, b, result);
}

/* Sizes of everything; false when they do not fit. */
static bool measure(Work *work, int32_t threads) {
    const bcfg_convolution *call = work->call;
    int64_t area, height, width, planes, group, whole;
    if (!product(&area, call->kernel_height, call->kernel_width) ||
        !product(&work->depth, call->channels, area) ||
        !product(&height, call->kernel_height - 1, call->dilation[0]) ||
        !product(&width, call->kernel_width - 1, call->dilation[1]))
        return false;
    for (int d = 0; d < 2; d++)
        work->planes[d] = places(d ? call->kernel_width : call->kernel_height, call->stride[d],
                                 call->dilation[d]);
    work->rows = call->out_height + height / call->stride[0];
    work->columns = call->out_width + width / call->stride[1];
    if (!product(&planes, work->planes[0], work->planes[1]) ||
        !product(&work->plane, work->rows, work->columns) ||
        !product(&work->channel, work->plane, planes) ||
        !product(&group, work->channel, call->channels) ||
        !product(&whole, group, call->groups * work->size))
        return false;
    whole /= work->size;
    work->images = smaller(PADDED_AT_ONCE / (whole > 0 ? whole : 1), call->batch);
    work->images = work->images > 0 ? work->images : 1;
    work->pixels = (call->out_height - 1) * work->columns + call->out_width;
    work->tiles = (work->pixels + work->tile - 1) / work->tile;
    work->by_worker = group <= PADDED_BY_WORKER && call->batch * call->groups >= 2 * threads;
    /* Few tiles: the outputs are divided too, so that every thread has something to do. */
    int64_t tasks = work->tiles * call->groups * work->images;
    int64_t blocks = (call->outputs + ROWS - 1) / ROWS;
    int64_t wanted = threads > 1 ? (threads * TASKS_OF_A_THREAD + tasks - 1) / tasks : 1;
    work->piece = blocks / smaller(wanted, blocks) * ROWS;
    work->pieces = (call->outputs + work->piece - 1) / work->piece;
    work->scratch_size = ROWS * work->tile + (work->by_worker ? group + work->tile : 0);
    work->scratch_size = (work->scratch_size * work->size + 63) & ~(int64_t)63;
    return true;
}

/* Memory that measure() found; the last tile of the last plane reads one tile further. */
static bool allocate(Work *work, int32_t threads) {
    const bcfg_convolution *call = work->call;
    int64_t whole = work->channel * call->channels * call->groups, bytes;
    if (!product(&bytes, work->images * work->size, whole)) return false;
    work->offsets = malloc((size_t)(work->depth > 0 ? work->depth : 1) * sizeof *work->offsets);
    work->scratch = aligned_alloc(64, (size_t)(threads * work->scratch_size));
    if (!work->by_worker) work->padded = malloc((size_t)(bytes + work->tile * work->size));
    return work->offsets != NULL && work->scratch != NULL &&
           (work->by_worker || work->padded != NULL);
}

static void run(Work *work, int32_t threads) {
    const bcfg_convolution *call = work->call;
    int64_t channels = call->groups * call->channels;
    find_offsets(work);
    if (work->by_worker) {
        bcfg_team_run(threads, call->batch * call->groups, compute_group, work);
        return;
    }
    for (int64_t left = call->batch; left > 0; left -= work->images) {
        work->first_image = call->batch - left;
        work->images = smaller(work->images, left);
        memset(work->padded + work->images * channels * work->channel * work->size, 0,
               (size_t)(work->tile * work->size));
        bcfg_team_run(threads, work->images * channels, pad, work);
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
    Work work = {.call = call, .kernels = kernels};
    work.size = call->element == BCFG_FLOAT32 ? 4 : 8;
    work.tile = call->element == BCFG_FLOAT32 ? kernels->f32_columns : kernels->f64_columns;
    bool made = measure(&work, threads) && allocate(&work, threads);
    if (made) run(&work, threads);
    free(work.offsets);
    free(work.scratch);
    free(work.padded);
    if (made) bcfg_kernels_served(kernels->isa);
    return made ? BCFG_OK : BCFG_E_MEMORY;
}
