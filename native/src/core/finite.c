/* NaN and infinity in a result. */
#include <math.h>
#include <string.h>

#include "core.h"

#define SCAN(type)                                                                                 \
    for (int64_t i = 0; i < rows; i++)                                                             \
        for (int64_t j = 0; j < columns * parts; j++) {                                            \
            type value;                                                                            \
            memcpy(&value, data + i * row_stride + j * (int64_t)sizeof(type), sizeof value);       \
            if (!isfinite(value)) return j / parts + i * columns;                                  \
        }

/* All bits of the exponent set. */
static int64_t scan_narrow(uint16_t exponent, const char *data, int64_t row_stride, int64_t rows,
                           int64_t columns) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            uint16_t bits;
            memcpy(&bits, data + i * row_stride + j * 2, sizeof bits);
            if ((bits & exponent) == exponent) return i * columns + j;
        }
    return -1;
}

int64_t bcfg_not_finite(int32_t element, const char *data, int64_t row_stride, int64_t rows,
                        int64_t columns) {
    if (element == BCFG_BFLOAT16) return scan_narrow(0x7f80, data, row_stride, rows, columns);
    if (element == BCFG_FLOAT16) return scan_narrow(0x7c00, data, row_stride, rows, columns);
    int parts = element >= BCFG_COMPLEX64 ? 2 : 1;
    if (element == BCFG_FLOAT32 || element == BCFG_COMPLEX64) {
        SCAN(float)
    } else {
        SCAN(double)
    }
    return -1;
}
