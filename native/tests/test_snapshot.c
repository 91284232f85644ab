/* Snapshots: interned, published, and read as they were made. */
#include "check.h"

const char *fakes;
static int64_t values[512];

static void the_same_content_is_the_same_snapshot(const bcfg_provider *const *two) {
    const bcfg_snapshot *first = snapshot_of(two, 2, values);
    CHECK(snapshot_of(two, 2, values) == first);
    CHECK(snapshot_of(two, 1, values) != first);
    values[3] = 7;
    const bcfg_snapshot *other = snapshot_of(two, 2, values);
    CHECK(other != first && bcfg_value(other, 3) == 7 && bcfg_value(first, 3) == 0);
    values[3] = 0;
    CHECK(bcfg_value(other, 3) == 7); /* a copy: what the caller does later does not reach it */
    CHECK(bcfg_value(other, bcfg_flag_count()) == 0);
    CHECK(bcfg_snapshot_known(first) && !bcfg_snapshot_known((const bcfg_snapshot *)values));
}

static void publishing_is_seen_and_null_returns_to_the_default(const bcfg_provider *const *two) {
    const bcfg_snapshot *builtin = bcfg_current(), *base = snapshot_of(two, 2, values);
    CHECK(bcfg_ordered(builtin, BCFG_DGEMM, 0) == bcfg_reference());
    CHECK(bcfg_ordered(builtin, BCFG_DGEMM, 1) == NULL);
    bcfg_publish(base);
    CHECK(bcfg_current() == base);
    bcfg_publish(NULL);
    CHECK(bcfg_current() == builtin);
    bcfg_set_default(base);
    CHECK(bcfg_current() == base);
    bcfg_set_default(NULL);
    CHECK(bcfg_current() == builtin);
}

static void the_choice_and_the_explanation_agree(const bcfg_provider *const *two) {
    const bcfg_snapshot *snapshot = snapshot_of(two, 2, values);
    int64_t large = (int64_t)INT32_MAX + 1;
    CHECK(bcfg_choose(snapshot, BCFG_SGEMM, 4, 4, 4) == 0);
    CHECK(bcfg_judge(snapshot, BCFG_SGEMM, two[0], 4, 4, 4) == BCFG_SERVES);
    CHECK(bcfg_judge(snapshot, BCFG_SGEMM, two[1], 4, 4, 4) == BCFG_BEHIND);
    CHECK(bcfg_choose(snapshot, BCFG_SGEMM, 1, large, 1) == 1);
    CHECK(bcfg_judge(snapshot, BCFG_SGEMM, two[0], 1, large, 1) == BCFG_TOO_LARGE);
    CHECK(bcfg_judge(snapshot, BCFG_SGEMM, two[1], 1, large, 1) == BCFG_SERVES);
    CHECK(bcfg_judge(snapshot, BCFG_SGEMM, bcfg_reference(), 4, 4, 4) == BCFG_NOT_LISTED);
    CHECK(bcfg_choose(snapshot, BCFG_OPERATIONS, 1, 1, 1) == -1);
    CHECK(bcfg_choose(snapshot_of(two, 1, values), BCFG_SGEMM, large, 1, 1) == -1);
}

static void sizes_fall_into_classes_by_their_product(void) {
    CHECK(bcfg_size_class(1, 1, 1) == 0 && bcfg_size_class(1, 2, 1) == 1);
    CHECK(bcfg_size_class(4, 4, 4) == 6 && bcfg_size_class(5, 5, 5) == 6);
    CHECK(bcfg_size_class(2, 4, 8) == bcfg_size_class(8, 1, 8));
    CHECK(bcfg_size_class(0, 4, 4) == 0 && bcfg_size_class(4, -1, 4) == 0);
    CHECK(bcfg_size_class(INT64_MAX, 1, 1) == 62);
    CHECK(bcfg_size_class(INT64_MAX, INT64_MAX, 2) == 62);
    CHECK(bcfg_size_class((int64_t)1 << 31, (int64_t)1 << 31, 2) == 62);
    CHECK(bcfg_size_class(INT32_MAX, INT32_MAX, INT32_MAX) < BCFG_SIZE_CLASSES);
}

