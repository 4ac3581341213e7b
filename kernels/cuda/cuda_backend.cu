/* Opens a device and fills the table. The one exported symbol of the plugin is here. */
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/cuda_progress.cuh"

#include <stdlib.h>

#include "kernels_hash.h"

static void cuda_close(struct backend *b) {
    if (!b) return;
    struct cuda_backend *cb = cuda_of(b);
    cudaDeviceSynchronize();
    cuda_graph_drop(b); /* NCCL cannot free a communicator that a graph still refers to */
    cuda_group_close(cb);
    cuda_attention_close(cb);
    cuda_gemm_close(cb);
    cuda_timer_close(cb);
    cuda_order_close(cb);
    cuda_progress_close(cb);
    cuda_decisions_close(cb);
    free(cb->offers);
    for (int lane = 0; lane < LANE_COUNT; lane++)
        for (int use = 0; use < SCRATCH_COUNT; use++) cudaFree(cb->scratch[lane][use].data);
    free(cb);
}

static void fill_table(struct backend_ops *t) {
    t->size = sizeof *t;
    t->kernels_sha256 = FP8LAB_KERNELS_SHA256;
    t->name = "cuda";
    t->warms_up = true;
    cuda_fill_comm(&t->comm);
    t->close = cuda_close;
    t->info = cuda_info;
    t->memory_create = cuda_memory_create;
    t->memory_create_pinned = cuda_memory_create_pinned;
    t->memory_destroy = cuda_memory_destroy;
    t->graph_drop = cuda_graph_drop;
    t->timer_mark = cuda_timer_mark;
    t->timer_read = cuda_timer_read;
    t->matmul_native = cuda_matmul_native;
    t->product_way = cuda_product_way;
    t->twins_untransposed = cuda_twins_untransposed;
    t->choices_save = cuda_choices_save;
    t->choices_load = cuda_choices_load;
    t->choices_offer = cuda_choices_offer;
    t->choices_timed = cuda_choices_timed;
    t->choosing_seconds = cuda_choosing_seconds;
    t->attention_backend = cuda_attention_backend;
    t->library = cuda_library;
    t->decision = cuda_decision;
    t->in_progress = cuda_in_progress;
    t->assume_architecture = cuda_assume_architecture;
    t->forbid = cuda_forbid;
    t->set_exact = cuda_set_exact;
    cuda_progress_wrap(t); /* the operators, and other slots that may see a fault */
}

__global__ void probe_kernel() {}

/* An old driver, no device, and a device without machine code in this build have different
 * remedies. So each has its own error. */
static enum status device_open(struct cuda_backend *cb, int device, struct err *e) {
    int driver = 0, count = 0;
    cudaError_t status = cudaDriverGetVersion(&driver);
    if (status == cudaSuccess && driver == 0)
        return FAIL(e, ERR_HARDWARE, "no NVIDIA driver is installed on this machine");
    if (status == cudaSuccess && driver / 1000 < CUDART_VERSION / 1000)
        return FAIL(e, ERR_HARDWARE,
                    "the driver supports CUDA %d.%d, this build needs %d.0 or later: update it",
                    driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000);
    if (status == cudaSuccess) status = cudaGetDeviceCount(&count);
    if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
        return FAIL(e, ERR_HARDWARE, "no CUDA device is visible (is CUDA_VISIBLE_DEVICES set?)");
    if (status != cudaSuccess)
        return FAIL(e, ERR_HARDWARE, "the driver (CUDA %d.%d) failed to initialise: %s",
                    driver / 1000, driver % 1000 / 10, cudaGetErrorString(status));
    if (device < 0 || device >= count)
        return FAIL(e, ERR_HARDWARE, "device %d does not exist: %d visible, numbered from 0",
                    device, count);
    CUDA_TRY(e, cudaSetDevice(device));
    cudaDeviceProp prop;
    CUDA_TRY(e, cudaGetDeviceProperties(&prop, device));
    cb->device = device;
    cb->cc = cb->caps = prop.major * 10 + prop.minor;
    cb->sm_count = prop.multiProcessorCount;
    cb->memory_bytes = (int64_t)prop.totalGlobalMem;
    cb->shared_bytes = (int)prop.sharedMemPerBlockOptin;
    cudaFuncAttributes attributes;
    status = cudaFuncGetAttributes(&attributes, probe_kernel);
    if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
        int code = cb->cc > 80 && cb->cc < 89 ? 80 : cb->cc; /* code of sm_80 runs on each 8.x */
        char name[16], arch[32];
        struct err unknown;
        snprintf(name, sizeof name, "sm_%d", code);
        bool built = device_capability(name, &code, &unknown) == OK;
        snprintf(arch, sizeof arch, ": make ARCHS=%s%s", name, code >= 90 ? "a" : "");
        return FAIL(e, ERR_HARDWARE, "%s is sm_%d and this %s has no machine code for it%s",
                    prop.name, cb->cc, built ? "build" : "version",
                    built ? arch : "; run with --backend cpu");
    }
    CUDA_TRY(e, status);
    return OK;
}

extern "C" __attribute__((visibility("default"))) enum status
cuda_backend_open(struct backend **out, int device, struct err *e) {
    *out = NULL;
    struct cuda_backend *cb = (struct cuda_backend *)calloc(1, sizeof *cb);
    if (!cb) return FAIL(e, ERR_MEMORY, "no memory for the CUDA backend: %zu bytes", sizeof *cb);
    fill_table(&cb->ops);
    cb->base.ops = &cb->ops;
    enum status st = cuda_gemm_library(e);
    if (st == OK) st = device_open(cb, device, e);
    if (st == OK) st = cuda_order_open(cb, e);
    if (st == OK) st = cuda_progress_open(cb, e);
    if (st == OK) st = cuda_attention_open(cb, e);
    if (st == OK) st = cuda_gemm_open(cb, e);
    if (st != OK) {
        cuda_close(&cb->base);
        return st;
    }
    *out = &cb->base;
    return OK;
}
