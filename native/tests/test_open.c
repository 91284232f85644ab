/* Opening: what passes, what is refused, with which words, and that nothing is left behind. */
#include "check.h"

const char *fakes;

static void the_good_ones_open_in_both_widths(void) {
    bcfg_error error = NEW_ERROR;
    const bcfg_provider *lp64 = NULL, *ilp64 = NULL, *again = NULL;
    CHECK(open_fake("libfake_lp64.so", "", "", BCFG_LP64, &lp64, &error) == BCFG_OK);
    CHECK(open_fake("libfake_ilp64.so", "scipy_", "64_", BCFG_ILP64, &ilp64, &error) ==
          BCFG_OK);
    CHECK(strcmp(error.detail, "") == 0);
    CHECK(open_fake("libfake_lp64.so", "", "", 0, &again, &error) == BCFG_OK);
    CHECK(again == lp64 && lp64 != ilp64);
    bcfg_description is = {.abi = BCFG_ABI, .size = sizeof is};
    CHECK(bcfg_describe(lp64, &is) == BCFG_OK);
    CHECK(is.interface == BCFG_LP64 && is.calls[BCFG_SGEMM] == 0);
    CHECK(bcfg_describe(ilp64, &is) == BCFG_OK);
    CHECK(is.interface == BCFG_ILP64 && strcmp(is.prefix, "scipy_") == 0);
    CHECK(bcfg_next_provider(NULL) == bcfg_reference());
    CHECK(bcfg_next_provider(bcfg_native()) == lp64);
    CHECK(bcfg_next_provider(lp64) == ilp64 && bcfg_next_provider(ilp64) == NULL);
}

static void refused(const char *name, int32_t interface, bcfg_status status, const char *words) {
    bcfg_error error = NEW_ERROR;
    const bcfg_provider *untouched = bcfg_reference();
    CHECK(open_fake(name, "", "", interface, &untouched, &error) == status);
    CHECK(strstr(error.detail, words) != NULL);
    CHECK(untouched == bcfg_reference());
}

static void the_bad_ones_are_refused_and_forgotten(void) {
    refused("libfake_without_symbol.so", 0, BCFG_E_SYMBOL, "has no symbol cblas_zgemv");
    refused("libfake_wrong.so", 0, BCFG_E_WRONG, "wrongly");
    refused("libforeign.so", 0, BCFG_E_OPEN, "libforeign.so");
    refused("libmissing.so", 0, BCFG_E_OPEN, "libmissing.so");
    refused("libfake_lp64.so", BCFG_ILP64, BCFG_E_INTERFACE,
            "has 32-bit integers, not 64-bit ones");
    const bcfg_provider *first = bcfg_next_provider(bcfg_native());
    CHECK(bcfg_next_provider(bcfg_next_provider(first)) == NULL);
}

static void structs_from_another_release_are_refused(void) {
    bcfg_error error = NEW_ERROR, old = {.abi = BCFG_ABI + 1, .size = sizeof old};
    const bcfg_provider *provider = NULL;
    bcfg_library library = {BCFG_ABI, sizeof library - 8, "x", "/x", "", "", 0};
    CHECK(bcfg_open(&library, &provider, &error) == BCFG_E_ABI);
    CHECK(strcmp(error.detail, "bcfg_library has another version or size") == 0);
    CHECK(bcfg_open(&library, &provider, &old) == BCFG_E_ABI);
    library.size = sizeof library;
    library.path = "relative.so";
    CHECK(bcfg_open(&library, &provider, &error) == BCFG_E_ARGUMENT);
    CHECK(strcmp(error.detail, "relative.so is not an absolute path") == 0);
    library.path = NULL;
    CHECK(bcfg_open(&library, &provider, NULL) == BCFG_E_ARGUMENT);
    bcfg_description is = {.abi = BCFG_ABI, .size = 1};
    CHECK(bcfg_describe(bcfg_reference(), &is) == BCFG_E_ABI);
    bcfg_flag flag = {.abi = BCFG_ABI, .size = sizeof flag};
    CHECK(bcfg_flag_at(bcfg_flag_count(), &flag) == BCFG_E_ARGUMENT);
    CHECK(bcfg_flag_at(0, &flag) == BCFG_OK && strcmp(flag.name, "fp32_precision") == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2 && bcfg_abi() == BCFG_ABI);
    fakes = arguments[1];
    the_good_ones_open_in_both_widths();
    the_bad_ones_are_refused_and_forgotten();
    structs_from_another_release_are_refused();
    return 0;
}
