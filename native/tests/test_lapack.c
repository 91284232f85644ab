/* Linear algebra in the core: our own code over every operation, type and shape; stacks as the loop
 * would do them, from many threads; libraries without LAPACK. */
#include <math.h>
#include <pthread.h>

#include "../src/core/linalg.h"
#include "check.h"

const char *fakes;
static int64_t values[512];
static uint32_t state = 1;

static double small(void) {
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / (1 << 24) - 0.5;
}

enum { MOST = 9, STACK = 3, BYTES = STACK * MOST * MOST * 16 };

/* The memory of one problem, with room for any operation. */
typedef struct {
    double a[BYTES / 8], b[BYTES / 8], x[BYTES / 8], y[BYTES / 8], z[BYTES / 8], v[BYTES / 8];
    int32_t pivots[STACK * MOST], info[STACK];
    int64_t shape[1], strides[1], pivot_strides[1];
} Memory;

static void fill(int32_t element, double *to, int64_t n, int64_t stride, bool definite) {
    int64_t parts = element >= BCFG_COMPLEX64 ? 2 : 1;
    for (int64_t at = 0; at < STACK; at++)
        for (int64_t i = 0; i < n * n; i++)
            for (int64_t part = 0; part < parts; part++) {
                bool diagonal = i % (n + 1) == 0;
                double value = !definite ? small() : diagonal ? (part ? 0 : 4 * (double)n) : 0.5;
                if (definite && part == 1 && !diagonal) value = i / n > i % n ? 0.25 : -0.25;
                char *place = (char *)to + at * stride + (i * parts + part) * (element % 2 ? 8 : 4);
                float single = (float)value;
                memcpy(place, element % 2 ? (void *)&value : (void *)&single, element % 2 ? 8 : 4);
            }
}

static bcfg_problem problem_of(Memory *memory, int32_t operation, int32_t element, int64_t m,
                               int64_t n) {
    int64_t size = bcfg_element_size[element], step = MOST * MOST * 16;
    memory->shape[0] = STACK;
    memory->strides[0] = step;
    memory->pivot_strides[0] = MOST * 4;
    bcfg_result at[4] = {{(char *)memory->x, step}, {(char *)memory->y, step},
                         {(char *)memory->z, step}, {(char *)memory->v, step}};
    bcfg_problem problem = {
        .operation = operation, .element = element, .dimensions = 1, .shape = memory->shape,
        .matrices = STACK, .m = m, .n = n, .k = 2,
        .a = {memory->a, n * size, size, memory->strides},
        .b = {memory->b, 2 * size, size, memory->strides},
        .pivots = {memory->pivots, 4, 0, memory->pivot_strides},
        .by_rows = true, .mode = 'A', .x = at[0], .y = at[1], .z = at[2], .values = at[3],
        .out_pivots = {(char *)memory->pivots, MOST * 4}, .info = memory->info,
    };
    return problem;
}

static bool is_square(int32_t operation) {
    return operation != BCFG_LU_FACTOR && operation != BCFG_LU && operation != BCFG_QR &&
           operation != BCFG_SVD && operation != BCFG_SVDVALS;
}

static void every_operation_type_and_shape_is_served(void) {
    static Memory memory;
    for (int32_t operation = 0; operation < BCFG_LINEAR_OPERATIONS; operation++)
        for (int32_t element = 0; element < 4; element++)
            for (int64_t m = 0; m <= MOST; m++)
                for (int64_t n = is_square(operation) ? m : 0; n <= (is_square(operation) ? m : MOST);
                     n++) {
                    int64_t most = m > n ? m : n, step = MOST * MOST * 16;
                    fill(element, memory.a, most, step, is_square(operation));
                    fill(element, memory.b, most, step, false);
                    for (int i = 0; i < STACK * MOST; i++) memory.pivots[i] = i % MOST + 1;
                    bcfg_problem p = problem_of(&memory, operation, element, m, n);
                    bcfg_error error = NEW_ERROR;
                    CHECK(bcfg_linalg(&bcfg_reference_lapack, &p, &error) == BCFG_OK);
                    for (int i = 0; i < STACK; i++) CHECK(memory.info[i] == 0 || !is_square(operation));
                }
}

