/* NVIDIA's libraries and our plugin: path, version, processor, and versions that are known not to
 * work, each with the symptom. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "model/ground/json_safe.h"
#include "runner/base/library_file.h"
#include "runner/doctor/doctor.h"
#include "runner/plan/recipe_table.h"

/* Who needs the library. */
enum need { NEED_GPU, NEED_ATTENTION, NEED_RANKS, NEED_PART };

#define PLUGIN "libfp8lab_cuda.so"
#define CUBLASLT "libcublasLt.so." /* followed by the major version of CUDA */

static const struct wanted {
    const char *topic, *file, *symbol;
    enum version_form form;
    enum need need;
} WANTED[] = {
    { "driver library", "libcuda.so.1", NULL, VERSION_NONE, NEED_GPU },
    { "nvml", "libnvidia-ml.so.1", NULL, VERSION_NONE, NEED_GPU },
    { "plugin", PLUGIN, NULL, VERSION_NONE, NEED_GPU },
    { "cublaslt", CUBLASLT, "cublasLtGetVersion", VERSION_SIZE, NEED_GPU },
    { "cudnn", "libcudnn.so.9", "cudnnGetVersion", VERSION_SIZE, NEED_ATTENTION },
    /* cuDNN opens these itself when it plans an attention. */
    { "cudnn", "libcudnn_graph.so.9", NULL, VERSION_NONE, NEED_PART },
    { "cudnn", "libcudnn_heuristic.so.9", NULL, VERSION_NONE, NEED_PART },
    { "cudnn", "libcudnn_engines_precompiled.so.9", NULL, VERSION_NONE, NEED_PART },
    { "cudnn", "libcudnn_engines_runtime_compiled.so.9", NULL, VERSION_NONE, NEED_PART },
    { "nccl", "libnccl.so.2", "ncclGetVersion", VERSION_INT_OUT, NEED_RANKS },
};
enum { WANTED_COUNT = sizeof WANTED / sizeof *WANTED, CUDA_BUILT_WITH = 13 };

static const char CUDNN_FIX[] = "install libcudnn9-cuda-13 (-12 beside CUDA 12) of 9.18.1 or newer";

static int64_t version_number(const char *version) {
    int major = 0, minor = 0, patch = 0;
    (void)sscanf(version, "%d.%d.%d", &major, &minor, &patch);
    return (int64_t)major * 1000000 + minor * 1000 + patch;
}

/* ---- known-bad versions. Sources: cudnn-frontend's support checks and release notes, Transformer
 * Engine's backend choice; of cuBLASLt see kernels/cuda/native.h ---- */

/* Where the backend never asks cuDNN, neither its version nor its absence is a problem. */
static bool is_unused(const struct doctor *d, enum need need) {
    int cc = doctor_capability(d);
    return (need == NEED_ATTENTION || need == NEED_PART) && cc && !device_asks_cudnn(cc);
}

#define UNUSED_HERE " (not used on this GPU)"

static void judge_cudnn(struct doctor *d, const char *version, const char *path) {
    int64_t v = version_number(version);
    if (is_unused(d, NEED_ATTENTION))
        doctor_say(d, FINDING_FINE, "cudnn", NULL, "%s, %s" UNUSED_HERE, version, path);
    else if (v < version_number("9.11.0"))
        doctor_say(d, FINDING_WRONG, "cudnn", CUDNN_FIX, "cuDNN %s is not used: 9.10.0 and 9.10.1 "
                   "compute wrong attention, and older versions lack features that we need; our "
                   "own kernels run instead", version);
    else if (v < version_number("9.15.1"))
        doctor_say(d, FINDING_WARNING, "cudnn", CUDNN_FIX, "cuDNN %s computes wrong results under "
                   "CUDA graphs if a sequence is not a multiple of 128 (fixed in 9.15.1)", version);
    else
        doctor_say(d, FINDING_FINE, "cudnn", NULL, "%s, %s", version, path);
}

/* The recipes that this version alone makes emulated. */
static void judge_cublaslt(struct doctor *d, const char *version, const char *path) {
    char names[256] = "";
    const char *because = NULL;
    int count = 0;
    for (int k = 0; k < RECIPE_KIND_COUNT; k++) {
        int cc = doctor_capability(d);
        size_t used = strlen(names);
        if (!recipe_meets_fault((enum recipe_kind)k, cc, version)) continue;
        snprintf(names + used, sizeof names - used, "%s%s", count++ ? ", " : "",
                 RECIPE_KIND_NAMES[k]);
        /* one version has one fault on a device */
        because = recipe_on((enum recipe_kind)k, cc, version).because;
    }
    if (count)
        doctor_say(d, FINDING_WARNING, "cublaslt", CUBLASLT_FIX, "%s, %s: %s run%s emulated: %s",
                   version, path, names, count == 1 ? "s" : "", because);
    else
        doctor_say(d, FINDING_FINE, "cublaslt", NULL, "%s, %s", version, path);
}

