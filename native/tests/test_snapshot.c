/* Snapshots: interned, published, and read as they were made. */
#include "check.h"

const char *doubles;
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

static void wrong_content_is_refused(const bcfg_provider *const *two) {
    bcfg_error error = NEW_ERROR;
    const bcfg_snapshot *untouched = NULL;
    bcfg_order orders[BCFG_OPERATIONS] = {{two, 1}};
    bcfg_content content = {BCFG_ABI, sizeof content, values, 1, BCFG_OPERATIONS, orders};
    CHECK(bcfg_intern(&content, &untouched, &error) == BCFG_E_ARGUMENT);
    CHECK(strstr(error.detail, "1 values") != NULL);
    const bcfg_provider *none[1] = {NULL};
    orders[0] = (bcfg_order){none, 1};
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
    doubles = arguments[1];
    const bcfg_provider *two[2];
    CHECK(open_double("libdouble_lp64.so", "", "", 0, &two[0], NULL) == BCFG_OK);
    CHECK(open_double("libdouble_ilp64.so", "scipy_", "64_", 0, &two[1], NULL) == BCFG_OK);
    the_same_content_is_the_same_snapshot(two);
    publishing_is_seen_and_null_returns_to_the_default(two);
    the_choice_and_the_explanation_agree(two);
    wrong_content_is_refused(two);
    return 0;
}
