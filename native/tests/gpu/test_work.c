/* Calls on a device from entering to leaving it: the context, the order of streams, the handle, and a
 * fault at every call of the driver. */
#include "device_check.h"

const char *fakes;
static const bcfg_device_library *cuda, *cublas;
static void *stream, *others[2];

static void *current(void) {
    void *context = &context;
    CHECK(bcfg_cuda(cuda)->cuCtxGetCurrent(&context) == 0);
    return context;
}

static bcfg_work work_of(const bcfg_device_library *library, int other_count, bool synchronizes) {
    return (bcfg_work){.library = library, .driver = cuda, .stream = stream, .others = others,
                       .other_count = other_count, .synchronizes = synchronizes};
}

/* Whether the handle of the stream can be taken again, and is the one that every call gets. */
static void handle_is_given_back(void) {
    bcfg_visit visit;
    bcfg_fault fault;
    static bcfg_handle *known;
    bcfg_handle *handle = NULL;
    CHECK(bcfg_place_enter(cuda, 0, &visit, &fault) == BCFG_DEVICE_OK);
    CHECK(bcfg_handle_take(cublas, cuda, 0, stream, &handle, &fault) == BCFG_DEVICE_OK);
    if (known == NULL) known = handle;
    CHECK(handle == known);
    bcfg_handle_give(handle);
    bcfg_place_leave(cuda, &visit);
}

static void events_are_destroyed(void) {
    CHECK(calls_of(cuda, "cuEventCreate") - calls_of(cuda, "cuEventDestroy_v2") <= 1);
}

static void the_device_is_current_within_and_nothing_afterwards(void) {
    bcfg_work work = work_of(cublas, 0, false);
    bcfg_session session;
    bcfg_fault fault = {"", 0, ""};
    CHECK(current() == NULL);
    CHECK(bcfg_work_begin(&work, &session, &fault) == BCFG_DEVICE_OK);
    void *context = current();
    CHECK(context != NULL && session.handle != NULL && session.handle->busy);
    CHECK(bcfg_work_end(&session, BCFG_DEVICE_OK, &fault) == BCFG_DEVICE_OK);
    CHECK(current() == NULL && !session.handle->busy);
    /* Where it was current before, it still is. */
    CHECK(bcfg_cuda(cuda)->cuCtxPushCurrent_v2(context) == 0);
    reset(cuda);
    CHECK(bcfg_work_begin(&work, &session, &fault) == BCFG_DEVICE_OK);
    CHECK(bcfg_work_end(&session, BCFG_DEVICE_OK, &fault) == BCFG_DEVICE_OK);
    CHECK(calls_of(cuda, "cuCtxPushCurrent_v2") + calls_of(cuda, "cuCtxPopCurrent_v2") == 0);
    CHECK(current() == context);
    CHECK(bcfg_cuda(cuda)->cuCtxPopCurrent_v2(&context) == 0);
    work.library = NULL;
    CHECK(bcfg_work_begin(&work, &session, &fault) == BCFG_DEVICE_OK && session.handle == NULL);
    CHECK(bcfg_work_end(&session, BCFG_DEVICE_UNSUPPORTED, &fault) == BCFG_DEVICE_UNSUPPORTED);
}

/* The streams that stand in the record, in order: those recorded and those that wait. */
static void said_in_order(const char *function, void *const *wanted, int count) {
    char word[96], number[32];
    const char *at = record_of(cuda);
    snprintf(word, sizeof word, "\"function\": \"%s\"", function);
    for (int i = 0; i < count; i++) {
        at = strstr(at, word);
        CHECK(at != NULL);
        const char *said = strstr(at, "\"stream\": "), *end = strchr(at, '}');
        CHECK(said != NULL && said < end);
        snprintf(number, sizeof number, "%llu", (unsigned long long)(uintptr_t)wanted[i]);
        said += strlen("\"stream\": ");
        CHECK(strncmp(said, number, strlen(number)) == 0);
        at = end;
    }
    CHECK(strstr(at, word) == NULL);
}

static void streams_wait_for_each_other(void) {
    bcfg_work work = work_of(cublas, 2, false);
    bcfg_session session;
    bcfg_fault fault;
    reset(cuda);
    CHECK(bcfg_work_begin(&work, &session, &fault) == BCFG_DEVICE_OK);
    said_in_order("cuEventRecord", others, 2);
    said_in_order("cuStreamWaitEvent", (void *[]){stream, stream}, 2);
    reset(cuda);
    CHECK(bcfg_work_end(&session, BCFG_DEVICE_OK, &fault) == BCFG_DEVICE_OK);
    said_in_order("cuEventRecord", (void *[]){stream, stream}, 2);
    said_in_order("cuStreamWaitEvent", others, 2);
    CHECK(calls_of(cuda, "cuStreamSynchronize") == 0);
    events_are_destroyed();
}

