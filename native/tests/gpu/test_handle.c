/* Handles of libraries: one for each stream, lent to one call at a time, and not without end. */
#include <pthread.h>
#include <sched.h>

#include "device_check.h"

const char *fakes;
static const bcfg_device_library *cuda, *hip, *cublas;
static bcfg_visit visit; /* of device 0, current from main on */

enum { LIMIT = BCFG_IDLE_HANDLES };

static void *stream_of(const bcfg_device_library *driver) {
    void *stream = NULL;
    if (driver->kind == BCFG_CUDA)
        CHECK(bcfg_cuda(driver)->cuStreamCreate(&stream, 0) == 0);
    else
        CHECK(bcfg_hip(driver)->hipStreamCreateWithFlags(&stream, 0) == 0);
    return stream;
}

static bcfg_handle *take(const bcfg_device_library *library, void *stream) {
    const bcfg_device_library *driver =
        strncmp(bcfg_device_kind_name(library->kind), "hip", 3) == 0 ? hip : cuda;
    bcfg_handle *taken = NULL;
    bcfg_fault fault = {"", 0, ""};
    CHECK(bcfg_handle_take(library, driver, 0, stream, &taken, &fault) == BCFG_DEVICE_OK);
    CHECK(taken->stream == stream && taken->library == library && taken->busy);
    return taken;
}

static bcfg_handle *used(const bcfg_device_library *library, void *stream) {
    bcfg_handle *taken = take(library, stream);
    bcfg_handle_give(taken);
    return taken;
}

static void use_new_streams(const bcfg_device_library *library, const bcfg_device_library *driver,
                            int count) {
    while (count-- > 0) (void)used(library, stream_of(driver));
}

static void a_stream_gets_its_handle_again(void) {
    void *first = stream_of(cuda), *second = stream_of(cuda);
    bcfg_handle *handle = take(cublas, first), *other = take(cublas, first);
    CHECK(handle != other); /* while the first is lent */
    bcfg_handle_give(handle);
    CHECK(take(cublas, first) == handle);
    CHECK(used(cublas, second) != handle);
    bcfg_handle_give(handle);
    bcfg_handle_give(other);
    CHECK(calls_of(cublas, "cublasCreate_v2") == 3);
    CHECK(calls_of(cublas, "cublasSetStream_v2") == 3);
}

static void one_that_cannot_be_made_leaves_nothing(void) {
    void *stream = stream_of(cuda);
    bcfg_handle *taken = NULL;
    bcfg_fault fault = {"", 0, ""};
    fail(cublas, "cublasCreate_v2", BCFG_CUBLAS_STATUS_ALLOC_FAILED, 0, 1);
    CHECK(bcfg_handle_take(cublas, cuda, 0, stream, &taken, &fault) == BCFG_DEVICE_FAULT);
    CHECK(taken == NULL && fault.status == BCFG_CUBLAS_STATUS_ALLOC_FAILED);
    CHECK(strcmp(fault.function, "cublasCreate") == 0);
    CHECK(strcmp(fault.name, "CUBLAS_STATUS_ALLOC_FAILED") == 0);
    fail(cublas, "cublasSetStream_v2", BCFG_CUBLAS_STATUS_NOT_INITIALIZED, 0, 1);
    CHECK(bcfg_handle_take(cublas, cuda, 0, stream, &taken, &fault) == BCFG_DEVICE_FAULT);
    CHECK(strcmp(fault.function, "cublasSetStream") == 0);
    CHECK(calls_of(cublas, "cublasDestroy_v2") == 1);
    (void)used(cublas, stream);
}

static void few_lie_idle_and_the_oldest_goes_first(void) {
    void *old = stream_of(cuda), *young = stream_of(cuda);
    use_new_streams(cublas, cuda, LIMIT); /* what other tests left is gone */
    (void)used(cublas, old);
    (void)used(cublas, young);
    use_new_streams(cublas, cuda, LIMIT - 2);
    bcfg_handle *kept = used(cublas, old); /* now the young one was used longest ago */
    reset(cublas);
    use_new_streams(cublas, cuda, LIMIT - 1);
    CHECK(calls_of(cublas, "cublasDestroy_v2") == LIMIT - 1);
    CHECK(used(cublas, old) == kept && calls_of(cublas, "cublasCreate_v2") == LIMIT - 1);
    (void)used(cublas, young);
    CHECK(calls_of(cublas, "cublasCreate_v2") == LIMIT);
}

static void one_that_is_lent_is_never_ended(void) {
    void *stream = stream_of(cuda);
    bcfg_handle *lent = take(cublas, stream);
    use_new_streams(cublas, cuda, 2 * LIMIT);
    bcfg_handle_give(lent);
    CHECK(used(cublas, stream) == lent);
}

