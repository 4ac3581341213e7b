#include "runner/run_report.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/commands.h"
#include "runner/plan/factor.h"
#include "runner/run/outcome.h"
#include "runner/script/script_flags.h"

static void print_json(const struct cli *cli, const struct suite *s) {
    json_t *list = json_array();
    bool failed = false;
    for (int64_t i = 0; i < s->resolution->run_count; i++) {
        const struct suite_row *row = &s->rows[i];
        if (!row->ended) continue;
        json_append(list, outcome_json(s->resolution->runs[i].name, &row->outcome, row->earlier),
                    &failed);
    }
    outcome_print_json(cli, json_whole(list, failed));
}

void run_report_next(const struct cli *cli, const struct run_outcome *o) {
    if (o->resumable && !o->fails_again)
        cli_next(cli, "run", "--resume", o->bundle, NULL);
    else cli_next(cli, path_is_directory(o->bundle) ? "close" : "show", o->bundle, NULL);
}

/* The same words; --again would begin anew. */
static void next_side_by_side(const struct cli *cli) {
    int64_t count = 0, n = 0;
    while (cli->argv[count]) count++;
    const char **words = calloc((size_t)count + 1, sizeof *words);
    for (int64_t i = 1; words && i < count; i++)
        if (strcmp(cli->argv[i], "--again") != 0) words[n++] = cli->argv[i];
    if (words) cli_next_words(cli, words);
    free(words);
}

static void print_next(const struct cli *cli, const struct suite *s, int code) {
    if (s->resolution->suite && code > EXIT_SIGNAL) { /* the same command resumes the suite */
        if (cli_has(cli, "side-by-side")) next_side_by_side(cli);
        else script_next(cli, "run", false);
        return;
    }
    const struct run_outcome *last = NULL;
    for (int64_t i = 0; i < s->resolution->run_count; i++)
        if (s->rows[i].ended) last = &s->rows[i].outcome;
    if (last) run_report_next(cli, last);
}

/* Whether a row that ended has the key of the suite's factor: --only may have left none. */
static bool has_factor(const struct suite *s) {
    struct factor factor;
    if (!factor_read(s->resolution->factor, &factor)) return false;
    for (int64_t i = 0; i < s->resolution->run_count; i++)
        if (s->rows[i].ended &&
            factor_find(&factor, s->resolution->runs[i].config_json) != FACTOR_ABSENT)
            return true;
    return false;
}

/* Runs the verb `compare` on the bundles of the rows. */
static void compare_rows(const struct cli *cli, const struct suite *s) {
    struct cli compare = *cli;
    const char **paths = calloc((size_t)s->ended + 1, sizeof *paths);
    if (!paths) return;
    compare.verb = &VERB_COMPARE;
    compare.args = paths;
    compare.arg_count = 0;
    struct cli_flag factor = { "factor", s->resolution->factor };
    compare.flags = &factor;
    compare.flag_count = has_factor(s);
    for (int64_t i = 0; i < s->resolution->run_count; i++)
        if (s->rows[i].ended) paths[compare.arg_count++] = s->rows[i].outcome.bundle;
    (void)VERB_COMPARE.run(&compare);
    free(paths);
}

int run_report_suite(const struct cli *cli, const struct suite *s, int code) {
    bool stopped = code > EXIT_SIGNAL || code == EXIT_SYSTEM;
    if (cli->json) print_json(cli, s);
    else if (s->resolution->suite && s->ended > 1 && !stopped) compare_rows(cli, s);
    else print_next(cli, s, code);
    return code;
}
