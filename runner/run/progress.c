#include "runner/run/progress.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runner/base/clock.h"
#include "runner/base/run_files.h"

enum { TERMINAL_EVERY_MS = 200, PLAIN_EVERY_MS = 5000 };

void progress_begin(struct progress *p, const struct cli *cli, const char *name, int64_t steps) {
    *p = (struct progress){ .cli = cli, .name = name, .steps = steps, .loss = NAN, .eval_loss = NAN,
                            .shown_step = -1 };
    p->terminal = isatty(STDERR_FILENO) && cli->color_err;
}

/* "1:02:03" or "2:03"; "-" while nothing is known. */
static void format_time(double seconds, char *out, size_t size) {
    if (!(seconds >= 0) || seconds > 1e8) {
        snprintf(out, size, "-");
        return;
    }
    int64_t s = (int64_t)(seconds + 0.5);
    if (s >= 3600)
        snprintf(out, size, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
    else snprintf(out, size, "%" PRId64 ":%02d", s / 60, (int)(s % 60));
}

static double eta_s(const struct progress *p) {
    int64_t done = p->step - p->first_step;
    if (done < 1) return -1;
    return (double)(clock_ms() - p->begin_ms) / 1000 / (double)done * (double)(p->steps - p->step);
}

static void show(struct progress *p) {
    char eta[32], eval[32] = "", mfu[32] = "";
    format_time(eta_s(p), eta, sizeof eta);
    if (!isnan(p->eval_loss)) snprintf(eval, sizeof eval, "  eval %.4f", p->eval_loss);
    if (p->mfu > 0) snprintf(mfu, sizeof mfu, "  MFU %.1f %%", 100 * p->mfu);
    fprintf(stderr, "%s%s  step %" PRId64 "/%" PRId64 "  loss %.4f%s  %.0f tokens/s%s  ETA %s%s",
            p->terminal ? "\r\033[K" : "", p->name, p->step, p->steps, p->loss, eval,
            p->tokens_per_s, mfu, eta, p->terminal ? "" : "\n");
    p->line_open = p->terminal;
    p->shown_ms = clock_ms();
    p->shown_step = p->step;
}

void progress_event(struct progress *p, const json_t *event) {
    const char *kind = json_text(event, "event", "");
    const json_t *loss = json_object_get(event, "loss");
    if (!strcmp(kind, "start")) {
        p->step = p->first_step = json_int(event, "step");
        p->begin_ms = clock_ms();
    } else if (!strcmp(kind, "eval")) {
        p->eval_loss = json_is_number(loss) ? json_number_value(loss) : NAN;
    } else if (!strcmp(kind, "step")) {
        double rate = json_number_value(json_object_get(event, "tokens_per_s"));
        p->step = json_int(event, "step");
        p->loss = json_is_number(loss) ? json_number_value(loss) : NAN;
        p->mfu = json_number_value(json_object_get(event, "mfu_peak"));
        p->tokens_per_s = p->tokens_per_s > 0 ? 0.9 * p->tokens_per_s + 0.1 * rate : rate;
    }
}

void progress_tick(struct progress *p) {
    if (p->cli->quiet || p->step == p->first_step || p->step == p->shown_step) return;
    bool first = p->shown_ms == 0;
    if (first || clock_ms() - p->shown_ms >= (p->terminal ? TERMINAL_EVERY_MS : PLAIN_EVERY_MS))
        show(p);
}

void progress_say(struct progress *p, const char *text) {
    if (p->line_open) putc('\n', stderr);
    p->line_open = false;
    cli_note(p->cli, "%s: %s", p->name, text);
}

void progress_end(struct progress *p) {
    if (!p->cli->quiet && p->step > p->first_step && p->step != p->shown_step) show(p);
    if (p->line_open) putc('\n', stderr);
    p->line_open = false;
}
