#include "runner/base/cli.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/base/canonical.h"
#include "runner/base/nearest.h"
#include "runner/base/plain_text.h"
#include "runner/base/shell_word.h"

const struct flag CLI_GLOBALS[CLI_GLOBAL_COUNT] = {
    { "json", NULL, "print the result as one JSON object", true },
    { "quiet", NULL, "print no messages, only results and errors", true },
    { "no-color", NULL, "no colour (as NO_COLOR in the environment)", true },
    { "help", NULL, "print this help", true },
    { "version", NULL, "print the version", true },
};
enum { NAMES_MAX = 64 };

/* ---- parsing ----------------------------------------------------------------------------------*/

/* Compares a flag's name with a word of argv, which may continue with "=value". */
static bool flag_named(const struct flag *flag, const char *text) {
    size_t n = strcspn(text, "=");
    return strlen(flag->name) == n && !strncmp(flag->name, text, n);
}

static const struct flag *flag_find(const struct flag *flags, int64_t count, const char *text) {
    for (int64_t i = 0; i < count; i++)
        if (flag_named(&flags[i], text)) return &flags[i];
    return NULL;
}

static bool is_lua_file(const char *arg) {
    size_t n = strlen(arg);
    return n > 4 && !strcmp(arg + n - 4, ".lua");
}

static bool is_flag(const char *arg) { return arg[0] == '-' && arg[1] != '\0'; }

/* The index in argv of the verb (or of the Lua file that means `run`), or argc. The word after a
 * flag that has a value in some verb ("--set k=v" before the verb) is skipped. */
static int verb_index(int argc, char **argv, const struct verb *const *verbs, int64_t count) {
    for (int i = 1; i < argc; i++) {
        if (!is_flag(argv[i])) return i;
        if (!strcmp(argv[i], "--")) return i + 1; /* the rest has no flags; may be argc */
        if (strncmp(argv[i], "--", 2) || strchr(argv[i], '=')) continue;
        for (int64_t v = 0; v < count; v++) {
            const struct flag *flag = flag_find(verbs[v]->flags, verbs[v]->flag_count, argv[i] + 2);
            if (!flag || !flag->value) continue;
            i++;
            break;
        }
    }
    return argc;
}

/* Verbs of other programs. */
static const struct other_name OTHER_VERBS[] = {
    { "train", "run FILE.lua" },      { "start", "run FILE.lua" },
    { "resume", "run --resume RUN" }, { "continue", "run --resume RUN" },
    { "quantize", "bench quantise" }, { "quantise", "bench quantise" },
    { "diff", "compare" },            { "validate", "check" },
    { "unpack", "extract" },          { "reproduce", "repro" },
    { "info", "show" },               { "status", "show" },
    { "benchmark", "bench" },         { "ls", "list" },
    { "attach", "watch" },            { "top", "watch" },
    { "logs", "log" },                { "tail", "log --follow" },
    { "version", "--version" },       { NULL, NULL },
};

enum status cli_find_verb(const struct verb *const *verbs, int64_t count, const char *word,
                          const struct verb **out, struct err *e) {
    const char *names[NAMES_MAX], *name = is_lua_file(word) ? "run" : word;
    int64_t n = 0;
    for (int64_t v = 0; v < count; v++) {
        if (!strcmp(verbs[v]->name, name)) {
            *out = verbs[v];
            return OK;
        }
        if (!verbs[v]->hidden && n < NAMES_MAX) names[n++] = verbs[v]->name;
    }
    const char *ours = other_name_find(OTHER_VERBS, word);
    const char *near = ours ? ours : nearest_name(word, names, n);
    if (near)
        return FAIL(e, ERR_ARG, "'%s' is not a command; did you mean 'fp8lab %s'?", word, near);
    return FAIL(e, ERR_ARG, "'%s' is neither a command (`fp8lab help` lists them) nor a .lua file",
                word);
}

/* Whether the verb has an argument of that name: "prompt" of "RUN|DIR [PROMPT]". */
static bool is_argument(const struct verb *verb, const char *name) {
    char upper[64];
    size_t n = 0;
    for (; name[n] && n < sizeof upper - 1; n++)
        upper[n] = (char)(name[n] >= 'a' && name[n] <= 'z' ? name[n] - 'a' + 'A' : name[n]);
    upper[n] = '\0';
    for (const char *at = verb->arguments; n && (at = strstr(at, upper)); at++) {
        char behind = at[n];
        bool begins = at == verb->arguments || strchr("[| ", at[-1]);
        if (begins && !(behind >= 'A' && behind <= 'Z')) return true;
    }
    return false;
}

