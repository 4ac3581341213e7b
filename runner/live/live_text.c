#include "runner/live/live_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "runner/base/bytes_text.h"
#include "runner/base/plain_text.h"

/* ---- numbers --------------------------------------------------------------------------------- */

void live_format_time(double seconds, char *out, size_t size) {
    if (!(seconds >= 0) || seconds > 1e9) {
        snprintf(out, size, "-");
        return;
    }
    int64_t s = (int64_t)(seconds + 0.5);
    int minutes = (int)(s / 60 % 60), rest = (int)(s % 60);
    if (s >= 86400)
        snprintf(out, size, "%" PRId64 " d %02d:%02d", s / 86400, (int)(s / 3600 % 24), minutes);
    else if (s >= 3600)
        snprintf(out, size, "%" PRId64 ":%02d:%02d", s / 3600, minutes, rest);
    else snprintf(out, size, "%" PRId64 ":%02d", s / 60, rest);
}

void live_format_count(double value, char *out, size_t size) {
    if (value < 999.5) snprintf(out, size, "%.0f", value);
    else if (value < 9950) snprintf(out, size, "%.1fk", value / 1e3);
    else if (value < 999500) snprintf(out, size, "%.0fk", value / 1e3);
    else snprintf(out, size, "%.2fM", value / 1e6);
}

static void format_step_time(double ms, char *out, size_t size) {
    if (ms >= 9999.5) snprintf(out, size, "%.1f s", ms / 1000);
    else snprintf(out, size, ms >= 9.995 ? "%.1f ms" : "%.2f ms", ms);
}

/* ---- lines ----------------------------------------------------------------------------------- */

enum { CELL_CAP = 256 };

struct page {
    struct live_lines *out;
    const struct live_look *look;
    int64_t columns;       /* that a line may have */
    int64_t indent;        /* of the lines that continue a row */
    int importance[LIVE_LINES_MAX], row_importance; /* 0: the most important line */
};

/* The columns of a character: two for those that may be wide. Blocks, and "…", have one. */
static int64_t columns_of(uint32_t code) {
    bool narrow = code < 0x1100 || (code >= 0x2000 && code < 0x2e80);
    return narrow ? 1 : 2;
}

static int64_t text_columns(const char *text) {
    int64_t columns = 0;
    uint32_t code;
    bool plain;
    while (*text) {
        text += plain_character(text, &code, &plain);
        columns += columns_of(code);
    }
    return columns;
}

/* Cuts the text to the columns, with "…" or "~" as its last character. */
static void cut_to(char *text, int64_t columns, bool ascii) {
    if (text_columns(text) <= columns) return;
    int64_t used = 0;
    uint32_t code;
    bool plain;
    char *at = text;
    while (*at) {
        size_t n = plain_character(at, &code, &plain);
        if (used + columns_of(code) > columns - 1) break;
        used += columns_of(code);
        at += n;
    }
    snprintf(at, 4, "%s", ascii ? "~" : "…"); /* a cell has room for it */
}

/* Begins a line of the current row. False: the view is full. */
static bool begin_line(struct page *p) {
    struct live_lines *o = p->out;
    if (o->count == LIVE_LINES_MAX) return false;
    o->line[o->count].text[0] = '\0';
    o->line[o->count].columns = 0;
    p->importance[o->count++] = p->row_importance;
    return true;
}

static void begin_row(struct page *p, int importance, int64_t indent) {
    p->row_importance = importance;
    p->indent = indent;
    (void)begin_line(p);
}

static void append(struct page *p, const char *text) {
    struct live_lines *o = p->out;
    size_t used = strlen(o->line[o->count - 1].text);
    snprintf(o->line[o->count - 1].text + used, LIVE_LINE_CAP - used, "%s", text);
}

/* Adds a cell to the row, two columns behind the last one, or on a new line. `style` is a sequence
 * of colour, or "". */
