#include "runner/hardware/facts.h"

#include <glob.h>
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/bytes_text.h"
#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"
#include "runner/hardware/fact_names.h"
#include "runner/hardware/gpu_links.h"
#include "runner/hardware/nvml.h"

/* ---- small files ------------------------------------------------------------------------------*/

/* The value of the line "KEY<separator>VALUE" in a file of /proc or /etc, unquoted; false where
 * there is none. */
static bool file_value(const char *path, const char *key, char separator, char *out, size_t size) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    char line[512];
    bool found = false;
    size_t n = strlen(key);
    while (!found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n)) continue;
        char *at = line + n;
        while (*at == ' ' || *at == '\t') at++;
        if (*at++ != separator) continue;
        while (*at == ' ' || *at == '\t' || *at == '"') at++;
        char *end = at + strcspn(at, "\"\n");
        *end = '\0';
        snprintf(out, size, "%s", at);
        found = true;
    }
    fclose(f);
    return found;
}

static int64_t file_number(const char *path) {
    FILE *f = fopen(path, "re");
    int64_t value = -1;
    if (!f) return -1;
    if (fscanf(f, "%" SCNd64, &value) != 1) value = -1;
    fclose(f);
    return value;
}

/* A number like 0x10de, or 0. */
static int64_t file_hex(const char *path) {
    FILE *f = fopen(path, "re");
    unsigned value = 0;
    if (!f) return 0;
    if (fscanf(f, "%x", &value) != 1) value = 0;
    fclose(f);
    return value;
}

/* ---- cpu, memory, system ----------------------------------------------------------------------*/

/* aarch64 kernels report a CPU as numbers, not as a name; these are the CPUs beside NVIDIA GPUs.
 * Source: Arm's MIDR part numbers, as in the kernel's arch/arm64/include/asm/cputype.h. */
static const char *arm_part_name(const char *part) {
    static const struct { const char *part, *name; } PARTS[] = {
        { "0xd0c", "Arm Neoverse-N1" }, { "0xd40", "Arm Neoverse-V1" },
        { "0xd49", "Arm Neoverse-N2" }, { "0xd4f", "Arm Neoverse-V2" },
        { "0xd85", "Arm Cortex-X925" }, { "0xd87", "Arm Cortex-A725" },
    };
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++)
        if (!strcmp(PARTS[i].part, part)) return PARTS[i].name;
    return NULL;
}

static json_t *cpu_model(void) {
    char text[256];
    if (file_value("/proc/cpuinfo", "model name", ':', text, sizeof text)) return json_string(text);
    if (!file_value("/proc/cpuinfo", "CPU part", ':', text, sizeof text)) return json_null();
    const char *name = arm_part_name(text);
    return json_string(name ? name : text);
}

static const char *cpu_simd(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return "avx512";
    if (__builtin_cpu_supports("avx2")) return "avx2";
    return "sse2";
#elif defined(__aarch64__)
    return "neon";
#else
    return "none";
#endif
}

static int64_t cpu_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return sysconf(_SC_NPROCESSORS_ONLN); /* more CPUs than a cpu_set_t holds */
}

/* MemTotal, or the control group's limit if that is lower. */
static json_t *memory_total(void) {
    char text[64];
    if (!file_value("/proc/meminfo", "MemTotal", ':', text, sizeof text)) return json_null();
    int64_t total = strtoll(text, NULL, 10) * 1024;
    int64_t limit = file_number("/sys/fs/cgroup/memory.max");
    return json_integer(limit > 0 && limit < total ? limit : total);
}

int64_t facts_memory_available(void) {
    char text[64];
    if (!file_value("/proc/meminfo", "MemAvailable", ':', text, sizeof text)) return -1;
    int64_t available = strtoll(text, NULL, 10) * 1024;
    int64_t limit = file_number("/sys/fs/cgroup/memory.max");
    int64_t used = file_number("/sys/fs/cgroup/memory.current");
    bool bounded = limit > 0 && used >= 0 && limit - used < available;
    return bounded ? limit - used : available;
}