/* Flags of other programs. A verb that lacks ours ignores the row. */
static const struct other_name OTHER_FLAGS[] = {
    { "out", "to" },              { "output", "to" },           { "output-dir", "to" },
    { "output-file", "to" },      { "output-prefix", "to" },    { "workers", "threads" },
    { "num-workers", "threads" }, { "append-eod", "eod" },      { "json-keys", "field" },
    { "vocab-file", "tokenizer" }, { "data-root", "data" },     { NULL, NULL },
};

static enum status unknown_flag(const struct verb *verb, const char *given, struct err *e) {
    const char *names[NAMES_MAX];
    int64_t n = 0;
    for (int64_t i = 0; i < CLI_GLOBAL_COUNT; i++) names[n++] = CLI_GLOBALS[i].name;
    for (int64_t i = 0; verb && i < verb->flag_count && n < NAMES_MAX; i++)
        names[n++] = verb->flags[i].name;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(given, "="), given);
    const char *ours = verb ? other_name_find(OTHER_FLAGS, name) : NULL;
    if (ours && !flag_find(verb->flags, verb->flag_count, ours)) ours = NULL;
    const char *near = ours ? ours : nearest_name(name, names, n);
    const char *space = verb ? " " : "", *verb_name = verb ? verb->name : "";
    if (verb && is_argument(verb, name))
        return FAIL(e, ERR_ARG, "fp8lab %s has no flag --%s; it is an argument: fp8lab %s %s",
                    verb_name, name, verb_name, verb->arguments);
    if (near)
        return FAIL(e, ERR_ARG, "fp8lab%s%s has no flag --%s; did you mean --%s?", space, verb_name,
                    name, near);
    return FAIL(e, ERR_ARG, "fp8lab%s%s has no flag --%s; `fp8lab%s%s --help` lists its flags",
                space, verb_name, name, space, verb_name);
}

static bool take_global(struct cli *cli, const char *arg) {
    const char *name = arg;
    if (!strcmp(arg, "-q")) name = "--quiet";
    if (!strcmp(arg, "-h")) name = "--help";
    if (strncmp(name, "--", 2)) return false;
    name += 2;
    if (!strcmp(name, "json")) cli->json = true;
    else if (!strcmp(name, "quiet")) cli->quiet = true;
    else if (!strcmp(name, "no-color")) cli->color = cli->color_err = false;
    else if (!strcmp(name, "help")) cli->help = true;
    else if (!strcmp(name, "version")) cli->version = true;
    else return false;
    return true;
}

/* Reads the flag at argv[*i], with its value; *i becomes the index of the last word used. */
static enum status take_flag(struct cli *cli, int argc, char **argv, int *i, struct err *e) {
    if (take_global(cli, argv[*i])) return OK;
    bool follow = !strcmp(argv[*i], "-f") && cli->verb && /* as tail and journalctl have it */
                  flag_find(cli->verb->flags, cli->verb->flag_count, "follow");
    if (strncmp(argv[*i], "--", 2) && !follow)
        return FAIL(e, ERR_ARG, "unknown flag %s (flags are long, as --help; -q, -h and the -f of "
                    "log are the only short ones)", argv[*i]);
    const char *text = follow ? "follow" : argv[*i] + 2, *equals = strchr(text, '=');
    const struct flag *global = flag_find(CLI_GLOBALS, CLI_GLOBAL_COUNT, text);
    if (global) return FAIL(e, ERR_ARG, "--%s takes no value", global->name);
    const struct verb *verb = cli->verb;
    const struct flag *flag = verb ? flag_find(verb->flags, verb->flag_count, text) : NULL;
    if (!flag) return unknown_flag(verb, text, e);
    if (!flag->value && equals) return FAIL(e, ERR_ARG, "--%s takes no value", flag->name);
    if (!flag->repeats && cli_has(cli, flag->name))
        return FAIL(e, ERR_ARG, "--%s is given twice", flag->name);
    const char *value = NULL;
    if (flag->value) {
        if (!equals && *i + 1 >= argc)
            return FAIL(e, ERR_ARG, "--%s needs a value: --%s %s", flag->name, flag->name,
                        flag->value);
        value = equals ? equals + 1 : argv[++*i];
        if (!*value)
            return FAIL(e, ERR_ARG, "--%s %s is empty (an unset variable?)", flag->name,
                        flag->value);
    }
    cli->flags[cli->flag_count++] = (struct cli_flag){ flag->name, value };
    return OK;
}