static void cell(struct page *p, const char *style, const char *format, ...) {
    static const char SPACES[] = "          ";
    struct live_lines *o = p->out;
    char text[CELL_CAP];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text - 4, format, args);
    va_end(args);
    plain_text(text);
    if (!o->count) return;
    int64_t used = o->line[o->count - 1].columns, gap = used ? 2 : 0, indent = 0;
    if (used && used + gap + text_columns(text) > p->columns) {
        if (!begin_line(p)) return;
        used = 0;
        gap = indent = p->indent;
    }
    cut_to(text, p->columns - used - gap, p->look->ascii);
    append(p, SPACES + sizeof SPACES - 1 - gap);
    bool styled = p->look->color && *style;
    if (styled) append(p, style);
    append(p, text);
    if (styled) append(p, "\033[0m");
    o->line[o->count - 1].columns = used + gap + text_columns(text);
}

#define BOLD "\033[1m"
#define DIM "\033[2m"
#define RED "\033[31m"
#define GREEN "\033[32m"
#define YELLOW "\033[33m"

/* ---- rows of the view ------------------------------------------------------------------------ */

/* "starting" before the first step; "packing" once it has ended, while its bundle is written. */
static const char *status_text(const struct live *l) {
    if (live_is_dead(l)) return "killed";
    if (live_is_running(l) && l->step < 0) return "starting";
    return l->status;
}

static const char *status_style(const char *status) {
    if (!strcmp(status, "done") || !strcmp(status, "time_limit")) return GREEN;
    if (!strcmp(status, "failed") || !strcmp(status, "killed")) return RED;
    return YELLOW;
}

static void put_head(struct page *p, const struct live *l) {
    const char *status = status_text(l);
    begin_row(p, 1, 2);
    cell(p, BOLD, "%s", l->name);
    cell(p, status_style(status), "%s%s", status,
         !live_is_running(l) && !live_is_over(l) && l->life == RUN_LIFE_LOCKED ? ", packing" : "");
    if (l->rows > 0) cell(p, "", "row %" PRId64 " of %" PRId64, l->row, l->rows);
    if (l->smoke) cell(p, YELLOW, "smoke run");
    if (l->writer.elsewhere) cell(p, DIM, "on %s", l->writer.host);
    if (l->attempts > 1) cell(p, DIM, "attempt %" PRId64, l->attempts);
    if (*l->recipe) cell(p, DIM, "%s", l->recipe);
    if (*l->device && l->ranks > 1) cell(p, DIM, "%" PRId64 " x %s", l->ranks, l->device);
    else if (*l->device) cell(p, DIM, "%s", l->device);
}

/* A bar in the columns, with a share of it filled. */
static void make_bar(char out[CELL_CAP], int64_t columns, double share, bool ascii) {
    int64_t full = (int64_t)(share * (double)columns);
    out[0] = '\0';
    for (int64_t i = 0; i < columns; i++)
        strcat(out, i < full ? (ascii ? "#" : "█") : (ascii ? "." : "░"));
}

static void put_progress(struct page *p, const struct live *l) {
    char time[32], bar[CELL_CAP];
    double eta = live_eta_s(l, p->look->now);
    int64_t step = l->step > 0 ? l->step : l->step < 0 ? l->from_step : 0;
    begin_row(p, 0, 2);
    if (l->steps <= 0) {
        cell(p, BOLD, "step %" PRId64, step);
        return;
    }
    double share = fmin(1, (double)step / (double)l->steps);
    cell(p, BOLD, "step %" PRId64 "/%" PRId64, step, l->steps);
    cell(p, "", "%.0f %%", floor(100 * share));
    live_format_time(eta, time, sizeof time);
    if (eta >= 0) cell(p, "", "ETA %s", time);
    int64_t until = l->ended ? l->ended : p->look->now;
    live_format_time(l->started ? (double)(until - l->started) : -1, time, sizeof time);
    if (!live_is_dead(l)) cell(p, DIM, "%s%s", l->ended ? "took " : "", time);
    int64_t room = p->columns - p->out->line[p->out->count - 1].columns - 2;
    if (room < 10) return;
    make_bar(bar, room, share, p->look->ascii);
    cell(p, "", "%s", bar);
}

