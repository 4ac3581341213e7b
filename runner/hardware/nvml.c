#include "runner/hardware/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From the public NVML API reference; only the calls that we use. Numbers are the API's. */
typedef struct nvml_device_opaque *nvml_device;
struct nvml_memory { unsigned long long total, free, used; };
struct nvml_pci {
    char id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};
enum { NVML_SUCCESS = 0, NVML_ERROR_INSUFFICIENT_SIZE = 7, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2,
       NVML_TEMPERATURE_GPU = 0, NVML_LINKS_MAX = 36, NVML_LINK_TO_SWITCH = 2,
       NVML_LINK_TO_UNKNOWN = 255 };

/* One slot per function; NULL if this driver lacks it. */
struct nvml_calls {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_text)(int);
    int (*driver_version)(char *, unsigned);
    int (*cuda_version)(int *);
    int (*count)(unsigned *);
    int (*handle)(unsigned, nvml_device *);
    int (*name)(nvml_device, char *, unsigned);
    int (*uuid)(nvml_device, char *, unsigned);
    int (*capability)(nvml_device, int *, int *);
    int (*memory)(nvml_device, struct nvml_memory *);
    int (*pci)(nvml_device, struct nvml_pci *);
    int (*ancestor)(nvml_device, nvml_device, int *);
    int (*link_state)(nvml_device, unsigned, int *);
    int (*link_pci)(nvml_device, unsigned, struct nvml_pci *);
    int (*link_kind)(nvml_device, unsigned, int *);
    int (*ecc)(nvml_device, int *, int *);
    int (*mig)(nvml_device, unsigned *, unsigned *);
    int (*power_limit)(nvml_device, unsigned *);
    int (*clock)(nvml_device, int, unsigned *);
    int (*clock_max)(nvml_device, int, unsigned *);
    int (*temperature)(nvml_device, int, unsigned *);
    int (*processes)(nvml_device, unsigned *, void *);
};

/* Data and function pointers have one representation on POSIX (dlsym's own rationale). */
static void find(void *lib, const char *symbol, void *slot) {
    void *address = dlsym(lib, symbol);
    memcpy(slot, &address, sizeof address);
}

static void find_all(void *lib, struct nvml_calls *c) {
    find(lib, "nvmlInit_v2", &c->init);
    find(lib, "nvmlShutdown", &c->shutdown);
    find(lib, "nvmlErrorString", &c->error_text);
    find(lib, "nvmlSystemGetDriverVersion", &c->driver_version);
    find(lib, "nvmlSystemGetCudaDriverVersion_v2", &c->cuda_version);
    find(lib, "nvmlDeviceGetCount_v2", &c->count);
    find(lib, "nvmlDeviceGetHandleByIndex_v2", &c->handle);
    find(lib, "nvmlDeviceGetName", &c->name);
    find(lib, "nvmlDeviceGetUUID", &c->uuid);
    find(lib, "nvmlDeviceGetCudaComputeCapability", &c->capability);
    find(lib, "nvmlDeviceGetMemoryInfo", &c->memory);
    find(lib, "nvmlDeviceGetPciInfo_v3", &c->pci);
    find(lib, "nvmlDeviceGetTopologyCommonAncestor", &c->ancestor);
    find(lib, "nvmlDeviceGetNvLinkState", &c->link_state);
    find(lib, "nvmlDeviceGetNvLinkRemotePciInfo_v2", &c->link_pci);
    find(lib, "nvmlDeviceGetNvLinkRemoteDeviceType", &c->link_kind);
    find(lib, "nvmlDeviceGetEccMode", &c->ecc);
    find(lib, "nvmlDeviceGetMigMode", &c->mig);
    find(lib, "nvmlDeviceGetEnforcedPowerLimit", &c->power_limit);
    find(lib, "nvmlDeviceGetClockInfo", &c->clock);
    find(lib, "nvmlDeviceGetMaxClockInfo", &c->clock_max);
    find(lib, "nvmlDeviceGetTemperature", &c->temperature);
    find(lib, "nvmlDeviceGetComputeRunningProcesses_v3", &c->processes);
}

static int64_t read_links(const struct nvml_calls *c, nvml_device device) {
    if (!c->link_state) return NVML_UNKNOWN;
    bool answered = false;
    for (unsigned link = 0; link < NVML_LINKS_MAX; link++) {
        int up = 0;
        if (c->link_state(device, link, &up) != NVML_SUCCESS) continue;
        answered = true;
        if (up) return 1;
    }
    return answered ? 0 : NVML_UNKNOWN;
}