static json_t *memory_available(void) {
    int64_t bytes = facts_memory_available();
    return bytes >= 0 ? json_integer(bytes) : json_null();
}

static json_t *shm_size(void) {
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0) return json_null();
    return json_integer((json_int_t)fs.f_blocks * (json_int_t)fs.f_frsize);
}

static json_t *limit_of(int resource) {
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0) return json_null();
    bool none = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > INT64_MAX;
    return json_integer(none ? INT64_MAX : (json_int_t)limit.rlim_cur);
}

/* Display and 3D controllers (class 03) of vendor 10de. Source: sysfs-bus-pci. */
static json_t *gpus_on_bus(void) {
    glob_t found;
    int64_t count = 0;
    if (glob("/sys/bus/pci/devices/*/vendor", 0, NULL, &found) != 0) return json_integer(0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char path[512];
        snprintf(path, sizeof path, "%.*s/class",
                 (int)(strlen(found.gl_pathv[i]) - strlen("/vendor")), found.gl_pathv[i]);
        count += file_hex(found.gl_pathv[i]) == 0x10de && file_hex(path) >> 16 == 0x03;
    }
    globfree(&found);
    return json_integer(count);
}

static json_t *os_id(void) {
    char text[128];
    bool found = file_value("/etc/os-release", "ID", '=', text, sizeof text);
    return found ? json_string(text) : json_null();
}

/* The numbers at the start of a text, so that it compares as a version; null: there is none. */
static json_t *version_in(const char *text) {
    size_t n = strspn(text, "0123456789.");
    while (n && text[n - 1] == '.') n--;
    char *copy = strndup(text, n);
    json_t *version = copy && !fact_is_version(copy) ? json_null() : json_string(copy);
    free(copy);
    return version;
}

static json_t *os_version(void) {
    char text[128];
    bool found = file_value("/etc/os-release", "VERSION_ID", '=', text, sizeof text);
    return found ? version_in(text) : json_null();
}

/* ---- container --------------------------------------------------------------------------------*/

static bool env_set(const char *name) {
    const char *value = getenv(name);
    return value && *value;
}

static const char *container_runtime(void) {
    if (env_set("APPTAINER_CONTAINER") || env_set("SINGULARITY_CONTAINER")) return "apptainer";
    if (env_set("KUBERNETES_SERVICE_HOST")) return "kubernetes";
    /* Enroot's own two files in every root; /etc/enroot is its configuration on the host. */
    if (access("/.lock", F_OK) == 0 && access("/etc/rc", F_OK) == 0) return "enroot";
    if (access("/run/.containerenv", F_OK) == 0) return "podman";
    if (access("/.dockerenv", F_OK) == 0) return "docker";
    const char *generic = getenv("container"); /* systemd's convention for container managers */
    if (generic && !strcmp(generic, "podman")) return "podman"; /* a read-only root has no file */
    if (generic && *generic) return "unknown";
    /* containerd and a bare runtime leave no mark, but the image may be ours. */
    return access(IMAGE_RECORD_PATH, F_OK) == 0 ? "unknown" : "none";
}

static json_t *container_image(void) {
    char text[256];
    const char *image = getenv("APPTAINER_CONTAINER");
    if (!image || !*image) image = getenv("SINGULARITY_CONTAINER");
    if (image && *image) return json_string(image);
    if (file_value("/run/.containerenv", "image", '=', text, sizeof text) && *text)
        return json_string(text);
    return json_null();
}

/* ---- gpu --------------------------------------------------------------------------------------*/

const char *facts_gpu_family(int64_t major, int64_t minor) {
    if (major == 7) return minor >= 5 ? "turing" : "volta";
    if (major == 8) return minor == 9 ? "ada" : "ampere";
    if (major == 9) return "hopper";
    if (major >= 10 && major <= 12) return "blackwell";
    return NULL;
}

