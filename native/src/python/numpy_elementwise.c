/* NumPy's element-wise functions of large arrays on the thread team: `x + y`, `np.exp(x)`, `x < y`. And sums.
 *
 * Each part of the arrays goes to NumPy's own loop, so no bit of a result changes. What NumPy hands over in
 * small pieces stays on one thread: arrays that do not lie evenly in memory, and casts. So do reductions
 * into one place other than sums. */
#include "numpy_loops.h"

#include <fenv.h>
#include <math.h>

#include "../core/core.h"
#include "../core/team.h"

#define FLAG(name, NAME, kind, choices) FLAG_##NAME,
enum {
#include "backendcfg_flags.inc"
};
#undef FLAG

/* The least work of a thread: for functions that take about as long as memory does, bytes of the first
 * operand; for slower ones, elements. A call with less than four times that stays on one thread. */
enum { LEAST_BYTES = 1 << 18, LEAST_SLOW = 1 << 14, LEAST_SHARES = 4 };
/* Each part but the last has a multiple of so many elements: whole vectors. */
enum { PART = 1 << 10 };
enum { PARTS_EACH = 4 }; /* of each thread: one that wakes late leaves its parts to the others */
enum { SUM_SHARES = 16, MOST_SUMS = 256 }; /* of a sum, which is faster: the least work, and the most parts */

/* NumPy does not tell a loop for which function and type it is called, so each has a C function. */
static void run(int at, char **data, const npy_intp *dimensions, const npy_intp *steps, void *own);

#define LOOP(row, column)                                                                          \
    static void loop_##row##_##column(char **data, const npy_intp *dimensions,                     \
                                      const npy_intp *steps, void *own) {                          \
        run(10 * row + column, data, dimensions, steps, own);                                      \
    }
#define EVERY_COLUMN(LOOP, row)                                                                    \
    LOOP(row, 0) LOOP(row, 1) LOOP(row, 2) LOOP(row, 3) LOOP(row, 4) LOOP(row, 5) LOOP(row, 6)     \
    LOOP(row, 7) LOOP(row, 8) LOOP(row, 9)
#define EVERY(LOOP)                                                                                \
    EVERY_COLUMN(LOOP, 0) EVERY_COLUMN(LOOP, 1) EVERY_COLUMN(LOOP, 2) EVERY_COLUMN(LOOP, 3)        \
    EVERY_COLUMN(LOOP, 4) EVERY_COLUMN(LOOP, 5) EVERY_COLUMN(LOOP, 6) EVERY_COLUMN(LOOP, 7)        \
    EVERY_COLUMN(LOOP, 8) EVERY_COLUMN(LOOP, 9) EVERY_COLUMN(LOOP, 10) EVERY_COLUMN(LOOP, 11)      \
    EVERY_COLUMN(LOOP, 12) EVERY_COLUMN(LOOP, 13)
EVERY(LOOP)
#undef LOOP
#define LOOP(row, column) loop_##row##_##column,
static const PyUFuncGenericFunction functions[] = {EVERY(LOOP)};
#undef LOOP

enum { MOST = sizeof functions / sizeof *functions };

typedef enum { SAME, BOOLEAN, REAL } Result;

