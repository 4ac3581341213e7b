/* Spikes of each run, and whether a group has clearly more of them than its baseline. A loss that
 * holds after spikes from which it came back is still a warning. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/ground/json_safe.h"
#include "runner/compare/compare.h"
#include "runner/health/spikes.h"

/* One-sided, divided by the number of tests, since chance grows with it: each row has one of the
 * loss and one of the norm. With one row and equal numbers of steps 8 beside none are clearly more
 * (1 in 256), 7 are not. */
static const double CLEARLY = 0.01;
enum { TESTS_A_ROW = 2 };

/* What one side had until the last step that both sides reached. */
struct side { int64_t count, steps; };

static const struct spike_list *list_of(const struct comparison *c, int64_t run, bool loss) {
    return loss ? &c->spikes[run].loss : &c->spikes[run].norm;
}

/* ---- the test ---- */

/* The probability of `k` or more of n events on a side that has the share p of all steps: the tail
 * of the binomial distribution. The terms are relative to the one at n p, so that none overflows
 * and only negligible ones underflow. */
static double binomial_tail(int64_t n, int64_t k, double p) {
    double odds = p / (1 - p), all = 0, tail = 0, term = 1;
    int64_t middle = (int64_t)((double)n * p);
    for (int64_t i = middle; i <= n; i++) {
        all += term;
        if (i >= k) tail += term;
        term *= (double)(n - i) / (double)(i + 1) * odds;
    }
    term = 1;
    for (int64_t i = middle; i > 0; i--) {
        term *= (double)i / (double)(n - i + 1) / odds;
        all += term;
        if (i - 1 >= k) tail += term;
    }
    return tail / all;
}

/* ---- sides ---- */

static int64_t longest(const struct comparison *c, const int64_t *run, int64_t count) {
    int64_t last = -1;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = compare_last_step(c->run[run[i]].columns.of[STREAM_TRAIN]);
        if (at > last) last = at;
    }
    return last;
}

/* Periodic events count, too: whether those of a run are periodic depends on its other ones, and
 * both sides read the same data. */
static struct side side_of(const struct comparison *c, const int64_t *run, int64_t count,
                           int64_t last, bool loss) {
    struct side s = { 0, 0 };
    for (int64_t i = 0; i < count; i++) {
        const struct spike_list *l = list_of(c, run[i], loss);
        int64_t at = compare_last_step(c->run[run[i]].columns.of[STREAM_TRAIN]);
        if (at > last) at = last;
        if (!l->judged || at < l->first) continue;
        s.count += spike_count_all(l, last);
        s.steps += at - l->first + 1;
    }
    return s;
}

/* Of the loss or of the gradient norm; null if no step of a side was judged. */
static json_t *test_json(struct side a, struct side b, double clearly) {
    if (!a.steps || !b.steps) return json_null();
    double share = (double)b.steps / (double)(a.steps + b.steps);
    double p = binomial_tail(a.count + b.count, b.count, share);
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:b}", "count", (json_int_t)b.count, "steps",
                     (json_int_t)b.steps, "baseline_count", (json_int_t)a.count, "baseline_steps",
                     (json_int_t)a.steps, "p", p, "clearly_more", p < clearly);
}

static enum status test_group(const struct comparison *c, const struct compare_groups *g,
                              int64_t baseline, json_t *row, double clearly, struct err *e) {
    int64_t *x = NULL, *y = NULL, n = 0, m = 0;
    enum status st = compare_repeats(c, g, baseline, &x, &n, e);
    if (st == OK) st = compare_repeats(c, g, json_int(row, "group"), &y, &m, e);
    if (st == OK) {
        int64_t a = longest(c, x, n), b = longest(c, y, m), last = a < b ? a : b;
        bool failed = false;
        json_t *both = json_object();
        json_put(both, "loss", test_json(side_of(c, x, n, last, true),
                                         side_of(c, y, m, last, true), clearly), &failed);
        json_put(both, "grad_norm", test_json(side_of(c, x, n, last, false),
                                              side_of(c, y, m, last, false), clearly),
                 &failed);
        json_put(row, "spikes", json_whole(both, failed), &failed);
        if (failed) st = FAIL(e, ERR_MEMORY, "spikes of the comparison");
    }
    free(x);
    free(y);
    return st;
}

enum status compare_spikes(const struct comparison *c, const struct compare_groups *g,
                           json_t *losses, struct err *e) {
    json_t *family, *row;
    size_t i, k, rows = 0;
    json_array_foreach(losses, i, family) rows += json_array_size(json_object_get(family, "rows"));
    double clearly = CLEARLY / (double)(TESTS_A_ROW * rows);
    json_array_foreach(losses, i, family)
        json_array_foreach(json_object_get(family, "rows"), k, row)
            TRY(test_group(c, g, json_int(family, "baseline"), row, clearly, e));
    return OK;
}

/* ---- what the outputs say ---- */

void compare_put_spikes(const struct comparison *c, int64_t run, json_t *row, bool *failed) {
    const struct spikes *s = &c->spikes[run];
    char text[SPIKES_TEXT_CAP];
    bool any = spikes_text(s, text);
    json_put(row, "spikes_loss", s->loss.judged ? json_integer(spike_count(&s->loss, INT64_MAX))
                                                : json_null(), failed);
    json_put(row, "spikes_grad_norm", s->norm.judged
                                          ? json_integer(spike_count(&s->norm, INT64_MAX))
                                          : json_null(), failed);
    json_put(row, "spikes", any ? json_string(text) : json_null(), failed);
}

bool compare_spikes_warning(const json_t *statistics, const json_t *family, const json_t *row,
                            bool loss, char out[COMPARE_SPIKES_CAP]) {
    const json_t *test = json_object_get(json_object_get(row, "spikes"),
                                         loss ? "loss" : "grad_norm");
    char a[8], b[8];
    out[0] = '\0';
    if (!json_is_true(json_object_get(test, "clearly_more"))) return false;
    snprintf(out, COMPARE_SPIKES_CAP, "%s has clearly more spikes of the %s than %s: %lld in %lld "
             "steps, not %lld in %lld (p = %.2g)",
             compare_group_letter(statistics, json_int(row, "group"), b),
             loss ? "loss" : "gradient norm",
             compare_group_letter(statistics, json_int(family, "baseline"), a),
             (long long)json_int(test, "count"), (long long)json_int(test, "steps"),
             (long long)json_int(test, "baseline_count"),
             (long long)json_int(test, "baseline_steps"),
             json_number_value(json_object_get(test, "p")));
    return true;
}
