/* A plugin that stands in for the CUDA backend and makes choices: tests/cli/chooser.c around the
 * CPU's. Link both with --wrap=cpu_backend_open. */
#include <stdio.h>
#include <string.h>

#include "kernels/cpu/cpu_backend.h"

enum status cuda_backend_open(struct backend **out, int device, struct err *e);

/* The ceilings of a GPU take a CPU a minute. */
static bool measures_ceilings(void) {
    char words[4096] = "";
    FILE *file = fopen("/proc/self/cmdline", "re");
    size_t n = file ? fread(words, 1, sizeof words - 1, file) : 0;
    if (file) fclose(file);
    for (size_t at = 0; at < n; at += strlen(words + at) + 1)
        if (!strcmp(words + at, "--ceilings")) return true;
    return false;
}

enum status cuda_backend_open(struct backend **out, int device, struct err *e) {
    if (measures_ceilings()) return FAIL(e, ERR_UNSUPPORTED, "a stand-in has no ceilings");
    return cpu_backend_open(out, 1, e);
}