/* The loss, and its curve: as wide as the line if that leaves room for the axis. */
static void put_loss(struct page *p, const struct live *l) {
    enum { AXIS = 9 };
    char rows[TREND_ROWS_MAX][TREND_TEXT_CAP], label[16];
    double low, high;
    begin_row(p, 2, 2);
    if (l->lacks_loss) cell(p, YELLOW, "no token with loss");
    else if (isfinite(l->loss)) cell(p, BOLD, "loss %.4f", l->loss);
    else cell(p, RED, "loss is not finite");
    if (isfinite(l->eval_loss)) {
        cell(p, "", "eval %.4f at step %.0f", l->eval_loss, l->eval_step);
        if (l->eval_best < l->eval_loss) cell(p, DIM, "best %.4f", l->eval_best);
    }
    if (l->spikes)
        cell(p, YELLOW, "%" PRId64 " spike%s, the last at step %" PRId64, l->spikes,
             l->spikes == 1 ? "" : "s", l->spike_step);
    if (isfinite(l->eval_accuracy)) cell(p, "", "accuracy %.1f %%", 100 * l->eval_accuracy);
    int64_t height = p->look->rows >= 16 ? 3 : 1;
    int64_t width = trend_draw(&l->losses, p->columns - AXIS, height, p->look->ascii, rows, &low,
                               &high);
    for (int64_t r = 0; width > 1 && r < height; r++) {
        label[0] = '\0';
        if (r == 0) snprintf(label, sizeof label, "%.4g", high);
        else if (r == height - 1) snprintf(label, sizeof label, "%.4g", low);
        begin_row(p, 4, 0);
        cell(p, DIM, "%*.*s", AXIS - 2, AXIS - 2, label);
        cell(p, "", "%s", rows[r]);
    }
}

/* The last losses on the sets of eval.also. */
static void put_sets(struct page *p, const struct live *l) {
    if (l->set_count == 0) return;
    begin_row(p, 5, 2);
    cell(p, DIM, "sets");
    for (int64_t i = 0; i < l->set_count; i++) {
        if (isfinite(l->set[i].loss)) cell(p, "", "%s %.4f", l->set[i].name, l->set[i].loss);
        else cell(p, RED, "%s is not finite", l->set[i].name);
    }
    cell(p, DIM, "at step %" PRId64, l->set_step);
}

static void put_speed(struct page *p, const struct live *l) {
    char text[32];
    begin_row(p, 3, 2);
    if (isfinite(l->lr)) cell(p, "", "lr %.1e", l->lr);
    if (isfinite(l->grad_norm)) cell(p, "", "grad %.3g", l->grad_norm);
    else cell(p, RED, "grad is not finite");
    format_step_time(l->step_ms, text, sizeof text);
    if (isfinite(l->step_ms)) cell(p, "", "%s", text);
    live_format_count(l->tokens_per_s, text, sizeof text);
    if (isfinite(l->tokens_per_s)) cell(p, "", "%s tokens/s", text);
    if (isfinite(l->mfu)) cell(p, "", "MFU %.1f %%", 100 * l->mfu);
    else if (isfinite(l->tflops)) cell(p, "", "%.1f TFLOP/s per GPU", l->tflops);
}

static void put_worst(struct page *p, const char *name, const struct live_worst *w) {
    if (!isfinite(w->share)) return;
    if (w->share > 0) cell(p, "", "%s %.2g %% (%s)", name, 100 * w->share, w->label);
    else cell(p, "", "%s 0 %%", name);
}

static void put_fp8(struct page *p, const struct live *l) {
    if (l->fp8_step < 0 || l->no_fp8) return;
    begin_row(p, 5, 2);
    cell(p, DIM, "FP8");
    if (!l->no_saturation) put_worst(p, "saturated", &l->saturated);
    put_worst(p, "underflow", &l->underflow);
}

/* Over the ranks: the sum, the smallest or the largest of a figure; NaN: no rank has it. */
struct over { double sum, least, most; int64_t count; };

