/* Device memory, transfers, and the description of the device. */
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/cuda_backend.cuh"

/* MemAvailable of the host in bytes; -1: not known. */
static int64_t host_available() {
    long long kib = -1;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld kB", &kib) != 1) kib = -1;
    if (f) fclose(f);
    return kib < 0 ? -1 : (int64_t)kib * 1024;
}

/* What an allocation could get. A GPU that shares the host's memory (GB10) also gets what the page
 * cache gives back, which cudaMemGetInfo's "free" leaves out. */
static int64_t free_of(int device, size_t free_bytes) {
    int integrated = 0;
    if (cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, device) != cudaSuccess)
        (void)cudaGetLastError();
    return integrated ? max_i64(host_available(), (int64_t)free_bytes) : (int64_t)free_bytes;
}

enum status cuda_info(struct backend *b, struct device_info *info, struct err *e) {
    cudaDeviceProp prop;
    CUDA_TRY(e, cudaGetDeviceProperties(&prop, cuda_of(b)->device));
    size_t free_bytes = 0, total_bytes = 0;
    CUDA_TRY(e, cudaMemGetInfo(&free_bytes, &total_bytes));
    snprintf(info->name, sizeof info->name, "%.*s", (int)sizeof info->name - 1, prop.name);
    snprintf(info->architecture, sizeof info->architecture, "sm_%d", cuda_of(b)->cc);
    info->memory_bytes = (int64_t)total_bytes;
    info->memory_free = free_of(cuda_of(b)->device, free_bytes);
    return OK;
}

/* cudaMalloc instead of managed or pooled memory: memory is planned once, and nvidia-smi then shows
 * the true amount. */
enum status cuda_memory_create(struct backend *b, const char *what, int64_t bytes, void **out,
                               struct err *e) {
    *out = NULL;
    if (bytes < 0) return FAIL(e, ERR_ARG, "memory for %s: %lld bytes", what, (long long)bytes);
    int64_t rounded = round_up(max_i64(bytes, 1), ARENA_ALIGN);
    void *memory = NULL;
    cudaError_t status = cudaMalloc(&memory, (size_t)rounded);
    if (status == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, total_bytes = 0;
        (void)cudaGetLastError(); /* this error is handled here; the next launch must not see it */
        (void)cudaMemGetInfo(&free_bytes, &total_bytes);
        return FAIL(e, ERR_MEMORY, "memory for %s: %lld bytes wanted, %lld free on the device",
                    what, (long long)rounded, (long long)free_of(cuda_of(b)->device, free_bytes));
    }
    CUDA_TRY(e, status);
    status = cudaMemset(memory, 0, (size_t)rounded);
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    if (status != cudaSuccess) {
        cudaFree(memory);
        return FAIL(e, ERR_DEVICE, "memory for %s: %s", what, cudaGetErrorString(status));
    }
    *out = memory;
    return OK;
}

enum status cuda_memory_create_pinned(struct backend *b, const char *what, int64_t bytes,
                                      void **out, struct err *e) {
    *out = NULL;
    if (bytes < 0) return FAIL(e, ERR_ARG, "memory for %s: %lld bytes", what, (long long)bytes);
    size_t rounded = (size_t)round_up(max_i64(bytes, 1), ARENA_ALIGN);
    void *memory = NULL;
    /* Mapped: with one address space the device reads and writes it under the host's address. */
    cudaError_t status = cudaHostAlloc(&memory, rounded, cudaHostAllocMapped);
    if (status == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); /* handled here, as above */
        return FAIL(e, ERR_MEMORY, "memory for %s: the host cannot pin %zu bytes", what,
                    rounded);
    }
    CUDA_TRY(e, status);
    memset(memory, 0, rounded);
    *out = memory;
    return OK;
}

void cuda_memory_destroy(struct backend *b, void *memory) {
    cudaPointerAttributes kind;
    if (memory && cudaPointerGetAttributes(&kind, memory) == cudaSuccess &&
        kind.type == cudaMemoryTypeHost)
        cudaFreeHost(memory);
    else
        cudaFree(memory);
}

enum status cuda_upload(struct backend *b, int lane, void *data, const void *host, int64_t bytes,
                        struct err *e) {
    if (bytes < 0) return FAIL(e, ERR_ARG, "upload: %lld bytes", (long long)bytes);
    if (cuda_of(b)->capture)
        return FAIL(e, ERR_STATE, "upload: inside a capture, where a graph would keep its address");
    struct staging *s = &cuda_of(b)->staging;
    for (int64_t done = 0; done < bytes; done += STAGING_BYTES) {
        int64_t part = min_i64(bytes - done, STAGING_BYTES);
        char *chunk = s->host + (int64_t)s->next * STAGING_BYTES;
        cudaEvent_t copied = s->copied[s->next];
        s->next = (s->next + 1) % STAGING_CHUNKS;
        CUDA_TRY(e, cudaEventSynchronize(copied));
        memcpy(chunk, (const char *)host + done, (size_t)part);
        CUDA_TRY(e, cudaMemcpyAsync((char *)data + done, chunk, (size_t)part,
                                    cudaMemcpyDefault, cuda_lane(b, lane)));
        CUDA_TRY(e, cudaEventRecord(copied, cuda_lane(b, lane)));
    }
    return OK;
}

enum status cuda_download(struct backend *b, int lane, void *host, const void *data, int64_t bytes,
                          struct err *e) {
    if (bytes < 0) return FAIL(e, ERR_ARG, "download: %lld bytes", (long long)bytes);
    if (!bytes) return OK;
    /* cudaMemcpyDefault takes the direction from the addresses: data may be pinned host memory. */
    CUDA_TRY(e, cudaMemcpyAsync(host, data, (size_t)bytes, cudaMemcpyDefault,
                                cuda_lane(b, lane)));
    CUDA_TRY(e, cudaStreamSynchronize(cuda_lane(b, lane)));
    return OK;
}

enum status cuda_scratch(struct backend *b, int lane, enum scratch_use use, int64_t bytes,
                         void **out, struct err *e) {
    struct scratch *s = &cuda_of(b)->scratch[lane][use];
    if (bytes > s->bytes) {
        if (cuda_of(b)->capture)
            return FAIL(e, ERR_STATE, "scratch of %lld bytes was not seen in the warm-up pass",
                        (long long)bytes);
        CUDA_TRY(e, cudaStreamSynchronize(cuda_lane(b, lane)));
        cuda_graph_drop(b);
        cudaFree(s->data);
        s->data = NULL;
        s->bytes = 0;
        TRY(cuda_memory_create(b, "scratch", bytes, &s->data, e));
        s->bytes = bytes;
    }
    *out = s->data;
    return OK;
}
