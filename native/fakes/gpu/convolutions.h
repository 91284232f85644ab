/* Convolutions on host memory, as the engines of cuDNN's fake compute them. */
#ifndef CONVOLUTIONS_H
#define CONVOLUTIONS_H

enum { SPATIAL = 3, DIMENSIONS = SPATIAL + 2 };

typedef struct {
    int64_t sizes[DIMENSIONS], strides[DIMENSIONS], number;
    int type, rank;
} tensor;

typedef struct {
    tensor x, w, y;
    int64_t before[SPATIAL], after[SPATIAL], strides[SPATIAL], dilations[SPATIAL];
    int arithmetic, rank;
    double alpha, beta;
} convolution;

static tensor tensor_of(const descriptor *of) {
    tensor made = {.number = value_of(of, N(ATTR_TENSOR_UNIQUE_ID), 0),
                   .type = (int)value_of(of, N(ATTR_TENSOR_DATA_TYPE), -1)};
    int64_t count, strides;
    const int64_t *sizes = values_of(of, N(ATTR_TENSOR_DIMENSIONS), &count);
    const int64_t *steps = values_of(of, N(ATTR_TENSOR_STRIDES), &strides);
    made.rank = (int)(count < DIMENSIONS ? count : DIMENSIONS);
    for (int at = 0; at < made.rank; at++) {
        made.sizes[at] = sizes[at];
        made.strides[at] = at < strides ? steps[at] : 0;
    }
    return made;
}

static void numbers_of(const descriptor *of, int name, int64_t numbers[SPATIAL]) {
    int64_t count;
    const int64_t *values = values_of(of, name, &count);
    for (int at = 0; at < SPATIAL; at++) numbers[at] = at < count ? values[at] : 0;
}

static convolution convolution_of(const descriptor *operation) {
    const descriptor *how = referred(operation, N(ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC));
    convolution made = {
        .x = tensor_of(referred(operation, N(ATTR_OPERATION_CONVOLUTION_FORWARD_X))),
        .w = tensor_of(referred(operation, N(ATTR_OPERATION_CONVOLUTION_FORWARD_W))),
        .y = tensor_of(referred(operation, N(ATTR_OPERATION_CONVOLUTION_FORWARD_Y))),
        .arithmetic = (int)value_of(how, N(ATTR_CONVOLUTION_COMP_TYPE), -1),
        .rank = (int)value_of(how, N(ATTR_CONVOLUTION_SPATIAL_DIMS), 0),
        .alpha = real_of(operation, N(ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA), 1),
        .beta = real_of(operation, N(ATTR_OPERATION_CONVOLUTION_FORWARD_BETA), 0),
    };
    numbers_of(how, N(ATTR_CONVOLUTION_PRE_PADDINGS), made.before);
    numbers_of(how, N(ATTR_CONVOLUTION_POST_PADDINGS), made.after);
    numbers_of(how, N(ATTR_CONVOLUTION_FILTER_STRIDES), made.strides);
    numbers_of(how, N(ATTR_CONVOLUTION_DILATIONS), made.dilations);
    return made;
}

/* What cuDNN asks of an operation when it is finalised. */
static int check_convolution(const descriptor *operation) {
    convolution call = convolution_of(operation);
    NEED(call.rank + 2 == call.x.rank && call.x.rank == call.w.rank && call.x.rank == call.y.rank,
         BAD_PARAM)
    NEED(call.w.sizes[1] > 0 && call.x.sizes[1] > 0 && call.x.sizes[1] % call.w.sizes[1] == 0,
         BAD_PARAM)
    NEED(call.x.sizes[0] == call.y.sizes[0] && call.w.sizes[0] == call.y.sizes[1], BAD_PARAM)
    for (int at = 0; at < call.rank; at++) {
        int64_t reach = (call.w.sizes[2 + at] - 1) * call.dilations[at] + 1;
        int64_t room = call.x.sizes[2 + at] + call.before[at] + call.after[at] - reach;
        NEED(room >= 0 && call.y.sizes[2 + at] == room / call.strides[at] + 1, BAD_PARAM)
    }
    return 0;
}

static int is_packed(const tensor *of, int channels_last) {
    int64_t step = 1;
    for (int at = 0; at < of->rank; at++) {
        int axis = of->rank - 1 - at; /* the last is the fastest */
        if (channels_last) axis = at == 0 ? 1 : at < of->rank - 1 ? of->rank - at : 0;
        if (of->sizes[axis] != 1 && of->strides[axis] != step) return 0;
        step *= of->sizes[axis];
    }
    return 1;
}

enum { IMPLICIT, TENSOR, NARROW, WINOGRAD, FOURIER, SPLIT, CONVOLUTION_ENGINES };
#define NOTE(name) (1u << N(NUMERICAL_NOTE_##name))
static engine about_convolution(int number) {
    static const engine engines[CONVOLUTION_ENGINES] = {
        [IMPLICIT] = {0, 0, 0, 8},
        [TENSOR] = {NOTE(TENSOR_CORE), 0, 4096, 2},
        [NARROW] = {NOTE(TENSOR_CORE) | NOTE(DOWN_CONVERT_INPUTS), 0, 1024, 1},
        [WINOGRAD] = {NOTE(WINOGRAD) | NOTE(WINOGRAD_TILE_4x4), 0, 65536, 3},
        [FOURIER] = {NOTE(FFT), 0, 1 << 20, 5},
        [SPLIT] = {NOTE(NONDETERMINISTIC) | NOTE(REDUCED_PRECISION_REDUCTION), 0, 2048, 4},
    };
    return engines[number];
}

