/* A libcufft that computes on memory of the host, by the definition. See recorded.h.
 *
 * VERSION is what it says of itself: 120500 is 12.5.0. Like cuFFT it takes up to 3 dimensions, the
 * advanced data layout, and real and complex numbers of one precision, single or double; a plan
 * that was told to allocate nothing needs a work area; a transform from complex to real numbers
 * overwrites its input; real numbers, too, begin where complex ones may. Work areas are written over,
 * as far as they go.
 *
 * Settings: work, bytes of a work area for each number of the signals; plans, how many may exist.
 */
#ifndef VERSION
#define VERSION 120500
#endif
#define SETTINGS                                                                                   \
    SETTING(work, 8)                                                                               \
    SETTING(plans, 4096)
#include <complex.h>
#include <math.h>
#undef I /* recorded.h has one of its own */
#include "recorded.h"

#include "gpu/abi_cufft.h"


/* The prototypes of the table are those of the definitions below. */
#define DECLARE(result, name, parameters) API result name parameters;
BCFG_CUFFT_SYMBOLS(DECLARE, DECLARE)
#undef DECLARE

#define NEED(condition, code)                                                                      \
    if (!(condition)) return BCFG_CUFFT_##code;

enum { PLANS = 4096, RANK = 3 };
/* Numbers of cudaDataType. */
enum { R_32F = 0, R_64F = 1, C_32F = 4, C_64F = 5 };

typedef struct {
    long long embed[RANK], stride, distance;
    int type;
} side;

static struct plan {
    int live, made, allocates, rank;
    long long n[RANK], batch;
    side in, out;
    size_t bytes;
    void *stream, *area;
} plans[PLANS];

#define PLAN(number)                                                                               \
    NEED((number) >= 0 && (number) < PLANS && plans[number].live, INVALID_PLAN)                    \
    struct plan *plan_of = &plans[number];

int cufftGetProperty(int property, int *value) {
    ENTER("cufftGetProperty", I(property), P(value))
    const int parts[] = {VERSION / 10000, VERSION / 100 % 100, VERSION % 100};
    NEED(property >= 0 && property < 3, INVALID_VALUE)
    *value = parts[property];
    return 0;
}

int cufftCreate(int *plan) {
    ENTER("cufftCreate", P(plan))
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    int at = 0;
    pthread_mutex_lock(&making);
    while (at < PLANS && at < setting_plans && plans[at].live) at++;
    int has_room = at < PLANS && at < setting_plans;
    if (has_room) plans[at] = (struct plan){.live = 1, .allocates = 1};
    pthread_mutex_unlock(&making);
    NEED(has_room, ALLOC_FAILED)
    *plan = at;
    return 0;
}

int cufftDestroy(int plan) {
    ENTER("cufftDestroy", I(plan))
    PLAN(plan)
    plan_of->live = 0;
    return 0;
}

int cufftSetAutoAllocation(int plan, int allocates) {
    ENTER("cufftSetAutoAllocation", I(plan), I(allocates))
    PLAN(plan)
    NEED(!plan_of->made, INVALID_PLAN)
    plan_of->allocates = allocates;
    return 0;
}

static int is_complex(int type) { return type == C_32F || type == C_64F; }
static int precision(int type) {
    switch (type) {
    case R_32F:
    case C_32F: return 4;
    case R_64F:
    case C_64F: return 8;
    default: return 0;
    }
}

static int take_side(side *to, int rank, const long long *embed, long long stride,
                     long long distance, int type) {
    NEED(precision(type) != 0, INVALID_TYPE)
    NEED(embed != NULL && stride > 0 && distance >= 0, INVALID_SIZE)
    *to = (side){.stride = stride, .distance = distance, .type = type};
    for (int d = 0; d < rank; d++) {
        NEED(embed[d] > 0, INVALID_SIZE)
        to->embed[d] = embed[d];
    }
    return 0;
}