static void an_inverse_is_one(void) {
    static Memory memory;
    fill(BCFG_FLOAT64, memory.a, MOST, MOST * MOST * 16, false);
    bcfg_problem p = problem_of(&memory, BCFG_INV, BCFG_FLOAT64, MOST, MOST);
    CHECK(bcfg_linalg(&bcfg_reference_lapack, &p, NULL) == BCFG_OK);
    for (int at = 0; at < STACK; at++)
        for (int i = 0; i < MOST; i++)
            for (int j = 0; j < MOST; j++) {
                const double *a = memory.a + at * MOST * MOST * 2, *x = memory.x + at * MOST * MOST * 2;
                double sum = 0;
                for (int q = 0; q < MOST; q++) sum += a[i * MOST + q] * x[q * MOST + j];
                CHECK(fabs(sum - (i == j)) < 1e-9);
            }
}

static void what_has_no_answer_says_so_for_each_matrix(void) {
    static Memory memory;
    fill(BCFG_FLOAT64, memory.a, 3, MOST * MOST * 16, true);
    memset((char *)memory.a + MOST * MOST * 16, 0, 72); /* the second of the stack */
    bcfg_problem p = problem_of(&memory, BCFG_INV, BCFG_FLOAT64, 3, 3);
    CHECK(bcfg_linalg(&bcfg_reference_lapack, &p, NULL) == BCFG_OK);
    CHECK(memory.info[0] == 0 && memory.info[1] == 1 && memory.info[2] == 0);
    CHECK(isnan(memory.x[MOST * MOST * 2]));
    p.operation = BCFG_CHOLESKY;
    CHECK(bcfg_linalg(&bcfg_reference_lapack, &p, NULL) == BCFG_OK);
    CHECK(memory.info[0] == 0 && memory.info[1] == 1 && memory.info[2] == 0);
    memory.a[0] = INFINITY;
    for (int32_t operation = BCFG_EIGH; operation <= BCFG_SVDVALS; operation++) {
        p.operation = operation;
        CHECK(bcfg_linalg(&bcfg_reference_lapack, &p, NULL) == BCFG_OK);
        CHECK(memory.info[0] == BCFG_NOT_FINITE_INFO && memory.info[2] == 0);
    }
    bcfg_error error = NEW_ERROR;
    memory.pivots[0] = 4;
    p.operation = BCFG_LU_SOLVE;
    CHECK(bcfg_linalg(&bcfg_reference_lapack, &p, &error) == BCFG_E_ARGUMENT);
    CHECK(strcmp(error.detail, "4") == 0);
}

enum { MANY = 600, SIZE = 12, CALLERS = 4 };
static double many[MANY * SIZE * SIZE], loop[MANY * SIZE * SIZE];

static void invert(double *to, int64_t matrices, int64_t from) {
    static const int64_t strides[1] = {SIZE * SIZE * 8};
    int32_t info[MANY];
    bcfg_problem p = {
        .operation = BCFG_INV, .element = BCFG_FLOAT64, .dimensions = 1, .shape = &matrices,
        .matrices = matrices, .m = SIZE, .n = SIZE, .by_rows = true,
        .a = {many + from * SIZE * SIZE, SIZE * 8, 8, strides},
        .x = {(char *)to, SIZE * SIZE * 8}, .info = info,
    };
    CHECK(bcfg_linalg(&bcfg_reference_lapack, &p, NULL) == BCFG_OK);
}

static void *compare(void *unused) {
    double *stack = malloc(sizeof many);
    CHECK(stack != NULL);
    invert(stack, MANY, 0);
    CHECK(memcmp(stack, loop, sizeof many) == 0);
    free(stack);
    return unused;
}

