/* fp8lab compare: what differs between runs, and what came of it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/output_file.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/run_pick.h"
#include "runner/commands.h"
#include "runner/compare/compare.h"
#include "runner/compare/compare_require.h"
#include "runner/compare/plots.h"
#include "runner/compare/seed_band.h"
#include "runner/named_run.h"

enum { RUNS_MAX = 1000 };
enum { RUN_TIME = 16, RUN_ID_CAP = 256 }; /* of a run's id: its time (20261121T024823Z); all */

static enum status write_band(const struct cli *cli, const struct comparison *c, const char *path,
                              struct err *e) {
    json_t *band = NULL;
    TRY(seed_band_make(c, &band, e));
    enum status st = json_file_write(path, band, e);
    json_decref(band);
    if (st == OK) cli_note(cli, "wrote %s", path);
    return st;
}

/* The requirements of --require. The array is owned by the caller. */
static enum status read_requirements(const struct cli *cli, struct requirement **out,
                                     struct err *e) {
    int64_t n = cli_count(cli, "require");
    *out = calloc((size_t)n + 1, sizeof **out);
    if (!*out) return FAIL(e, ERR_MEMORY, "%lld requirements", (long long)n);
    if (n == 0 && cli_has(cli, "junit"))
        return FAIL(e, ERR_ARG, "--junit reports what --require asks; add --require holds");
    for (int64_t i = 0; i < n; i++)
        TRY(requirement_read(cli_nth(cli, "require", i), &(*out)[i], e));
    return OK;
}

/* A line for each miss, on stderr: stdout may be a table. */
static void say_requirements(const struct cli *cli, const json_t *report) {
    const json_t *item, *row, *statistics = json_object_get(report, "statistics");
    size_t i, k;
    char name[8];
    json_array_foreach(json_object_get(report, "requirements"), i, item) {
        const char *text = json_text(item, "requirement", "");
        if (json_is_true(json_object_get(item, "met"))) cli_note(cli, "met: %s", PLAIN(text));
        json_array_foreach(json_object_get(item, "rows"), k, row) {
            int64_t group = json_integer_value(json_object_get(row, "group"));
            if (json_is_true(json_object_get(row, "met"))) continue;
            cli_warn(cli, "missed: %s: %s %s: %s", PLAIN(text),
                     compare_group_letter(statistics, group, name),
                     PLAIN(json_text(row, "label", "-")), PLAIN(json_text(row, "found", "")));
        }
        if (k == 0) cli_warn(cli, "missed: %s: " COMPARE_NO_ROW, PLAIN(text));
    }
}

static enum status print(const struct cli *cli, const struct comparison *c, struct err *e) {
    const char *html = cli_value(cli, "html"), *band = cli_value(cli, "seed-band");
    const char *svg = cli_value(cli, "svg"), *junit = cli_value(cli, "junit");
    int64_t files = 0;
    char *text = NULL;
    if (cli->json) cli_out_json(cli, c->report);
    else if (cli_has(cli, "csv")) TRY(compare_table(c, COMPARE_CSV, &text, e));
    else if (cli_has(cli, "md")) TRY(compare_table(c, COMPARE_MARKDOWN, &text, e));
    else TRY(compare_text(c, cli_has(cli, "all"), &text, e));
    if (text) cli_out(cli, "%s", text);
    free(text);
    if (band) TRY(write_band(cli, c, band, e));
    if (svg) {
        TRY(compare_svg(c, svg, &files, e));
        cli_note(cli, "wrote %lld plots to %s", (long long)files, svg);
    }
    if (junit) {
        TRY(compare_junit(c, junit, e));
        cli_note(cli, "wrote %s", junit);
    }
    if (!html) return OK;
    TRY(compare_html(c, html, e));
    cli_note(cli, "wrote %s", html);
    return OK;
}

/* A name that is no run, such as the file that was meant to get a table. */
static enum status fail_named(const struct cli *cli, const char *name, enum status st,
                              struct err *e) {
    static const char *const PRINTED[] = { "md", "csv", "json" };
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof PRINTED / sizeof *PRINTED; i++) {
        bool given = i == 2 ? cli->json : cli_has(cli, PRINTED[i]);
        if (given && !strcmp(dot + 1, PRINTED[i]))
            return FAIL(e, ERR_ARG, "%s is no run. --%s takes no file, it prints: fp8lab compare "
                        "--%s RUN RUN... >%s", name, PRINTED[i], PRINTED[i], name);
    }
    return st;
}

/* The paths of the runs named on the command line; owned by the caller. */
static enum status locate(const struct cli *cli, char (**out)[PATH_CAP], struct err *e) {
    char(*paths)[PATH_CAP] = calloc((size_t)cli->arg_count, sizeof *paths);
    if (!paths) return FAIL(e, ERR_MEMORY, "%lld paths", (long long)cli->arg_count);
    for (int64_t i = 0; i < cli->arg_count; i++) {
        enum status st = named_run(cli, cli->args[i], RUNS_WHOLE, paths[i], e);
        if (st == OK) continue;
        free(paths);
        return fail_named(cli, cli->args[i], st, e);
    }
    *out = paths;
    return OK;
}