int cufftXtMakePlanMany(int plan, int rank, long long int *n, long long int *input_embed,
                        long long int input_stride, long long int input_distance, int input_type,
                        long long int *output_embed, long long int output_stride,
                        long long int output_distance, int output_type, long long int batch,
                        size_t *bytes, int execution_type) {
    long long n0 = rank > 0 ? n[0] : 0, n1 = rank > 1 ? n[1] : 0, n2 = rank > 2 ? n[2] : 0;
    long long in1 = rank > 1 ? input_embed[1] : 0, in2 = rank > 2 ? input_embed[2] : 0;
    long long out1 = rank > 1 ? output_embed[1] : 0, out2 = rank > 2 ? output_embed[2] : 0;
    ENTER("cufftXtMakePlanMany", I(plan), I(rank), I(n0), I(n1), I(n2), I(in1), I(in2),
          I(input_stride), I(input_distance), I(input_type), I(out1), I(out2), I(output_stride),
          I(output_distance), I(output_type), I(batch), I(execution_type))
    PLAN(plan)
    NEED(!plan_of->made, INVALID_PLAN)
    NEED(rank >= 1 && rank <= RANK && batch >= 1, INVALID_SIZE)
    plan_of->rank = rank;
    plan_of->batch = batch;
    long long numbers = batch;
    for (int d = 0; d < rank; d++) {
        NEED(n[d] >= 1, INVALID_SIZE)
        numbers *= plan_of->n[d] = n[d];
    }
    status = take_side(&plan_of->in, rank, input_embed, input_stride, input_distance, input_type);
    if (status == 0)
        status = take_side(&plan_of->out, rank, output_embed, output_stride, output_distance,
                           output_type);
    if (status != 0) return status;
    NEED(is_complex(execution_type) && (is_complex(input_type) || is_complex(output_type)),
         INVALID_TYPE)
    NEED(precision(input_type) == precision(execution_type) &&
             precision(output_type) == precision(execution_type), INVALID_TYPE)
    plan_of->bytes = (size_t)(numbers * setting_work);
    plan_of->made = 1;
    *bytes = plan_of->bytes;
    return 0;
}

int cufftSetStream(int plan, void *stream) {
    ENTER("cufftSetStream", I(plan), P(stream))
    PLAN(plan)
    plan_of->stream = stream;
    return 0;
}

int cufftSetWorkArea(int plan, void *area) {
    ENTER("cufftSetWorkArea", I(plan), P(area))
    PLAN(plan)
    NEED(plan_of->made, INVALID_PLAN)
    plan_of->area = area;
    return 0;
}

/* The place of a number of a signal, counted in numbers. */
static long long place_of(const side *it, int rank, const long long *index, long long batch) {
    long long at = 0;
    for (int d = 0; d < rank; d++) at = d ? at * it->embed[d] + index[d] : index[d];
    return batch * it->distance + at * it->stride;
}

static double complex load_at(const side *it, const void *from, long long at) {
    switch (it->type) {
    case R_32F: return ((const float *)from)[at];
    case R_64F: return ((const double *)from)[at];
    case C_32F: return ((const float complex *)from)[at];
    default: return ((const double complex *)from)[at];
    }
}

static void store_at(const side *it, void *to, long long at, double complex value) {
    switch (it->type) {
    case R_32F: ((float *)to)[at] = (float)creal(value); return;
    case R_64F: ((double *)to)[at] = creal(value); return;
    case C_32F: ((float complex *)to)[at] = (float complex)value; return;
    default: ((double complex *)to)[at] = value;
    }
}

/* One after the last index below `sizes`; 0 at the end. */
static int next_index(long long *index, const long long *sizes, int rank) {
    for (int d = rank - 1; d >= 0; d--) {
        if (++index[d] < sizes[d]) return 1;
        index[d] = 0;
    }
    return 0;
}

static double complex turn(double angle) { return CMPLX(cos(angle), sin(angle)); }