static void one_that_a_graph_may_refer_to_stays(void) {
    void *before = stream_of(cuda), *within = stream_of(cuda), *unsaid = stream_of(cuda);
    bcfg_handle *first = used(cublas, before);
    use_new_streams(cublas, cuda, LIMIT - 1);
    set(cuda, "capturing", BCFG_CU_STREAM_CAPTURE_STATUS_ACTIVE);
    reset(cublas);
    bcfg_handle *second = used(cublas, within);
    CHECK(used(cublas, before) == first);
    CHECK(calls_of(cublas, "cublasDestroy_v2") == 0); /* it would end the capture too */
    set(cuda, "capturing", BCFG_CU_STREAM_CAPTURE_STATUS_NONE);
    fail(cuda, "cuStreamIsCapturing", BCFG_CUDA_ERROR_UNKNOWN, 0, 1);
    bcfg_handle *third = used(cublas, unsaid);
    use_new_streams(cublas, cuda, 2 * LIMIT);
    CHECK(used(cublas, before) == first && used(cublas, within) == second);
    CHECK(used(cublas, unsaid) == third);
    reset(cuda);
    (void)used(cublas, NULL);
    CHECK(calls_of(cuda, "cuStreamIsCapturing") == 0); /* the legacy stream cannot be captured */
}

static int ended_before, returned;
static void return_it(void *holder) {
    CHECK(*(const char *)holder == 'w');
    ended_before = calls_of(cublas, "cublasDestroy_v2");
    returned++;
}

static void a_workspace_goes_back_after_its_handle(void) {
    static char workspace = 'w';
    use_new_streams(cublas, cuda, LIMIT); /* that hold none */
    for (int failing = 0; failing < 2; failing++) {
        bcfg_handle *handle = take(cublas, stream_of(cuda));
        handle->holder = &workspace;
        handle->release = return_it;
        bcfg_handle_give(handle);
        ended_before = returned = 0;
        use_new_streams(cublas, cuda, LIMIT - 1);
        CHECK(returned == 0);
        reset(cublas);
        if (failing) fail(cublas, "cublasDestroy_v2", BCFG_CUBLAS_STATUS_INTERNAL_ERROR, 0, 1);
        use_new_streams(cublas, cuda, LIMIT);
        CHECK(returned == 1 && ended_before == 1);
    }
    /* The driver's memory. */
    bcfg_fault fault;
    bcfg_handle *handle = take(cublas, stream_of(cuda));
    CHECK(bcfg_place_allocate(cuda, 4096, &handle->workspace, &fault) == BCFG_DEVICE_OK);
    bcfg_handle_give(handle);
    reset(cuda);
    use_new_streams(cublas, cuda, LIMIT);
    CHECK(calls_of(cuda, "cuMemFree_v2") == 1);
}

static void every_library_ends_its_handles(void) {
    static const struct {
        int32_t kind;
        const char *name, *function;
        bool is_amd;
    } all[] = {
        {BCFG_CUBLAS, "libdevice_cublas.so", "cublasDestroy_v2", false},
        {BCFG_CUBLASLT, "libdevice_cublaslt.so", "cublasLtDestroy", false},
        {BCFG_HIPBLAS, "libdevice_hipblas_3.so", "hipblasDestroy", true},
        {BCFG_HIPBLASLT, "libdevice_hipblaslt.so", "hipblasLtDestroy", true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const bcfg_device_library *library = fake_of(all[i].kind, all[i].name);
        const bcfg_device_library *driver = all[i].is_amd ? hip : cuda;
        use_new_streams(library, driver, LIMIT);
        reset(library);
        use_new_streams(library, driver, 3);
        CHECK(calls_of(library, all[i].function) == 3);
    }
}

enum { THREADS = 4, ROUNDS = 150, STREAMS = 30 };
static void *streams[THREADS * STREAMS];

static void *share(void *argument) {
    int own = (int)(intptr_t)argument;
    bcfg_visit entered;
    bcfg_fault fault;
    CHECK(bcfg_place_enter(cuda, 0, &entered, &fault) == BCFG_DEVICE_OK);
    for (int round = 0; round < ROUNDS; round++) {
        /* One in three is a stream that the others use as well. */
        int at = round % 3 == 0 ? round % STREAMS : own * STREAMS + round % STREAMS;
        bcfg_handle *handle = take(cublas, streams[at]);
        handle->math_mode = own;
        (void)sched_yield();
        CHECK(handle->math_mode == own);
        bcfg_handle_give(handle);
    }
    bcfg_place_leave(cuda, &entered);
    return NULL;
}

static void threads_never_share_a_handle(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS * STREAMS; i++) streams[i] = stream_of(cuda);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, share, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    fakes = arguments[1];
    cuda = fake_of(BCFG_CUDA, "libdevice_cuda.so");
    hip = fake_of(BCFG_HIP, "libdevice_hip.so");
    cublas = fake_of(BCFG_CUBLAS, "libdevice_cublas.so");
    bcfg_fault fault;
    bcfg_visit other;
    CHECK(bcfg_place_enter(cuda, 0, &visit, &fault) == BCFG_DEVICE_OK);
    CHECK(bcfg_place_enter(hip, 0, &other, &fault) == BCFG_DEVICE_OK);
    a_stream_gets_its_handle_again();
    one_that_cannot_be_made_leaves_nothing();
    few_lie_idle_and_the_oldest_goes_first();
    one_that_is_lent_is_never_ended();
    one_that_a_graph_may_refer_to_stays();
    a_workspace_goes_back_after_its_handle();
    every_library_ends_its_handles();
    threads_never_share_a_handle();
    return 0;
}
