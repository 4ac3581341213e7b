#include "runner/job/events.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"

enum { SETTLE_NAP_NS = 200000 }; /* a runner that is awake has read by then */

struct bytes {
    char *at; /* owned */
    size_t start, used, capacity; /* live bytes are [start, start+used) */
};

struct event_writer {
    int fd;
    struct bytes queue;
    int64_t dropped;
};

struct event_reader {
    int fd;
    struct bytes buffer;
    size_t scanned; /* live bytes known to hold no newline */
};

/* Makes room for n more live bytes. */
static bool bytes_reserve(struct bytes *b, size_t n) {
    if (b->start + b->used + n <= b->capacity) return true;
    if (b->start) memmove(b->at, b->at + b->start, b->used);
    b->start = 0;
    if (b->used + n <= b->capacity) return true;
    size_t capacity = b->capacity ? b->capacity : 65536;
    while (capacity < b->used + n) capacity *= 2;
    char *grown = realloc(b->at, capacity);
    if (!grown) return false;
    b->at = grown;
    b->capacity = capacity;
    return true;
}

static void bytes_drop(struct bytes *b, size_t n) {
    b->start += n;
    b->used -= n;
    if (!b->used) b->start = 0;
}

static enum status set_nonblocking(int fd, struct err *e) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return FAIL(e, ERR_IO, "event pipe (descriptor %d): %s", fd, strerror(errno));
    return OK;
}

/* ---- worker -----------------------------------------------------------------------------------*/

enum status event_writer_create(int fd, struct event_writer **out, struct err *e) {
    *out = NULL;
    TRY(set_nonblocking(fd, e));
    (void)fcntl(fd, F_SETPIPE_SZ, EVENT_PIPE_BYTES); /* a smaller pipe only queues more */
    struct event_writer *w = calloc(1, sizeof *w);
    if (!w) return FAIL(e, ERR_MEMORY, "event queue");
    w->fd = fd;
    *out = w;
    return OK;
}

void event_writer_destroy(struct event_writer *w) {
    if (!w) return;
    close(w->fd);
    free(w->queue.at);
    free(w);
}

/* Writes until the queue holds at most `most` bytes; without `wait`, until the pipe is full. */
static enum status drain(struct event_writer *w, size_t most, bool wait, struct err *e) {
    while (w->queue.used > most) {
        ssize_t n = write(w->fd, w->queue.at + w->queue.start, w->queue.used);
        if (n > 0) {
            bytes_drop(&w->queue, (size_t)n);
        } else if (n < 0 && errno == EPIPE) {
            return FAIL(e, ERR_PEER, "the runner is gone: its end of the event pipe is closed");
        } else if (n < 0 && errno == EAGAIN) {
            if (!wait) return OK;
            struct pollfd p = { .fd = w->fd, .events = POLLOUT };
            (void)poll(&p, 1, -1);
        } else if (n < 0 && errno != EINTR) {
            return FAIL(e, ERR_IO, "events: %s", strerror(errno));
        }
    }
    return OK;
}

enum status event_emit(struct event_writer *w, const json_t *event, bool may_drop, struct err *e) {
    TRY(drain(w, 0, false, e));
    if (may_drop && w->queue.used) {
        w->dropped++;
        return OK;
    }
    char *line = json_dump_text(event, JSON_COMPACT | JSON_SORT_KEYS);
    if (!line) return FAIL(e, ERR_MEMORY, "event");
    size_t n = strlen(line);
    enum status st = OK;
    if (!bytes_reserve(&w->queue, n + 1)) {
        st = FAIL(e, ERR_MEMORY, "event queue of %zu bytes", w->queue.used + n + 1);
    } else {
        char *end = w->queue.at + w->queue.start + w->queue.used;
        memcpy(end, line, n);
        end[n] = '\n';
        w->queue.used += n + 1;
    }
    free(line);
    TRY(st);
    TRY(drain(w, EVENT_QUEUE_MAX, true, e));
    return drain(w, 0, false, e);
}

