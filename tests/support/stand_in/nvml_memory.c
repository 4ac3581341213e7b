/* The driver functions that tests/gpu/plan_peak.py calls, for machines without a GPU. The memory in
 * use of two GPUs is the size of the files 0 and 1 in the folder FAKE_MEMORY. A file `once` there
 * adds to GPU 1 in one query, which removes the file. -DWITHOUT_V2: an old driver. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, GPUS = 2, RESERVED = 600 << 20 };
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

static char device[GPUS];

static unsigned long long size_of(const char *name, int once) {
    char path[512];
    struct stat s;
    snprintf(path, sizeof path, "%s/%s", getenv("FAKE_MEMORY"), name);
    if (stat(path, &s) || (once && unlink(path))) return 0;
    return (unsigned long long)s.st_size;
}
static unsigned long long used_by(const char *gpu) {
    return gpu == &device[0] ? size_of("0", 0) : size_of("1", 0) + size_of("once", 1);
}

int nvmlInit_v2(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == INVALID ? "Invalid Argument" : "?"; }
int nvmlDeviceGetCount_v2(unsigned *out) {
    *out = GPUS;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out) {
    if (i >= GPUS) return INVALID;
    *out = &device[i];
    return SUCCESS;
}
int nvmlDeviceGetUUID(void *gpu, char *out, unsigned size) {
    snprintf(out, size, "GPU-%d0000000-stand-in", (int)((char *)gpu - device));
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *gpu, struct memory *out) {
    *out = (struct memory){ 1ULL << 40, 0, used_by(gpu) + RESERVED };
    return SUCCESS;
}
#ifndef WITHOUT_V2
int nvmlDeviceGetMemoryInfo_v2(void *gpu, struct memory_v2 *out) {
    if (out->version != (sizeof *out | 2 << 24)) return INVALID;
    *out = (struct memory_v2){ out->version, 1ULL << 40, RESERVED, 0, used_by(gpu) };
    return SUCCESS;
}
#endif
