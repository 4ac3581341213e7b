/* Whether `run` finds room on the disk. `check` and `plan` ask before it. */
#ifndef FP8LAB_RUNNER_DISK_ROOM_H
#define FP8LAB_RUNNER_DISK_ROOM_H

#include "runner/base/paths.h"
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

/* What the tokens of the rows' text will take of the disk, in their folder. */
struct token_room {
    char folder[PATH_CAP];
    int64_t most, free; /* bytes; most is about the maximum, and 0 if there is nothing to make */
};
/* data_root: prefix of the text's paths, or NULL. */
NODISCARD enum status token_room_find(const char *runs, const char *data_root,
                                      const struct resolution *r, struct token_room *out,
                                      struct err *e);
/* Prints it; nothing for no tokens. */
void token_room_say(const struct cli *cli, const struct token_room *room);
/* Warns if they and the checkpoints may be too large for the disk. No error: text that is like
 * most has far fewer tokens than bytes. */
void token_room_warn(const struct cli *cli, const struct token_room *room,
                     const struct keep_disk *disk);
/* {"folder","bytes_max","free_bytes"}; null for no tokens. New reference; NULL: out of memory. */
json_t *token_room_json(const struct token_room *room);

/* The exit code of `run`, which does not start without room; says what is missing. Only warns if
 * the script asks for another machine. */
int disk_room_check(const struct cli *cli, const struct resolution *r,
                    const struct keep_disk *disk);

#endif