/* The first `most` characters of a run's id, without a bundle's suffix. False: they do not find the
 * run, or are no shorter than what was given. */
static bool shorten(const char *given, const char *path, size_t most, char out[RUN_ID_CAP]) {
    static const char RUNS[] = "runs/", SUFFIX[] = ".tar.zst";
    char found[PATH_CAP];
    struct err e;
    if (strncmp(path, RUNS, sizeof RUNS - 1) != 0) return false;
    snprintf(out, most + 1, "%s", path + sizeof RUNS - 1);
    char *suffix = strstr(out, SUFFIX);
    if (suffix) *suffix = '\0';
    return strlen(out) < strlen(given) && run_locate(out, "runs", found, &e) == OK &&
           strcmp(found, path) == 0;
}

/* names <- the times of the runs' ids if these find all runs, else the ids, else what was given. A
 * suite has many runs: with all full names the command would be too long to use. */
static void short_names(const struct cli *cli, char (*paths)[PATH_CAP],
                        char (*room)[RUN_ID_CAP], const char **names) {
    static const size_t MOST[] = { RUN_TIME, RUN_ID_CAP - 1 };
    for (size_t k = 0; k < sizeof MOST / sizeof *MOST; k++) {
        int64_t i = 0;
        while (i < cli->arg_count && shorten(cli->args[i], paths[i], MOST[k], room[i])) i++;
        for (int64_t n = 0; n < cli->arg_count; n++)
            names[n] = i == cli->arg_count ? room[n] : cli->args[n];
        if (i == cli->arg_count) return;
    }
}

static void suggest_html(const struct cli *cli, char (*paths)[PATH_CAP]) {
    size_t count = (size_t)cli->arg_count;
    const char **words = calloc(count + 8, sizeof *words);
    char(*names)[RUN_ID_CAP] = calloc(count, sizeof *names);
    if (words && names) {
        words[0] = "compare";
        words[1] = "--html";
        words[2] = "compare.html";
        size_t n = 3;
        static const char *const CARRIED[][2] = { { "baseline", "--baseline" },
                                                  { "factor", "--factor" } };
        for (size_t i = 0; i < 2; i++) {
            if (!cli_has(cli, CARRIED[i][0])) continue;
            words[n++] = CARRIED[i][1];
            words[n++] = cli_value(cli, CARRIED[i][0]);
        }
        if (!cli_has(cli, "runs")) short_names(cli, paths, names, words + n);
        else /* the next command would not look there */
            for (size_t i = 0; i < count; i++) words[n + i] = paths[i];
        cli_next_words(cli, words);
    }
    free(words);
    free(names);
}

/* "0.5%" into 0.005. */
static enum status read_tolerance(const struct cli *cli, double *value,
                                  struct compare_options *options, struct err *e) {
    const char *text = cli_value(cli, "tolerance");
    char *end = NULL;
    if (!text) return OK;
    *value = strtod(text, &end) / 100;
    if (end == text || strcmp(end, "%") != 0 || !(*value >= 0 && *value <= 1))
        return FAIL(e, ERR_ARG, "--tolerance: found '%.40s'; write a percentage from 0 to 100 with "
                    "its sign, such as 0.5%%", text);
    options->tolerance = value;
    return OK;
}

static enum status check_flags(const struct cli *cli, struct err *e) {
    static const struct output_kind PAGE = { "page", PAGE_BEGINS, PAGE_MARK };
    static const struct output_kind BAND = { "seed band", SEED_BAND_BEGINS, SEED_BAND_SCHEMA };
    static const struct output_kind JUNIT = { "JUnit report", JUNIT_BEGINS, JUNIT_MARK };
    const char *html = cli_value(cli, "html"), *band = cli_value(cli, "seed-band");
    const char *junit = cli_value(cli, "junit");
    if (cli_has(cli, "baseline") && cli_has(cli, "factor"))
        return FAIL(e, ERR_ARG, "--baseline and --factor each say which row is whose baseline; "
                    "give one of them");
    if (html) TRY(output_may_replace("html", html, &PAGE, e));
    if (junit) TRY(output_may_replace("junit", junit, &JUNIT, e));
    if (band) TRY(output_may_replace("seed-band", band, &BAND, e));
    if (cli->json + cli_has(cli, "csv") + cli_has(cli, "md") <= 1) return OK;
    return FAIL(e, ERR_ARG, "--json, --csv and --md each take all of stdout; give one of them");
}

