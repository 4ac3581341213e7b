/* What must change so that a verdict on speed has the runs that it needs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/base/shell_word.h"
#include "runner/compare/faster_sides.h"
#include "runner/script/repeat.h"

/* For runs with too few steady steps: enough for these and for some evaluations. */
#define MORE_STEPS " --set train.steps=60"

/* Runs of a side that a command is to make up to. */
enum { WANTED = 3 };

struct remedy {
    bool runs;      /* more of them */
    bool steps;     /* more of them in each run */
    bool time;      /* for more steps */
    bool again;     /* earlier runs do not count among the N */
    int64_t repeat; /* N of --repeat */
    int64_t at_once; /* of --side-by-side; 1: rows ran alone */
};

/* How many runs of the side would count if they had more steps. */
static int64_t short_runs(const struct speeds *s, int64_t side, struct remedy *r) {
    int64_t n = 0;
    for (int64_t i = 0; i < s->c->count; i++) {
        if (s->of[i] != side || !s->c->speed[i].few_steps) continue;
        r->steps = true;
        r->time = r->time || run_speed_timed_out(&s->c->run[i]);
        n++;
    }
    return n;
}

/* Whether the run is one of those that --repeat counts for the row of `of`: of the same seed and
 * all other inputs. A smoke run is of another configuration. */
static bool is_of_row(const struct speeds *s, int64_t of, int64_t run) {
    const struct run_view *a = &s->c->run[of], *b = &s->c->run[run];
    const json_t *x = json_object_get(a->run, "inputs"), *y = json_object_get(b->run, "inputs");
    return s->of[of] == s->of[run] && !json_is_true(json_object_get(b->run, "smoke")) &&
           json_equal(json_object_get(x, "config"), json_object_get(y, "config")) &&
           json_equal(json_object_get(x, "code"), json_object_get(y, "code"));
}

/* The number of distinct runs of the row of `run`; 0: an earlier run is of the same row. */
static int64_t runs_of_row(const struct speeds *s, int64_t run) {
    int64_t n = 0;
    for (int64_t i = 0; i < s->c->count; i++) {
        bool copy = false;
        if (!is_of_row(s, run, i)) continue;
        if (i < run) return 0;
        for (int64_t k = run; k < i && !copy; k++)
            copy = s->of[k] == s->of[i] && run_speed_same_run(&s->c->run[k], &s->c->run[i]);
        n += !copy;
    }
    return n;
}

/* The N of --repeat that makes `missing` new runs of a side: earlier ones count among the N of
 * their row, also those that do not count here. */
static int64_t repeats_for(const struct speeds *s, int64_t side, int64_t missing) {
    int64_t least = 0, rows = 0;
    for (int64_t i = 0; i < s->c->count; i++) {
        int64_t had = s->of[i] == side ? runs_of_row(s, i) : 0;
        if (!had || (rows && had > least)) continue;
        rows = had == least ? rows + 1 : 1;
        least = had;
    }
    int64_t n = rows ? least + (missing + rows - 1) / rows : WANTED;
    return n < WANTED ? WANTED : n > REPEAT_MAX ? REPEAT_MAX : n;
}

static struct remedy remedy_of(const struct speeds *s, int64_t side, const struct side *x,
                               const struct side *y) {
    struct remedy r = { .repeat = WANTED,
                        .at_once = run_speed_at_once(&s->c->run[speeds_first(s, side)]) };
    int64_t n = x->count + short_runs(s, s->baseline, &r);
    int64_t m = y->count + short_runs(s, side, &r);
    r.runs = n < SPEED_RUNS_MIN || m < SPEED_RUNS_MIN;
    r.again = !r.runs && !r.steps; /* there are enough, but on other GPUs */
    if (r.runs && !r.steps) { /* runs of more steps are of other rows */
        int64_t a = repeats_for(s, s->baseline, WANTED - n), b = repeats_for(s, side, WANTED - m);
        r.repeat = a > b ? a : b;
    }
    r.runs = r.runs || r.again;
    r.repeat = ceil_div(r.repeat, r.at_once) * r.at_once; /* each GPU has every row as often */
    return r;
}

/* Whether the word is one of two flags; *value: its value is the next word. */
static bool is_replaced(const char *text, bool *value) {
    static const char *const FLAGS[] = { "--repeat", "--side-by-side" };
    bool found = false;
    *value = false;
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(FLAGS[i]);
        if (strncmp(text, FLAGS[i], n) != 0) continue;
        *value = *value || !text[n];
        found = found || !text[n] || text[n] == '=';
    }
    return found;
}

/* Appends the words of a command without those that are replaced or that --repeat takes the place
 * of, and without --smoke, since no smoke run counts. */
static void put_words(const json_t *argv, const struct remedy *r, struct text *out) {
    const json_t *word;
    size_t i;
    bool skip = false, value;
    json_array_foreach(argv, i, word) {
        const char *text = json_is_string(word) ? json_string_value(word) : "?";
        bool replaced = is_replaced(text, &value) && r->runs;
        if (i < 2 || skip || replaced || !strcmp(text, "--again") || !strcmp(text, "--smoke")) {
            skip = replaced && value;
            continue;
        }
        char *quoted = shell_word(text);
        text_puts(out, " ");
        text_puts(out, quoted ? quoted : "?");
        free(quoted);
    }
    if (r->steps) text_puts(out, MORE_STEPS); /* of two values the last one counts */
}

static void put_turns(const struct remedy *r, char *out, size_t size) {
    int at = snprintf(out, size, " --repeat %lld", (long long)r->repeat);
    if (r->at_once > 1)
        at += snprintf(out + at, size - (size_t)at, " --side-by-side %lld", (long long)r->at_once);
    if (r->again) snprintf(out + at, size - (size_t)at, " --again");
}

/* The command of one run of the side. */
static const json_t *argv_of(const struct speeds *s, int64_t side) {
    int64_t run = speeds_first(s, side);
    return run < 0 ? NULL : json_object_get(s->c->run[run].argv, "argv");
}

/* Adds the command that makes what is missing, if one command made both sides. A command that is
 * cut may be another one, so a long one is not shown. */
void speeds_advise(const struct speeds *s, int64_t side, const struct side *x,
                   const struct side *y, char why[FAMILY_WHY_CAP]) {
    const struct remedy r = remedy_of(s, side, x, y);
    const json_t *argv = argv_of(s, side);
    size_t at = strlen(why), room = FAMILY_WHY_CAP - at;
    struct text words = { 0 };
    char repeat[96] = "";
    const char *verb = json_string_value(json_array_get(argv, 1));
    const char *steps = r.steps ? MORE_STEPS : "";
    if (r.runs) put_turns(&r, repeat, sizeof repeat);
    if (r.time) {
        snprintf(why + at, room, "; raise time_limit: the runs have too few steps");
        return;
    }
    if (s->any_build[s->baseline]) { /* no command makes runs of two builds */
        snprintf(why + at, room, "; run both builds in turns (--again)%s%s", *steps ? " with" : "",
                 steps);
        return;
    }
    if (!json_equal(argv, argv_of(s, s->baseline)) || !verb || strcmp(verb, "run") != 0) {
        snprintf(why + at, room, "; run both%s%s%s", r.runs ? " in turns (--again)" : "",
                 *steps ? " with" : "", steps);
        return;
    }
    put_words(argv, &r, &words);
    if (words.failed || words.size + strlen(repeat) + 18 > room)
        snprintf(why + at, room, "; run the command of both again with%s%s", repeat, steps);
    else
        snprintf(why + at, room, "; fp8lab run%s%.*s", repeat, (int)words.size, words.bytes);
    text_free(&words);
}
