#include "runner/hardware/telemetry.h"

#include <dlfcn.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/hardware/nvml.h"

/* From the public NVML API reference, like nvml.c; NULL if this driver lacks one. */
typedef struct nvml_device_opaque *nvml_device;
struct memory { unsigned long long total, free, used; };
struct utilization { unsigned gpu, memory; };
struct process { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; };
struct field {
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, status;
    union { double real; unsigned long long whole; } value; /* whole: of the fields asked here */
};
enum { SUCCESS = 0, CLOCK_SM = 1, CLOCK_MEM = 2, TEMPERATURE_GPU = 0, PROCESSES_MAX = 128,
       NVLINK_TX_KIB = 138, NVLINK_RX_KIB = 139 }; /* NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, RX */
static const unsigned ALL_LINKS = 0xFFFFFFFFu;

struct telemetry {
    void *lib;
    nvml_device device[NVML_GPUS_MAX];
    int64_t count;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_uuid)(const char *, nvml_device *);
    int (*clock)(nvml_device, int, unsigned *);
    int (*power)(nvml_device, unsigned *);
    int (*temperature)(nvml_device, int, unsigned *);
    int (*throttle)(nvml_device, unsigned long long *);
    int (*memory)(nvml_device, struct memory *);
    int (*utilization)(nvml_device, struct utilization *);
    int (*processes)(nvml_device, unsigned *, struct process *);
    int (*fields)(nvml_device, int, struct field *);
    int (*energy)(nvml_device, unsigned long long *);
};

/* Data and function pointers have one representation on POSIX (dlsym's own rationale). */
static void find(void *lib, const char *symbol, void *slot) {
    void *address = dlsym(lib, symbol);
    memcpy(slot, &address, sizeof address);
}

static void find_all(struct telemetry *t) {
    find(t->lib, "nvmlInit_v2", &t->init);
    find(t->lib, "nvmlShutdown", &t->shutdown);
    find(t->lib, "nvmlDeviceGetHandleByUUID", &t->by_uuid);
    find(t->lib, "nvmlDeviceGetClockInfo", &t->clock);
    find(t->lib, "nvmlDeviceGetPowerUsage", &t->power);
    find(t->lib, "nvmlDeviceGetTemperature", &t->temperature);
    find(t->lib, "nvmlDeviceGetCurrentClocksThrottleReasons", &t->throttle);
    find(t->lib, "nvmlDeviceGetMemoryInfo", &t->memory);
    find(t->lib, "nvmlDeviceGetUtilizationRates", &t->utilization);
    find(t->lib, "nvmlDeviceGetComputeRunningProcesses_v3", &t->processes);
    find(t->lib, "nvmlDeviceGetFieldValues", &t->fields);
    find(t->lib, "nvmlDeviceGetTotalEnergyConsumption", &t->energy);
}

struct telemetry *telemetry_open(void) {
    struct nvml_report report;
    nvml_read(&report);
    nvml_keep_visible(&report, getenv("CUDA_VISIBLE_DEVICES"));
    struct telemetry *t = report.count ? calloc(1, sizeof *t) : NULL;
    if (!t) return NULL;
    t->lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (t->lib) find_all(t);
    bool begun = t->init && t->shutdown && t->by_uuid && t->init() == SUCCESS;
    while (begun && t->count < report.count &&
           t->by_uuid(report.gpus[t->count].uuid, &t->device[t->count]) == SUCCESS)
        t->count++;
    if (t->count) return t;
    if (begun) (void)t->shutdown();
    if (t->lib) dlclose(t->lib);
    free(t);
    return NULL;
}

void telemetry_close(struct telemetry *t) {
    if (!t) return;
    (void)t->shutdown();
    dlclose(t->lib);
    free(t);
}

/* The parent of a process of this namespace, or -1. Source: proc(5), stat; the name in parentheses
 * may contain any character, so parsing starts after the last parenthesis. */
static long parent_of(unsigned pid) {
    char path[64], text[512];
    long parent = -1;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f) return -1;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *after = strrchr(text, ')');
    if (after && sscanf(after, ") %*c %ld", &parent) != 1) parent = -1;
    return parent;
}

/* Workers are children of this process. If the driver reports process numbers of another namespace,
 * no number is a child's. Then one of them is assumed to be the worker, which always has a
 * context. */