enum status event_flush(struct event_writer *w, struct err *e) { return drain(w, 0, true, e); }

enum status event_settle(struct event_writer *w, struct err *e) {
    const struct timespec nap = { 0, SETTLE_NAP_NS };
    TRY(event_flush(w, e));
    for (int left = 0; ioctl(w->fd, FIONREAD, &left) == 0 && left > 0;) {
        if (event_reader_gone(w))
            return FAIL(e, ERR_PEER, "the runner is gone: %d bytes of events were not read", left);
        (void)nanosleep(&nap, NULL);
    }
    return OK;
}

int64_t event_dropped(const struct event_writer *w) { return w->dropped; }

bool event_reader_gone(const struct event_writer *w) {
    struct pollfd p = { .fd = w->fd, .events = POLLOUT };
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLERR | POLLNVAL));
}

/* ---- runner -----------------------------------------------------------------------------------*/

enum status event_reader_create(int fd, struct event_reader **out, struct err *e) {
    *out = NULL;
    TRY(set_nonblocking(fd, e));
    struct event_reader *r = calloc(1, sizeof *r);
    if (!r) return FAIL(e, ERR_MEMORY, "event reader");
    r->fd = fd;
    *out = r;
    return OK;
}

void event_reader_destroy(struct event_reader *r) {
    if (!r) return;
    close(r->fd);
    free(r->buffer.at);
    free(r);
}

int event_reader_fd(const struct event_reader *r) { return r->fd; }

enum status event_fill(struct event_reader *r, bool *open, struct err *e) {
    enum { CHUNK = 65536 };
    *open = true;
    for (int64_t taken = 0; taken < EVENT_LINE_MAX;) {
        if (r->buffer.used > EVENT_LINE_MAX)
            return FAIL(e, ERR_FORMAT, "an event line is longer than %d bytes", EVENT_LINE_MAX);
        if (!bytes_reserve(&r->buffer, CHUNK)) return FAIL(e, ERR_MEMORY, "event buffer");
        ssize_t n = read(r->fd, r->buffer.at + r->buffer.start + r->buffer.used, CHUNK);
        if (n > 0) {
            r->buffer.used += (size_t)n;
            taken += n;
        } else if (n == 0) {
            *open = false;
            return OK;
        } else if (errno == EAGAIN) {
            return OK;
        } else if (errno != EINTR) {
            return FAIL(e, ERR_IO, "events: %s", strerror(errno));
        }
    }
    return OK;
}

static enum status parse_event(const char *line, size_t n, json_t **out, struct err *e) {
    json_error_t why;
    json_t *event = NULL;
    enum status st = json_parse(&event, line, n, JSON_REJECT_DUPLICATES, &why);
    if (st == ERR_MEMORY) return FAIL(e, ERR_MEMORY, "an event of %zu bytes: %s", n, why.text);
    if (event && json_is_string(json_object_get(event, "event"))) {
        *out = event;
        return OK;
    }
    json_decref(event);
    return FAIL(e, ERR_FORMAT, "the worker wrote a line that is not an event: %.*s",
                (int)(n < 200 ? n : 200), line);
}

enum status event_next(struct event_reader *r, json_t **out, struct err *e) {
    *out = NULL;
    const char *line = r->buffer.at + r->buffer.start;
    const char *newline = r->buffer.used > r->scanned
                              ? memchr(line + r->scanned, '\n', r->buffer.used - r->scanned)
                              : NULL;
    if (!newline) {
        r->scanned = r->buffer.used;
        return OK;
    }
    size_t n = (size_t)(newline - line);
    enum status st = parse_event(line, n, out, e);
    bytes_drop(&r->buffer, n + 1);
    r->scanned = 0;
    return st;
}

enum status event_status(const json_t *event) {
    const char *name = json_text(event, "code", "");
    for (int s = ERR_ARG; s <= ERR_STATE; s++)
        if (!strcmp(status_name((enum status)s), name)) return (enum status)s;
    return ERR_STATE;
}