bool facts_have_gpu(const json_t *facts) { return json_int(facts, "gpu.count") > 0; }

int facts_capability(const json_t *facts) {
    int major, minor;
    return sscanf(json_text(facts, "gpu.cc", ""), "%2d.%1d", &major, &minor) == 2
               ? 10 * major + minor : 0;
}

/* Those of NVIDIA's GPUs, ascending. Source: nvcc of CUDA 9 to 13.0, --list-gpu-arch. */
static const int CAPABILITIES[] = { 30, 32, 35, 37, 50, 52, 53, 60,  61,  62,  70,  72,  75,
                                    80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121 };
enum { CAPABILITY_COUNT = sizeof CAPABILITIES / sizeof *CAPABILITIES };

bool facts_strange_capability(const json_t *facts, char out[FACTS_NOTE_CAP]) {
    int cc = facts_have_gpu(facts) ? facts_capability(facts) : 0, above = 0;
    const int newest = CAPABILITIES[CAPABILITY_COUNT - 1];
    while (above < CAPABILITY_COUNT && CAPABILITIES[above] < cc) above++;
    if (cc == 0 || (above < CAPABILITY_COUNT && CAPABILITIES[above] == cc)) return false;
    int n = snprintf(out, FACTS_NOTE_CAP, "gpu.cc is %d.%d, ", cc / 10, cc % 10);
    size_t left = FACTS_NOTE_CAP - (size_t)n;
    const int *next = &CAPABILITIES[above];
    if (cc > newest)
        snprintf(out + n, left, "newer than %d.%d, the newest that this version knows: how such a "
                 "GPU runs a recipe is a guess", newest / 10, newest % 10);
    else if (above == 0)
        snprintf(out + n, left, "older than any that this version knows: is the fact right?");
    else
        snprintf(out + n, left, "and this version knows no GPU of it: %d.%d and %d.%d are the "
                 "nearest that it knows; is the fact right?", next[-1] / 10, next[-1] % 10,
                 next[0] / 10, next[0] % 10);
    return true;
}

static json_t *number_or_null(int64_t value) {
    return value == NVML_UNKNOWN ? json_null() : json_integer(value);
}

static json_t *bool_or_null(int64_t value) {
    return value == NVML_UNKNOWN ? json_null() : json_boolean(value != 0);
}

static json_t *version_pair(int64_t major, int64_t minor) {
    return json_sprintf("%" PRId64 ".%" PRId64, major, minor);
}

/* The exact product string, or "A + B" for a mixed machine, which equals no single product. */
static json_t *product_names(const struct nvml_report *report, bool *mixed) {
    char names[1024];
    size_t used = 0;
    *mixed = false;
    for (int64_t i = 0; i < report->count; i++) {
        bool seen = false;
        for (int64_t j = 0; j < i; j++)
            seen = seen || !strcmp(report->gpus[i].name, report->gpus[j].name);
        if (seen || used + 128 > sizeof names) continue;
        *mixed = i > 0;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? " + " : "",
                                 report->gpus[i].name);
    }
    return json_string(names);
}

static int64_t smallest_memory(const struct nvml_report *report, bool *unified) {
    int64_t least = report->gpus[0].memory_bytes;
    for (int64_t i = 0; i < report->count; i++) {
        int64_t bytes = report->gpus[i].memory_bytes;
        if (bytes == NVML_UNKNOWN) *unified = true;
        else if (bytes < least || least == NVML_UNKNOWN) least = bytes;
    }
    return least;
}

static int64_t process_total(const struct nvml_report *report) {
    int64_t total = 0;
    for (int64_t i = 0; i < report->count; i++)
        if (report->gpus[i].processes > 0) total += report->gpus[i].processes;
    return total;
}

