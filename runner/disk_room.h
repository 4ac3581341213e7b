/* Whether `run` finds room on the disk. `check` and `plan` ask before it. */
#ifndef FP8LAB_RUNNER_DISK_ROOM_H
#define FP8LAB_RUNNER_DISK_ROOM_H

#include "runner/plan/keep.h"
#include "runner/run/sharing.h"
#include "runner/script/resolve.h"

/* Lessens what a row needs: one that ended needs nothing, one to resume has a part there. */
NODISCARD enum status disk_room_row(const struct row_state *state, struct keep *keep,
                                    struct err *e);

/* As keep_disk() for the rows of `r`. If that is too much, without what runs in the folder have
 * done of the rows. `keeps` is not changed. Reads no data: a row whose data changed counts as done,
 * and `run` then needs more. */
NODISCARD enum status disk_room_find(const char *folder, const struct resolution *r,
                                     const struct keep *keeps, struct keep_disk *out,
                                     struct err *e);

/* The exit code of `run`, which does not start without room; says what is missing. Only warns if
 * the script asks for another machine. */
int disk_room_check(const struct cli *cli, const struct resolution *r,
                    const struct keep_disk *disk);

#endif
