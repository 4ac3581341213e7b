/* A driver library for machines without a GPU: H200s as NVML describes them. Each GPU has a little
 * less power and more traffic than the one before. Environment variables change the defaults in
 * parentheses: FAKE_CUDA (13000), FAKE_INIT (0: works), FAKE_GPUS (1), FAKE_LINKS (1: NVLink
 * through switches; 4: four NVLinks between neighbours; 0: none), FAKE_PROCESSES (2),
 * FAKE_THROTTLE (4: the power cap), FAKE_MIXED (0; 1: all but the first are H100s), FAKE_ENERGY
 * (500: mJ more at each reading; -1: no counter), FAKE_CC (90: the compute capability). Two GPUs
 * share one NUMA node. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, UNSUPPORTED = 3, SMALL = 7, GPUS_MAX = 64 };
struct memory { unsigned long long total, free, used; };
struct utilization { unsigned gpu, memory; };
struct process { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; };
struct field {
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, status;
    union { double real; unsigned long long whole; } value;
};

/* A device's handle is the address of its element. */
static char gpus[GPUS_MAX];
static unsigned index_of(const void *device) { return (unsigned)((const char *)device - gpus); }

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

int nvmlInit_v2(void) { return number("FAKE_INIT", SUCCESS); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) {
    return code == 18 ? "Driver/library version mismatch" : "?";
}
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    snprintf(out, size, "580.159.04");
    return SUCCESS;
}
int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    *out = number("FAKE_CUDA", 13000);
    return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *out) {
    *out = (unsigned)number("FAKE_GPUS", 1);
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out) {
    *out = &gpus[i % GPUS_MAX];
    return SUCCESS;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    unsigned i;
    if (!uuid || sscanf(uuid, "GPU-%8u-", &i) != 1) return INVALID;
    return nvmlDeviceGetHandleByIndex_v2(i, out);
}
int nvmlDeviceGetName(void *device, char *out, unsigned size) {
    bool other = number("FAKE_MIXED", 0) && index_of(device) > 0;
    snprintf(out, size, "%s", other ? "NVIDIA H100" : "NVIDIA H200");
    return device ? SUCCESS : INVALID;
}
int nvmlDeviceGetUUID(void *device, char *out, unsigned size) {
    snprintf(out, size, "GPU-%08u-stand-in", device ? index_of(device) : 0);
    return device ? SUCCESS : INVALID;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    *major = number("FAKE_CC", 90) / 10;
    *minor = number("FAKE_CC", 90) % 10;
    return device ? SUCCESS : INVALID;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *out) {
    *out = (struct memory){ 150754820096ULL, 150000000000ULL, 754820096ULL };
    return device ? SUCCESS : INVALID;
}
int nvmlDeviceGetEccMode(void *device, int *now, int *pending) {
    *now = *pending = 1;
    return device ? SUCCESS : INVALID;
}
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *out) {
    *out = 700000;
    return device ? SUCCESS : INVALID;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *out) {
    *out = 512000 - 1000 * index_of(device);
    return device ? SUCCESS : INVALID;
}
int nvmlDeviceGetClockInfo(void *device, int which, unsigned *out) {
    *out = which == 1 ? 1980 : 3201;
    return device ? SUCCESS : INVALID;
}
int nvmlDeviceGetMaxClockInfo(void *device, int which, unsigned *out) {
    return nvmlDeviceGetClockInfo(device, which, out);
}
int nvmlDeviceGetTemperature(void *device, int which, unsigned *out) {
    *out = which == 0 ? 41 : 0;
    return device ? SUCCESS : INVALID;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out) {
    *out = (unsigned)number("FAKE_THROTTLE", 0x4);
    return device ? SUCCESS : INVALID;
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *out) {
    static unsigned long long used[GPUS_MAX];
    int more = number("FAKE_ENERGY", 500);
    if (more < 0) return UNSUPPORTED;
    *out = used[index_of(device)] += (unsigned)more;
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *out) {
    *out = (struct utilization){ 97, 50 };
    return device ? SUCCESS : INVALID;
}
/* How two GPUs are connected. */
struct pci {
    char id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *out) {
    *out = (struct pci){ .bus = 0x18 + index_of(device) };
    return SUCCESS;
}
int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *out) {
    *out = index_of(a) / 2 == index_of(b) / 2 ? 40 : 50; /* a node; the system */
    return SUCCESS;
}
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *up) {
    int links = number("FAKE_LINKS", 1);
    *up = (int)link < (links == 1 ? 18 : links);
    return device && link < 18 ? SUCCESS : INVALID;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *kind) {
    *kind = number("FAKE_LINKS", 1) == 1 ? 2 : 0; /* a switch; a GPU */
    return device && link < 18 ? SUCCESS : INVALID;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci *out) {
    bool bridge = number("FAKE_LINKS", 1) != 1;
    *out = (struct pci){ .bus = bridge ? 0x18 + (index_of(device) ^ 1) : 0x80 + link / 4 };
    return device && link < 18 ? SUCCESS : INVALID;
}
/* Bytes sent and received by all links, in KiB. */
int nvmlDeviceGetFieldValues(void *device, int count, struct field *list) {
    for (int i = 0; i < count; i++) {
        bool known = list[i].scope == 0xFFFFFFFFu && (list[i].id == 138 || list[i].id == 139);
        list[i].status = known && number("FAKE_LINKS", 1) ? SUCCESS : UNSUPPORTED;
        list[i].value.whole = 1000 * (1 + index_of(device)) + list[i].id;
    }
    return device ? SUCCESS : INVALID;
}
/* The caller and process 1. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *out) {
    unsigned room = *count;
    *count = (unsigned)number("FAKE_PROCESSES", 2);
    if (!out || room < *count) return *count ? SMALL : SUCCESS;
    for (unsigned i = 0; i < *count; i++)
        out[i] = (struct process){ i ? 1 : (unsigned)getpid(), 1 << 20, 0, 0 };
    return device ? SUCCESS : INVALID;
}