enum status facts_put_gpus(json_t *facts, const struct nvml_report *report, struct err *e) {
    bool bad = json_object_set_new(facts, "gpu.count", json_integer(report->count)) != 0;
    bool unified = false, mixed = false;
    if (report->count > 0) {
        const struct nvml_gpu *gpu = &report->gpus[0];
        const char *family = facts_gpu_family(gpu->cc_major, gpu->cc_minor);
        int64_t memory = smallest_memory(report, &unified);
        json_t *shared = json_object_get(facts, "memory.total");
        int64_t watts = gpu->power_limit_mw == NVML_UNKNOWN ? NVML_UNKNOWN
                                                           : gpu->power_limit_mw / 1000;
        json_t *names = product_names(report, &mixed);
        json_t *gpus = json_pack(
            "{s:o,s:s?,s:o,s:o,s:o,s:o,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:I}",
            "gpu.product_name", names, "gpu.family", family, "gpu.cc",
            version_pair(gpu->cc_major, gpu->cc_minor), "gpu.memory",
            unified ? json_incref(shared) : number_or_null(memory), "gpu.nvlink",
            bool_or_null(gpu->nvlink), "gpu.links", gpu_links(report), "gpu.mixed", mixed,
            "gpu.driver", version_in(report->driver), "gpu.ecc",
            bool_or_null(gpu->ecc), "gpu.mig", bool_or_null(gpu->mig), "gpu.power_limit_w",
            number_or_null(watts),
            "gpu.clock_sm_max_mhz", number_or_null(gpu->clock_sm_max_mhz), "gpu.clock_mem_max_mhz",
            number_or_null(gpu->clock_mem_max_mhz), "gpu.clock_sm_mhz",
            number_or_null(gpu->clock_sm_mhz), "gpu.temperature_c",
            number_or_null(gpu->temperature_c), "gpu.processes", (json_int_t)process_total(report));
        bad = bad || !gpus || json_object_update(facts, gpus) != 0;
        json_decref(gpus);
    }
    if (report->cuda_major)
        bad = bad || json_object_set_new(facts, "cuda.driver",
                                         version_pair(report->cuda_major, report->cuda_minor)) != 0;
    bad = bad || json_object_set_new(facts, "memory.unified", json_boolean(unified)) != 0;
    return bad ? FAIL(e, ERR_MEMORY, "hardware facts") : OK;
}

/* ---- the whole --------------------------------------------------------------------------------*/

/* Facts without a value become null, so that every file has every fact. */
static enum status fill_unknown(json_t *facts, struct err *e) {
    for (int64_t i = 0; i < FACT_NAME_COUNT; i++)
        if (!json_object_get(facts, FACT_NAMES[i].name) &&
            json_object_set_new(facts, FACT_NAMES[i].name, json_null()) != 0)
            return FAIL(e, ERR_MEMORY, "hardware facts");
    return OK;
}

/* A whole number has one form: 8, not 8.0. */
static enum status make_whole(json_t *facts, struct err *e) {
    for (int64_t i = 0; i < FACT_NAME_COUNT; i++) {
        const struct fact_name *fact = &FACT_NAMES[i];
        const json_t *value = json_object_get(facts, fact->name);
        bool whole = fact->kind == FACT_COUNT || fact->kind == FACT_BYTES;
        if (whole && json_is_real(value) &&
            json_object_set_new(facts, fact->name,
                                json_integer((json_int_t)json_real_value(value))) != 0)
            return FAIL(e, ERR_MEMORY, "hardware facts");
    }
    return OK;
}

static enum status put_system(json_t *facts, struct err *e) {
    json_t *more = json_pack("{s:o,s:o,s:o,s:o,s:I}", "gpu.on_bus", gpus_on_bus(), "memory.shm",
                             shm_size(), "limits.memlock", limit_of(RLIMIT_MEMLOCK), "limits.stack",
                             limit_of(RLIMIT_STACK), "os.page_size",
                             (json_int_t)sysconf(_SC_PAGESIZE));
    bool bad = !more || json_object_update(facts, more) != 0;
    json_decref(more);
    return bad ? FAIL(e, ERR_MEMORY, "hardware facts") : OK;
}