static int cmd_compare(const struct cli *cli) {
    struct comparison c = { 0 };
    struct err e = { 0 };
    char(*paths)[PATH_CAP] = NULL;
    const char **names = calloc((size_t)cli->arg_count, sizeof *names);
    struct requirement *required = NULL;
    bool met = true;
    double tolerance;
    struct compare_options options = { .baseline = cli_value(cli, "baseline"),
                                       .factor = cli_value(cli, "factor"),
                                       .lean = !cli_has(cli, "html") && !cli_has(cli, "svg") };
    enum status st = names ? locate(cli, &paths, &e) : FAIL(&e, ERR_MEMORY, "no memory for names");
    if (st == OK) st = check_flags(cli, &e);
    if (st == OK) st = read_requirements(cli, &required, &e);
    if (st == OK) st = read_tolerance(cli, &tolerance, &options, &e);
    for (int64_t i = 0; st == OK && i < cli->arg_count; i++) names[i] = paths[i];
    if (st == OK) st = compare_runs(names, cli->arg_count, &options, &c, &e);
    if (st == OK) st = compare_require(&c, required, cli_count(cli, "require"), &met, &e);
    if (st == OK) st = print(cli, &c, &e);
    if (st == OK) say_requirements(cli, c.report);
    bool differs = !met || (cli_has(cli, "assert-equal") && !c.equal);
    int code = st != OK ? cli_fail(cli, &e) : differs ? EXIT_DIFFERS : EXIT_OK;
    if (st == OK && !cli_value(cli, "html")) suggest_html(cli, paths);
    compare_free(&c);
    free(required);
    free(paths);
    free(names);
    return code;
}

static const struct flag FLAGS[] = {
    { .name = "html", .value = "FILE", .help = "also write a page with plots" },
    { .name = "svg", .value = "DIR", .help = "also write each plot as an SVG file" },
    { .name = "baseline", .value = "NAME",
      .help = "the row to compare all with (default: BF16, by its recipe)" },
    { .name = "factor", .value = "KEY=VALUE",
      .help = "judge rows against the row that differs only in KEY and has VALUE" },
    { .name = "tolerance", .value = "P%",
      .help = "how far above it a loss still holds (default: 0.5%)" },
    { .name = "seed-band", .value = "FILE",
      .help = "write the spread over seeds at each step, for repro" },
    { .name = "runs", .value = "DIR", .help = "where runs are looked up by id (default: runs)" },
    { .name = "csv", .help = "print a table for spreadsheets: a row per run, with its verdict" },
    { .name = "md", .help = "print the tables as Markdown" },
    { .name = "all", .help = "show every key that differs, also implied ones and names" },
    { .name = "require", .value = "WHAT",
      .help = "exit 5 unless holds, speed>=1.15x or eval_loss<=1.01x", .repeats = true },
    { .name = "junit", .value = "FILE", .help = "also write what --require asks as JUnit XML" },
    { .name = "assert-equal", .help = "exit 5 unless all runs are equal, bit for bit" },
};

const struct verb VERB_COMPARE = {
    .name = "compare",
    .arguments = "RUN RUN...",
    .about = "what differs between runs, in inputs and in results",
    .more = RUN_FORMS
            "A run that repro ended early, as with --steps, does not count for last and the like.\n"
            "First the inputs that differ, then loss, step time, tokens/s and memory with ratios\n"
            "to the baseline (--baseline).\n"
            "Does each FP8 recipe hold the loss of the BF16 runs that differ only in the recipe?\n"
            "With at least 3 seeds per side, after equal tokens, the last that all evaluated: it\n"
            "holds if the upper 95 % bound of the difference is within 0.5 % above BF16\n"
            "(blockwise: 0.25 %, NVFP4: 1.5 %). It does not hold if the lower bound is above\n"
            "that, or a run diverged. Otherwise it is undecided. It says how many seeds it needs.\n"
            "There is no verdict if the baseline is no better than a guess. Two guesses count:\n"
            "a uniform one, and one by how often each token occurs.\n"
            "--factor train.grad_dtype=f32 judges a row of another grad_dtype against the row\n"
            "with f32 that is equal otherwise, and rows of f32 against BF16 as above.\n"
            "Spikes of a run's loss or gradient norm are named. A warning says if a row has\n"
            "clearly more of them than its baseline.\n"
            "A second table has losses after equal time. It also has time and tokens to one loss.\n"
            "How much faster? The ratio of tokens/s over all runs, repeats of a seed too, with\n"
            "95 % bounds: faster, slower or not shown. It needs two runs per side on a GPU, and\n"
            "names the runs that do not count: throttled, shared, resumed, too short.\n"
            "--require asks every row: does it hold, and are all of its bounds at or beyond the\n"
            "ratio? Each miss is named; a row without a verdict, or an undecided one, misses.\n"
            "NAME is a row's name, a recipe, a run's name or the beginning of its id.\n"
            "With at least 4 seeds per side, also a Mann-Whitney test and a bootstrap\n"
            "interval. Last, the first step and tensor at which each run differs from the first.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 2,
    .args_max = RUNS_MAX,
    .run = cmd_compare,
};
