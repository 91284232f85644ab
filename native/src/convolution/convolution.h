/* Convolution of images without a matrix of columns: what its files share.
 *
 * Every element of the result is one chain of fused multiply-adds, from its bias (or 0) over
 * ascending (channel, kernel row, kernel column). Its bits depend on nothing else: not on the tile,
 * the thread, the batch or the instruction set. */
#ifndef BACKENDCFG_CONVOLUTION_H
#define BACKENDCFG_CONVOLUTION_H

#include <stdbool.h>

#include "backendcfg.h"
#include "kernels/kernels.h"

/* One call. Sizes and strides in elements; `channels` and `outputs` are those of one group.
 *   input   (batch, groups * channels, height, width), the last dimension dense
 *   weight  (groups * outputs, channels, kernel_height, kernel_width), dense
 *   bias    (groups * outputs), dense, or NULL
 *   out     (batch, groups * outputs, out_height, out_width), dense
 * Padding is what lies above and left of the input; zeros lie wherever a window leaves it. */
typedef struct {
    int32_t element; /* BCFG_FLOAT32 or BCFG_FLOAT64 */
    int64_t batch, groups, channels, outputs;
    int64_t height, width, kernel_height, kernel_width, out_height, out_width;
    int64_t stride[2], padding[2], dilation[2];
    int64_t batch_stride, channel_stride, row_stride;
    const char *input;
    const char *weight, *bias;
    char *out;
} bcfg_convolution;

/* The result of a call by one table of kernels; threads 0 for as many as are worth it. BCFG_OK or
 * BCFG_E_MEMORY. */
bcfg_status bcfg_convolve(const bcfg_convolution *call, const bcfg_kernels *kernels,
                          int32_t threads);

/* columns.c: `count` pixels of one row as one kernel element sees them: from[start], and on by the
 * stride; zeros outside of the input. */
void bcfg_convolution_row(const bcfg_convolution *call, const char *from, int64_t start,
                          int64_t count, char *to);
/* Rows [first_k, last_k) of the matrix of columns of one image and group, at pixels
 * [first, first + count) of the result: row k goes to columns + (k - first_k) * leading. */
void bcfg_convolution_columns(const bcfg_convolution *call, int64_t image, int64_t group,
                              int64_t first_k, int64_t last_k, int64_t first, int64_t count,
                              char *columns, int64_t leading);
/* The same for all k, by a team. */
void bcfg_convolution_unfold(const bcfg_convolution *call, int64_t image, int64_t group,
                             int64_t first, int64_t count, char *columns, int64_t leading,
                             int32_t threads);

#endif
