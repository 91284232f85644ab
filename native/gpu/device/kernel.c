/* Kernels of our own, by the CUDA driver. */
#include "gpu/device/kernel.h"

static bcfg_outcome said(const bcfg_device_library *driver, const char *function, int status,
                         bcfg_fault *fault) {
    if (status == BCFG_CUDA_SUCCESS) return BCFG_DEVICE_OK;
    const char *name = NULL;
    (void)bcfg_cuda(driver)->cuGetErrorName(status, &name);
    *fault = (bcfg_fault){function, status, name != NULL ? name : ""};
    return BCFG_DEVICE_FAULT;
}

/* A kernel may use this much shared memory per block without an attribute. */
enum { SHARED_ANYHOW = 48 << 10 };

static bcfg_outcome load(const bcfg_device_library *driver, const void *code, const char *name,
                         bcfg_kernel *made, bcfg_fault *fault) {
    const bcfg_cuda_table *cuda = bcfg_cuda(driver);
    void *module = NULL;
    const char *function = "cuModuleLoadData";
    int status = cuda->cuModuleLoadData(&module, code);
    if (status != BCFG_CUDA_SUCCESS) return said(driver, function, status, fault);
    function = "cuModuleGetFunction";
    status = cuda->cuModuleGetFunction(&made->function, module, name);
    if (status == BCFG_CUDA_SUCCESS && made->shared_bytes > SHARED_ANYHOW) {
        function = "cuFuncSetAttribute";
        status = cuda->cuFuncSetAttribute(made->function,
                                          BCFG_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                          (int)made->shared_bytes);
    }
    if (status != BCFG_CUDA_SUCCESS) (void)cuda->cuModuleUnload(module);
    return said(driver, function, status, fault);
}

bcfg_outcome bcfg_kernel_load(const bcfg_device_library *driver, int32_t index, const void *code,
                              const char *name, uint32_t shared_bytes, bcfg_kernel *made,
                              bcfg_fault *fault) {
    const bcfg_cuda_table *cuda = bcfg_cuda(driver);
    if (cuda->cuModuleLoadData == NULL || cuda->cuModuleUnload == NULL ||
        cuda->cuModuleGetFunction == NULL || cuda->cuFuncSetAttribute == NULL ||
        cuda->cuLaunchKernel == NULL)
        return said(driver, "cuModuleLoadData", BCFG_CUDA_ERROR_NOT_FOUND, fault);
    *made = (bcfg_kernel){driver, index, NULL, shared_bytes};
    bcfg_visit visit;
    bcfg_outcome outcome = bcfg_place_enter(driver, index, &visit, fault);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    outcome = load(driver, code, name, made, fault);
    bcfg_place_leave(driver, &visit);
    return outcome;
}

bcfg_outcome bcfg_kernel_launch(const bcfg_kernel *kernel, const bcfg_kernel_call *call,
                                bcfg_fault *fault) {
    bcfg_session session;
    bcfg_outcome outcome = bcfg_work_begin(&call->work, &session, fault);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    void *parameters[] = {call->argument};
    int status = bcfg_cuda(kernel->driver)
                     ->cuLaunchKernel(kernel->function, call->grid, 1, 1, call->threads, 1, 1,
                                      kernel->shared_bytes, call->work.stream, parameters, NULL);
    outcome = said(kernel->driver, "cuLaunchKernel", status, fault);
    return bcfg_work_end(&session, outcome, fault);
}
