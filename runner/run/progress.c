#include "runner/run/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "runner/base/clock.h"

/* The view is read and drawn twice a second: the directory may be on a shared disk. */
enum { VIEW_EVERY_MS = 500 };

void progress_begin(struct progress *p, const struct cli *cli, const char *name,
                    const char *path) {
    struct err ignored;
    *p = (struct progress){ .cli = cli, .name = name, .line_step = -1 };
    if (cli->quiet || live_reader_open(&p->reader, path, &ignored) != OK) return;
    p->shown = true;
    p->reader.own = true;
    p->reader.live.life = RUN_LIFE_LOCKED;
    p->terminal = screen_open(&p->screen, STDERR_FILENO, screen_variable);
    p->screen.color = cli->color_err;
}

/* What cannot be read now is read at the next poll. */
static void read_state(struct progress *p) {
    struct err ignored;
    p->read_ms = clock_ms();
    (void)!live_reader_poll(&p->reader, &ignored);
}

/* False: not now. */
static bool draw(struct progress *p) {
    return screen_show(&p->screen, &p->reader.live, stderr);
}

static void print_line(struct progress *p) {
    char line[256];
    const struct live *l = &p->reader.live;
    if (l->step < 0 || l->step == p->line_step) return;
    live_line(l, (int64_t)time(NULL), line, sizeof line);
    cli_note(p->cli, "%s", line);
    p->line_ms = clock_ms();
    p->line_step = l->step;
}

void progress_tick(struct progress *p) {
    int64_t now = clock_ms();
    if (!p->shown || now - p->read_ms < VIEW_EVERY_MS) return;
    if (!p->terminal && p->line_ms && now - p->line_ms < LIVE_LINE_EVERY_MS) return;
    read_state(p);
    if (p->terminal) (void)draw(p);
    else print_line(p);
}

void progress_say(struct progress *p, const char *text) {
    if (p->terminal) screen_erase(&p->screen);
    cli_note(p->cli, "%s: %s", p->name, text);
    p->read_ms = 0; /* the view comes back with the next tick */
}

void progress_end(struct progress *p) {
    if (p->shown) {
        read_state(p);
        if (!live_is_running(&p->reader.live)) p->reader.live.life = RUN_LIFE_NONE;
        if (!p->terminal) print_line(p);
        else if (!draw(p)) (void)draw(p); /* the size was changing: it counts as steady now */
    }
    p->shown = false;
    live_reader_close(&p->reader);
}
