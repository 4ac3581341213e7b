/* Whether `run` would find room on the disk, for `check` and `plan`. */
#ifndef FP8LAB_RUNNER_DISK_ROOM_H
#define FP8LAB_RUNNER_DISK_ROOM_H

#include "runner/plan/keep.h"
#include "runner/script/resolve.h"

/* The exit code of `run`, which does not start without room; says what is missing. Only warns if
 * the script asks for another machine, and if runs of the script are in the folder already, since
 * `run` needs less room for a run that is done or resumed. */
int disk_room_check(const struct cli *cli, const struct resolution *r,
                    const struct keep_disk *disk);

#endif
