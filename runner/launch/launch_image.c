/* The image that `make image` builds, and its name for each launcher. */
#include <stdio.h>
#include <string.h>

#include "runner/launch/launch.h"

static const char OWN[] = "fp8lab", PODMAN_HOST[] = "localhost/";

/* The image's name without podman's prefix. */
static const char *without_host(const char *image) {
    bool prefixed = !strncmp(image, PODMAN_HOST, sizeof PODMAN_HOST - 1);
    return prefixed ? image + sizeof PODMAN_HOST - 1 : image;
}

bool launch_image_is_own(const char *image) {
    const char *name = without_host(image);
    size_t n = sizeof OWN - 1;
    if (strncmp(name, OWN, n) != 0) return false;
    if (name[n] == '\0') return true;
    return name[n] == ':' && name[n + 1] && !strpbrk(name + n + 1, "/:@");
}

enum status launch_image_own(enum launcher launcher, const char *image, char out[LAUNCH_IMAGE_CAP],
                             struct err *e) {
    const char *asked = image ? image : OWN, *name = without_host(asked);
    const char *colon = strchr(name, ':'), *tag = colon ? colon + 1 : "latest";
    bool tagged = strcmp(tag, "latest") != 0;
    int n = -1;
    switch (launcher) {
    case LAUNCH_DOCKER:
        n = snprintf(out, LAUNCH_IMAGE_CAP, "%s", asked);
        break;
    case LAUNCH_PODMAN:
        n = snprintf(out, LAUNCH_IMAGE_CAP, "%s%s", PODMAN_HOST, name);
        break;
    case LAUNCH_APPTAINER: /* as `apptainer pull` names the file */
        n = snprintf(out, LAUNCH_IMAGE_CAP, "./%s%s%s.sif", OWN, tagged ? "_" : "",
                     tagged ? tag : "");
        break;
    case LAUNCH_SRUN: /* as `enroot import` names the file */
        n = snprintf(out, LAUNCH_IMAGE_CAP, "./%s%s%s.sqsh", OWN, tagged ? "+" : "",
                     tagged ? tag : "");
        break;
    case LAUNCHER_COUNT: break;
    }
    return n >= 0 && n < LAUNCH_IMAGE_CAP
               ? OK : FAIL(e, ERR_ARG, "--image %.100s: the name is too long", asked);
}
