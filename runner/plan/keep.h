/* The checkpoints that are kept after a run, and their bytes. */
#ifndef FP8LAB_RUNNER_PLAN_KEEP_H
#define FP8LAB_RUNNER_PLAN_KEEP_H

#include <jansson.h>

#include "runner/base/cli.h"
#include "runner/plan/options.h"

/* How many checkpoints are on the disk: never more than a run that nobody stops writes. */
struct keep_counts {
    int64_t during; /* maximum while the run trains, the one being written included */
    int64_t held;   /* maximum when the bundle is packed */
    int64_t count;  /* maximum after the run: a bundle has the newest checkpoint.keep */
};

/* As the experiment sets it, and changes that may need less disk. */
enum keep_way { KEEP_AS_SET, KEEP_ONE, KEEP_LAST_STEP, KEEP_UNPACKED, KEEP_WAYS };

struct keep {
    bool asked;      /* the experiment has `checkpoint`; always false for --smoke */
    bool loses;      /* it tunes the weights of `init` and keeps none; never with --smoke */
    bool init;       /* the one before the first step is kept */
    bool last, best; /* which others are kept; one checkpoint may be both */
    int64_t milestones, epochs; /* further ones; each may also be one of the above */
    bool packed;     /* in the bundle (archive = "full"), not beside it */
    struct keep_counts counts[KEEP_WAYS];
    int64_t steps;   /* of the run */
    int64_t bytes;   /* of one checkpoint, as planned; files have some KB of names in addition */
    int64_t bundled; /* bytes of one checkpoint in the bundle; 0: the bundle has none */
    int64_t there;   /* bytes on the disk that the run takes over or replaces when it resumes */
};

/* Which are kept, without bytes. smoke: a run of --smoke keeps none. */
struct keep keep_which(const struct run_options *run, bool smoke);

/* The same from a resolved configuration, with bytes. */
NODISCARD enum status keep_plan(const json_t *config, bool smoke, struct keep *out, struct err *e);

/* Free bytes of the disk that has `folder`, or the nearest folder above it that exists. */
NODISCARD enum status keep_free_bytes(const char *folder, int64_t *out, struct err *e);

/* What the checkpoints of several runs, one after another, need of a disk. */
struct keep_disk {
    const char *folder; /* on it; borrowed, may not exist yet */
    int64_t need, free; /* bytes; need is the maximum at once */
    int64_t one, during; /* of the run that needs the most: a checkpoint's bytes, how many */
    int64_t ways[KEEP_WAYS]; /* bytes that are needed after each change */
    int64_t alone;      /* bytes that the largest run needs without the others */
    int64_t steps;      /* of the longest run */
    bool archive_only;  /* a run keeps weights in its bundle and nowhere else */
};
NODISCARD enum status keep_disk(const char *folder, const struct keep *keeps, int64_t count,
                                struct keep_disk *out, struct err *e);

/* ERR_IO if there is no room. Names the free bytes, and each change with which there is room. */
NODISCARD enum status keep_check_disk(const struct keep_disk *disk, struct err *e);

/* Prints that there is room, if so. No line if nothing is written. */
void keep_say_disk(const struct cli *cli, const struct keep_disk *disk);

/* {"folder","bytes","free_bytes","fits"}; JSON null if nothing is written. New reference; NULL: out
 * of memory. */
json_t *keep_disk_json(const struct keep_disk *disk);

/* Prints for `count` runs which checkpoints are kept, in one line. Warns if an experiment with
 * `checkpoint` or `init` keeps none. on_stdout: for verbs whose result this is; else it is a
 * message. */
void keep_say(const struct cli *cli, const struct keep *keeps, int64_t count, bool on_stdout);

/* {"init","last","best","milestones","epochs","bytes","where": "beside", "bundle" or null}; JSON
 * null if the experiment has no `checkpoint`. New reference; NULL: out of memory. */
json_t *keep_json(const struct keep *keep);

#endif