/* One ufunc of two types each: of real numbers, or of complex ones. */
static const struct {
    const char *name;
    int inputs;
    bool slow;
    Result result;
    bool is_complex;
} ufuncs[] = {
    {"absolute", 1, false, SAME, false}, {"fabs", 1, false, SAME, false},
    {"negative", 1, false, SAME, false}, {"sign", 1, false, SAME, false},
    {"square", 1, false, SAME, false}, {"reciprocal", 1, false, SAME, false},
    {"sqrt", 1, false, SAME, false}, {"cbrt", 1, true, SAME, false},
    {"floor", 1, false, SAME, false}, {"ceil", 1, false, SAME, false},
    {"trunc", 1, false, SAME, false}, {"rint", 1, false, SAME, false},
    {"deg2rad", 1, false, SAME, false}, {"rad2deg", 1, false, SAME, false},
    {"exp", 1, true, SAME, false}, {"exp2", 1, true, SAME, false},
    {"expm1", 1, true, SAME, false}, {"log", 1, true, SAME, false},
    {"log2", 1, true, SAME, false}, {"log10", 1, true, SAME, false},
    {"log1p", 1, true, SAME, false}, {"sin", 1, true, SAME, false},
    {"cos", 1, true, SAME, false}, {"tan", 1, true, SAME, false},
    {"arcsin", 1, true, SAME, false}, {"arccos", 1, true, SAME, false},
    {"arctan", 1, true, SAME, false}, {"sinh", 1, true, SAME, false},
    {"cosh", 1, true, SAME, false}, {"tanh", 1, true, SAME, false},
    {"arcsinh", 1, true, SAME, false}, {"arccosh", 1, true, SAME, false},
    {"arctanh", 1, true, SAME, false}, {"isnan", 1, false, BOOLEAN, false},
    {"isinf", 1, false, BOOLEAN, false}, {"isfinite", 1, false, BOOLEAN, false},
    {"signbit", 1, false, BOOLEAN, false}, {"add", 2, false, SAME, false},
    {"subtract", 2, false, SAME, false}, {"multiply", 2, false, SAME, false},
    {"divide", 2, false, SAME, false}, {"maximum", 2, false, SAME, false},
    {"minimum", 2, false, SAME, false}, {"fmax", 2, false, SAME, false},
    {"fmin", 2, false, SAME, false}, {"copysign", 2, false, SAME, false},
    {"power", 2, true, SAME, false}, {"floor_divide", 2, true, SAME, false},
    {"remainder", 2, true, SAME, false}, {"fmod", 2, true, SAME, false},
    {"arctan2", 2, true, SAME, false}, {"hypot", 2, true, SAME, false},
    {"logaddexp", 2, true, SAME, false}, {"less", 2, false, BOOLEAN, false},
    {"less_equal", 2, false, BOOLEAN, false}, {"greater", 2, false, BOOLEAN, false},
    {"greater_equal", 2, false, BOOLEAN, false}, {"equal", 2, false, BOOLEAN, false},
    {"not_equal", 2, false, BOOLEAN, false}, {"absolute", 1, true, REAL, true},
    {"negative", 1, false, SAME, true}, {"square", 1, false, SAME, true},
    {"exp", 1, true, SAME, true}, {"add", 2, false, SAME, true},
    {"subtract", 2, false, SAME, true}, {"multiply", 2, false, SAME, true},
    {"divide", 2, true, SAME, true},
};

enum { UFUNCS = sizeof ufuncs / sizeof *ufuncs, LOOPS = 2 * UFUNCS };
_Static_assert((int)LOOPS <= (int)MOST, "a function for each loop");

static bcfg_numpy_loop loops[LOOPS];

static npy_intp size_of(int type) {
    switch (type) {
    case NPY_BOOL: return 1;
    case NPY_FLOAT: return 4;
    case NPY_DOUBLE: case NPY_CFLOAT: return 8;
    default: return 16;
    }
}

/* The bytes that an operand reaches, from `low` up to `high`. */
typedef struct {
    const char *low, *high;
} Extent;

static Extent extent(const char *data, npy_intp count, npy_intp step, npy_intp size) {
    const char *last = data + (count - 1) * step;
    return step < 0 ? (Extent){last, data + size} : (Extent){data, last + size};
}

/* Whether parts may be computed in any order: each element of the result lies by itself, and no other
 * part reads it. A reduction writes all into one place, and `accumulate` reads what it wrote before. */
static bool may_part(const bcfg_numpy_loop *loop, char **data, npy_intp count,
                     const npy_intp *steps) {
    const int out = loop->inputs;
    const npy_intp size = size_of(loop->types[out]), step = steps[out];
    if (step > -size && step < size) return false;
    const Extent result = extent(data[out], count, step, size);
    for (int i = 0; i < out; i++) {
        const npy_intp wide = size_of(loop->types[i]);
        if (data[i] == data[out] && steps[i] == step && wide == size) continue;
        const Extent input = extent(data[i], count, steps[i], wide);
        /* NumPy's loops tell operands that touch from others, too. */
        if (input.low <= result.high && result.low <= input.high) return false;
    }
    return true;
}

typedef struct {
    bcfg_numpy_loop *loop;
    char **data;
    npy_intp count, part;
    const npy_intp *steps;
    void *own;
    fenv_t environment; /* of the calling thread: how to round, and what of denormal numbers */
} Call;

/* Lets NumPy compute as the calling thread would. */
static void compute(const Call *call, char **data, npy_intp count) {
    fenv_t mine;
    (void)feholdexcept(&mine);
    (void)fesetenv(&call->environment);
    bcfg_numpy_go_on(call->loop, data, &count, call->steps, call->own);
    (void)feupdateenv(&mine); /* with what was raised meanwhile */
}

static void compute_part(void *context, int64_t index, int32_t worker) {
    (void)worker;
    const Call *call = context;
    const npy_intp from = index * call->part, left = call->count - from;
    char *data[BCFG_NUMPY_OPERANDS];
    for (int i = 0; i <= call->loop->inputs; i++) data[i] = call->data[i] + from * call->steps[i];
    compute(call, data, left < call->part ? left : call->part);
}

