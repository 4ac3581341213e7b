#include "tests/support/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int nvml_load(void **state) {
    const char *folder = getenv("TEST_TMP") ? getenv("TEST_TMP") : "/tmp";
    char library[512], command[1200];
    snprintf(library, sizeof library, "%s/libnvidia-ml.so.1", folder);
    snprintf(command, sizeof command, "cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o '%s' "
             "tests/support/stand_in/nvml.c", library);
    if (system(command) != 0) return 1;
    *state = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    return *state ? 0 : 1;
}

int nvml_drop(void **state) { return dlclose(*state); }
