/* What libtorch_cpu exports of the MKL inside it to switch its verbosity, for tests.
 *
 * KIND 0 leads to the level as MKL does, 1 answers the level itself, 2 leads to something else; with
 * NO_GETTER there is nothing to ask. Like MKL the setter answers the level that it has then, or -1.
 */
#ifndef KIND
#define KIND 0
#endif

static int level = KIND == 2 ? 77 : 0;

int mkl_serv_get_version(void) { return 0; }

int MKL_Verbose(int wanted) {
    if (wanted < 0 || wanted > 2) return -1;
    level = wanted;
    return level;
}

#ifndef NO_GETTER
#if KIND == 1
long mkl_serv_verbose_mode(void) { return level; }
#else
int *mkl_serv_verbose_mode(void) { return &level; }
#endif
#endif