static struct over over_ranks(const struct live *l, size_t member) {
    struct over o = { 0, (double)NAN, (double)NAN, 0 };
    for (int64_t i = 0; i < l->ranks; i++) {
        double x;
        memcpy(&x, (const char *)&l->rank[i] + member, sizeof x);
        if (!isfinite(x)) continue;
        o.sum += x;
        o.least = fmin(o.least, x);
        o.most = fmax(o.most, x);
        o.count++;
    }
    return o;
}
#define OVER(l, member) over_ranks(l, offsetof(struct live_rank, member))

static void put_memory(struct page *p, const struct live *l) {
    struct over host = OVER(l, rss_bytes), arenas = OVER(l, device_bytes);
    struct over gpu = OVER(l, gpu_used_bytes);
    char text[BYTES_TEXT_CAP];
    if (!host.count) return;
    begin_row(p, 6, 2);
    cell(p, DIM, "memory");
    if (gpu.count)
        cell(p, "", "GPU %s%s", bytes_text(gpu.most, text), l->ranks > 1 ? " at most" : "");
    cell(p, "", "arenas %s", bytes_text(arenas.most, text));
    cell(p, "", "host %s", bytes_text(host.sum, text));
}

static void put_device(struct page *p, const struct live *l) {
    struct over clock = OVER(l, clock_mhz), power = OVER(l, power_w);
    struct over temperature = OVER(l, temperature_c);
    if (!clock.count && !power.count) return;
    begin_row(p, 7, 2);
    cell(p, DIM, "%s", power.count > 1 ? "GPUs" : "GPU");
    if (clock.count > 1 && clock.least < clock.most)
        cell(p, "", "%.0f to %.0f MHz", clock.least, clock.most);
    else if (clock.count) cell(p, "", "%.0f MHz", clock.least);
    if (power.count) cell(p, "", "%.0f W", power.sum);
    if (temperature.count) cell(p, "", "%.0f C%s", temperature.most,
                                temperature.count > 1 ? " at most" : "");
}

static void put_event(struct page *p, const struct live *l) {
    if (!*l->event || !live_is_running(l)) return;
    begin_row(p, 8, 2);
    cell(p, DIM, "%s", l->event);
}

/* Adds a cell if it needs no line of its own. */
static void cell_if_room(struct page *p, const char *style, const char *text) {
    int64_t used = p->out->line[p->out->count - 1].columns;
    if (used + 2 + text_columns(text) <= p->columns) cell(p, style, "%s", text);
}

/* The last rows of the suite, a line each; the oldest is the first to be left out. */
static void put_rows(struct page *p, const struct live *l) {
    enum { SHOWN = 8, NAME_MAX_COLUMNS = 32, OTHERS = 27 }; /* "row 1", "done", "loss 1.2345" */
    int64_t from = l->row_count > SHOWN ? l->row_count - SHOWN : 0, widest = 0;
    int64_t room = p->columns - OTHERS < NAME_MAX_COLUMNS ? p->columns - OTHERS : NAME_MAX_COLUMNS;
    char text[CELL_CAP];
    if (!live_is_running(l) || live_is_dead(l)) return;
    for (int64_t i = from; i < l->row_count; i++)
        if (text_columns(l->ended_row[i].name) > widest)
            widest = text_columns(l->ended_row[i].name);
    if (widest > room) widest = room > 4 ? room : 4;
    for (int64_t i = from; i < l->row_count; i++) {
        const struct live_row *r = &l->ended_row[i];
        begin_row(p, 9 + (int)(l->row_count - i), 2);
        snprintf(text, sizeof text, "%s", r->name);
        cut_to(text, widest, p->look->ascii);
        cell(p, DIM, "row %" PRId64, r->row);
        cell(p, "", "%s%*s", text, (int)(widest - text_columns(text)), "");
        cell_if_room(p, status_style(r->status), r->status);
        snprintf(text, sizeof text, "loss %.4f", r->loss);
        if (isfinite(r->loss)) cell_if_room(p, "", text);
        snprintf(text, sizeof text, "eval %.4f", r->eval_loss);
        if (isfinite(r->eval_loss)) cell_if_room(p, "", text);
    }
}