static enum status check_arg_count(const struct cli *cli, struct err *e) {
    const struct verb *verb = cli->verb;
    for (int64_t i = 0; i < cli->arg_count; i++)
        if (!*cli->args[i])
            return FAIL(e, ERR_ARG,
                        "argument %" PRId64 " is empty (an unset variable?): fp8lab %s %s", i + 1,
                        verb->name, verb->arguments);
    if (cli->arg_count < verb->args_min)
        return FAIL(e, ERR_ARG, "missing argument: fp8lab %s %s", verb->name, verb->arguments);
    if (verb->args_max >= 0 && cli->arg_count > verb->args_max)
        return FAIL(e, ERR_ARG, "unexpected argument '%s': fp8lab %s%s%s",
                    cli->args[verb->args_max], verb->name, *verb->arguments ? " " : "",
                    verb->arguments);
    return OK;
}

/* NO_COLOR counts if it is not empty (no-color.org). FORCE_COLOR counts even without a terminal.
 * Under Open MPI's mpirun stdout is always a terminal, even if mpirun itself writes to a file. */
static bool wants_color(int fd) {
    const char *no = getenv("NO_COLOR"), *force = getenv("FORCE_COLOR"), *term = getenv("TERM");
    if (no && *no) return false;
    if (force && *force) return true;
    return isatty(fd) && !(term && !strcmp(term, "dumb")) && !getenv("OMPI_COMM_WORLD_RANK");
}

enum status cli_parse(int argc, char **argv, const struct verb *const *verbs, int64_t count,
                      struct cli *out, struct err *e) {
    *out = (struct cli){ .color = wants_color(STDOUT_FILENO),
                         .color_err = wants_color(STDERR_FILENO),
                         .argv = (const char *const *)argv };
    out->args = calloc((size_t)argc + 1, sizeof *out->args);
    out->flags = calloc((size_t)argc + 1, sizeof *out->flags);
    if (!out->args || !out->flags) return FAIL(e, ERR_MEMORY, "command line of %d words", argc);

    int at = verb_index(argc, argv, verbs, count);
    bool shorthand = at < argc && is_lua_file(argv[at]);
    enum status first = OK; /* after a bad word --json still sets the form of the error */
    if (at < argc) first = cli_find_verb(verbs, count, argv[at], &out->verb, e);
    bool only_args = false;
    for (int i = 1; i < argc; i++) {
        if (i == at && !shorthand) continue;
        if (only_args || !is_flag(argv[i])) {
            out->args[out->arg_count++] = argv[i];
        } else if (!strcmp(argv[i], "--")) {
            only_args = true;
        } else if (first != OK) {
            (void)take_global(out, argv[i]);
        } else {
            first = take_flag(out, argc, argv, &i, e);
        }
    }
    if (first != OK || !out->verb || out->help) return first;
    return check_arg_count(out, e);
}

void cli_free(struct cli *cli) {
    free(cli->args);
    free(cli->flags);
    cli->args = NULL;
    cli->flags = NULL;
}

/* ---- flags ------------------------------------------------------------------------------------*/

static void assert_flag_exists(const struct cli *cli, const char *flag) {
    assert(cli->verb && flag_find(cli->verb->flags, cli->verb->flag_count, flag));
}

bool cli_has(const struct cli *cli, const char *flag) { return cli_count(cli, flag) > 0; }

const char *cli_value(const struct cli *cli, const char *flag) {
    int64_t n = cli_count(cli, flag);
    return n ? cli_nth(cli, flag, n - 1) : NULL;
}

const char *cli_runs(const struct cli *cli) {
    const char *given = cli_value(cli, "runs");
    return given ? given : "runs";
}

int64_t cli_count(const struct cli *cli, const char *flag) {
    assert_flag_exists(cli, flag);
    int64_t n = 0;
    for (int64_t i = 0; i < cli->flag_count; i++) n += !strcmp(cli->flags[i].name, flag);
    return n;
}

const char *cli_nth(const struct cli *cli, const char *flag, int64_t nth) {
    for (int64_t i = 0; i < cli->flag_count; i++)
        if (!strcmp(cli->flags[i].name, flag) && nth-- == 0) return cli->flags[i].value;
    return NULL;
}

enum status cli_int(const struct cli *cli, const char *flag, int64_t min, int64_t max, int64_t *out,
                    struct err *e) {
    const char *text = cli_value(cli, flag);
    if (!text) return OK;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < min || value > max)
        return FAIL(e, ERR_ARG, "--%s: expected a whole number from %" PRId64 " to %" PRId64
                    ", found '%s'", flag, min, max, text);
    *out = value;
    return OK;
}

/* ---- output -----------------------------------------------------------------------------------*/

static const char *style_sequence(const char *style) {
    static const struct { const char *name, *sequence; } STYLES[] = {
        { "bold", "\033[1m" },    { "dim", "\033[2m" },     { "red", "\033[31m" },
        { "green", "\033[32m" },  { "yellow", "\033[33m" },
    };
    if (!style) return "\033[0m";
    for (size_t i = 0; i < sizeof STYLES / sizeof *STYLES; i++)
        if (!strcmp(STYLES[i].name, style)) return STYLES[i].sequence;
    return "";
}

