/* PREFIX.progress.part: how far an ingestion is, for the next process after a kill. It never says
 * more than the disk has: the files that it describes are on disk before it is replaced. A thread
 * of its own does this, so that nobody waits for the disk. */
#ifndef FP8LAB_RUNNER_INGEST_SAVE_H
#define FP8LAB_RUNNER_INGEST_SAVE_H

#include <jansson.h>
#include <pthread.h>

#include "runner/ingest/part.h"

enum { SAVE_PARTS = 8 };

/* Zero-initialise it, and set `path`. */
struct save {
    char path[PART_NAME];
    bool exists;         /* a state is on disk; the thread may set it */
    bool running;        /* the thread */
    pthread_t thread;
    const struct part *part[SAVE_PARTS]; /* borrowed until save_wait() */
    int parts;
    char *text;          /* owned */
    enum status status;  /* of the thread */
    struct err e;
};

/* The state of an earlier process; *out is owned. NULL: there is none, or it is damaged, which
 * *damaged says. */
NODISCARD enum status save_read(struct save *s, json_t **out, bool *damaged, struct err *e);

/* Waits for the last one; then begins to write the parts and the state (taken; NULL: no memory) to
 * disk. */
NODISCARD enum status save_write(struct save *s, json_t *state, const struct part *const *part,
                                 int parts, struct err *e);
/* Waits until it is on disk. ERR_IO. */
NODISCARD enum status save_wait(struct save *s, struct err *e);
/* The same before the process gives up: an error is forgotten. */
void save_end(struct save *s);

/* Waits, and removes the file. */
void save_remove(struct save *s);

#endif
