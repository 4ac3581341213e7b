#include "runner/run/side_by_side.h"

#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/clock.h"
#include "runner/hardware/nvml.h"
#include "runner/job/events.h"
#include "runner/plan/backends.h"
#include "runner/run/slot_messages.h"
#include "runner/run/slot_order.h"
#include "runner/run/slot_process.h"

enum { POLL_MS = 500, END_CAP = 80 };

/* ---- the plan ---------------------------------------------------------------------------------*/

static int64_t most_gpus(const struct suite *s) {
    int64_t most = 1;
    for (int64_t i = 0; i < s->resolution->run_count; i++) {
        const json_t *config = s->resolution->runs[i].config_json;
        int64_t gpus = json_int(json_object_get(config, "hardware"), "gpus");
        if (gpus > most) most = gpus;
    }
    return most;
}

static int64_t processors_here(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

enum status side_by_side_plan(const struct suite *s, int64_t slots, struct slot_shares *out,
                              struct err *e) {
    const struct run_settings *settings = s->settings;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    *out = (struct slot_shares){ 0 };
    if (slots < 2) return OK;
    if (!s->resolution->suite)
        return FAIL(e, ERR_ARG, "--side-by-side runs rows at the same time, and %s is no suite: it "
                    "has one run (--repeat N makes N rows of it)", s->resolution->name);
    if (slots > s->resolution->run_count) slots = s->resolution->run_count;
    if (slots < 2) return OK;
    bool cpu = !strcmp(settings->backend, "cpu") || backend_without_gpu(settings->backend);
    if (cpu)
        return slot_shares_threads(processors_here(), settings->threads, slots, most_gpus(s), out,
                                   e);
    struct nvml_report *report = malloc(sizeof *report);
    if (!report) return FAIL(e, ERR_MEMORY, "the GPUs of this machine");
    nvml_read(report);
    nvml_keep_visible(report, visible);
    enum status st = slot_shares_gpus(report, visible, slots, most_gpus(s), out, e);
    free(report);
    return st;
}

/* ---- the slots --------------------------------------------------------------------------------*/

struct place {
    struct slot_process process;
    bool ready, told_end; /* ready: it takes rows */
    bool explained;       /* it said why it ends */
    bool gone;            /* its end was taken into account */
    int64_t row;          /* that it runs; -1: none */
};

struct side {
    struct suite *s;
    const struct slot_shares *shares;
    struct place *place; /* [count]; owned */
    int64_t count;
    bool *waits;         /* for each row: nobody has taken it; owned */
    int64_t beginning;   /* the slot whose row has no directory yet: the claim is held; -1: none */
    int signo;           /* that asked to stop; 0: none */
    bool stop;           /* no further row begins */
    struct err error;    /* the first one that ends the command; code OK: none */
    struct err unready;  /* why the first process that takes no row does not; code OK: none */
};

/* Running rows go on to their end. */
static void keep_error(struct side *b, const struct err *why) {
    if (b->error.code != OK) cli_warn(b->s->settings->cli, "%s", why->text);
    else b->error = *why;
    b->stop = true;
}

static const char *name_of(const struct side *b, const struct place *p) {
    return b->shares->share[p - b->place].name;
}

/* Sends and releases the message. A process that is gone is noticed when it is reaped. */
static void tell(struct place *p, json_t *message) {
    struct err ignored;
    bool sent = message && p->process.open &&
                event_emit(p->process.out, message, false, &ignored) == OK;
    if (sent) (void)!event_flush(p->process.out, &ignored);
    json_decref(message);
}

static json_t *share_json(const struct side *b, int64_t i) {
    const struct slot_share *share = &b->shares->share[i];
    json_t *gpus = json_array();
    bool failed = false;
    for (int64_t k = 0; k < share->gpus; k++)
        json_append(gpus, json_integer(share->gpu[k]), &failed);
    return json_pack("{s:s,s:I,s:I,s:o}", "event", "slot", "slot", (json_int_t)i, "threads",
                     (json_int_t)share->threads, "gpus", json_whole(gpus, failed));
}

static enum status start_all(struct side *b, struct err *e) {
    const struct run_settings *settings = b->s->settings;
    for (int64_t i = 0; i < b->count; i++) {
        const struct slot_share *share = &b->shares->share[i];
        struct place *p = &b->place[i];
        FILE *results = settings->cli->json ? stderr : stdout; /* stdout gets one object only */
        p->row = -1;
        TRY(slot_process_start(settings->cli->argv, share->visible, settings->signals, results,
                               share->name, &p->process, e));
        tell(p, share_json(b, i));
    }
    return OK;
}

/* ---- rows -------------------------------------------------------------------------------------*/

/* The run has its directory: other commands see it now. */
static void take_begun(struct side *b, const struct place *p, const json_t *message) {
    struct row_state *state = &b->s->rows[p->row].state;
    *state = (struct row_state){ .kind = ROW_RUNNING, .seen_locked = true };
    (void)!path_join(state->path, b->s->settings->runs, json_text(message, "run", ""), NULL);
    claim_drop(b->s->settings->claim);
    b->beginning = -1;
}

static enum status take_ended(struct side *b, struct place *p, const json_t *message,
                              struct err *e) {
    struct suite_row *row = &b->s->rows[p->row];
    TRY(slot_outcome_read(json_object_get(message, "outcome"), b->s->settings->runs, &row->outcome,
                          e));
    suite_note_end(b->s, p->row);
    int code = row->outcome.exit_code;
    if (code > EXIT_SIGNAL || code == EXIT_SYSTEM) b->stop = true;
    p->row = -1;
    return OK;
}

/* The process could not go on. One that has no row leaves its rows to the others. */
static void take_error(struct side *b, struct place *p, const json_t *message) {
    struct err why = { 0 };
    p->explained = true;
    if (b->signo) return;
    (void)!FAIL(&why, event_status(message), "%s: %s", name_of(b, p),
                json_text(message, "text", "?"));
    if (p->row >= 0) {
        keep_error(b, &why);
        return;
    }
    cli_warn(b->s->settings->cli, "%s; it takes no row", why.text);
    if (b->unready.code == OK) b->unready = why;
}

static enum status take_message(struct side *b, struct place *p, const json_t *message,
                                struct err *e) {
    const char *kind = json_text(message, "event", "");
    bool of_row = p->row >= 0 && json_int(message, "row") == p->row;
    if (!strcmp(kind, "ready")) p->ready = true;
    if (!strcmp(kind, "begun") && of_row) take_begun(b, p, message);
    if (!strcmp(kind, "error")) take_error(b, p, message);
    return strcmp(kind, "ended") || !of_row ? OK : take_ended(b, p, message, e);
}

static enum status take_messages(struct side *b, struct place *p, struct err *e) {
    if (p->process.open) TRY(event_fill(p->process.in, &p->process.open, e));
    for (;;) {
        json_t *message = NULL;
        TRY(event_next(p->process.in, &message, e));
        if (!message) return OK;
        enum status st = take_message(b, p, message, e);
        json_decref(message);
        TRY(st);
    }
}

/* How many processes take rows, or took them until they died. */
static int64_t taking(const struct side *b) {
    int64_t n = 0;
    for (int64_t i = 0; i < b->count; i++) n += b->place[i].ready;
    return n;
}

/* Gives the slot its next row; *given is false if there is none. */
static enum status give_row(struct side *b, struct place *p, bool *given, struct err *e) {
    struct suite *s = b->s;
    *given = false;
    for (;;) {
        int64_t i = slot_order_next(b->waits, s->resolution->run_count, s->repeat, p - b->place,
                                    b->count);
        if (i < 0) return OK;
        b->waits[i] = false;
        TRY(suite_open_row(s, i, given, e));
        if (!*given) continue; /* an earlier run's, or left to another command */
        tell(p, json_pack("{s:s,s:I,s:s,s:o,s:I,s:o,s:o*}", "event", "row", "row",
                          (json_int_t)i, "config", s->resolution->runs[i].config_sha256, "inputs",
                          inputs_json(&s->rows[i].inputs), "slots", (json_int_t)taking(b),
                          "state", slot_state_json(&s->rows[i].state), "rows",
                          suite_rows_json(s, i)));
        p->row = i;
        b->beginning = p - b->place;
        return OK;
    }
}

/* Rows begin when all processes have read script and data: one that is early would take rows of
 * those whose turn it is (slot_order.h). */
static bool all_awake(const struct side *b) {
    for (int64_t i = 0; i < b->count; i++)
        if (!b->place[i].ready && !b->place[i].explained && !b->place[i].gone) return false;
    return true;
}

/* One row begins at a time: whoever reads the folder sees each run once it has its directory. */
static enum status give_rows(struct side *b, struct err *e) {
    if (!b->stop && !all_awake(b)) return OK;
    for (int64_t i = 0; i < b->count; i++) {
        struct place *p = &b->place[i];
        bool given = false;
        if (!p->ready || p->told_end || p->explained || p->row >= 0 || p->gone) continue;
        if (!b->stop && b->beginning >= 0) return OK;
        if (!b->stop) TRY(give_row(b, p, &given, e));
        if (given) continue;
        tell(p, json_pack("{s:s}", "event", "end"));
        p->told_end = true;
    }
    return OK;
}

/* ---- ends -------------------------------------------------------------------------------------*/

static void say_end(const struct side *b, const struct place *p) {
    char how[END_CAP];
    slot_process_end_text(&p->process, how, sizeof how);
    if (p->row >= 0)
        cli_warn(b->s->settings->cli, "%s: its process ended by %s in %s; this command takes the "
                 "row over at the end", name_of(b, p), how, b->s->resolution->runs[p->row].name);
    else
        cli_warn(b->s->settings->cli, "%s: its process ended by %s, without a row; the others go "
                 "on", name_of(b, p), how);
}

static enum status reap(struct side *b, struct place *p, struct err *e) {
    if (!slot_process_reap(&p->process)) return OK;
    p->gone = true;
    enum status st = take_messages(b, p, e); /* what it sent before its end */
    p->process.open = false;
    if (b->beginning == p - b->place) {
        claim_drop(b->s->settings->claim);
        b->beginning = -1;
    }
    if (!p->told_end && !p->explained && !b->signo) say_end(b, p);
    return st;
}

static bool all_gone(const struct side *b) {
    for (int64_t i = 0; i < b->count; i++)
        if (!b->place[i].gone) return false;
    return true;
}

/* ---- the loop ---------------------------------------------------------------------------------*/

/* A stop request goes to all. Another one, after a second or later, makes each exit at once. */
static void take_signals(struct side *b) {
    const struct suite *s = b->s;
    int64_t now = clock_ms();
    for (int signo; (signo = signals_take_request(s->settings->signals, now)) != 0;) {
        if (!b->signo) b->signo = signo;
        b->stop = true;
        for (int64_t i = 0; i < b->count; i++)
            if (b->place[i].process.pid) (void)kill(b->place[i].process.pid, signo);
    }
}

static void wait_for_input(const struct side *b) {
    struct pollfd fds[3 * SLOTS_MAX + 1] = { { .fd = b->s->settings->signals->fd } };
    nfds_t n = 1;
    for (int64_t i = 0; i < b->count; i++) {
        const struct slot_process *p = &b->place[i].process;
        if (p->open) fds[n++].fd = event_reader_fd(p->in);
        for (int k = 0; k < SLOT_STREAMS; k++)
            if (p->lines[k].fd >= 0) fds[n++].fd = p->lines[k].fd;
    }
    for (nfds_t i = 0; i < n; i++) fds[i].events = POLLIN;
    (void)poll(fds, n, POLL_MS);
}

static void look_after(struct side *b, struct place *p) {
    struct err why = { 0 };
    slot_process_print(&p->process, false);
    enum status st = take_messages(b, p, &why);
    if (st == OK) st = reap(b, p, &why);
    if (st == OK) return;
    keep_error(b, &why);
    if (p->process.pid) (void)kill(p->process.pid, SIGTERM); /* nobody understands it any more */
    p->process.open = false;
}

static void run_until_gone(struct side *b) {
    while (!all_gone(b)) {
        struct err why = { 0 };
        wait_for_input(b);
        take_signals(b);
        for (int64_t i = 0; i < b->count; i++)
            if (!b->place[i].gone) look_after(b, &b->place[i]);
        if (give_rows(b, &why) != OK) keep_error(b, &why);
    }
}

/* Earlier runs stand for rows; *open: how many rows are left. */
static enum status take_earlier_rows(struct side *b, int64_t *open, struct err *e) {
    struct suite *s = b->s;
    *open = 0;
    for (int64_t i = 0; i < s->resolution->run_count; i++) {
        bool runs;
        if (s->rows[i].state.kind == ROW_ENDED && !s->again) TRY(suite_open_row(s, i, &runs, e));
        b->waits[i] = !s->rows[i].ended;
        *open += b->waits[i];
    }
    return OK;
}

static enum status conclude(const struct side *b, int *code, bool *stop, struct err *e) {
    *code = b->signo ? EXIT_SIGNAL + b->signo : suite_exit_code(b->s);
    *stop = b->stop;
    if (b->signo) return OK;
    if (b->error.code != OK) return FAIL(e, b->error.code, "%s", b->error.text);
    if (b->unready.code == OK || taking(b) > 0) return OK;
    return FAIL(e, b->unready.code, "none of the %" PRId64 " processes takes a row: %s", b->count,
                b->unready.text);
}

static enum status start(struct side *b, struct err *e) {
    struct suite *s = b->s;
    int64_t open;
    TRY(take_earlier_rows(b, &open, e));
    if (open < 2) return OK; /* the last row runs as without slots */
    b->count = open < b->shares->count ? open : b->shares->count;
    cli_note(s->settings->cli, "%" PRId64 " rows, %" PRId64 " at once", open, b->count);
    if (s->settings->signals->fd < 0) TRY(signals_open(s->settings->signals, e));
    return start_all(b, e);
}

enum status side_by_side_run(struct suite *s, const struct slot_shares *shares, int *code,
                             bool *stop, struct err *e) {
    int64_t rows = s->resolution->run_count;
    struct side b = { .s = s, .shares = shares, .beginning = -1,
                      .place = calloc((size_t)shares->count, sizeof *b.place),
                      .waits = calloc((size_t)rows + 1, sizeof *b.waits) };
    enum status st = b.place && b.waits ? start(&b, e)
                                        : FAIL(e, ERR_MEMORY, "%" PRId64 " rows", rows);
    if (st == OK) {
        run_until_gone(&b);
        st = conclude(&b, code, stop, e);
    }
    for (int64_t i = 0; b.place && i < b.count; i++) slot_process_close(&b.place[i].process);
    claim_drop(s->settings->claim);
    free(b.place);
    free(b.waits);
    return st;
}
