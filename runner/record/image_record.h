/* What the image that this program runs in says about itself. The image's build writes the record
 * (containers/rootfs.sh) to IMAGE_RECORD_PATH: base and digest, platform, commit, CUDA libraries,
 * packages. */
#ifndef FP8LAB_RUNNER_RECORD_IMAGE_RECORD_H
#define FP8LAB_RUNNER_RECORD_IMAGE_RECORD_H

#include <jansson.h>

#include "kernels/base.h"
#include "runner/base/cli.h"
#include "runner/hardware/facts.h"

/* Whether this program runs in an image of ours. */
bool image_inside(void);

/* The record in `path`, with "inside": true; outside of an image {"inside": false} beside the
 * schema. One that cannot be read says so ("problem") and is no error: the run it is for is well.
 * New reference, NULL without memory. */
json_t *image_record(const char *path);

/* In an image, where the machine is not what the experiment asks for: the command that starts a
 * container on one that is, complete, and how it comes to its data. Nothing outside of an image. */
void image_hint(const struct cli *cli, const json_t *facts, const json_t *config);

/* `e` says that an experiment's data cannot be opened: adds what writes them, where we have such a
 * script here, and where else they may be. */
void image_data_hint(const json_t *config, struct err *e);

/* In an image, for `fp8lab` alone: how to start it. */
void image_welcome(const struct cli *cli);

#endif