enum status facts_gather(json_t **out, char *problem, size_t problem_size, struct err *e) {
    *out = NULL;
    struct utsname name;
    if (uname(&name) != 0) return FAIL(e, ERR_IO, "uname failed");
    enum status st = OK;
    struct nvml_report *report = malloc(sizeof *report);
    json_t *facts = json_pack(
        "{s:s,s:o,s:I,s:s,s:o,s:o,s:o,s:o,s:o,s:s,s:s,s:o}", "cpu.arch", name.machine, "cpu.model",
        cpu_model(), "cpu.cores", (json_int_t)cpu_cores(), "cpu.simd", cpu_simd(), "memory.total",
        memory_total(), "memory.available", memory_available(), "os.id", os_id(),
        "os.version", os_version(), "os.kernel", version_in(name.release), "os.libc",
        gnu_get_libc_version(), "container.runtime",
        container_runtime(), "container.image", container_image());
    if (!report || !facts) {
        st = FAIL(e, ERR_MEMORY, "hardware facts");
        goto done;
    }
    st = put_system(facts, e);
    if (st != OK) goto done;
    nvml_read(report);
    nvml_keep_visible(report, getenv("CUDA_VISIBLE_DEVICES"));
    if (problem) snprintf(problem, problem_size, "%s", report->problem);
    st = facts_put_gpus(facts, report, e);
    if (st == OK) st = fill_unknown(facts, e);
    if (st != OK) goto done;
    *out = facts;
    facts = NULL;
done:
    json_decref(facts);
    free(report);
    return st;
}

/* ---- fact files -------------------------------------------------------------------------------*/

#define WRITE_FACTS "`fp8lab hw --json > FILE` on the machine writes a fact file"

/* "9.0" or "12.1". */
static bool is_capability(const char *text) {
    const char *dot = strchr(text, '.');
    return fact_is_version(text) && dot && dot - text <= 2 && strlen(dot) == 2;
}

/* Other programs write 8 as 8.0. */
static bool is_whole(const json_t *value) {
    double x = json_number_value(value);
    if (json_is_real(value) && (x >= 0x1p63 || x != floor(x))) return false;
    return json_is_number(value) && x >= 0;
}

static bool has_kind(const json_t *value, const struct fact_name *fact) {
    const char *text = json_string_value(value);
    switch (fact->kind) {
    case FACT_STRING: return text;
    case FACT_VERSION:
        return text && (strcmp(fact->name, "gpu.cc") ? fact_is_version(text) : is_capability(text));
    case FACT_NUMBER: return json_is_number(value);
    case FACT_COUNT:
    case FACT_BYTES: return is_whole(value);
    case FACT_BOOL: return json_is_boolean(value);
    }
    return false;
}

static const char *wanted_of(const struct fact_name *fact) {
    switch (fact->kind) {
    case FACT_STRING: return "text";
    case FACT_VERSION:
        return strcmp(fact->name, "gpu.cc") ? "a version in quotes, such as \"13.0\""
                                            : "a compute capability in quotes, such as \"9.0\"";
    case FACT_NUMBER: return "a number";
    case FACT_COUNT: return "a whole number of 0 or more";
    case FACT_BYTES: return "a whole number of bytes, 0 or more";
    case FACT_BOOL: return "true or false";
    }
    return "";
}

/* The value as JSON, for a message. */
static const char *found_text(const json_t *value, char out[64]) {
    char *text = json_dump_text(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(10));
    plain_copy(out, 64, text);
    free(text);
    return out;
}