static unsigned count_other_processes(const struct process *list, unsigned count) {
    unsigned ours = 0;
    for (unsigned i = 0; i < count; i++)
        if (list[i].pid == (unsigned)getpid() || parent_of(list[i].pid) == (long)getpid()) ours++;
    return count - (ours ? ours : count > 0);
}

struct reading { const char *key; unsigned long long value; };
enum { READINGS_MAX = 11 };

static int read_links(const struct telemetry *t, nvml_device gpu, struct reading *out) {
    struct field field[2] = { { .id = NVLINK_TX_KIB, .scope = ALL_LINKS },
                              { .id = NVLINK_RX_KIB, .scope = ALL_LINKS } };
    int n = 0;
    if (!t->fields || t->fields(gpu, 2, field) != SUCCESS) return 0;
    if (field[0].status == SUCCESS)
        out[n++] = (struct reading){ "gpu_nvlink_tx_kib", field[0].value.whole };
    if (field[1].status == SUCCESS)
        out[n++] = (struct reading){ "gpu_nvlink_rx_kib", field[1].value.whole };
    return n;
}

/* Reads the driver's values, in any order; returns their number. */
static int read_all(const struct telemetry *t, nvml_device gpu, struct reading *out) {
    int n = 0;
    unsigned value = 0;
    unsigned long long reasons = 0;
    struct memory memory = { 0 };
    struct utilization busy = { 0 };
    if (t->clock && t->clock(gpu, CLOCK_SM, &value) == SUCCESS)
        out[n++] = (struct reading){ "gpu_clock_sm_mhz", value };
    if (t->clock && t->clock(gpu, CLOCK_MEM, &value) == SUCCESS)
        out[n++] = (struct reading){ "gpu_clock_mem_mhz", value };
    if (t->power && t->power(gpu, &value) == SUCCESS)
        out[n++] = (struct reading){ "gpu_power_mw", value };
    if (t->temperature && t->temperature(gpu, TEMPERATURE_GPU, &value) == SUCCESS)
        out[n++] = (struct reading){ "gpu_temperature_c", value };
    if (t->utilization && t->utilization(gpu, &busy) == SUCCESS)
        out[n++] = (struct reading){ "gpu_utilization", busy.gpu };
    if (t->memory && t->memory(gpu, &memory) == SUCCESS)
        out[n++] = (struct reading){ "gpu_memory_used_bytes", memory.used };
    if (t->throttle && t->throttle(gpu, &reasons) == SUCCESS)
        out[n++] = (struct reading){ "gpu_throttle", reasons };
    struct process list[PROCESSES_MAX];
    unsigned count = PROCESSES_MAX;
    if (t->processes && t->processes(gpu, &count, list) == SUCCESS) {
        out[n++] = (struct reading){ "gpu_processes", count };
        out[n++] = (struct reading){ "gpu_processes_other", count_other_processes(list, count) };
    }
    return n + read_links(t, gpu, out + n);
}

enum status telemetry_add(const struct telemetry *t, int64_t device, json_t *record,
                          struct err *e) {
    struct reading list[READINGS_MAX];
    bool there = t && device >= 0 && device < t->count;
    int n = there ? read_all(t, t->device[device], list) : 0;
    for (int i = 0; i < n; i++)
        if (json_object_set_new(record, list[i].key, json_integer((json_int_t)list[i].value)) != 0)
            return FAIL(e, ERR_MEMORY, "record of telemetry");
    return OK;
}

bool telemetry_energy_mj(const struct telemetry *t, int64_t device, int64_t *out) {
    unsigned long long mj = 0;
    if (!t || device < 0 || device >= t->count || !t->energy) return false;
    if (t->energy(t->device[device], &mj) != SUCCESS) return false;
    *out = (int64_t)mj;
    return true;
}

void throttle_text(int64_t bits, char *out, size_t size) {
    static const struct { int64_t bit; const char *name; } REASONS[] = {
        { 0x2, "application clocks" }, { 0x4, "power cap" }, { 0x8, "hardware slowdown" },
        { 0x10, "sync boost" }, { 0x20, "thermal (software)" }, { 0x40, "thermal (hardware)" },
        { 0x80, "power brake" }, { 0x100, "display clocks" },
    };
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof REASONS / sizeof *REASONS && n < size; i++)
        if (bits & REASONS[i].bit)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "", REASONS[i].name);
}