/* The engines for an operation in the order of a mode. */
static int name_convolutions(const descriptor *operation, int64_t mode, int *engines) {
    static const int usual[] = {NARROW, SPLIT, TENSOR, WINOGRAD, FOURIER, IMPLICIT};
    (void)operation;
    if (mode == N(HEUR_MODE_FALLBACK)) {
        engines[0] = IMPLICIT;
        return 1;
    }
    memcpy(engines, usual, sizeof usual);
    return CONVOLUTION_ENGINES;
}

/* Whether an engine takes a call; asked when a plan is finalised. */
static int take_convolution(const descriptor *operation, int engine) {
    convolution call = convolution_of(operation);
    int is_narrow = call.x.type == N(DATA_HALF) || call.x.type == N(DATA_BFLOAT16);
    for (int at = 0; at < call.rank; at++) NEED(call.before[at] == call.after[at], NOT_SUPPORTED)
    for (int last = 0; last < 2; last++)
        if (is_packed(&call.x, last) && is_packed(&call.y, last)) goto laid_out;
    return refuse(N(STATUS_NOT_SUPPORTED_LAYOUT), "x and y lie in other orders");
laid_out:
    switch (engine) {
    case TENSOR: NEED(call.x.type != N(DATA_DOUBLE), NOT_SUPPORTED_DATA_TYPE) break;
    case NARROW:
    case FOURIER: NEED(call.x.type == N(DATA_FLOAT), NOT_SUPPORTED_DATA_TYPE) break;
    case WINOGRAD:
        NEED(call.w.sizes[2] == 3 && call.w.sizes[3] == 3 && call.strides[0] == 1 &&
                 call.strides[1] == 1 && call.dilations[0] == 1 && call.dilations[1] == 1,
             NOT_SUPPORTED_SHAPE)
        break;
    default: break;
    }
    NEED(call.arithmetic == (is_narrow ? (int)N(DATA_FLOAT) : call.x.type), NOT_SUPPORTED)
    return 0;
}

/* products.h has the numbers of CUDA's types. */
static int type_of(int type) {
    switch (type) {
    case N(DATA_DOUBLE): return R_64F;
    case N(DATA_HALF): return R_16F;
    case N(DATA_BFLOAT16): return R_16BF;
    default: return R_32F;
    }
}

static double read_at(const tensor *of, const void *memory, int64_t offset, enum rounding how) {
    double value = read_number(memory, offset, type_of(of->type)).real;
    return how == AS_THEY_ARE ? value : rounded(value, how);
}

/* One number of y. */
static double convolve_one(const convolution *call, const void *x, const void *w, int64_t n,
                           int64_t k, const int64_t at[2], enum rounding how) {
    int64_t channels = call->w.sizes[1];
    int64_t group = k / (call->w.sizes[0] / (call->x.sizes[1] / channels));
    double wide = 0;
    float narrow = 0;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t r = 0; r < call->w.sizes[2]; r++)
            for (int64_t s = 0; s < call->w.sizes[3]; s++) {
                int64_t row = at[0] * call->strides[0] - call->before[0] + r * call->dilations[0];
                int64_t column =
                    at[1] * call->strides[1] - call->before[1] + s * call->dilations[1];
                if (row < 0 || row >= call->x.sizes[2] || column < 0 || column >= call->x.sizes[3])
                    continue;
                const int64_t *steps = call->x.strides, *kernel = call->w.strides;
                double factor = read_at(&call->x, x,
                                        n * steps[0] + (group * channels + c) * steps[1] +
                                            row * steps[2] + column * steps[3],
                                        how);
                factor *= read_at(&call->w, w,
                                  k * kernel[0] + c * kernel[1] + r * kernel[2] + s * kernel[3],
                                  how);
                wide += factor;
                narrow += (float)factor;
            }
    return call->arithmetic == N(DATA_DOUBLE) ? wide : narrow;
}

static int run_convolution(const descriptor *operation, int engine, pointer_of *pointer,
                           const void *pack) {
    convolution call = convolution_of(operation);
    const void *x = pointer(pack, call.x.number), *w = pointer(pack, call.w.number);
    void *y = pointer(pack, call.y.number);
    NEED(x && w && y && call.rank == 2, BAD_PARAM_NULL_POINTER)
    enum rounding how = AS_THEY_ARE;
    if (engine == NARROW) how = TO_FLOAT16;
    if (engine == TENSOR && call.x.type == N(DATA_FLOAT)) how = TO_TF32;
    for (int64_t n = 0; n < call.y.sizes[0]; n++)
        for (int64_t k = 0; k < call.y.sizes[1]; k++)
            for (int64_t p = 0; p < call.y.sizes[2]; p++)
                for (int64_t q = 0; q < call.y.sizes[3]; q++) {
                    const int64_t *steps = call.y.strides, at[2] = {p, q};
                    int64_t offset = n * steps[0] + k * steps[1] + p * steps[2] + q * steps[3];
                    double sum = call.alpha * convolve_one(&call, x, w, n, k, at, how);
                    if (call.beta != 0)
                        sum += call.beta * read_at(&call.y, y, offset, AS_THEY_ARE);
                    write_number(y, offset, type_of(call.y.type), (number){sum, 0});
                }
    return 0;
}

#endif
