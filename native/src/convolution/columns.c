/* im2col: one row for each kernel element, with the pixels that it meets. */
#include <string.h>

#include "core/team.h"
#include "work.h"

/* A stride of two is the most frequent one: as a constant, so that the compiler vectorises it. */
#define COPY_STEPS(type)                                                                           \
    {                                                                                              \
        const type *restrict source = (const type *)from + start;                                  \
        type *restrict target = (type *)to;                                                        \
        if (step == 2)                                                                             \
            for (int64_t j = low; j < high; j++) target[j] = source[j * 2];                        \
        else                                                                                       \
            for (int64_t j = low; j < high; j++) target[j] = source[j * step];                     \
    }

void bcfg_convolution_row(const bcfg_convolution *call, const char *from, int64_t start,
                          int64_t count, char *to) {
    int64_t low, high, step = call->stride[1], size = bcfg_element_size[call->element];
    bcfg_positions_inside(start, step, call->width, count, &low, &high);
    memset(to, 0, (size_t)(low * size));
    if (step == 1)
        memcpy(to + low * size, from + (start + low) * size, (size_t)((high - low) * size));
    else if (size == 4)
        COPY_STEPS(float)
    else
        COPY_STEPS(double)
    memset(to + high * size, 0, (size_t)((count - high) * size));
}

void bcfg_convolution_columns(const bcfg_convolution *call, int64_t image, int64_t group,
                              int64_t first_k, int64_t last_k, int64_t first, int64_t count,
                              char *columns, int64_t leading) {
    int64_t size = bcfg_element_size[call->element];
    int64_t area = call->kernel_height * call->kernel_width;
    for (int64_t k = first_k; k < last_k; k++, columns += leading * size) {
        int64_t channel = k / area, row = k % area / call->kernel_width;
        int64_t column = k % call->kernel_width;
        const char *plane = call->input + (image * call->batch_stride +
                            (group * call->channels + channel) * call->channel_stride) * size;
        for (int64_t pixel = first; pixel < first + count;) {
            int64_t y = pixel / call->out_width, x = pixel % call->out_width;
            int64_t run = bcfg_smaller(call->out_width - x, first + count - pixel);
            int64_t from = y * call->stride[0] - call->padding[0] + row * call->dilation[0];
            char *to = columns + (pixel - first) * size;
            if (from < 0 || from >= call->height)
                memset(to, 0, (size_t)(run * size));
            else
                bcfg_convolution_row(
                    call, plane + from * call->row_stride * size,
                    x * call->stride[1] - call->padding[1] + column * call->dilation[1], run, to);
            pixel += run;
        }
    }
}

typedef struct {
    const bcfg_convolution *call;
    int64_t image, group, first, count, leading, depth;
    char *columns;
} Unfolding;

enum { ROWS_OF_A_TASK = 16, WORTH_THREADS = 1 << 17 };

static void unfold(void *context, int64_t index, int32_t worker) {
    (void)worker;
    const Unfolding *u = context;
    int64_t from = index * ROWS_OF_A_TASK, size = bcfg_element_size[u->call->element];
    bcfg_convolution_columns(u->call, u->image, u->group, from,
                             bcfg_smaller(from + ROWS_OF_A_TASK, u->depth), u->first, u->count,
                             u->columns + from * u->leading * size, u->leading);
}

void bcfg_convolution_unfold(const bcfg_convolution *call, int64_t image, int64_t group,
                             int64_t first, int64_t count, char *columns, int64_t leading,
                             int32_t threads) {
    Unfolding u = {call, image, group, first, count, leading, 0, columns};
    u.depth = call->channels * call->kernel_height * call->kernel_width;
    if (threads < 1 && (double)u.depth * (double)count < WORTH_THREADS) threads = 1;
    bcfg_team_run(threads, (u.depth + ROWS_OF_A_TASK - 1) / ROWS_OF_A_TASK, unfold, &u);
}
