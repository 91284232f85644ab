/* How matrices lie in memory: what BLAS can read in place, and copies of what it cannot. */
#include <string.h>

#include "core.h"

const int64_t bcfg_element_size[BCFG_ELEMENTS] = {4, 8, 8, 16, 2, 2};

bool bcfg_view_of(int64_t size, const bcfg_operand *operand, const char *data, int64_t rows,
                  int64_t columns, int64_t limit, bcfg_view *view) {
    int64_t row = operand->row_stride, column = operand->column_stride;
    view->data = data;
    /* Strides along a dimension of size 1 are never used, and NumPy leaves anything there. */
    if (columns == 1 || column == size) {
        view->transpose = NO_TRANSPOSE;
        view->leading = rows == 1 ? columns : row / size;
        if (view->leading >= columns && view->leading <= limit && (rows == 1 || row % size == 0))
            return true;
    }
    if (rows == 1 || row == size) {
        view->transpose = TRANSPOSE;
        view->leading = columns == 1 ? rows : column / size;
        if (view->leading >= rows && view->leading <= limit &&
            (columns == 1 || column % size == 0))
            return true;
    }
    return false;
}

/* Square tiles, so that a transposed source is read by the cache line. */
enum { TILE = 32 };

#define COPY_TILES(bytes)                                                                          \
    for (int64_t i0 = 0; i0 < rows; i0 += TILE)                                                    \
        for (int64_t j0 = 0; j0 < columns; j0 += TILE) {                                           \
            const int64_t high = rows - i0 < TILE ? rows : i0 + TILE;                              \
            const int64_t wide = columns - j0 < TILE ? columns : j0 + TILE;                        \
            for (int64_t i = i0; i < high; i++)                                                    \
                for (int64_t j = j0; j < wide; j++)                                                \
                    memcpy(to + i * to_row + j * to_column, from + i * from_row + j * from_column, \
                           bytes);                                                                 \
        }

static void copy(int64_t size, char *to, int64_t to_row, int64_t to_column, const char *from,
                 int64_t from_row, int64_t from_column, int64_t rows, int64_t columns) {
    switch (size) {
    case 2: COPY_TILES(2) break;
    case 4: COPY_TILES(4) break;
    case 8: COPY_TILES(8) break;
    default: COPY_TILES(16) break;
    }
}

void bcfg_pack(int64_t size, char *dense, const char *data, int64_t row_stride,
               int64_t column_stride, int64_t rows, int64_t columns) {
    if (rows <= 0 || columns <= 0) return;
    int64_t line = columns * size;
    if (column_stride != size && columns != 1)
        copy(size, dense, line, size, data, row_stride, column_stride, rows, columns);
    else if (row_stride == line || rows == 1)
        memcpy(dense, data, (size_t)(rows * line));
    else
        for (int64_t i = 0; i < rows; i++)
            memcpy(dense + i * line, data + i * row_stride, (size_t)line);
}

void bcfg_unpack(int64_t size, char *data, int64_t row_stride, int64_t column_stride,
                 const char *dense, int64_t rows, int64_t columns) {
    copy(size, data, row_stride, column_stride, dense, columns * size, size, rows, columns);
}

/* First byte and one past the last byte of a stack of matrices that is not empty. */
static void extent(const bcfg_product *product, const bcfg_operand *operand, int64_t rows,
                   int64_t columns, uintptr_t *low, uintptr_t *high) {
    int64_t below = 0, above = bcfg_element_size[product->element];
    int64_t reach = (rows - 1) * operand->row_stride;
    *(reach < 0 ? &below : &above) += reach;
    reach = (columns - 1) * operand->column_stride;
    *(reach < 0 ? &below : &above) += reach;
    for (int32_t d = 0; d < product->batch_dimensions; d++) {
        reach = (product->batch_shape[d] - 1) * operand->batch_strides[d];
        *(reach < 0 ? &below : &above) += reach;
    }
    *low = (uintptr_t)operand->data + (uintptr_t)below;
    *high = (uintptr_t)operand->data + (uintptr_t)above;
}

bool bcfg_overlap(const bcfg_product *product, const bcfg_operand *operand, int64_t rows,
                  int64_t columns) {
    uintptr_t low, high, c_low, c_high;
    extent(product, operand, rows, columns, &low, &high);
    extent(product, &product->c, product->m, product->n, &c_low, &c_high);
    return low < c_high && c_low < high;
}