static int64_t read_clock(int (*call)(nvml_device, int, unsigned *), nvml_device device,
                          int which) {
    unsigned value = 0;
    return call && call(device, which, &value) == NVML_SUCCESS ? (int64_t)value : NVML_UNKNOWN;
}

static int64_t read_processes(const struct nvml_calls *c, nvml_device device) {
    unsigned count = 0;
    if (!c->processes) return NVML_UNKNOWN;
    int rc = c->processes(device, &count, NULL);
    return rc == NVML_SUCCESS || rc == NVML_ERROR_INSUFFICIENT_SIZE ? (int64_t)count : NVML_UNKNOWN;
}

static void read_gpu(const struct nvml_calls *c, nvml_device device, struct nvml_gpu *out) {
    *out = (struct nvml_gpu){ .memory_bytes = NVML_UNKNOWN, .ecc = NVML_UNKNOWN,
                              .mig = NVML_UNKNOWN, .power_limit_mw = NVML_UNKNOWN };
    if (c->name) (void)c->name(device, out->name, sizeof out->name);
    if (c->uuid) (void)c->uuid(device, out->uuid, sizeof out->uuid);
    int major = 0, minor = 0, now = 0, pending = 0;
    if (c->capability && c->capability(device, &major, &minor) == NVML_SUCCESS) {
        out->cc_major = major;
        out->cc_minor = minor;
    }
    struct nvml_memory memory = { 0 };
    if (c->memory && c->memory(device, &memory) == NVML_SUCCESS && memory.total > 0)
        out->memory_bytes = (int64_t)memory.total;
    if (c->ecc && c->ecc(device, &now, &pending) == NVML_SUCCESS) out->ecc = now;
    unsigned mig = 0, mig_pending = 0, limit = 0;
    if (c->mig && c->mig(device, &mig, &mig_pending) == NVML_SUCCESS) out->mig = mig;
    if (c->power_limit && c->power_limit(device, &limit) == NVML_SUCCESS)
        out->power_limit_mw = limit;
    out->nvlink = read_links(c, device);
    out->clock_sm_max_mhz = read_clock(c->clock_max, device, NVML_CLOCK_SM);
    out->clock_mem_max_mhz = read_clock(c->clock_max, device, NVML_CLOCK_MEM);
    out->clock_sm_mhz = read_clock(c->clock, device, NVML_CLOCK_SM);
    out->temperature_c = read_clock(c->temperature, device, NVML_TEMPERATURE_GPU);
    out->processes = read_processes(c, device);
}

/* ---- how GPUs are connected -------------------------------------------------------------------*/

/* The GPU at the other end of a link, or -1. */
static int64_t gpu_at(const struct nvml_pci *all, int64_t count, const struct nvml_pci *end) {
    for (int64_t i = 0; i < count; i++)
        if (all[i].domain == end->domain && all[i].bus == end->bus && all[i].device == end->device)
            return i;
    return -1;
}

/* Counts the active links of GPU i: those to other GPUs into its row, those to switches
 * returned. */
static int64_t count_links(const struct nvml_calls *c, nvml_device device, int64_t i,
                           const struct nvml_pci *all, struct nvml_report *out) {
    int64_t to_switches = 0;
    if (!c->link_state || !c->link_pci || !c->link_kind) return 0;
    for (unsigned link = 0; link < NVML_LINKS_MAX; link++) {
        int up = 0, kind = NVML_LINK_TO_UNKNOWN;
        struct nvml_pci end = { 0 };
        if (c->link_state(device, link, &up) != NVML_SUCCESS || !up) continue;
        if (c->link_kind(device, link, &kind) != NVML_SUCCESS) kind = NVML_LINK_TO_UNKNOWN;
        bool known = c->link_pci(device, link, &end) == NVML_SUCCESS;
        int64_t other = known ? gpu_at(all, out->count, &end) : -1;
        if (other >= 0) out->gpus[i].link[other].links++;
        else to_switches += kind == NVML_LINK_TO_SWITCH || kind == NVML_LINK_TO_UNKNOWN;
    }
    return to_switches;
}

