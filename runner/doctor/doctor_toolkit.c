/* The CUDA compiler, which images often leave out of PATH, and the disk for runs. */
#include <errno.h>
#include <glob.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runner/base/run_files.h"
#include "runner/doctor/doctor.h"
#include "runner/plan/backends.h"

/* ---- nvcc -------------------------------------------------------------------------------------*/

static bool is_program(const char *path) { return access(path, X_OK) == 0; }

/* The nvcc that a shell would start. */
static bool nvcc_of_path(char out[PATH_CAP]) {
    const char *list = getenv("PATH");
    while (list && *list) {
        size_t n = strcspn(list, ":");
        if (n > 0 && n < PATH_CAP - 8) {
            snprintf(out, PATH_CAP, "%.*s/nvcc", (int)n, list);
            if (is_program(out)) return true;
        }
        list += n + (list[n] == ':');
    }
    return false;
}

/* Toolkits outside PATH, in the places of containers/find_nvcc.sh; of several versions the one that
 * sorts last. */
static bool nvcc_elsewhere(char out[PATH_CAP]) {
    static const char *const HOMES[] = { "CUDA_HOME", "CUDA_PATH" };
    static const char *const PATTERNS[] = {
        "/usr/local/cuda/bin/nvcc", "/usr/local/cuda-[0-9]*/bin/nvcc", "/opt/cuda*/bin/nvcc",
        "/opt/nvidia/hpc_sdk/Linux_*/*/cuda/[0-9]*/bin/nvcc",
        "/usr/lib/nvidia-cuda-toolkit/bin/nvcc",
    };
    for (size_t i = 0; i < sizeof HOMES / sizeof *HOMES; i++) {
        const char *home = getenv(HOMES[i]);
        if (home && *home && path_join(out, home, "bin/nvcc", NULL) == OK && is_program(out))
            return true;
    }
    const char *given = getenv("CUDACXX");
    if (given && is_program(given)) {
        snprintf(out, PATH_CAP, "%s", given);
        return true;
    }
    for (size_t i = 0; i < sizeof PATTERNS / sizeof *PATTERNS; i++) {
        glob_t found;
        if (glob(PATTERNS[i], 0, NULL, &found) != 0) continue;
        snprintf(out, PATH_CAP, "%s", found.gl_pathv[found.gl_pathc - 1]);
        globfree(&found);
        if (is_program(out)) return true;
    }
    return false;
}

void doctor_toolkit(struct doctor *d) {
    char path[PATH_CAP], fix[PATH_CAP + 64];
    struct err ignored;
    if (!d->here) return;
    bool built = backend_check("cuda", &ignored) == OK;
    bool gpu = json_integer_value(json_object_get(d->facts, "gpu.count")) > 0;
    if (nvcc_of_path(path)) {
        doctor_say(d, FINDING_FINE, "nvcc", NULL, "%s", path);
    } else if (nvcc_elsewhere(path)) {
        snprintf(fix, sizeof fix, "export PATH=%.*s:$PATH; fp8lab's own build finds it without",
                 (int)(strlen(path) - strlen("/nvcc")), path);
        doctor_say(d, FINDING_NOTE, "nvcc", fix, "%s is not in PATH: builds that call nvcc by name "
                   "do not find it", path);
    } else if (gpu && !built) {
        doctor_say(d, FINDING_WRONG, "nvcc", "install a CUDA 13 toolkit, or use an image that has "
                   "one (containers/README.md)",
                   "no nvcc was found, and this build has no CUDA backend");
    } else {
        doctor_say(d, FINDING_NOTE, "nvcc", NULL, "no nvcc was found; only building the CUDA "
                   "backend needs it");
    }
}

/* ---- disk -------------------------------------------------------------------------------------*/

void doctor_disk(struct doctor *d) {
    struct statvfs fs;
    char here[PATH_CAP];
    if (!d->here) return;
    if (!getcwd(here, sizeof here)) snprintf(here, sizeof here, ".");
    const char *runs = access("runs", F_OK) == 0 ? "runs" : ".";
    if (access(runs, W_OK) != 0)
        doctor_say(d, FINDING_WRONG, "disk", "run from a folder of yours, or use --runs DIR; a "
                   "volume must belong to the user of the container (-u)",
                   "this user cannot write to %s/runs, the folder of runs: %s", here,
                   strerror(errno));
    else if (statvfs(runs, &fs) == 0) {
        double left = (double)fs.f_bavail * (double)fs.f_frsize;
        bool little = left < 1e9;
        doctor_say(d, little ? FINDING_WARNING : FINDING_FINE, "disk",
                   little ? "free some, or use --runs DIR" : NULL, "%.1f GB free in %s for runs",
                   left * 1e-9, here);
    }
}