/* cli_style() for stderr. */
static const char *style_err(const struct cli *cli, const char *style) {
    return cli->color_err ? style_sequence(style) : "";
}

void cli_out(const struct cli *cli, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(stdout, format, args);
    va_end(args);
}

/* Prints one message. stdout is flushed first, so the order is kept if both go to one file.
 * Untrusted text in it cannot control the terminal, and cannot look like another message: only the
 * first line begins in the first column. */
static void message(const char *style, const char *head, const char *format, va_list args) {
    char *text = NULL;
    fflush(stdout);
    if (vasprintf(&text, format, args) < 0) return;
    fprintf(stderr, "%s%s%s%s", style, head, *style ? style_sequence(NULL) : "", *head ? " " : "");
    for (const char *c = plain_lines(text); *c; c++) {
        putc(*c, stderr);
        if (*c == '\n' && c[1] && !strchr(" \t\n", c[1])) fputs("  ", stderr);
    }
    putc('\n', stderr);
    free(text);
}

void cli_out_json(const struct cli *cli, const struct json_t *object) {
    struct err e = { 0 };
    char *text = NULL, *plain = NULL;
    size_t n = 0;
    enum status st = json_canonical(object, &text, &n, &e);
    if (st == OK && !(plain = plain_json(text))) st = FAIL(&e, ERR_MEMORY, "%zu bytes", n);
    if (st == OK) cli_out(cli, "%s\n", plain);
    else cli_warn(cli, "no JSON: %s", e.text);
    free(plain);
    free(text);
}

void cli_note(const struct cli *cli, const char *format, ...) {
    if (cli->quiet) return;
    va_list args;
    va_start(args, format);
    message("", "", format, args);
    va_end(args);
}

void cli_warn(const struct cli *cli, const char *format, ...) {
    va_list args;
    va_start(args, format);
    message(style_err(cli, "yellow"), "fp8lab:", format, args);
    va_end(args);
}

void cli_next_words(const struct cli *cli, const char *const *words) {
    if (cli->quiet || cli->json) return;
    fflush(stdout);
    fprintf(stderr, "%sNext:%s fp8lab", style_err(cli, "bold"), style_err(cli, NULL));
    for (; *words; words++) {
        char *word = shell_word(*words);
        fprintf(stderr, " %s", word ? word : "?");
        free(word);
    }
    putc('\n', stderr);
}

void cli_next_command(const struct cli *cli, const char *command) {
    if (cli->quiet || cli->json) return;
    fflush(stdout);
    fprintf(stderr, "%sNext:%s %s\n", style_err(cli, "bold"), style_err(cli, NULL), command);
}

void cli_next(const struct cli *cli, ...) {
    enum { WORDS_MAX = 16 };
    const char *words[WORDS_MAX + 1] = { NULL };
    va_list args;
    va_start(args, cli);
    for (int i = 0; i < WORDS_MAX && (words[i] = va_arg(args, const char *)); i++) continue;
    va_end(args);
    cli_next_words(cli, words);
}

static void say_failure(const struct cli *cli, const char *format, ...) {
    va_list args;
    va_start(args, format);
    message(style_err(cli, "red"), "fp8lab:", format, args);
    va_end(args);
}

int cli_fail(const struct cli *cli, const struct err *e) {
    say_failure(cli, "%s", e->text);
    if (cli->json) {
        json_t *object = json_pack("{s:s,s:{s:s,s:o}}", "schema", "fp8lab.error/1", "error", "code",
                                   status_name(e->code), "text", json_from_text(e->text));
        if (object) cli_out_json(cli, object);
        json_decref(object);
    }
    return exit_code_of(e->code);
}

const char *cli_style(const struct cli *cli, const char *style) {
    return cli->color ? style_sequence(style) : "";
}

int exit_code_of(enum status status) {
    switch (status) {
    case OK: return EXIT_OK;
    case ERR_ARG:
    case ERR_CONFIG:
    case ERR_UNSUPPORTED: return EXIT_USAGE;
    case ERR_HARDWARE: return EXIT_HARDWARE;
    case ERR_FORMAT:
    case ERR_VERIFY: return EXIT_VERIFY;
    case ERR_NUMERIC:
    case ERR_PEER:
    case ERR_INTERRUPTED: return EXIT_RUN_FAILED;
    case ERR_IO:
    case ERR_MEMORY:
    case ERR_DEVICE:
    case ERR_STATE: return EXIT_SYSTEM;
    }
    return EXIT_SYSTEM;
}