/* NumPy sums numbers of one type by halves: those of the first half, which has a multiple of 8, plus those of
 * the second, and so on down to 128 numbers (`pairwise_sum` in numpy/_core/src/umath/loops_utils.h.src). So
 * parts that are halves of halves, added in that order, give the same bits; `agrees` sees whether. */
typedef union {
    float narrow;
    double wide;
} Number;

typedef struct {
    Call call;
    int depth;              /* so many times was the sum halved */
    Number sums[MOST_SUMS]; /* of the parts */
} Sum;

static bool is_double(const bcfg_numpy_loop *loop) { return loop->types[0] == NPY_DOUBLE; }

static void compute_sum(void *context, int64_t index, int32_t worker) {
    (void)worker;
    Sum *sum = context;
    const Call *call = &sum->call;
    npy_intp from = 0, count = call->count;
    for (int bit = sum->depth - 1; bit >= 0; bit--) {
        const npy_intp half = count / 2 / 8 * 8;
        if (index >> bit & 1) from += half, count -= half;
        else count = half;
    }
    Number *part = &sum->sums[index];
    /* Minus zero is what changes nothing that is added to it. */
    if (is_double(call->loop)) part->wide = -0.0;
    else part->narrow = -0.0f;
    char *data[] = {(char *)part, call->data[1] + from * call->steps[1], (char *)part};
    compute(call, data, count);
}

/* The sum of all parts, added to what NumPy has so far. False, and nothing is written, where that is not a
 * number: which of several NaNs a compiler's addition keeps is not said anywhere. */
static bool add_sums(Sum *sum) {
    const int parts = 1 << sum->depth;
    const bool wide = is_double(sum->call.loop);
    for (int apart = 1; apart < parts; apart *= 2)
        for (int i = 0; i < parts; i += 2 * apart) {
            if (wide) sum->sums[i].wide += sum->sums[i + apart].wide;
            else sum->sums[i].narrow += sum->sums[i + apart].narrow;
        }
    Number so_far;
    memcpy(&so_far, sum->call.data[0], wide ? 8 : 4);
    if (wide) so_far.wide += sum->sums[0].wide;
    else so_far.narrow += sum->sums[0].narrow;
    if (wide ? isnan(so_far.wide) : isnan(so_far.narrow)) return false;
    memcpy(sum->call.data[0], &so_far, wide ? 8 : 4);
    return true;
}

/* Whether NumPy's loop sums by those halves. It is asked once. */
static bool agrees(bcfg_numpy_loop *loop, void *own) {
    enum { COUNT = 1203, DEPTH = 2 };
    static _Atomic PyUFuncGenericFunction agreed[2], differed[2]; /* by type */
    const bool wide = is_double(loop);
    const PyUFuncGenericFunction theirs = atomic_load(&loop->theirs);
    if (theirs == atomic_load(&agreed[wide])) return true;
    if (theirs == atomic_load(&differed[wide])) return false;
    Number whole = {.wide = 0}, parts = {.wide = 0};
    union {
        float narrow[COUNT];
        double wide[COUNT];
    } numbers;
    uint32_t random = 1;
    for (int i = 0; i < COUNT; i++) {
        random = random * 1664525u + 1013904223u;
        const double number = (double)random / (double)(1 + i % 1000);
        if (wide) numbers.wide[i] = number;
        else numbers.narrow[i] = (float)number;
    }
    const npy_intp count = COUNT, steps[] = {0, wide ? 8 : 4, 0};
    char *data[] = {(char *)&whole, (char *)&numbers, (char *)&whole};
    char *apart[] = {(char *)&parts, (char *)&numbers};
    const Call call = {.loop = loop, .data = apart, .count = COUNT, .steps = steps, .own = own};
    Sum sum = {.call = call, .depth = DEPTH};
    (void)fegetenv(&sum.call.environment);
    bcfg_numpy_go_on(loop, data, &count, steps, own);
    for (int i = 0; i < 1 << sum.depth; i++) compute_sum(&sum, i, 0);
    (void)add_sums(&sum);
    const bool same = memcmp(&whole, &parts, sizeof whole) == 0;
    atomic_store(same ? &agreed[wide] : &differed[wide], theirs);
    return same;
}

/* Whether the call sums numbers into one place. Where 0 + -0 is not 0, parts cannot start at minus zero. */
static bool is_sum(int at, char **data, npy_intp count, const npy_intp *steps) {
    const bcfg_numpy_loop *loop = &loops[at];
    if (strcmp(loop->ufunc, "add") != 0 || ufuncs[at / 2].is_complex) return false;
    if (fegetround() != FE_TONEAREST) return false;
    if (data[0] != data[2] || steps[0] != 0 || steps[2] != 0 || steps[1] == 0) return false;
    const npy_intp size = size_of(loop->types[0]);
    const Extent input = extent(data[1], count, steps[1], size);
    return data[0] + size <= input.low || input.high <= data[0];
}

