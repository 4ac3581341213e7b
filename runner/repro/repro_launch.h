/* All of `repro --launch`: the reproduction inside a container. */
#ifndef FP8LAB_RUNNER_REPRO_LAUNCH_H
#define FP8LAB_RUNNER_REPRO_LAUNCH_H

#include "runner/base/cli.h"
#include "runner/repro/repro_source.h"

/* `runs`: the folder of the new run. The container sees it, the bundle, and the paths that the user
 * names. Returns the exit code, as launch(). */
int repro_launch(const struct cli *cli, const struct repro_source *source, const char *runs);

#endif
