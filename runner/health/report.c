/* The report: as JSON, and as lines of text. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/json_number.h"
#include "runner/base/plain_text.h"
#include "runner/health/health.h"

/* TENSORS_SHOWN: of one symptom. WIDTH: columns of a paragraph. */
enum { TENSORS_SHOWN = 6, WIDTH = 88, LOWEST_CAP = 512, LINE_CAP = 2048 };

static const char *const LEVELS[] = { "fine", "watch", "trouble" };

/* ---- JSON ---- */

static json_t *tensor_json(const struct health_tensor *t) {
    return json_pack("{s:o, s:s?, s:o, s:o, s:o, s:o, s:o, s:o}", "tensor",
                     json_from_text(t->name), "format", t->known ? dtype_name(t->code) : NULL,
                     "range_used", json_finite(t->range_used), "saturated",
                     json_finite(t->saturated), "underflow", json_finite(t->underflow), "snr_db",
                     json_finite(t->snr_db), "snr_db_first", json_finite(t->snr_first),
                     "amax_to_rms", json_finite(t->crest));
}

static json_t *finding_json(const struct health *h, const struct health_finding *f) {
    const struct health_rule *rule = &HEALTH_RULES[f->rule];
    return json_pack("{s:s, s:s, s:o, s:I, s:s, s:s, s:s, s:s}", "level", LEVELS[f->level],
                     "symptom", rule->name, "tensor", json_from_text(h->tensor[f->tensor].name),
                     "since_step", (json_int_t)f->since, "means", rule->means, "why", rule->why,
                     "advice", rule->advice, "source", rule->source);
}

json_t *health_json(const struct health *h, const struct run_view *v) {
    json_t *tensors = json_array(), *findings = json_array();
    bool failed = false;
    for (int64_t i = 0; i < h->tensor_count; i++)
        if (h->tensor[i].fp8) json_append(tensors, tensor_json(&h->tensor[i]), &failed);
    for (int64_t i = 0; i < h->finding_count; i++)
        json_append(findings, finding_json(h, &h->finding[i]), &failed);
    return json_pack("{s:s, s:o, s:o, s:s, s:b, s:I, s:I, s:I, s:I, s:o, s:o}", "schema",
                     "fp8lab.health/1", "path", json_from_text(v->path), "recipe",
                     json_from_text(h->recipe), "level", LEVELS[h->level], "judged", h->judged,
                     "step_first", (json_int_t)h->step_first, "step_last",
                     (json_int_t)h->step_last, "records", (json_int_t)h->records, "measured",
                     (json_int_t)h->measured, "findings", json_whole(findings, failed), "tensors",
                     json_whole(tensors, failed));
}

/* ---- text ---- */

struct printer {
    void (*print)(void *to, enum health_level level, const char *line);
    void *to;
};

static void say(const struct printer *p, enum health_level level, const char *format, ...)
    PRINTF_LIKE(3, 4);
static void say(const struct printer *p, enum health_level level, const char *format, ...) {
    char line[LINE_CAP];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    p->print(p->to, level, plain_text(line));
}

/* A paragraph of our own text below a heading, in lines of WIDTH columns. */
static void say_folded(const struct printer *p, const char *head, const char *text) {
    while (*text) {
        int n = (int)strlen(text);
        if (n > WIDTH)
            for (n = WIDTH; n > 0 && text[n] != ' ';) n--;
        say(p, HEALTH_FINE, "  %-7s %.*s", head, n, text);
        text += n + (text[n] == ' ');
        head = "";
    }
}

/* "snr 18.2 dB (24.5 at first)", or "" if it was not measured. */
static void snr_text(const struct health_tensor *t, char out[80]) {
    *out = '\0';
    if (isnan(t->snr_db)) return;
    if (isnan(t->snr_first)) snprintf(out, 80, ", SNR %.1f dB", t->snr_db);
    else snprintf(out, 80, ", SNR %.1f dB (%.1f at first)", t->snr_db, t->snr_first);
}

static void say_tensor(const struct printer *p, const struct health_tensor *t, int64_t since) {
    char range[48] = "", snr[80];
    snr_text(t, snr);
    if (!isnan(t->range_used))
        snprintf(range, sizeof range, ", range used %.3g %%", 100 * t->range_used);
    say(p, HEALTH_FINE, "    %s  since step %" PRId64 ": %s%s, saturated %.3g %%, underflow %.3g "
        "%%%s", PLAIN(t->name), since, t->known ? dtype_name(t->code) : "FP8", range,
        100 * t->saturated, 100 * t->underflow, snr);
}