/* One dimension of a dense complex signal, by the definition. */
static void along(double complex *signal, const long long *n, int rank, int dimension, int sign) {
    long long count = 1, step = 1, size = n[dimension];
    for (int d = 0; d < rank; d++) count *= n[d];
    for (int d = dimension + 1; d < rank; d++) step *= n[d];
    double complex *line = calloc((size_t)size, sizeof *line);
    if (line == NULL) abort();
    for (long long first = 0; first < count; first++) {
        if (first / step % size != 0) continue;
        for (long long k = 0; k < size; k++) {
            line[k] = 0;
            for (long long j = 0; j < size; j++)
                line[k] += signal[first + j * step] *
                           turn(sign * 2 * M_PI * (double)(j * k % size) / (double)size);
        }
        for (long long k = 0; k < size; k++) signal[first + k * step] = line[k];
    }
    free(line);
}

/* A number of a spectrum of which the upper half of the last dimension is not stored. */
static double complex load_half(const struct plan *it, const void *from, const long long *index,
                                long long batch) {
    long long mirror[RANK];
    int last = it->rank - 1, is_stored = index[last] <= it->n[last] / 2;
    for (int d = 0; d < it->rank; d++)
        mirror[d] = is_stored ? index[d] : (it->n[d] - index[d]) % it->n[d];
    double complex value = load_at(&it->in, from, place_of(&it->in, it->rank, mirror, batch));
    return is_stored ? value : conj(value);
}

static void transform(const struct plan *it, const void *input, void *output, long long batch,
                      int sign, double complex *signal) {
    int to_real = !is_complex(it->out.type), from_real = !is_complex(it->in.type);
    long long index[RANK] = {0}, at = 0;
    do {
        signal[at++] = to_real ? load_half(it, input, index, batch)
                               : load_at(&it->in, input,
                                         place_of(&it->in, it->rank, index, batch));
    } while (next_index(index, it->n, it->rank));
    for (int d = 0; d < it->rank; d++) along(signal, it->n, it->rank, d, sign);
    at = 0;
    do {
        int is_stored = !from_real || index[it->rank - 1] <= it->n[it->rank - 1] / 2;
        if (is_stored)
            store_at(&it->out, output, place_of(&it->out, it->rank, index, batch), signal[at]);
        at++;
    } while (next_index(index, it->n, it->rank));
}

int cufftXtExec(int plan, void *input, void *output, int direction) {
    const struct plan *known = plan >= 0 && plan < PLANS ? &plans[plan] : &plans[0];
    void *stream = known->stream, *area = known->area;
    ENTER("cufftXtExec", I(plan), P(input), P(output), I(direction), P(stream), P(area))
    PLAN(plan)
    NEED(plan_of->made, INVALID_PLAN)
    NEED(plan_of->allocates || plan_of->bytes == 0 || plan_of->area != NULL, NO_WORKSPACE)
    NEED(input != NULL && output != NULL, INVALID_VALUE)
    uintptr_t number = 2 * (uintptr_t)precision(plan_of->in.type); /* a complex one, in bytes */
    NEED((uintptr_t)input % number == 0 && (uintptr_t)output % number == 0, INVALID_VALUE)
    NEED(direction == BCFG_CUFFT_FORWARD || direction == BCFG_CUFFT_INVERSE, INVALID_VALUE)
    if (plan_of->area != NULL) memset(plan_of->area, 0xff, plan_of->bytes);
    int to_real = !is_complex(plan_of->out.type), from_real = !is_complex(plan_of->in.type);
    int sign = to_real ? 1 : from_real ? -1 : direction;
    long long numbers = 1;
    for (int d = 0; d < plan_of->rank; d++) numbers *= plan_of->n[d];
    double complex *signal = calloc((size_t)numbers, sizeof *signal);
    if (signal == NULL) abort();
    for (long long batch = 0; batch < plan_of->batch; batch++)
        transform(plan_of, input, output, batch, sign, signal);
    if (to_real && input != output) {
        long long sizes[RANK], index[RANK] = {0};
        for (int d = 0; d < plan_of->rank; d++) sizes[d] = plan_of->n[d];
        sizes[plan_of->rank - 1] = plan_of->n[plan_of->rank - 1] / 2 + 1;
        for (long long batch = 0; batch < plan_of->batch; batch++) do {
                store_at(&plan_of->in, input, place_of(&plan_of->in, plan_of->rank, index, batch),
                         NAN);
            } while (next_index(index, sizes, plan_of->rank));
    }
    free(signal);
    return 0;
}
