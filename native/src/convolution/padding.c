/* Padded copies of images, as convolution.c reads them.
 *
 * The copy of a channel is divided into planes: one for each row and column that a kernel element
 * can have within a step of the window. So the pixels of a row are neighbours for every kernel
 * element at every stride, and nothing is gathered. */
#include <string.h>

#include "work.h"

static bool product(int64_t *result, int64_t a, int64_t b) {
    return !__builtin_mul_overflow(a, b, result);
}

/* How many different places within a step the kernel elements of one direction have: element i has
 * i * dilation % stride, and these repeat after stride / gcd of them. */
static int64_t places(int64_t kernel, int64_t stride, int64_t dilation) {
    int64_t a = stride, b = dilation;
    while (b != 0) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return bcfg_smaller(kernel, stride / a);
}

/* Whether every window lies within the input, one pixel beside the other. */
static bool lies_inside(const bcfg_convolution *call, int64_t height, int64_t width) {
    return call->stride[0] == 1 && call->stride[1] == 1 && call->padding[0] == 0 &&
           call->padding[1] == 0 && call->out_height + height <= call->height &&
           call->out_width + width <= call->width;
}

bool bcfg_padding_layout(Work *work) {
    const bcfg_convolution *call = work->call;
    int64_t area, height, width, planes, whole;
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
        !product(&work->image, work->channel, call->channels * call->groups) ||
        !product(&whole, work->image, work->size))
        return false;
    work->in_place = work->manner == BY_PANELS && lies_inside(call, height, width);
    if (work->in_place) {
        work->columns = call->row_stride;
        work->channel = call->channel_stride;
        work->image = call->batch_stride;
        work->source = call->input;
    }
    return true;
}

void bcfg_padding_offsets(Work *work) {
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

void bcfg_padding_channel(const Work *work, int64_t image, int64_t channel, char *to) {
    const bcfg_convolution *call = work->call;
    const int64_t size = work->size, step = call->stride[1];
    const char *from = call->input +
                       (image * call->batch_stride + channel * call->channel_stride) * size;
    memset(to, 0, (size_t)(work->channel * size));
    for (int64_t a = 0; a < work->planes[0]; a++)
        for (int64_t b = 0; b < work->planes[1]; b++, to += work->plane * size) {
            int64_t y = a * call->dilation[0] % call->stride[0] - call->padding[0];
            int64_t x = b * call->dilation[1] % step - call->padding[1], low, high, top, bottom;
            bcfg_positions_inside(x, step, call->width, work->columns, &low, &high);
            bcfg_positions_inside(y, call->stride[0], call->height, work->rows, &top, &bottom);
            if (low == high || top == bottom) continue;
            const char *source = from + ((y + top * call->stride[0]) * call->row_stride + x +
                                         low * step) * size;
            char *target = to + (top * work->columns + low) * size;
            int64_t row = call->stride[0] * call->row_stride;
            if (step == 1)
                for (int64_t r = 0; r < bottom - top; r++)
                    memcpy(target + r * work->columns * size, source + r * row * size,
                           (size_t)((high - low) * size));
            else
                work->kernels->steps(bottom - top, high - low, source, row, step, target,
                                     work->columns);
        }
}