static void judge_facts(struct doctor *d) {
    static const char BY[] = "by the fact file";
    const char *cublaslt = json_text(d->facts, "cublaslt.version", NULL);
    const char *cudnn = json_text(d->facts, "cudnn.version", NULL);
    if (cublaslt) judge_cublaslt(d, cublaslt, BY);
    if (cudnn) judge_cudnn(d, cudnn, BY);
}

/* ---- one library ------------------------------------------------------------------------------*/

static bool has_gpu(const struct doctor *d) {
    return json_integer_value(json_object_get(d->facts, "gpu.count")) > 0;
}

static void say_missing(struct doctor *d, const struct wanted *w) {
    bool several = json_integer_value(json_object_get(d->facts, "gpu.count")) > 1;
    if (!has_gpu(d) && !d->gpu) return; /* not needed */
    if (is_unused(d, w->need)) {
        if (w->need == NEED_ATTENTION)
            doctor_say(d, FINDING_FINE, w->topic, NULL, "%s was not found" UNUSED_HERE, w->file);
        return;
    }
    switch (w->need) {
    case NEED_GPU:
        doctor_say(d, FINDING_WRONG, w->topic,
                   !strcmp(w->topic, "plugin")
                       ? "run make where nvcc is installed (doctor lists an nvcc outside PATH)"
                       : !strcmp(w->topic, "cublaslt")
                             ? "install CUDA's libcublas, or set LD_LIBRARY_PATH to where it is"
                             : "it comes with the driver; a container needs --gpus all and "
                               "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
                   "%s was not found: nothing runs on the GPU", w->file);
        break;
    case NEED_ATTENTION:
        doctor_say(d, FINDING_WARNING, w->topic, CUDNN_FIX,
                   "%s was not found: attention runs on our own kernels, which are slower",
                   w->file);
        break;
    case NEED_RANKS:
        doctor_say(d, several ? FINDING_WRONG : FINDING_NOTE, w->topic, "install libnccl2",
                   "%s was not found%s", w->file, several ? ": several GPUs cannot work together"
                                                          : "; only several GPUs need it");
        break;
    case NEED_PART:
        doctor_say(d, FINDING_WARNING, w->topic, CUDNN_FIX,
                   "%s was not found beside cuDNN: it cannot plan attention", w->file);
        break;
    }
}

static void record(struct doctor *d, const struct wanted *w, const char *path, const char *machine,
                   const char *version, const char *problem) {
    json_append(d->libraries,
                json_pack("{s:s,s:s,s:s?,s:s?,s:s?}", "name", w->file, "path", path, "machine",
                          machine, "version", *version ? version : NULL, "problem",
                          *problem ? problem : NULL), &d->no_memory);
}

/* The level of a file that cannot be loaded. */
static enum finding_level unusable(const struct doctor *d, const struct wanted *w) {
    return is_unused(d, w->need) ? FINDING_NOTE : FINDING_WRONG;
}

/* The loader skips a file for another processor silently. If no other file follows, a mix of two
 * architectures looks like a missing library. */
static void say_foreign(struct doctor *d, const struct wanted *w, const char *path,
                        const char *machine, bool ours_follows) {
    char fix[128];
    snprintf(fix, sizeof fix, "install the %s package; images and wheels come per architecture",
             library_machine_here());
    doctor_say(d, ours_follows ? FINDING_NOTE : unusable(d, w), w->topic, fix,
               "%s is for %s, this machine is %s%s", path, machine, library_machine_here(),
               ours_follows ? "; another one follows it" : "");
    record(d, w, path, machine, "", "for another processor");
}

