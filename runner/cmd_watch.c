/* fp8lab watch: the live view of a run that any process runs, or of one that has ended. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "runner/base/clock.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/run_pick.h"
#include "runner/bundle/run_view.h"
#include "runner/commands.h"
#include "runner/live/live_bundle.h"
#include "runner/live/live_reader.h"
#include "runner/live/screen.h"

/* A poll of the files each second; the size of the terminal is looked at more often. */
enum { POLL_MS = 1000, NAP_MS = 200 };

struct watching {
    const struct cli *cli;
    const char *path;
    bool terminal, begun;   /* begun: something was shown */
    struct screen screen;
    struct live_reader reader;
    int64_t line_ms, line_step;
};

/* A line now and then; `last`: the last one, however soon it comes. */
static void show_line(struct watching *w, const struct live *l, bool last) {
    char text[256];
    if (l->step < 0 && !w->begun) cli_out(w->cli, "%s: no step is recorded yet\n", PLAIN(l->name));
    bool due = last || !w->line_ms || clock_ms() - w->line_ms >= LIVE_LINE_EVERY_MS;
    w->begun = true;
    if (l->step >= 0 && l->step != w->line_step && due) {
        live_line(l, (int64_t)time(NULL), text, sizeof text);
        cli_out(w->cli, "%s\n", text);
        w->line_ms = clock_ms();
        w->line_step = l->step;
    }
    if (last) {
        live_end_text(l, text, sizeof text);
        cli_out(w->cli, "%s%s%s\n", live_is_dead(l) ? "killed" : PLAIN(l->status),
                *text ? ": " : "", PLAIN(text));
    }
    fflush(stdout);
}

static void show(struct watching *w, const struct live *l, bool last) {
    if (!w->terminal) show_line(w, l, last);
    else (void)screen_show(&w->screen, l, stdout);
}

static void nap(void) {
    static const struct timespec MOMENT = { .tv_nsec = NAP_MS * 1000000L };
    (void)nanosleep(&MOMENT, NULL);
}

static int print_json(const struct watching *w, const struct live *l) {
    json_t *object = live_json(l, w->path, (int64_t)time(NULL));
    struct err e = { 0 };
    if (!object && FAIL(&e, ERR_MEMORY, "the state of a run") != OK) return cli_fail(w->cli, &e);
    cli_out_json(w->cli, object);
    json_decref(object);
    return EXIT_OK;
}

/* ---- a run that has ended -------------------------------------------------------------------- */

static enum status watch_bundle(struct watching *w, const char *path, int *code, struct err *e) {
    struct run_view view;
    TRY(run_view_load(path, RUN_VIEW_FULL, &view, e));
    live_of_view(&w->reader.live, &view);
    run_view_free(&view);
    if (w->cli->json) {
        *code = print_json(w, &w->reader.live);
        return OK;
    }
    show(w, &w->reader.live, true);
    cli_next(w->cli, "show", path, NULL);
    return OK;
}

/* ---- a directory ----------------------------------------------------------------------------- */

/* The directory went away: a run that ends is packed into the bundle beside it. */
static enum status follow_into_bundle(struct watching *w, int *code, struct err *e) {
    char bundle[PATH_CAP];
    TRY(run_packed(w->path, bundle, e));
    return watch_bundle(w, bundle, code, e);
}

static void say_next(const struct watching *w, const struct live *l) {
    char stem[PATH_CAP];
    run_stem(stem, w->path);
    if (live_is_dead(l)) cli_next(w->cli, "close", stem, NULL);
    else cli_next(w->cli, "show", stem, NULL);
}

/* Reads the files each second, and draws again at once if the size of the terminal changes. An
 * error of a later poll may pass, for example if a server restarts: it is said once. */
static enum status watch_directory(struct watching *w, int *code, struct err *e) {
    struct live_reader *r = &w->reader;
    bool failing = false;
    TRY(live_reader_poll(r, e));
    if (w->cli->json && !r->gone) {
        *code = print_json(w, &r->live);
        return OK;
    }
    for (int64_t read_ms = clock_ms(); !r->gone; nap()) {
        bool over = live_is_over(&r->live);
        show(w, &r->live, over);
        if (over) {
            say_next(w, &r->live);
            return OK;
        }
        if (clock_ms() - read_ms < POLL_MS) continue;
        read_ms = clock_ms();
        bool failed = live_reader_poll(r, e) != OK;
        if (failed && !failing) {
            if (w->terminal) screen_leave(&w->screen);
            cli_warn(w->cli, "%s; trying again", e->text);
        }
        failing = failed;
    }
    return follow_into_bundle(w, code, e);
}

static int cmd_watch(const struct cli *cli) {
    char path[PATH_CAP];
    struct watching *w = calloc(1, sizeof *w);
    struct err e = { 0 };
    int code = EXIT_OK;
    enum status st = w ? OK : FAIL(&e, ERR_MEMORY, "the view of a run");
    if (st == OK) {
        *w = (struct watching){ .cli = cli, .path = path, .line_step = -1 };
        st = run_locate(cli->args[0], cli_runs(cli), path, &e);
    }
    if (st == OK) {
        w->terminal = screen_open(&w->screen, STDOUT_FILENO, screen_variable);
        w->screen.color = cli->color;
        st = live_reader_open(&w->reader, path, &e);
    }
    if (st == OK)
        st = path_is_directory(path) ? watch_directory(w, &code, &e)
                                     : watch_bundle(w, path, &code, &e);
    if (w) live_reader_close(&w->reader);
    free(w);
    return st == OK ? code : cli_fail(cli, &e);
}

static const struct flag FLAGS[] = {
    { .name = "runs", .value = "DIR", .help = "where runs are looked up by id (default: runs)" },
};

const struct verb VERB_WATCH = {
    .name = "watch",
    .arguments = "RUN",
    .about = "the live view of a run, on this host or on a shared disk",
    .more = RUN_FORMS
            "\n"
            "Attaches to a run from before its first step until it ends, and says so if its\n"
            "runner is gone. Reads files only, once a second: the run does not notice. Ctrl-C\n"
            "ends the view, not the run. Without a terminal (or with TERM=dumb) it prints a line\n"
            "every few seconds; --json prints the state once and exits.\n"
            "FP8: the largest share of a tensor's elements that did not fit the format, or\n"
            "became 0, in the last recorded step. Spikes: short rises of the loss that are over.\n"
            "ETA: by the pace since the run was started or resumed. Of a suite: which\n"
            "row this is, and how those before it ended.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = cmd_watch,
};
