#include "runner/live/screen.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "runner/base/clock.h"

/* After a pause of this length someone else may have printed. */
enum { PAUSE_MS = 3000, COLUMNS_DEFAULT = 80, ROWS_DEFAULT = 24 };

typedef const char *(*variables)(const char *name);

static bool is_set(variables variable, const char *name) {
    const char *value = variable(name);
    return value && *value;
}

bool screen_locale_is_utf8(variables variable) {
    static const char *const NAMES[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        const char *value = variable(NAMES[i]);
        if (!value || !*value) continue; /* the first that is set decides: locale(7) */
        const char *set = strchr(value, '.');
        return set && (!strncasecmp(set + 1, "UTF-8", 5) || !strncasecmp(set + 1, "UTF8", 4));
    }
    return false;
}

/* Terminals that are known to break long lines again. For another one we leave a few old rows above
 * the block; the opposite mistake would erase text of others. */
static bool known_to_reflow(variables variable) {
    static const char *const NAMES[] = { "TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "WT_SESSION",
                                         "KONSOLE_VERSION", "ALACRITTY_WINDOW_ID", "TERM_PROGRAM" };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (is_set(variable, NAMES[i])) return true;
    return false;
}

const char *screen_variable(const char *name) { return getenv(name); }

bool screen_open(struct screen *s, int fd, variables variable) {
    const char *term = variable("TERM");
    *s = (struct screen){ .fd = fd, .ascii = !screen_locale_is_utf8(variable),
                          .reflows = known_to_reflow(variable),
                          .color = !is_set(variable, "NO_COLOR") };
    return isatty(fd) && term && *term && strcmp(term, "dumb") != 0 &&
           !variable("OMPI_COMM_WORLD_RANK");
}

static bool in_background(int fd) {
    pid_t group = tcgetpgrp(fd); /* -1: not this process's terminal, so nothing stops us */
    return group > 0 && group != getpgrp();
}

static bool takes_text(int fd) {
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    return poll(&p, 1, 0) == 1 && (p.revents & POLLOUT);
}

bool screen_size(struct screen *s, int64_t now_ms, int64_t *columns, int64_t *rows) {
    struct winsize size;
    bool known = ioctl(s->fd, TIOCGWINSZ, &size) == 0;
    *columns = known && size.ws_col ? size.ws_col : COLUMNS_DEFAULT;
    *rows = known && size.ws_row ? size.ws_row : ROWS_DEFAULT;
    bool steady = !s->looked_ms || (*columns == s->seen_columns && *rows == s->seen_rows);
    if (s->looked_ms && now_ms - s->looked_ms > PAUSE_MS) screen_leave(s);
    s->seen_columns = *columns;
    s->seen_rows = *rows;
    s->looked_ms = now_ms;
    if (in_background(s->fd)) {
        screen_leave(s);
        return false;
    }
    return steady && takes_text(s->fd);
}

/* How many rows the old block takes on a terminal of this size, at most those above the cursor. */
static int64_t rows_of_block(const struct screen *s, int64_t columns, int64_t rows) {
    int64_t count = 0;
    if (!s->columns) return 0;
    for (int64_t i = 0; i < s->lines.count; i++) {
        int64_t width = s->lines.line[i].columns;
        bool broken = s->reflows && columns < s->columns && width > columns;
        count += broken ? ceil_div(width, columns) : 1;
    }
    return count < rows ? count : rows - 1;
}

void screen_compose(struct screen *s, const struct live_lines *lines, int64_t columns,
                    int64_t rows, struct text *out) {
    char up[32];
    int64_t old = rows_of_block(s, columns, rows);
    text_puts(out, "\r");
    if (old > 0) {
        snprintf(up, sizeof up, "\033[%dA", (int)old);
        text_puts(out, up);
    }
    for (int64_t i = 0; lines && i < lines->count; i++) {
        text_puts(out, lines->line[i].text);
        text_puts(out, "\033[K\r\n");
    }
    text_puts(out, "\033[J");
    s->columns = lines ? columns : 0;
    s->rows = lines ? rows : 0;
    if (lines) s->lines = *lines;
}

/* A terminal that fails is left alone: the run matters more than its view. */
static void put(int fd, const struct text *t) {
    size_t done = 0;
    while (!t->failed && done < t->size) {
        ssize_t n = write(fd, t->bytes + done, t->size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        done += (size_t)n;
    }
}

/* Whether these lines stand there already. */
static bool is_drawn(const struct screen *s, const struct live_lines *lines, int64_t columns,
                     int64_t rows) {
    if (s->columns != columns || s->rows != rows || s->lines.count != lines->count) return false;
    for (int64_t i = 0; i < lines->count; i++)
        if (strcmp(s->lines.line[i].text, lines->line[i].text) != 0) return false;
    return true;
}

void screen_draw(struct screen *s, const struct live_lines *lines, int64_t columns, int64_t rows) {
    struct text text = { 0 };
    if (lines && is_drawn(s, lines, columns, rows)) return;
    screen_compose(s, lines, columns, rows, &text);
    put(s->fd, &text);
    text_free(&text);
}

bool screen_show(struct screen *s, const struct live *l, FILE *out) {
    struct live_lines lines;
    struct live_look look = { .ascii = s->ascii, .color = s->color, .now = (int64_t)time(NULL) };
    if (!screen_size(s, clock_ms(), &look.columns, &look.rows)) return false;
    live_view(l, &look, &lines);
    fflush(out);
    screen_draw(s, &lines, look.columns, look.rows);
    return true;
}

void screen_erase(struct screen *s) {
    if (s->columns) screen_draw(s, NULL, s->columns, s->rows);
}

void screen_leave(struct screen *s) { s->columns = s->rows = 0; }
