/* Opening libraries of devices: versions, symbols under two names, and threads that open the same. */
#include <dlfcn.h>
#include <pthread.h>

#include "../check.h"
#include "gpu/device/library.h"

const char *fakes;

static bcfg_status open_device(int32_t kind, const char *name, const bcfg_device_library **library,
                               bcfg_error *error) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s", fakes, name);
    return bcfg_device_open(kind, path, library, error);
}

static const bcfg_device_library *opened(int32_t kind, const char *name, int64_t version) {
    bcfg_error error = NEW_ERROR;
    const bcfg_device_library *library = NULL, *again = NULL;
    CHECK(open_device(kind, name, &library, &error) == BCFG_OK);
    CHECK(strcmp(error.detail, "") == 0);
    CHECK(open_device(kind, name, &again, &error) == BCFG_OK && again == library);
    bcfg_device_description is = {.abi = BCFG_ABI, .size = sizeof is};
    CHECK(bcfg_device_describe(library, &is) == BCFG_OK);
    CHECK(is.kind == kind && is.version == version && strstr(is.path, name) != NULL);
    return library;
}

static void cudas_libraries_open_and_say_their_versions(void) {
    const bcfg_device_library *cuda = opened(BCFG_CUDA, "libdevice_cuda.so", 130000);
    int said = 0;
    CHECK(bcfg_cuda(cuda)->cuDriverGetVersion(&said) == BCFG_CUDA_SUCCESS && said == 13000);
    const bcfg_device_library *new = opened(BCFG_CUBLAS, "libdevice_cublas.so", 130100);
    const bcfg_device_library *old = opened(BCFG_CUBLAS, "libdevice_cublas_12.so", 120000);
    CHECK(new != old && bcfg_cublas(new)->cublasGemmEx_64 != bcfg_cublas(old)->cublasGemmEx_64);
    const bcfg_device_library *lt = opened(BCFG_CUBLASLT, "libdevice_cublaslt.so", 130100);
    CHECK(bcfg_cublaslt(lt)->cublasLtGetVersion() == 130100);
}

static void *symbol_of(const bcfg_device_library *library, const char *name) {
    void *handle = dlopen(library->path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    CHECK(handle != NULL);
    void *address = dlsym(handle, name);
    CHECK(dlclose(handle) == 0);
    return address;
}

static void products_of_hipblas_have_one_meaning(void) {
    const bcfg_device_library *two = opened(BCFG_HIPBLAS, "libdevice_hipblas_2.so", 20000);
    const bcfg_device_library *three = opened(BCFG_HIPBLAS, "libdevice_hipblas_3.so", 30000);
    void *of_two, *of_three;
    memcpy(&of_two, &bcfg_hipblas(two)->hipblasGemmEx_64, sizeof of_two);
    memcpy(&of_three, &bcfg_hipblas(three)->hipblasGemmEx_64, sizeof of_three);
    CHECK(of_two == symbol_of(two, "hipblasGemmEx_v2_64"));
    CHECK(of_two != symbol_of(two, "hipblasGemmEx_64"));
    CHECK(of_three == symbol_of(three, "hipblasGemmEx_64"));
    CHECK(bcfg_hipblas(two)->hipblasSetWorkspace == NULL);
    CHECK(bcfg_hipblas(three)->hipblasSetWorkspace != NULL);
    opened(BCFG_HIP, "libdevice_hip.so", 60300);
    opened(BCFG_HIPBLASLT, "libdevice_hipblaslt.so", 1100);
}

static void refused(int32_t kind, const char *name, bcfg_status status, const char *words) {
    bcfg_error error = NEW_ERROR;
    const bcfg_device_library *library = NULL;
    CHECK(open_device(kind, name, &library, &error) == status);
    CHECK(strstr(error.detail, words) != NULL && library == NULL);
}

static void others_are_refused_in_words(void) {
    refused(BCFG_CUBLAS, "libforeign.so", BCFG_E_OPEN, "libforeign.so");
    refused(BCFG_CUBLAS, "libdevice_cuda.so", BCFG_E_SYMBOL, "has no symbol cublasCreate_v2");
    refused(BCFG_CUBLAS, "libdevice_cublas_14.so", BCFG_E_INTERFACE,
            "has version 14.0; 13 is the newest whose interface is known");
    refused(BCFG_HIPBLAS, "libdevice_hipblas_nameless.so", BCFG_E_SYMBOL,
            "has no symbol hipblasGemmEx_v2_64");
    refused(BCFG_DEVICE_KINDS, "libdevice_cuda.so", BCFG_E_ARGUMENT, "there is no kind ");
    bcfg_error old = {.abi = BCFG_ABI + 1, .size = sizeof old};
    const bcfg_device_library *library = NULL;
    CHECK(open_device(BCFG_CUDA, "libdevice_cuda.so", &library, &old) == BCFG_E_ABI);
    CHECK(open_device(BCFG_CUDA, "libdevice_cuda.so", &library, NULL) == BCFG_OK);
    bcfg_device_description is = {.abi = BCFG_ABI, .size = sizeof is - 8};
    CHECK(bcfg_device_describe(library, &is) == BCFG_E_ABI);
    CHECK(bcfg_device_describe(NULL, &is) == BCFG_E_ARGUMENT);
}

static void *open_it(void *place) {
    bcfg_error error = NEW_ERROR;
    CHECK(open_device(BCFG_CUBLASLT, "libdevice_cublaslt_12.so",
                      (const bcfg_device_library **)place, &error) == BCFG_OK);
    return NULL;
}

static void threads_that_open_the_same_get_one(void) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    const bcfg_device_library *libraries[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, open_it, &libraries[i]) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 1; i < THREADS; i++) CHECK(libraries[i] == libraries[0]);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    fakes = arguments[1];
    cudas_libraries_open_and_say_their_versions();
    products_of_hipblas_have_one_meaning();
    others_are_refused_in_words();
    threads_that_open_the_same_get_one();
    return 0;
}
