/* Devices as places: started once, current for a call, and lost to a forked child. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device_check.h"

const char *fakes;
static const bcfg_device_library *cuda, *hip;

static bcfg_outcome enter(const bcfg_device_library *driver, int32_t index, bcfg_visit *visit,
                          bcfg_fault *fault) {
    *fault = (bcfg_fault){"", 0, ""};
    return bcfg_place_enter(driver, index, visit, fault);
}

static int cudas_device(void) {
    int device = -1;
    return bcfg_cuda(cuda)->cuCtxGetDevice(&device) == 0 ? device : -1;
}

static int hips_device(void) {
    int device = -1;
    CHECK(bcfg_hip(hip)->hipGetDevice(&device) == 0);
    return device;
}

static void a_device_that_does_not_start_is_asked_again(void) {
    static const char *const steps[] = {"cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"};
    bcfg_visit visit;
    bcfg_fault fault;
    for (int i = 0; i < 3; i++) {
        fail(cuda, steps[i], BCFG_CUDA_ERROR_NO_DEVICE, 0, 1);
        CHECK(enter(cuda, 0, &visit, &fault) == BCFG_DEVICE_FAULT && !visit.changed);
        CHECK(strcmp(fault.function, steps[i]) == 0);
        CHECK(strcmp(fault.name, "CUDA_ERROR_NO_DEVICE") == 0);
        CHECK(cudas_device() == -1);
    }
    CHECK(enter(cuda, 0, &visit, &fault) == BCFG_DEVICE_OK && visit.changed);
    CHECK(cudas_device() == 0);
    bcfg_place_leave(cuda, &visit);
    fail(hip, "hipInit", BCFG_hipErrorNoDevice, 0, 1);
    CHECK(enter(hip, 0, &visit, &fault) == BCFG_DEVICE_FAULT);
    CHECK(strcmp(fault.function, "hipInit") == 0 && fault.status == BCFG_hipErrorNoDevice);
    CHECK(enter(hip, 0, &visit, &fault) == BCFG_DEVICE_OK && !visit.changed);
    CHECK(enter(cuda, 7, &visit, &fault) == BCFG_DEVICE_FAULT); /* there is none */
    CHECK(strcmp(fault.function, "cuDeviceGet") == 0);
}

static void visits_nest_and_end_where_they_began(void) {
    bcfg_visit first, second, again;
    bcfg_fault fault;
    reset(cuda);
    set(cuda, "devices", 2);
    CHECK(enter(cuda, 0, &first, &fault) == BCFG_DEVICE_OK && cudas_device() == 0);
    CHECK(enter(cuda, 1, &second, &fault) == BCFG_DEVICE_OK && cudas_device() == 1);
    CHECK(enter(cuda, 1, &again, &fault) == BCFG_DEVICE_OK && !again.changed);
    bcfg_place_leave(cuda, &again);
    CHECK(cudas_device() == 1);
    bcfg_place_leave(cuda, &second);
    CHECK(cudas_device() == 0);
    bcfg_place_leave(cuda, &first);
    CHECK(cudas_device() == -1);
    CHECK(calls_of(cuda, "cuInit") == 1); /* for the second device */
    set(hip, "devices", 2);
    CHECK(enter(hip, 1, &first, &fault) == BCFG_DEVICE_OK && first.changed && hips_device() == 1);
    CHECK(enter(hip, 0, &second, &fault) == BCFG_DEVICE_OK && hips_device() == 0);
    bcfg_place_leave(hip, &second);
    CHECK(hips_device() == 1);
    bcfg_place_leave(hip, &first);
    CHECK(hips_device() == 0);
    fail(hip, "hipSetDevice", BCFG_hipErrorInvalidDevice, 0, 1);
    CHECK(enter(hip, 1, &first, &fault) == BCFG_DEVICE_FAULT && !first.changed);
    CHECK(strcmp(fault.function, "hipSetDevice") == 0);
    reset(hip);
    reset(cuda);
}