static enum nvml_path read_path(const struct nvml_calls *c, nvml_device a, nvml_device b) {
    static const struct { int level; enum nvml_path path; } LEVELS[] = {
        { 0, NVML_PATH_BOARD }, { 10, NVML_PATH_PIX }, { 20, NVML_PATH_PXB },
        { 30, NVML_PATH_PHB }, { 40, NVML_PATH_NODE }, { 50, NVML_PATH_SYS },
    };
    int level = -1;
    if (!c->ancestor || c->ancestor(a, b, &level) != NVML_SUCCESS) return NVML_PATH_UNKNOWN;
    for (size_t i = 0; i < sizeof LEVELS / sizeof *LEVELS; i++)
        if (LEVELS[i].level == level) return LEVELS[i].path;
    return NVML_PATH_UNKNOWN;
}

static void read_pairs(const struct nvml_calls *c, nvml_device *device, struct nvml_report *out) {
    struct nvml_pci pci[NVML_GPUS_MAX] = { 0 };
    int64_t to_switches[NVML_GPUS_MAX];
    for (int64_t i = 0; i < out->count; i++)
        if (!c->pci || c->pci(device[i], &pci[i]) != NVML_SUCCESS) return;
    for (int64_t i = 0; i < out->count; i++)
        to_switches[i] = count_links(c, device[i], i, pci, out);
    for (int64_t i = 0; i < out->count; i++)
        for (int64_t j = 0; j < out->count; j++) {
            struct nvml_link *link = &out->gpus[i].link[j];
            int64_t least = to_switches[i] < to_switches[j] ? to_switches[i] : to_switches[j];
            if (!link->links) link->links = least;
            link->path = link->links ? NVML_PATH_NVLINK : read_path(c, device[i], device[j]);
        }
}

/* ---- the whole --------------------------------------------------------------------------------*/

static void read_system(const struct nvml_calls *c, struct nvml_report *out) {
    if (c->driver_version) (void)c->driver_version(out->driver, sizeof out->driver);
    int cuda = 0; /* 1000 * major + 10 * minor */
    if (c->cuda_version && c->cuda_version(&cuda) == NVML_SUCCESS) {
        out->cuda_major = cuda / 1000;
        out->cuda_minor = cuda % 1000 / 10;
    }
    unsigned count = 0;
    nvml_device device[NVML_GPUS_MAX] = { NULL };
    if (c->count(&count) != NVML_SUCCESS) return;
    for (unsigned i = 0; i < count && out->count < NVML_GPUS_MAX; i++) {
        if (c->handle(i, &device[out->count]) != NVML_SUCCESS) continue;
        struct nvml_gpu *gpu = &out->gpus[out->count];
        read_gpu(c, device[out->count], gpu);
        gpu->index = out->count++;
    }
    if (out->count > 1) read_pairs(c, device, out);
}

/* The GPU that one entry of CUDA_VISIBLE_DEVICES names, or NULL. */
static const struct nvml_gpu *named_gpu(const struct nvml_report *all, const char *entry,
                                        size_t n) {
    char text[96], *end;
    if (n == 0 || n >= sizeof text) return NULL;
    memcpy(text, entry, n);
    text[n] = '\0';
    long index = strtol(text, &end, 10);
    if (!*end) return index >= 0 && index < all->count ? &all->gpus[index] : NULL;
    for (int64_t i = 0; i < all->count; i++)
        if (!strncmp(all->gpus[i].uuid, text, n)) return &all->gpus[i];
    return NULL;
}

void nvml_keep_visible(struct nvml_report *report, const char *visible) {
    if (!visible) return;
    struct nvml_gpu kept[NVML_GPUS_MAX];
    int64_t count = 0;
    while (count < NVML_GPUS_MAX) {
        size_t n = strcspn(visible, ",");
        const struct nvml_gpu *gpu = named_gpu(report, visible, n);
        if (!gpu) break;
        kept[count++] = *gpu;
        if (!visible[n]) break;
        visible += n + 1;
    }
    memcpy(report->gpus, kept, (size_t)count * sizeof *kept);
    report->count = count;
}

void nvml_read(struct nvml_report *out) {
    memset(out, 0, sizeof *out);
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) return;
    struct nvml_calls calls = { 0 };
    find_all(lib, &calls);
    if (!calls.init || !calls.count || !calls.handle) {
        snprintf(out->problem, sizeof out->problem, "libnvidia-ml.so.1 lacks functions we need");
    } else {
        int rc = calls.init();
        if (rc != NVML_SUCCESS) {
            snprintf(out->problem, sizeof out->problem, "NVML does not start: %s",
                     calls.error_text ? calls.error_text(rc) : "unknown error");
        } else {
            read_system(&calls, out);
            if (calls.shutdown) (void)calls.shutdown();
        }
    }
    dlclose(lib);
}
