/* The functions of NVML that fp8lab calls. They report eight H200 with the driver version
 * FAKE_DRIVER and the CUDA version FAKE_CUDA (12020: CUDA 12.2). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int text(const char *value, char *out, unsigned size) {
    snprintf(out, size, "%s", value);
    return 0;
}
static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code ? "an error" : "none"; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    return text(setting("FAKE_DRIVER", "580.95.05"), out, size);
}
int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    *out = atoi(setting("FAKE_CUDA", "13000"));
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned *out) {
    *out = 8;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    *out = (void *)((char *)0 + index + 1);
    return 0;
}
int nvmlDeviceGetName(void *device, char *out, unsigned size) {
    return text(device ? "NVIDIA H200" : "", out, size);
}
int nvmlDeviceGetUUID(void *device, char *out, unsigned size) {
    return text(device ? "GPU-0" : "", out, size);
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    *major = device ? 9 : 0;
    *minor = 0;
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3]) {
    memory[0] = device ? 150754820096ull : 0;
    memory[1] = memory[0];
    memory[2] = 0;
    return 0;
}
