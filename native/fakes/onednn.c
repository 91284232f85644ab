/* What a oneDNN exports to switch its verbosity, and what it says about it, for tests.
 *
 * Like oneDNN it refuses other levels than 0, 1 and 2 with the status 2, and has no getter; `said`
 * is for the test alone.
 */
static int level = 0;

int dnnl_set_verbose(int wanted) {
    if (wanted < 0 || wanted > 2) return 2;
    level = wanted;
    return 0;
}

int said(void) { return level; }