/* One symptom with all its tensors: [first, next) of the findings. */
static void say_symptom(const struct printer *p, const struct health *h, int64_t first,
                        int64_t next, bool all) {
    const struct health_finding *f = &h->finding[first];
    const struct health_rule *rule = &HEALTH_RULES[f->rule];
    int64_t shown = all || next - first <= TENSORS_SHOWN ? next : first + TENSORS_SHOWN;
    say(p, f->level, "%s: %s, %" PRId64 " tensor%s", LEVELS[f->level], rule->name, next - first,
        next - first == 1 ? "" : "s");
    say_folded(p, "means", rule->means);
    say_folded(p, "why", rule->why);
    say_folded(p, "try", rule->advice);
    say_folded(p, "source", rule->source);
    for (int64_t i = first; i < shown; i++)
        say_tensor(p, &h->tensor[h->finding[i].tensor], h->finding[i].since);
    if (shown < next)
        say(p, HEALTH_FINE, "    and %" PRId64 " more: --all", next - shown);
}

/* Tensors whose worst symptom has that level. */
static int64_t tensors_of(const struct health *h, enum health_level level) {
    int64_t n = 0;
    for (int64_t i = 0; i < h->tensor_count; i++) n += h->tensor[i].level == level;
    return n;
}

/* The lowest measured SNR: "the lowest SNR is 24.1 dB, of layers.1.attn_out.dy". */
static void lowest_text(const struct health *h, char out[LOWEST_CAP]) {
    const struct health_tensor *lowest = NULL;
    for (int64_t i = 0; i < h->tensor_count; i++) {
        const struct health_tensor *t = &h->tensor[i];
        if (t->fp8 && !isnan(t->snr_db) && (!lowest || t->snr_db < lowest->snr_db)) lowest = t;
    }
    if (lowest)
        snprintf(out, LOWEST_CAP, "; the lowest SNR is %.1f dB, of %s", lowest->snr_db,
                 lowest->name);
    else
        snprintf(out, LOWEST_CAP, "; no step measured the error of casts (fp8_error)");
}

static void say_head(const struct printer *p, const struct health *h) {
    char lowest[LOWEST_CAP];
    lowest_text(h, lowest);
    if (h->level == HEALTH_FINE)
        say(p, HEALTH_FINE, "healthy: none of %" PRId64 " FP8 tensors is in trouble; steps %" PRId64
            " to %" PRId64 ", judged by the last %" PRId64 "%s", h->fp8_count, h->step_first,
            h->step_last, h->window, lowest);
    else
        say(p, h->level, "%" PRId64 " of %" PRId64 " FP8 tensors in trouble, %" PRId64
            " to watch; steps %" PRId64 " to %" PRId64 ", judged by the last %" PRId64 "%s",
            tensors_of(h, HEALTH_TROUBLE), h->fp8_count, tensors_of(h, HEALTH_WATCH),
            h->step_first, h->step_last, h->window, lowest);
}

void health_print(const struct health *h, bool all,
                  void (*print)(void *to, enum health_level level, const char *line), void *to) {
    struct printer p = { print, to };
    if (h->fp8_count == 0) {
        if (h->records) say(&p, HEALTH_FINE, "nothing in FP8: the recipe is %s", h->recipe);
        else say(&p, HEALTH_FINE, "no step has been recorded");
        return;
    }
    if (!h->judged && h->level == HEALTH_FINE) {
        say(&p, HEALTH_FINE, "%" PRId64 " steps are too few to judge %" PRId64 " FP8 tensors by; "
            "at least %d", h->records, h->fp8_count, (int)JUDGED_LEAST);
        return;
    }
    say_head(&p, h);
    for (int64_t i = 0, next; i < h->finding_count; i = next) {
        const struct health_finding *f = &h->finding[i];
        for (next = i + 1; next < h->finding_count && h->finding[next].rule == f->rule &&
                           h->finding[next].level == f->level;)
            next++;
        say_symptom(&p, h, i, next, all);
    }
}