static void one_that_settles_waits_at_its_end(void) {
    bcfg_work work = work_of(cublas, 0, true);
    bcfg_session session;
    bcfg_fault fault;
    reset(cuda);
    CHECK(bcfg_work_begin(&work, &session, &fault) == BCFG_DEVICE_OK);
    CHECK(calls_of(cuda, "cuStreamSynchronize") == 0);
    CHECK(bcfg_work_end(&session, BCFG_DEVICE_OK, &fault) == BCFG_DEVICE_OK);
    CHECK(calls_of(cuda, "cuStreamSynchronize") == 1);
}

/* What failed in between is what is returned, after the others' streams are safe. */
static void a_failure_within_waits_for_what_was_put_on_the_stream(void) {
    bcfg_work work = work_of(cublas, 1, false);
    bcfg_session session;
    bcfg_fault fault = {"mine", 7, "MINE"};
    CHECK(bcfg_work_begin(&work, &session, &fault) == BCFG_DEVICE_OK);
    reset(cuda);
    CHECK(bcfg_work_end(&session, BCFG_DEVICE_FAULT, &fault) == BCFG_DEVICE_FAULT);
    CHECK(fault.status == 7 && strcmp(fault.function, "mine") == 0);
    CHECK(calls_of(cuda, "cuStreamSynchronize") == 1 && calls_of(cuda, "cuEventRecord") == 0);
    CHECK(current() == NULL);
}

static void a_fault_at_every_call_leaves_all_as_it_was(void) {
    /* The name that a user knows, and how often it is called by one begin and one end. */
    static const struct {
        const char *symbol, *function;
        int in_begin, in_all;
    } calls[] = {
        {"cuCtxGetCurrent", "cuCtxGetCurrent", 1, 1},
        {"cuCtxPushCurrent_v2", "cuCtxPushCurrent", 1, 1},
        {"cuEventCreate", "cuEventCreate", 2, 4},
        {"cuEventRecord", "cuEventRecord", 2, 4},
        {"cuStreamWaitEvent", "cuStreamWaitEvent", 2, 4},
        {"cuStreamSynchronize", "cuStreamSynchronize", 0, 1},
    };
    bcfg_work work = work_of(cublas, 2, true);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int at = 0; at < calls[i].in_all; at++) {
            bcfg_session session;
            bcfg_fault fault = {"", 0, ""};
            reset(cuda);
            fail(cuda, calls[i].symbol, BCFG_CUDA_ERROR_LAUNCH_FAILED, at, 1);
            bcfg_outcome outcome = bcfg_work_begin(&work, &session, &fault);
            CHECK((outcome == BCFG_DEVICE_FAULT) == (at < calls[i].in_begin));
            if (outcome == BCFG_DEVICE_OK) outcome = bcfg_work_end(&session, outcome, &fault);
            CHECK(outcome == BCFG_DEVICE_FAULT);
            CHECK(fault.status == BCFG_CUDA_ERROR_LAUNCH_FAILED);
            CHECK(strcmp(fault.function, calls[i].function) == 0);
            CHECK(strcmp(fault.name, "CUDA_ERROR_LAUNCH_FAILED") == 0);
            events_are_destroyed();
            CHECK(current() == NULL);
            /* Whoever began waits before it says that it failed. */
            if (at >= calls[i].in_begin) CHECK(calls_of(cuda, "cuStreamSynchronize") >= 1);
            handle_is_given_back();
        }
    fail(cublas, "cublasCreate_v2", BCFG_CUBLAS_STATUS_NOT_INITIALIZED, 0, 1);
    work.stream = others[0]; /* which has no handle yet */
    bcfg_session session;
    bcfg_fault fault;
    CHECK(bcfg_work_begin(&work, &session, &fault) == BCFG_DEVICE_FAULT);
    CHECK(strcmp(fault.name, "CUBLAS_STATUS_NOT_INITIALIZED") == 0 && current() == NULL);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    fakes = arguments[1];
    cuda = fake_of(BCFG_CUDA, "libdevice_cuda.so");
    cublas = fake_of(BCFG_CUBLAS, "libdevice_cublas.so");
    bcfg_visit visit;
    bcfg_fault fault;
    CHECK(bcfg_place_enter(cuda, 0, &visit, &fault) == BCFG_DEVICE_OK);
    CHECK(bcfg_cuda(cuda)->cuStreamCreate(&stream, 0) == 0);
    for (int i = 0; i < 2; i++) CHECK(bcfg_cuda(cuda)->cuStreamCreate(&others[i], 0) == 0);
    bcfg_place_leave(cuda, &visit);
    the_device_is_current_within_and_nothing_afterwards();
    streams_wait_for_each_other();
    one_that_settles_waits_at_its_end();
    a_failure_within_waits_for_what_was_put_on_the_stream();
    a_fault_at_every_call_leaves_all_as_it_was();
    return 0;
}