/* Whether it could be summed in parts. */
static bool share_sum(const Call *call, int32_t threads) {
    Sum sum = {.call = *call};
    while (1 << sum.depth < threads * PARTS_EACH && 2 << sum.depth <= MOST_SUMS) sum.depth++;
    bcfg_team_run_asleep(threads, 1 << sum.depth, compute_sum, &sum);
    return add_sums(&sum);
}

static void share(Call *call, int32_t threads) {
    const npy_intp even = call->count / (threads * PARTS_EACH);
    call->part = (even / PART + 1) * PART;
    bcfg_team_run_asleep(threads, (call->count + call->part - 1) / call->part, compute_part, call);
}

/* How many calls of large arrays there are: with several threads of the program, each computes alone. */
static _Atomic int32_t running;

static void run(int at, char **data, const npy_intp *dimensions, const npy_intp *steps, void *own) {
    if (bcfg_numpy_only_asked()) return;
    bcfg_numpy_loop *loop = &loops[at];
    const npy_intp count = dimensions[0];
    const int64_t work = ufuncs[at / 2].slow ? count / LEAST_SLOW
                                             : count * size_of(loop->types[0]) / LEAST_BYTES;
    bool shared = work >= LEAST_SHARES && atomic_load_explicit(&loop->wanted, memory_order_relaxed);
    const bool sums = shared && work >= SUM_SHARES && is_sum(at, data, count, steps);
    if (shared) shared = sums ? agrees(loop, own) : may_part(loop, data, count, steps);
    if (!shared) {
        bcfg_numpy_go_on(loop, data, dimensions, steps, own);
        return;
    }
    const int64_t wanted = bcfg_current()->values[FLAG_THREADS_COUNT];
    int64_t threads = wanted != 1 ? bcfg_team_size_asleep() : 1;
    if (wanted > 0 && wanted < threads) threads = wanted;
    if (threads > work) threads = work;
    if (atomic_fetch_add(&running, 1) > 0 || threads == 1) {
        bcfg_numpy_go_on(loop, data, dimensions, steps, own);
    } else {
        Call call = {.loop = loop, .data = data, .count = count, .steps = steps, .own = own};
        (void)fegetenv(&call.environment);
        if (!sums) share(&call, (int32_t)threads);
        else if (!share_sum(&call, (int32_t)threads)) bcfg_numpy_go_on(loop, data, dimensions, steps, own);
    }
    atomic_fetch_sub(&running, 1);
}

static void prepare(void) {
    for (int at = 0; at < LOOPS; at++) {
        const int wide = at % 2, index = at / 2;
        const int real = wide ? NPY_DOUBLE : NPY_FLOAT, paired = wide ? NPY_CDOUBLE : NPY_CFLOAT;
        const int type = ufuncs[index].is_complex ? paired : real;
        bcfg_numpy_loop *loop = &loops[at];
        loop->ufunc = ufuncs[index].name;
        loop->inputs = ufuncs[index].inputs;
        for (int i = 0; i < loop->inputs; i++) loop->types[i] = type;
        loop->types[loop->inputs] = ufuncs[index].result == BOOLEAN ? NPY_BOOL
                                    : ufuncs[index].result == REAL  ? real
                                                                    : type;
        loop->ours = functions[at];
    }
}

PyObject *bcfg_numpy_elementwise(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    if (given > 1 || (given == 1 && !PyBool_Check(arguments[0]))) {
        PyErr_SetString(PyExc_TypeError, "numpy_elementwise takes at most one bool");
        return NULL;
    }
    PyObject *ready = bcfg_set_array_api(module, NULL);
    if (ready == NULL) return NULL;
    Py_DECREF(ready);
    if (loops[0].ufunc == NULL) prepare();
    long served = 0;
    for (int at = 0; at < LOOPS; at++) {
        const int found = given == 0                 ? bcfg_numpy_serves(&loops[at])
                          : arguments[0] == Py_False ? bcfg_numpy_give_back(&loops[at])
                                                     : bcfg_numpy_serve(&loops[at]);
        if (found >= 0) {
            served += found;
        } else if (PyErr_ExceptionMatches(PyExc_RuntimeError)) {
            PyErr_Clear(); /* what something replaced is left to it */
        } else {
            return NULL;
        }
    }
    return PyLong_FromLong(given == 1 && arguments[0] == Py_False ? 0 : served);
}
