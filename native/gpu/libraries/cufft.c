/* Fourier transforms by cuFFT. */
#include "gpu/libraries/cufft.h"

static const char *name_of(int status) {
    switch (status) {
#define CONSTANT(name, value)                                                                      \
    case value: return #name;
        BCFG_CUFFT_STATUS_CONSTANTS(CONSTANT)
        BCFG_CUFFT_SINCE_12_0_CONSTANTS(CONSTANT)
#undef CONSTANT
    default: return "";
    }
}

static bcfg_outcome said(const char *function, int status, bcfg_fault *fault) {
    if (status == BCFG_CUFFT_SUCCESS) return BCFG_DEVICE_OK;
    *fault = (bcfg_fault){function, status, name_of(status)};
    return BCFG_DEVICE_FAULT;
}

static int make(const bcfg_cufft_table *cufft, bcfg_transform *is, bcfg_transform_plan *made,
                const char **function) {
    *function = "cufftCreate";
    int status = cufft->cufftCreate(&made->plan);
    if (status != BCFG_CUFFT_SUCCESS) return status;
    *function = "cufftSetAutoAllocation";
    status = cufft->cufftSetAutoAllocation(made->plan, 0);
    if (status == BCFG_CUFFT_SUCCESS) {
        *function = "cufftXtMakePlanMany";
        status = cufft->cufftXtMakePlanMany(
            made->plan, is->rank, is->sizes, is->input.embed, is->input.stride, is->input.distance,
            is->input.type, is->output.embed, is->output.stride, is->output.distance,
            is->output.type, is->batch, &made->bytes, is->execution);
    }
    if (status != BCFG_CUFFT_SUCCESS) (void)cufft->cufftDestroy(made->plan);
    return status;
}

bcfg_outcome bcfg_cufft_make(const bcfg_device_library *library, const bcfg_device_library *driver,
                             int32_t index, bcfg_transform *transform, bcfg_transform_plan *made,
                             bcfg_fault *fault) {
    *made = (bcfg_transform_plan){.library = library, .driver = driver, .index = index};
    if (pthread_mutex_init(&made->busy, NULL) != 0) return BCFG_DEVICE_MEMORY;
    bcfg_visit visit;
    bcfg_outcome outcome = bcfg_place_enter(driver, index, &visit, fault);
    if (outcome == BCFG_DEVICE_OK) {
        const char *function = "";
        int status = make(bcfg_cufft(library), transform, made, &function);
        outcome = said(function, status, fault);
        bcfg_place_leave(driver, &visit);
    }
    if (outcome != BCFG_DEVICE_OK) (void)pthread_mutex_destroy(&made->busy);
    return outcome;
}

static int run_on(const bcfg_transform_plan *plan, void *stream, const bcfg_transform_run *run,
                  const char **function) {
    const bcfg_cufft_table *cufft = bcfg_cufft(plan->library);
    *function = "cufftSetStream";
    int status = cufft->cufftSetStream(plan->plan, stream);
    if (status == BCFG_CUFFT_SUCCESS && run->area != NULL) {
        *function = "cufftSetWorkArea";
        status = cufft->cufftSetWorkArea(plan->plan, run->area);
    }
    char *input = run->input, *output = run->output;
    for (int64_t i = 0; i < run->count && status == BCFG_CUFFT_SUCCESS; i++) {
        *function = "cufftXtExec";
        status = cufft->cufftXtExec(plan->plan, input + i * run->input_stride,
                                    output + i * run->output_stride, run->direction);
    }
    return status;
}

bcfg_outcome bcfg_cufft_run(bcfg_transform_plan *plan, const bcfg_work *work,
                            const bcfg_transform_run *run, bcfg_fault *fault) {
    bcfg_session session;
    bcfg_outcome outcome = bcfg_work_begin(work, &session, fault);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    const char *function = "";
    (void)pthread_mutex_lock(&plan->busy);
    plan->captured = plan->captured || bcfg_place_captures(work->driver, work->stream);
    int status = run_on(plan, work->stream, run, &function);
    (void)pthread_mutex_unlock(&plan->busy);
    return bcfg_work_end(&session, said(function, status, fault), fault);
}

void bcfg_cufft_destroy(bcfg_transform_plan *plan) {
    bcfg_visit visit;
    bcfg_fault fault;
    if (plan->captured ||
        bcfg_place_enter(plan->driver, plan->index, &visit, &fault) != BCFG_DEVICE_OK)
        return;
    (void)bcfg_cufft(plan->library)->cufftDestroy(plan->plan);
    bcfg_place_leave(plan->driver, &visit);
    (void)pthread_mutex_destroy(&plan->busy);
}