static void the_measured_fastest_of_a_class_serves_where_it_can(const bcfg_provider *const *two) {
    const bcfg_provider *three[3] = {two[1], two[0], bcfg_reference()}; /* two[0] has 32 bits */
    uint8_t preferred[BCFG_SIZE_CLASSES];
    memset(preferred, BCFG_NOT_MEASURED, sizeof preferred);
    preferred[bcfg_size_class(4, 4, 4)] = 2;
    preferred[bcfg_size_class(8, 8, 8)] = 1;
    preferred[bcfg_size_class(16, 16, 16)] = 0;
    preferred[32] = 1;
    const bcfg_snapshot *snapshot = preferring(three, 3, values, preferred);
    CHECK(bcfg_choose(snapshot, BCFG_DGEMM, 4, 4, 4) == 2);
    CHECK(bcfg_choice_reason(snapshot, BCFG_DGEMM, 4, 4, 4) == BCFG_FASTEST);
    CHECK(bcfg_judge(snapshot, BCFG_DGEMM, three[2], 4, 4, 4) == BCFG_SERVES);
    CHECK(bcfg_judge(snapshot, BCFG_DGEMM, three[0], 4, 4, 4) == BCFG_BEHIND);
    CHECK(bcfg_choose(snapshot, BCFG_DGEMM, 8, 8, 8) == 1);
    CHECK(bcfg_choose(snapshot, BCFG_DGEMM, 16, 16, 16) == 0);
    CHECK(bcfg_choice_reason(snapshot, BCFG_DGEMM, 16, 16, 16) == BCFG_FIRST);
    CHECK(bcfg_choose(snapshot, BCFG_DGEMM, 2, 2, 2) == 0); /* nobody measured that class */
    int64_t large = (int64_t)1 << 32; /* the fastest of its class cannot */
    CHECK(bcfg_choose(snapshot, BCFG_SGEMV, large, 1, 1) == 0);
    CHECK(bcfg_judge(snapshot, BCFG_SGEMV, three[1], large, 1, 1) == BCFG_TOO_LARGE);
    CHECK(bcfg_choice_reason(snapshot, BCFG_OPERATIONS, 1, 1, 1) == -1);
    CHECK(bcfg_choice_reason(snapshot_of(two, 1, values), BCFG_SGEMM, large, 1, 1) == -1);
    CHECK(bcfg_choice_reason(snapshot_of(two, 2, values), BCFG_SGEMM, large, 1, 1) == BCFG_ABLE);
}

static void preferences_are_part_of_the_content(const bcfg_provider *const *two) {
    uint8_t first[BCFG_SIZE_CLASSES] = {0}, second[BCFG_SIZE_CLASSES] = {0};
    second[9] = 1;
    const bcfg_snapshot *plain = snapshot_of(two, 2, values);
    const bcfg_snapshot *one = preferring(two, 2, values, first);
    const bcfg_snapshot *other = preferring(two, 2, values, second);
    CHECK(plain != one && one != other && preferring(two, 2, values, second) == other);
    second[9] = 0; /* a copy: what the caller does later does not reach it */
    CHECK(bcfg_choose(other, BCFG_DGEMM, 8, 8, 8) == 1 && preferring(two, 2, values, second) == one);
    bcfg_order orders[BCFG_OPERATIONS];
    for (int i = 0; i < BCFG_OPERATIONS; i++) orders[i] = (bcfg_order){two, 2, NULL};
    second[3] = 2;
    orders[BCFG_CGEMM].preferred = second;
    bcfg_content content = {BCFG_ABI, sizeof content, values, bcfg_flag_count(), BCFG_OPERATIONS,
                            orders, NULL};
    bcfg_error error = NEW_ERROR;
    CHECK(bcfg_intern(&content, &plain, &error) == BCFG_E_ARGUMENT);
    CHECK(strcmp(error.detail, "cgemm has no provider 2 for size class 3") == 0);
}

/* A content whose cheevd alone has a preference, by which the linear algebra of it goes. */
static bcfg_status with_factorisation(const bcfg_provider *const *two, const uint8_t *preferred,
                                      const bcfg_snapshot **snapshot, bcfg_error *error) {
    bcfg_order orders[BCFG_OPERATIONS];
    for (int i = 0; i < BCFG_OPERATIONS; i++) orders[i] = (bcfg_order){two, 2, NULL};
    const uint8_t *factorisations[4 * BCFG_FACTORISATIONS] = {NULL};
    factorisations[4 * BCFG_BY_SYEVD + BCFG_COMPLEX64] = preferred;
    bcfg_content content = {BCFG_ABI, sizeof content, values, bcfg_flag_count(), BCFG_OPERATIONS,
                            orders, factorisations};
    return bcfg_intern(&content, snapshot, error);
}

static void preferences_for_factorisations_are_part_of_the_content(
    const bcfg_provider *const *two) {
    uint8_t first[BCFG_SIZE_CLASSES] = {0}, second[BCFG_SIZE_CLASSES] = {0};
    second[9] = 1;
    bcfg_error error = NEW_ERROR;
    const bcfg_snapshot *plain, *one, *other, *again;
    CHECK(with_factorisation(two, NULL, &plain, &error) == BCFG_OK);
    CHECK(plain == snapshot_of(two, 2, values));
    CHECK(with_factorisation(two, first, &one, &error) == BCFG_OK && one != plain);
    CHECK(with_factorisation(two, second, &other, &error) == BCFG_OK && other != one);
    second[9] = 0; /* a copy: what the caller does later does not reach it */
    CHECK(with_factorisation(two, second, &again, &error) == BCFG_OK && again == one);
    second[9] = 2;
    CHECK(with_factorisation(two, second, &again, &error) == BCFG_E_ARGUMENT);
    CHECK(strcmp(error.detail, "cheevd has no provider 2 for size class 9") == 0);
}

