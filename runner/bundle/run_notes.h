/* A user's tags and note on a run: runs/<run-id>.notes.json, beside the bundle. They are no part of
 * the run, so its identity and its hashes do not depend on them. */
#ifndef FP8LAB_RUNNER_BUNDLE_RUN_NOTES_H
#define FP8LAB_RUNNER_BUNDLE_RUN_NOTES_H

#include <jansson.h>

#include "runner/base/run_files.h"

enum { RUN_TAG_MAX = 40, RUN_TAGS_MAX = 32, RUN_NOTE_MAX = 2000 /* bytes */ };

/* The file of the run at `path` (its bundle or its directory). */
NODISCARD enum status run_notes_path(char out[PATH_CAP], const char *path, struct err *e);

/* {"schema", "tags": [sorted texts], "note": text or null}, whether or not there is a file; owned
 * by the caller. ERR_FORMAT, with the path: a link, no file, too large, or not such an object. */
NODISCARD enum status run_notes_read(const char *path, json_t **out, struct err *e);

/* Waits for other changes of these notes and keeps them out until *fd, the caller's, is closed. The
 * lock is on the run itself (`path`), so it leaves no file. Where the file system has no such lock,
 * there is none. ERR_IO: `path` cannot be opened. */
NODISCARD enum status run_notes_lock(const char *path, int *fd, struct err *e);

/* Replaces the file, or removes it if there are no tags and no note. */
NODISCARD enum status run_notes_write(const char *path, const json_t *notes, struct err *e);

/* Adds or removes a tag. ERR_ARG: it is not 1 to RUN_TAG_MAX of A-Z a-z 0-9 . _ -, there are too
 * many, or the run does not have it. */
NODISCARD enum status run_notes_add(json_t *notes, const char *tag, struct err *e);
NODISCARD enum status run_notes_remove(json_t *notes, const char *tag, struct err *e);

bool run_notes_have(const json_t *notes, const char *tag);

/* "a, b"; "" without tags. Owned by the caller (free); NULL: no memory. */
char *run_notes_tags(const json_t *notes);

#endif
