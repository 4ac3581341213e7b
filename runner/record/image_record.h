/* The record of the container image in which this program runs. The image's build
 * (containers/rootfs.sh) writes it to IMAGE_RECORD_PATH: base and digest, platform, commit, CUDA
 * libraries, packages. */
#ifndef FP8LAB_RUNNER_RECORD_IMAGE_RECORD_H
#define FP8LAB_RUNNER_RECORD_IMAGE_RECORD_H

#include <jansson.h>

#include "kernels/base.h"
#include "runner/base/cli.h"
#include "runner/hardware/facts.h"

/* Whether this program runs in an fp8lab image. */
bool image_inside(void);

/* The record in `path` with "inside": true; outside an image {"inside": false} beside the schema.
 * An unreadable record gets a "problem" member instead of an error, so that the run goes on. New
 * reference; NULL: out of memory. */
json_t *image_record(const char *path);

/* For a machine that does not match the experiment. Prints the complete command that starts the
 * image on a matching machine, and how to mount the data. Prints nothing outside an image. */
void image_hint(const struct cli *cli, const json_t *facts, const json_t *config);

/* `e` says that data cannot be opened. Adds the script that writes these data, if there is one, and
 * other places where they may be. */
void image_data_hint(const json_t *config, struct err *e);

/* For `fp8lab` without arguments in an image: prints how to start the image. */
void image_welcome(const struct cli *cli);

#endif
