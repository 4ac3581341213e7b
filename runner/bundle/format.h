/* The formats of a bundle. run.json says which one it is ("bundle_format"; absent: 1).
 *
 *   format 1  records of every stream as columns (.cols, columns.h); train, eval, telemetry and
 *             ranks also as lines. Before a run is closed, all its streams are lines.
 *   format 2  one file a stream: lines, or a NumPy array (record/streams.h)
 *
 * Bundles of both are read. A run that is closed or continued is brought to format 2. */
#ifndef FP8LAB_RUNNER_BUNDLE_FORMAT_H
#define FP8LAB_RUNNER_BUNDLE_FORMAT_H

#include "kernels/base.h"

struct json_t;

enum { BUNDLE_FORMAT = 2 };

/* ERR_FORMAT for a format that this program does not know. `run`: run.json. */
NODISCARD enum status bundle_format_of(const struct json_t *run, int64_t *format, struct err *e);

/* Where a file belongs in the table of streams. */
struct stream_file {
    int stream;   /* enum stream_id; -1: the file is of no stream */
    bool columns; /* the .cols file of format 1 */
};
struct stream_file stream_file_of(const char *path);

/* Whether `summary`, summary.json, names the file among the streams that could not be read when the
 * run was closed ("problems"). Readers skip such a stream. */
bool stream_is_damaged(const struct json_t *summary, const char *file);

/* Writes the wide streams of a run directory of format 1 as arrays, and then removes the files that
 * they were read from. The other streams keep their lines. After an error the old files are still
 * there, and a second call does the rest. ERR_FORMAT for damaged records. */
NODISCARD enum status format_upgrade(const char *run_dir, struct err *e);

/* Removes the .cols file of a stream whose lines are intact. */
NODISCARD enum status format_drop_columns(const char *run_dir, int stream, struct err *e);

/* Prepares the records of a closed run for more rows: format_upgrade() and format_drop_columns().
 * An array of a program with other metrics gets the metrics of this program. Old rows then have
 * NaN, or all ones, in the new metrics. */
NODISCARD enum status format_continue(const char *run_dir, struct err *e);

#endif
