#include "runner/base/host_name.h"

#include <unistd.h>

void host_name(char out[HOST_NAME_CAP]) {
    if (gethostname(out, HOST_NAME_CAP) != 0) *out = '\0';
    out[HOST_NAME_CAP - 1] = '\0';
}