static void many_snapshots_are_each_found_again(const bcfg_provider *const *two) {
    enum { MANY = 5000 };
    static const bcfg_snapshot *made[MANY];
    for (int i = 0; i < MANY; i++) {
        values[3] = i + 1;
        made[i] = snapshot_of(two, 2, values);
    }
    for (int i = 0; i < MANY; i++) {
        values[3] = i + 1;
        CHECK(snapshot_of(two, 2, values) == made[i] && bcfg_snapshot_known(made[i]));
        CHECK(bcfg_value(made[i], 3) == i + 1 && bcfg_ordered(made[i], BCFG_ZGEMV, 1) == two[1]);
        CHECK(!bcfg_snapshot_known((const bcfg_snapshot *)((const char *)made[i] + 8)));
    }
    values[3] = 0;
}

static void a_product_goes_to_the_fastest_and_is_counted_so(const bcfg_provider *const *two) {
    uint8_t preferred[BCFG_SIZE_CLASSES];
    memset(preferred, 1, sizeof preferred);
    const bcfg_snapshot *snapshot = preferring(two, 2, values, preferred);
    double a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, c[4] = {0};
    bcfg_product product = {BCFG_FLOAT64, 0, NULL, 2, 2, 2,
                            {a, 16, 8, NULL}, {b, 16, 8, NULL}, {c, 16, 8, NULL}};
    bcfg_reset_calls();
    CHECK(bcfg_matmul(snapshot, &product, NULL) == BCFG_OK && c[0] == 19 && c[3] == 50);
    bcfg_description is = {.abi = BCFG_ABI, .size = sizeof is};
    CHECK(bcfg_describe(two[1], &is) == BCFG_OK);
    CHECK(is.calls[BCFG_DGEMM] == 1 && is.by_speed[BCFG_DGEMM] == 1);
    CHECK(is.by_need[BCFG_DGEMM] == 0 && is.by_speed[BCFG_SGEMM] == 0);
    CHECK(bcfg_describe(two[0], &is) == BCFG_OK && is.calls[BCFG_DGEMM] == 0);
    bcfg_reset_calls();
    CHECK(bcfg_describe(two[1], &is) == BCFG_OK && is.by_speed[BCFG_DGEMM] == 0);
}

static void wrong_content_is_refused(const bcfg_provider *const *two) {
    bcfg_error error = NEW_ERROR;
    const bcfg_snapshot *untouched = NULL;
    bcfg_order orders[BCFG_OPERATIONS] = {{two, 1, NULL}};
    bcfg_content content = {BCFG_ABI, sizeof content, values, 1, BCFG_OPERATIONS, orders, NULL};
    CHECK(bcfg_intern(&content, &untouched, &error) == BCFG_E_ARGUMENT);
    CHECK(strstr(error.detail, "1 values") != NULL);
    const bcfg_provider *none[1] = {NULL};
    orders[0] = (bcfg_order){none, 1, NULL};
    content.value_count = bcfg_flag_count();
    CHECK(bcfg_intern(&content, &untouched, &error) == BCFG_E_ARGUMENT);
    CHECK(strcmp(error.detail, "provider 0 for sgemm is NULL") == 0);
    orders[0].providers = NULL;
    CHECK(bcfg_intern(&content, &untouched, &error) == BCFG_E_ARGUMENT);
    CHECK(strcmp(error.detail, "provider 0 for sgemm is NULL") == 0);
    content.values = NULL;
    CHECK(bcfg_intern(&content, &untouched, &error) == BCFG_E_ARGUMENT);
    CHECK(strcmp(error.detail, "values or orders is NULL") == 0);
    content.values = values;
    content.size--;
    CHECK(bcfg_intern(&content, &untouched, &error) == BCFG_E_ABI && untouched == NULL);
}

int main(int count, char **arguments) {
    CHECK(count == 2 && bcfg_flag_count() > 3 && bcfg_flag_count() < 512);
    fakes = arguments[1];
    const bcfg_provider *two[2];
    CHECK(open_fake("libfake_lp64.so", "", "", 0, &two[0], NULL) == BCFG_OK);
    CHECK(open_fake("libfake_ilp64.so", "scipy_", "64_", 0, &two[1], NULL) == BCFG_OK);
    the_same_content_is_the_same_snapshot(two);
    publishing_is_seen_and_null_returns_to_the_default(two);
    the_choice_and_the_explanation_agree(two);
    sizes_fall_into_classes_by_their_product();
    the_measured_fastest_of_a_class_serves_where_it_can(two);
    preferences_are_part_of_the_content(two);
    preferences_for_factorisations_are_part_of_the_content(two);
    many_snapshots_are_each_found_again(two);
    a_product_goes_to_the_fastest_and_is_counted_so(two);
    wrong_content_is_refused(two);
    return 0;
}