/* The file that the loader takes. */
static bool find_ours(struct doctor *d, const struct wanted *w, const struct library_places *places,
                      char path[PATH_CAP]) {
    char text[16], other[PATH_CAP] = "", other_machine[16] = "";
    bool found = false;
    int from = 0;
    while (!found && library_find(places, w->file, &from, path)) {
        const char *machine = library_machine(path, text);
        if (!machine) { /* the loader stops here */
            doctor_say(d, unusable(d, w), w->topic, "remove it, or install it again",
                       "%s is not a library", path);
            record(d, w, path, NULL, "", "not a library");
            return false;
        }
        found = !strcmp(machine, library_machine_here());
        if (found || *other) continue;
        snprintf(other, sizeof other, "%s", path);
        snprintf(other_machine, sizeof other_machine, "%s", machine);
    }
    if (*other) say_foreign(d, w, other, other_machine, found);
    else if (!found) say_missing(d, w);
    return found;
}

static void examine(struct doctor *d, const struct wanted *w, const struct library_places *places,
                    bool cudnn_is_there) {
    char path[PATH_CAP], version[32] = "", problem[256] = "";
    if (w->need == NEED_PART && !cudnn_is_there) return;
    if (!find_ours(d, w, places, path)) return;
    library_version(path, w->symbol, w->form, version, problem);
    record(d, w, path, library_machine_here(), version, problem);
    if (w->need == NEED_PART) return;
    if (*problem)
        doctor_say(d, unusable(d, w), w->topic, "install it again, with its dependencies",
                   "%s does not load: %s", path, problem);
    else if (!strcmp(w->topic, "cudnn")) judge_cudnn(d, version, path);
    else if (!strcmp(w->topic, "cublaslt")) judge_cublaslt(d, version, path);
    else doctor_say(d, FINDING_FINE, w->topic, NULL, "%s%s%s", version, *version ? ", " : "", path);
}

void doctor_cuda(struct doctor *d) {
    struct library_places *places = d->here ? malloc(sizeof *places) : NULL;
    char path[PATH_CAP];
    int from = 0;
    d->no_memory |= d->here && !places;
    if (places) library_places(places);
    if (places && library_find(places, PLUGIN, &from, path))
        d->cuda = library_needs(path, CUBLASLT);
    if (!d->cuda) d->cuda = CUDA_BUILT_WITH;
    free(places);
}

void doctor_libraries(struct doctor *d) {
    struct library_places *places = d->here ? malloc(sizeof *places) : NULL;
    char path[PATH_CAP], cublaslt[32];
    int from = 0;
    d->no_memory |= d->here && !places;
    if (!d->here) judge_facts(d);
    if (!places) return;
    library_places(places);
    bool cudnn = library_find(places, "libcudnn.so.9", &from, path);
    snprintf(cublaslt, sizeof cublaslt, CUBLASLT "%d", d->cuda);
    for (int i = 0; i < WANTED_COUNT; i++) {
        struct wanted w = WANTED[i];
        if (!strcmp(w.file, CUBLASLT)) w.file = cublaslt;
        examine(d, &w, places, cudnn);
    }
    free(places);
}

/* The topic of a library that reports its version; NULL: it does not. */
static const char *topic_of(const char *file) {
    for (int i = 0; i < WANTED_COUNT; i++) {
        bool major = !strcmp(WANTED[i].file, CUBLASLT);
        bool same = major ? !strncmp(file, CUBLASLT, strlen(CUBLASLT))
                          : !strcmp(file, WANTED[i].file);
        if (same && WANTED[i].form != VERSION_NONE) return WANTED[i].topic;
    }
    return NULL;
}

const char *doctor_cublaslt(const struct doctor *d) {
    const char *version = json_text(d->facts, "cublaslt.version", NULL);
    size_t i;
    const json_t *row;
    json_array_foreach(d->libraries, i, row)
        if (!version && !strncmp(json_text(row, "name", ""), CUBLASLT, strlen(CUBLASLT)))
            version = json_text(row, "version", NULL);
    return version;
}

enum status doctor_library_facts(json_t *facts, struct err *e) {
    struct doctor d = { .facts = facts, .here = true, .findings = json_array(),
                        .libraries = json_array() };
    size_t i;
    json_t *row;
    doctor_cuda(&d);
    doctor_libraries(&d);
    json_array_foreach(d.libraries, i, row) {
        const char *topic = topic_of(json_text(row, "name", ""));
        json_t *version = json_object_get(row, "version");
        char name[64];
        snprintf(name, sizeof name, "%s.version", topic ? topic : "");
        if (topic && json_is_string(version) && !json_is_string(json_object_get(facts, name)))
            json_put(facts, name, json_incref(version), &d.no_memory);
    }
    bool failed = d.no_memory || !d.findings || !d.libraries;
    json_decref(d.findings);
    json_decref(d.libraries);
    return failed ? FAIL(e, ERR_MEMORY, "versions of libraries") : OK;
}