/* A number that no machine has is a mistake in the file. */
static enum status check_size(const char *path, const struct fact_name *fact, const json_t *value,
                              struct err *e) {
    char found[64], size[BYTES_TEXT_CAP];
    double most = fact_most(fact);
    if (!json_is_number(value) || json_number_value(value) <= most) return OK;
    if (fact->kind == FACT_BYTES) bytes_text(most, size);
    else snprintf(size, sizeof size, "%.0f", most);
    return FAIL(e, ERR_CONFIG, "%s: %s is %s, but no machine has more than %s; " WRITE_FACTS, path,
                fact->name, found_text(value, found), size);
}

static enum status check_fact(const char *path, const char *name, const json_t *value,
                              struct err *e) {
    char found[64], given[64];
    const struct fact_name *fact = fact_find(name);
    if (fact) TRY(check_size(path, fact, value, e));
    if (fact && (json_is_null(value) || has_kind(value, fact))) return OK;
    if (fact)
        return FAIL(e, ERR_CONFIG, "%s: %s must be %s, or null; found %s; " WRITE_FACTS, path, name,
                    wanted_of(fact), found_text(value, found));
    const char *near = fact_meant(name);
    plain_copy(given, sizeof given, name);
    if (near)
        return FAIL(e, ERR_CONFIG, "%s: there is no fact %s; did you mean %s?", path, given, near);
    return FAIL(e, ERR_CONFIG, "%s: there is no fact %s; `fp8lab hw` lists them", path, given);
}

/* Removes the schema, which is no fact. */
static enum status check_schema(json_t *facts, const char *path, struct err *e) {
    char found[64];
    const json_t *schema = json_object_get(facts, "schema");
    if (schema && strcmp(json_text(facts, "schema", ""), FACTS_SCHEMA) != 0)
        return FAIL(e, ERR_CONFIG, "%s: its schema is %s, and this version reads " FACTS_SCHEMA "; "
                    WRITE_FACTS, path, found_text(schema, found));
    (void)json_object_del(facts, "schema");
    return OK;
}

/* A GPU without a number of GPUs would count as none. */
static enum status check_gpu(const json_t *facts, const char *path, struct err *e) {
    static const char *const OF_GPU[] = { "gpu.product_name", "gpu.family", "gpu.cc",
                                          "gpu.memory" };
    if (json_is_integer(json_object_get(facts, "gpu.count"))) return OK;
    for (size_t i = 0; i < sizeof OF_GPU / sizeof *OF_GPU; i++)
        if (!json_is_null(json_object_get(facts, OF_GPU[i])))
            return FAIL(e, ERR_CONFIG, "%s: gpu.count is not known, but %s is; add "
                        "\"gpu.count\": 1, or the number of GPUs", path, OF_GPU[i]);
    return OK;
}

enum status facts_complete(json_t *facts, const char *path, struct err *e) {
    if (!json_is_object(facts)) return FAIL(e, ERR_CONFIG, "%s: not a JSON object of facts", path);
    const char *name;
    json_t *value;
    bool any = false;
    TRY(check_schema(facts, path, e));
    json_object_foreach(facts, name, value) {
        TRY(check_fact(path, name, value, e));
        any = any || !json_is_null(value);
    }
    if (!any) return FAIL(e, ERR_CONFIG, "%s holds no fact; " WRITE_FACTS, path);
    TRY(fill_unknown(facts, e));
    TRY(make_whole(facts, e));
    return check_gpu(facts, path, e);
}

enum status facts_load(const char *path, json_t **out, struct err *e) {
    *out = NULL;
    json_t *facts = NULL;
    struct err why;
    enum status st = json_file_read(path, &facts, &why);
    if (st == ERR_MEMORY) return FAIL(e, st, "%s", why.text);
    if (st != OK) return FAIL(e, ERR_CONFIG, "%s", why.text); /* the user named it */
    st = facts_complete(facts, path, e);
    if (st != OK) {
        json_decref(facts);
        return st;
    }
    *out = facts;
    return OK;
}