static void put_end(struct page *p, const struct live *l) {
    char text[CELL_CAP];
    live_end_text(l, text, sizeof text);
    if (!*text) return;
    begin_row(p, 1, 2);
    cell(p, status_style(status_text(l)), "%s", text);
}

/* Drops the least important lines until the view has `most` lines. */
static void fit_height(struct page *p, int64_t most) {
    struct live_lines *o = p->out;
    while (o->count > most && o->count > 1) {
        int64_t worst = 0;
        for (int64_t i = 0; i < o->count; i++)
            if (p->importance[i] >= p->importance[worst]) worst = i;
        for (int64_t i = worst; i + 1 < o->count; i++) {
            o->line[i] = o->line[i + 1];
            p->importance[i] = p->importance[i + 1];
        }
        o->count--;
    }
}

void live_view(const struct live *l, const struct live_look *look, struct live_lines *out) {
    int64_t columns = look->columns - 1;
    if (columns > LIVE_COLUMNS_MAX) columns = LIVE_COLUMNS_MAX;
    if (columns < 12) columns = 12;
    struct page p = { .out = out, .look = look, .columns = columns };
    out->count = 0;
    put_head(&p, l);
    put_progress(&p, l);
    if (l->step >= 0) {
        put_loss(&p, l);
        put_sets(&p, l);
        put_speed(&p, l);
    }
    put_fp8(&p, l);
    put_memory(&p, l);
    put_device(&p, l);
    put_event(&p, l);
    put_rows(&p, l);
    put_end(&p, l);
    fit_height(&p, look->rows - 1);
}

/* ---- one line -------------------------------------------------------------------------------- */

void live_line(const struct live *l, int64_t now, char *out, size_t size) {
    char ms[32], rate[32], eta[32], eval[48] = "", mfu[32] = "", left[48] = "", of[32] = "";
    char row[64] = "", loss[32] = "no token with loss";
    double seconds = live_eta_s(l, now);
    format_step_time(l->step_ms, ms, sizeof ms);
    live_format_count(l->tokens_per_s, rate, sizeof rate);
    live_format_time(seconds, eta, sizeof eta);
    if (l->rows > 0) snprintf(row, sizeof row, "row %" PRId64 "/%" PRId64 "  ", l->row, l->rows);
    if (l->steps > 0) snprintf(of, sizeof of, "/%" PRId64, l->steps);
    if (!l->lacks_loss) snprintf(loss, sizeof loss, "loss %.3f", l->loss);
    if (isfinite(l->eval_loss)) {
        int n = snprintf(eval, sizeof eval, "  eval %.3f", l->eval_loss);
        if (l->eval_step != (double)l->step) /* an older one */
            snprintf(eval + n, sizeof eval - (size_t)n, " at step %.0f", l->eval_step);
    }
    if (isfinite(l->mfu)) snprintf(mfu, sizeof mfu, "  MFU %.1f %%", 100 * l->mfu);
    if (seconds >= 0) snprintf(left, sizeof left, "  ETA %s", eta);
    snprintf(out, size, "%sstep %" PRId64 "%s  %s  lr %.1e  grad %.3g  %s  %s tokens/s"
             "%s%s%s", row, l->step, of, loss, l->lr, l->grad_norm, ms, rate, eval, mfu, left);
}

void live_end_text(const struct live *l, char *out, size_t size) {
    const struct run_writer *w = &l->writer;
    *out = '\0';
    if (live_is_dead(l) && w->elsewhere)
        snprintf(out, size, "its runner on %s gave no sign of life for %d minutes", w->host,
                 RUN_LOCK_SILENT_S / 60);
    else if (live_is_dead(l))
        snprintf(out, size, "its runner is gone without closing it; step %" PRId64 " is recorded",
                 l->step > 0 ? l->step : 0);
    else if (!live_is_running(l) && *l->error) snprintf(out, size, "%s", l->error);
}
