/* Products on host memory, as a BLAS of a device would compute them: for the fakes.
 *
 * Column-major, any order of operations T and C, leading dimensions, batches, alpha and beta. What a
 * compute type does to the operands is done too, so that a wrong one shows in the numbers: TF32 keeps
 * 11 significant bits of each, bfloat16 8, float16 11 and a narrow range; a sum in float16 is rounded
 * after every addition. Sums in float32 and float64 run along k.
 */
#ifndef PRODUCTS_H
#define PRODUCTS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Numbers of cudaDataType and hipDataType. */
enum { R_32F = 0, R_64F = 1, R_16F = 2, C_32F = 4, C_64F = 5, R_16BF = 14 };

/* What is done to operands and sums. */
enum rounding { AS_THEY_ARE, TO_TF32, TO_BFLOAT16, TO_FLOAT16, SUM_IN_FLOAT16, SUM_IN_FLOAT64 };

typedef struct {
    double real, imaginary;
} number;

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Keeps the highest 23 - dropped bits of the significand, nearest and ties to even. */
static float shortened(float value, int dropped) {
    uint32_t bits = bits_of_float(value);
    if ((bits & 0x7f800000u) == 0x7f800000u) return value;
    bits += (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
    return float_of_bits(bits & ~((1u << dropped) - 1));
}

static float from_half(uint16_t half) {
    int exponent = half >> 10 & 31;
    float sign = half & 0x8000 ? -1.0f : 1.0f, fraction = (float)(half & 1023);
    if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexpf(fraction, -24);
    return sign * ldexpf(1024.0f + fraction, exponent - 25);
}

static uint16_t to_half(float value) {
    uint16_t sign = (uint16_t)(bits_of_float(value) >> 16 & 0x8000);
    float size = fabsf(value);
    if (isnan(value)) return 0x7e00;
    if (size >= 65520.0f) return sign | 0x7c00;
    if (size < ldexpf(1.0f, -14)) return sign | (uint16_t)lrintf(ldexpf(size, 24));
    uint32_t bits = bits_of_float(shortened(size, 13));
    return sign | (uint16_t)((bits >> 13) - (112u << 10));
}

static size_t size_of(int type) {
    switch (type) {
    case R_16F:
    case R_16BF: return 2;
    case R_32F: return 4;
    case C_64F: return 16;
    default: return 8;
    }
}

static int is_complex(int type) { return type == C_32F || type == C_64F; }

static number read_number(const void *base, int64_t at, int type) {
    switch (type) {
    case R_16F: return (number){from_half(((const uint16_t *)base)[at]), 0};
    case R_16BF: return (number){float_of_bits((uint32_t)((const uint16_t *)base)[at] << 16), 0};
    case R_32F: return (number){((const float *)base)[at], 0};
    case R_64F: return (number){((const double *)base)[at], 0};
    case C_32F: return (number){((const float *)base)[2 * at], ((const float *)base)[2 * at + 1]};
    default: return (number){((const double *)base)[2 * at], ((const double *)base)[2 * at + 1]};
    }
}

static void write_number(void *base, int64_t at, int type, number value) {
    switch (type) {
    case R_16F: ((uint16_t *)base)[at] = to_half((float)value.real); return;
    case R_16BF:
        ((uint16_t *)base)[at] =
            isnan(value.real) ? 0x7fc0
                              : (uint16_t)(bits_of_float(shortened((float)value.real, 16)) >> 16);
        return;
    case R_32F: ((float *)base)[at] = (float)value.real; return;
    case R_64F: ((double *)base)[at] = value.real; return;
    case C_32F:
        ((float *)base)[2 * at] = (float)value.real;
        ((float *)base)[2 * at + 1] = (float)value.imaginary;
        return;
    default:
        ((double *)base)[2 * at] = value.real;
        ((double *)base)[2 * at + 1] = value.imaginary;
    }
}

static double rounded(double value, enum rounding how) {
    switch (how) {
    case TO_TF32: return shortened((float)value, 13);
    case TO_BFLOAT16: return shortened((float)value, 16);
    case TO_FLOAT16:
    case SUM_IN_FLOAT16: return from_half(to_half((float)value));
    case SUM_IN_FLOAT64: return value;
    default: return (float)value;
    }
}

static number times(number x, number y) {
    return (number){x.real * y.real - x.imaginary * y.imaginary,
                    x.real * y.imaginary + x.imaginary * y.real};
}

/* One matrix where it lies. `row` and `column` are distances in elements. */
typedef struct {
    const void *data;
    int type;
    int64_t row, column;
    int conjugate;
} operand;

static number element_of(const operand *matrix, int64_t row, int64_t column) {
    number value =
        read_number(matrix->data, row * matrix->row + column * matrix->column, matrix->type);
    if (matrix->conjugate) value.imaginary = -value.imaginary;
    return value;
}

/* What follows a sum. */
typedef struct {
    const void *bias;                              /* one per row of d, or NULL */
    int bias_type;
    enum { NOTHING, RELU, GELU } activation;
} ending;

/* How sums over k are divided: each of `parts` is rounded to `type`, and so are their sums. */
typedef struct {
    int parts, type;
} division;

static const division UNDIVIDED = {1, R_64F};

static double to_type(double value, int type) {
    unsigned char place[16];
    write_number(place, 0, type, (number){value, 0});
    return read_number(place, 0, type).real;
}

static number dot(const operand *a, const operand *b, int64_t row, int64_t column, int64_t k,
                  enum rounding how, division divided) {
    enum rounding sum_as = how == SUM_IN_FLOAT16 || how == SUM_IN_FLOAT64 ? how : AS_THEY_ARE;
    int64_t part = (k + divided.parts - 1) / divided.parts;
    number total = {0, 0}, sum = {0, 0};
    for (int64_t inner = 0; inner < k; inner++) {
        number x = element_of(a, row, inner), y = element_of(b, inner, column);
        x = (number){rounded(x.real, how), rounded(x.imaginary, how)};
        y = (number){rounded(y.real, how), rounded(y.imaginary, how)};
        number product = times(x, y);
        sum.real = rounded(sum.real + product.real, sum_as);
        sum.imaginary = rounded(sum.imaginary + product.imaginary, sum_as);
        if (divided.parts > 1 && ((inner + 1) % part == 0 || inner + 1 == k)) {
            total.real = to_type(total.real + to_type(sum.real, divided.type), divided.type);
            total.imaginary =
                to_type(total.imaginary + to_type(sum.imaginary, divided.type), divided.type);
            sum = (number){0, 0};
        }
    }
    return divided.parts > 1 ? total : sum;
}

static double activated(double value, const ending *last) {
    if (last->activation == RELU) return value > 0 || isnan(value) ? value : 0;
    if (last->activation == GELU) /* by the hyperbolic tangent, as cuBLASLt has it */
        return 0.5 * value *
               (1 + tanh(0.7978845608028654 * (value + 0.044715 * value * value * value)));
    return value;
}

/* d = alpha a b + beta c, m by n, of sums over k; then the ending. c is not read where beta is 0. */
static void multiply(int64_t m, int64_t n, int64_t k, number alpha, operand a, operand b, number beta,
                     operand c, operand d, enum rounding how, division divided, ending last) {
    for (int64_t row = 0; row < m; row++)
        for (int64_t column = 0; column < n; column++) {
            number value = times(alpha, dot(&a, &b, row, column, k, how, divided));
            if (beta.real != 0 || beta.imaginary != 0) {
                number before = times(beta, element_of(&c, row, column));
                value = (number){value.real + before.real, value.imaginary + before.imaginary};
            }
            if (last.bias) value.real += read_number(last.bias, row, last.bias_type).real;
            value.real = activated(value.real, &last);
            write_number((void *)(uintptr_t)d.data, row * d.row + column * d.column, d.type, value);
        }
}

#endif
