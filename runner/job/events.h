/* The event pipe from a worker to its runner: one JSON object a line. A flag gives the worker its
 * file descriptor. runner/worker/README.md, "Events", lists the events.
 *
 * While the pipe is full a worker drops telemetry, and counts it. It queues all other events in
 * memory, and waits for the runner only at EVENT_QUEUE_MAX bytes. */
#ifndef FP8LAB_RUNNER_JOB_EVENTS_H
#define FP8LAB_RUNNER_JOB_EVENTS_H

#include "kernels/base.h"

struct json_t;

enum {
    EVENT_LINE_MAX = 16 << 20,  /* a longer line is not an event: ERR_FORMAT */
    EVENT_QUEUE_MAX = 64 << 20, /* queued bytes at which the worker waits */
    EVENT_PIPE_BYTES = 1 << 20  /* asked of the kernel; a smaller pipe works too */
};

/* ---- worker -----------------------------------------------------------------------------------*/
struct event_writer;

/* Takes over `fd` (closed by destroy) and makes it non-blocking. SIGPIPE must be ignored. */
NODISCARD enum status event_writer_create(int fd, struct event_writer **out, struct err *e);
void event_writer_destroy(struct event_writer *w); /* NULL is fine; what is queued is lost */

/* Queues one event and writes as much as the pipe takes. `event` is borrowed. With `may_drop`, the
 * event is dropped instead if older bytes are still waiting. ERR_PEER: the runner is gone. */
NODISCARD enum status event_emit(struct event_writer *w, const struct json_t *event, bool may_drop,
                                 struct err *e);
/* Waits until all is written. ERR_PEER: the runner is gone. */
NODISCARD enum status event_flush(struct event_writer *w, struct err *e);
/* Waits until the runner has read everything from the pipe. A kill after that loses no event.
 * ERR_PEER: the runner is gone. */
NODISCARD enum status event_settle(struct event_writer *w, struct err *e);
/* Events dropped so far. */
int64_t event_dropped(const struct event_writer *w);
/* Whether the reading end is closed. */
bool event_reader_gone(const struct event_writer *w);

/* ---- runner -----------------------------------------------------------------------------------*/
struct event_reader;

/* Takes over `fd` (closed by destroy) and makes it non-blocking. */
NODISCARD enum status event_reader_create(int fd, struct event_reader **out, struct err *e);
void event_reader_destroy(struct event_reader *r); /* NULL is fine */

/* Reads what has arrived, without waiting. *open becomes false at the end of the stream. */
NODISCARD enum status event_fill(struct event_reader *r, bool *open, struct err *e);
/* The next whole event, owned by the caller, or *out NULL if none has arrived. A line that is not a
 * JSON object with an "event" text is ERR_FORMAT, and is skipped. An incomplete last line, as a
 * killed worker leaves it, is never returned. */
NODISCARD enum status event_next(struct event_reader *r, struct json_t **out, struct err *e);
int event_reader_fd(const struct event_reader *r);

/* The code of an "error" event, which has its name; ERR_STATE if it has none that is known. */
enum status event_status(const struct json_t *event);

#endif
