/* One convolution in progress: what the files of this directory share. */
#ifndef BACKENDCFG_CONVOLUTION_WORK_H
#define BACKENDCFG_CONVOLUTION_WORK_H

#include "convolution.h"
#include "core/core.h"

/* How the results are made of what was padded; by each the same bits.
 *   windows   tiles of outputs by pixels, read where they lie
 *   panels    the same from a copy of a tile's pixels, which many outputs share
 *   lines     whole rows of one output, where a group has no outputs to share anything */
typedef enum { BY_WINDOWS, BY_PANELS, BY_LINES } Manner;

typedef struct {
    const bcfg_convolution *call;
    const bcfg_arithmetic *kernels;
    Manner manner;
    int64_t size, depth, tile;
    int64_t rows, columns;                       /* of a plane */
    int64_t plane, planes[2];                    /* elements; planes by row and column */
    int64_t channel, image;                      /* elements of the source from one to the next */
    int64_t first_image, images;                 /* those that are padded */
    int64_t pixels, tiles, pieces, piece;        /* of a plane; of the outputs of a group */
    int64_t inner, lines;                        /* of a panel; rows of the result of a task */
    bool in_place;                               /* no window leaves the input: nothing is padded */
    bool by_worker;                              /* each worker pads a group for itself */
    const char *source;
    char *padded;
    int64_t *offsets;
    char *scratch;                               /* of each worker */
    int64_t scratch_size;
} Work;

static inline int64_t bcfg_smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Positions j in [0, count) with 0 <= start + j * step < size are [*low, *high). */
static inline void bcfg_positions_inside(int64_t start, int64_t step, int64_t size, int64_t count,
                                         int64_t *low, int64_t *high) {
    *low = start >= 0 ? 0 : bcfg_smaller(count, (-start + step - 1) / step);
    *high = start >= size ? 0 : bcfg_smaller(count, (size - start + step - 1) / step);
    if (*high < *low) *high = *low;
}

/* padding.c: where the source of a call lies, or will lie once it is padded, and its sizes; false
 * where they do not fit. */
bool bcfg_padding_layout(Work *work);
/* Where each kernel element reads, from the place of its pixel. */
void bcfg_padding_offsets(Work *work);
/* One channel of one image in its planes, with margins of zeros. */
void bcfg_padding_channel(const Work *work, int64_t image, int64_t channel, char *to);

#endif