static void a_stack_is_the_loop_bit_for_bit_from_many_threads(void) {
    pthread_t threads[CALLERS];
    for (int i = 0; i < MANY * SIZE * SIZE; i++) many[i] = small();
    for (int i = 0; i < MANY; i++) invert(loop + i * SIZE * SIZE, 1, i);
    for (int i = 0; i < CALLERS; i++) CHECK(pthread_create(&threads[i], NULL, compare, NULL) == 0);
    for (int i = 0; i < CALLERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* What was chosen for this CPU and what every CPU has. */
static void instruction_sets_give_the_same_bits(void) {
    static double a[2][SIZE * SIZE * 2], x[2][SIZE * SIZE * 2];
    static bcfg_lapack portable;
    portable = (bcfg_lapack){.provider = bcfg_reference(), .interface = BCFG_ILP64, .lacking = ""};
    memcpy(portable.functions, bcfg_portable_routines, sizeof portable.functions);
    const bcfg_lapack *tables[2] = {&bcfg_reference_lapack, &portable};
    for (int32_t element = 0; element < 4; element++)
        for (int32_t operation = 0; operation < BCFG_LINEAR_OPERATIONS; operation++) {
            if (operation == BCFG_LU_SOLVE) continue;
            static double y[2][SIZE * SIZE * 2], z[2][SIZE * SIZE * 2], v[2][SIZE];
            static int32_t pivots[2][SIZE];
            int32_t info[2];
            fill(element, a[0], SIZE, 0, is_square(operation));
            for (int which = 0; which < 2; which++) {
                int64_t size = bcfg_element_size[element];
                bcfg_problem p = {
                    .operation = operation, .element = element, .matrices = 1, .m = SIZE,
                    .n = SIZE, .k = SIZE, .by_rows = true, .mode = 'A',
                    .a = {a[0], SIZE * size, size, NULL}, .b = {a[0], SIZE * size, size, NULL},
                    .x = {(char *)x[which], 0}, .y = {(char *)y[which], 0},
                    .z = {(char *)z[which], 0}, .values = {(char *)v[which], 0},
                    .out_pivots = {(char *)pivots[which], 0}, .info = &info[which],
                };
                CHECK(bcfg_linalg(tables[which], &p, NULL) == BCFG_OK);
            }
            CHECK(info[0] == info[1] && memcmp(x[0], x[1], sizeof x[0]) == 0);
            CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0 && memcmp(z[0], z[1], sizeof z[0]) == 0);
            CHECK(memcmp(v[0], v[1], sizeof v[0]) == 0);
        }
}

static void a_library_without_lapack_is_passed_over(void) {
    const bcfg_provider *library;
    bcfg_error error = NEW_ERROR;
    CHECK(open_fake("libfake_lp64.so", "", "", BCFG_LP64, &library, &error) == BCFG_OK);
    const bcfg_lapack *lapack = bcfg_lapack_of(library);
    CHECK(lapack == bcfg_lapack_of(library));
    CHECK(strcmp(lapack->lacking, "it has no LAPACK: no symbol sgetrf") == 0);
    const bcfg_provider *both[2] = {library, bcfg_reference()};
    const bcfg_snapshot *snapshot = snapshot_of(both, 2, values);
    int32_t verdicts[2];
    bcfg_linear_choice choice;
    CHECK(bcfg_linalg_choose(snapshot, BCFG_INV, BCFG_FLOAT64, 100, 100, 0, verdicts, &choice) ==
          &bcfg_reference_lapack);
    CHECK(verdicts[0] == BCFG_LINEAR_LACKS && verdicts[1] == BCFG_LINEAR_SERVES);
    CHECK(choice.provider == bcfg_reference() && choice.why == BCFG_LINEAR_ABLE);
    CHECK(bcfg_linalg_choose(snapshot, BCFG_INV, BCFG_FLOAT64, 4, 4, 0, verdicts, &choice) ==
          &bcfg_reference_lapack);
    CHECK(verdicts[0] == BCFG_LINEAR_SLOWER && choice.why == BCFG_LINEAR_SMALL);
    CHECK(bcfg_linalg_choose(snapshot_of(both, 1, values), BCFG_INV, BCFG_FLOAT64, 4, 4, 0, NULL,
                             NULL) == NULL);
}

/* No test library has LAPACK: the reference is behind our own, which has products alone. */
static void the_fastest_serves_what_rests_on_its_factorisation(void) {
    const bcfg_provider *library;
    bcfg_error error = NEW_ERROR;
    CHECK(open_fake("libfake_lp64.so", "", "", BCFG_LP64, &library, &error) == BCFG_OK);
    const bcfg_provider *three[3] = {bcfg_native(), bcfg_reference(), library};
    uint8_t by_reference[BCFG_SIZE_CLASSES], by_library[BCFG_SIZE_CLASSES];
    memset(by_reference, BCFG_NOT_MEASURED, sizeof by_reference);
    memset(by_library, 2, sizeof by_library);
    by_reference[bcfg_size_class(100, 100, 100)] = 1;
    bcfg_order orders[BCFG_OPERATIONS];
    for (int i = 0; i < BCFG_OPERATIONS; i++) orders[i] = (bcfg_order){three, 3, NULL};
    const uint8_t *factorisations[4 * BCFG_FACTORISATIONS] = {NULL};
    factorisations[4 * BCFG_BY_GETRF + BCFG_FLOAT64] = by_reference;
    factorisations[4 * BCFG_BY_GEQRF + BCFG_FLOAT64] = by_library;
    bcfg_content content = {BCFG_ABI, sizeof content, values, bcfg_flag_count(), BCFG_OPERATIONS,
                            orders, factorisations};
    const bcfg_snapshot *snapshot = NULL;
    CHECK(bcfg_intern(&content, &snapshot, &error) == BCFG_OK);
    int32_t verdicts[3];
    bcfg_linear_choice choice;
    const int32_t by_getrf[] = {BCFG_INV, BCFG_LU_FACTOR, BCFG_LU, BCFG_LU_SOLVE, BCFG_SOLVE};
    for (int i = 0; i < 5; i++) {
        (void)bcfg_linalg_choose(snapshot, by_getrf[i], BCFG_FLOAT64, 100, 100, 1, verdicts,
                                 &choice);
        CHECK(choice.provider == bcfg_reference() && choice.why == BCFG_LINEAR_FASTEST);
        CHECK(verdicts[0] == BCFG_LINEAR_PRODUCTS && verdicts[2] == BCFG_LINEAR_BEHIND);
    }
    /* Of another type, of another size, of what rests on another: by the order. */
    (void)bcfg_linalg_choose(snapshot, BCFG_INV, BCFG_FLOAT32, 100, 100, 0, verdicts, &choice);
    CHECK(choice.why == BCFG_LINEAR_ABLE);
    (void)bcfg_linalg_choose(snapshot, BCFG_INV, BCFG_FLOAT64, 300, 300, 0, verdicts, &choice);
    CHECK(choice.why == BCFG_LINEAR_ABLE);
    (void)bcfg_linalg_choose(snapshot, BCFG_CHOLESKY, BCFG_FLOAT64, 100, 100, 0, NULL, &choice);
    CHECK(choice.why == BCFG_LINEAR_ABLE);
    /* Small ones stay ours, and who cannot serve does not, however fast. */
    (void)bcfg_linalg_choose(snapshot, BCFG_QR, BCFG_FLOAT64, 8, 8, 0, NULL, &choice);
    CHECK(choice.why == BCFG_LINEAR_FIRST && choice.provider == bcfg_native());
    (void)bcfg_linalg_choose(snapshot, BCFG_QR, BCFG_FLOAT64, 100, 100, 0, verdicts, &choice);
    CHECK(choice.why == BCFG_LINEAR_ABLE && choice.provider == bcfg_reference());
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    fakes = arguments[1];
    every_operation_type_and_shape_is_served();
    an_inverse_is_one();
    what_has_no_answer_says_so_for_each_matrix();
    a_stack_is_the_loop_bit_for_bit_from_many_threads();
    instruction_sets_give_the_same_bits();
    a_library_without_lapack_is_passed_over();
    the_fastest_serves_what_rests_on_its_factorisation();
    return 0;
}