static void memory_is_allocated_cleared_and_given_back(const bcfg_device_library *driver,
                                                       const char *allocates) {
    bcfg_visit visit;
    bcfg_fault fault;
    char *memory = NULL;
    CHECK(enter(driver, 0, &visit, &fault) == BCFG_DEVICE_OK);
    CHECK(bcfg_place_allocate(driver, 100, (void **)&memory, &fault) == BCFG_DEVICE_OK);
    memset(memory, 1, 100);
    CHECK(bcfg_place_clear(driver, memory + 1, 98, NULL, &fault) == BCFG_DEVICE_OK);
    CHECK(memory[0] == 1 && memory[1] == 0 && memory[98] == 0 && memory[99] == 1);
    bcfg_place_free(driver, memory);
    CHECK(bcfg_place_allocate(driver, (size_t)1 << 40, (void **)&memory, &fault) ==
          BCFG_DEVICE_FAULT);
    CHECK(fault.status == 2 && strcmp(fault.function, allocates) == 0);
    bcfg_place_leave(driver, &visit);
}

static void a_capture_is_seen(const bcfg_device_library *driver, void *per_thread,
                              const char *function) {
    bcfg_visit visit;
    bcfg_fault fault;
    reset(driver);
    CHECK(enter(driver, 0, &visit, &fault) == BCFG_DEVICE_OK);
    CHECK(!bcfg_place_captures(driver, per_thread));
    set(driver, "capturing", 1);
    CHECK(bcfg_place_captures(driver, per_thread) && !bcfg_place_captures(driver, NULL));
    set(driver, "capturing", 0);
    fail(driver, function, 999, 0, 1);
    CHECK(bcfg_place_captures(driver, per_thread)); /* nobody said that it is not */
    CHECK(calls_of(driver, function) == 3);
    bcfg_place_leave(driver, &visit);
    reset(driver);
}

static pthread_barrier_t barrier;

static void *come_and_go(void *unused) {
    bcfg_visit visit;
    bcfg_fault fault;
    (void)pthread_barrier_wait(&barrier);
    for (int i = 0; i < 200; i++) {
        CHECK(enter(cuda, i % 4, &visit, &fault) == BCFG_DEVICE_OK && cudas_device() == i % 4);
        bcfg_place_leave(cuda, &visit);
        CHECK(cudas_device() == -1);
    }
    return unused;
}

/* The context of a device may be retained by each of them, but is one. */
static void threads_find_the_same_devices(void) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    set(cuda, "devices", 4);
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, come_and_go, NULL) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(pthread_barrier_destroy(&barrier) == 0);
    CHECK(calls_of(cuda, "cuDevicePrimaryCtxRetain") <= 2 * THREADS); /* devices 2 and 3 */
}

/* The driver's state is there in a child, its connection to the device is not. */
static void a_forked_child_is_told(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        bcfg_visit visit;
        bcfg_fault fault;
        _exit(enter(cuda, 0, &visit, &fault) == BCFG_DEVICE_FORKED && !visit.changed ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    fakes = arguments[1];
    cuda = fake_of(BCFG_CUDA, "libdevice_cuda.so");
    hip = fake_of(BCFG_HIP, "libdevice_hip.so");
    a_device_that_does_not_start_is_asked_again();
    visits_nest_and_end_where_they_began();
    memory_is_allocated_cleared_and_given_back(cuda, "cuMemAlloc");
    memory_is_allocated_cleared_and_given_back(hip, "hipMalloc");
    a_capture_is_seen(cuda, BCFG_CUDA_STREAM_PER_THREAD, "cuStreamIsCapturing");
    a_capture_is_seen(hip, BCFG_HIP_STREAM_PER_THREAD, "hipStreamIsCapturing");
    threads_find_the_same_devices();
    a_forked_child_is_told();
    return 0;
}
