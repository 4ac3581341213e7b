/* The command line: parsing argv, and the output of every verb.
 *
 * Results go to stdout, messages to stderr. Every verb is one file, cmd_<verb>.c, which exports its
 * row `const struct verb VERB_<NAME>` with flags, help and function; commands.h lists the rows.
 * Global flags (--json, -q, --no-color, --help) are accepted anywhere on the line. */
#ifndef FP8LAB_RUNNER_BASE_CLI_H
#define FP8LAB_RUNNER_BASE_CLI_H

#include "kernels/base.h"

struct cli;
struct json_t;

enum exit_code {
    EXIT_OK = 0,
    EXIT_RUN_FAILED = 1,
    EXIT_USAGE = 2,    /* command line, script or configuration */
    EXIT_HARDWARE = 3, /* the machine does not match the query */
    EXIT_VERIFY = 4,
    EXIT_DIFFERS = 5,
    EXIT_SYSTEM = 6,
    EXIT_SIGNAL = 128 /* + N: stopped by signal N, with a resumable checkpoint */
};

struct flag {
    const char *name;  /* without the dashes: "set" */
    const char *value; /* the name of its value in --help: "KEY=VALUE"; NULL for a switch */
    const char *help;  /* one line, at most 60 columns */
    bool repeats;      /* may be given more than once */
};

struct verb {
    const char *name;
    const char *arguments; /* "FILE.lua [...]", as --help prints it; "" for none */
    const char *about;     /* one line for the verb table, without a full stop */
    const char *more;      /* further --help text, lines ending in '\n', or NULL */
    const struct flag *flags;
    int64_t flag_count, args_min, args_max; /* args_max -1: any number */
    int (*run)(const struct cli *cli);      /* returns the exit code */
    bool hidden;                            /* not listed in --help (worker) */
    bool computes; /* operators of the CPU in this process, not in a worker */
};

/* Fills flags and flag_count of a row from an array of flags. */
#define VERB_FLAGS(array) .flags = (array), .flag_count = (int64_t)(sizeof(array) / sizeof *(array))

struct cli_flag { const char *name, *value; }; /* value NULL for a switch; both borrowed */

/* One parsed command line. Strings are borrowed from argv. */
struct cli {
    const struct verb *verb; /* NULL: `fp8lab` alone, `--version`, or `--help` without a verb */
    const char **args;       /* positional arguments after the verb; owned array */
    int64_t arg_count;
    struct cli_flag *flags; /* as given, in order; owned array */
    int64_t flag_count;
    const char *const *argv; /* the whole command line as given; NULL-terminated, borrowed */
    bool json, quiet, help, version;
    bool color, color_err; /* for stdout; for stderr */
};

/* The flags of every command: --json and so on. */
enum { CLI_GLOBAL_COUNT = 5 };
extern const struct flag CLI_GLOBALS[CLI_GLOBAL_COUNT];

/* Parses argv against the `count` rows of `verbs` ("run" must be among them for the shorthand
 * `fp8lab X.lua` = `fp8lab run X.lua`). ERR_ARG with a "did you mean" otherwise. On failure *out
 * is still valid for cli_fail() and cli_free(). */
NODISCARD enum status cli_parse(int argc, char **argv, const struct verb *const *verbs,
                                int64_t count, struct cli *out, struct err *e);
void cli_free(struct cli *cli);

/* The row with that name, or "run" for a .lua file. ERR_ARG with a "did you mean". */
NODISCARD enum status cli_find_verb(const struct verb *const *verbs, int64_t count,
                                    const char *word, const struct verb **out, struct err *e);

bool cli_has(const struct cli *cli, const char *flag);
/* The value of the last --flag on the line, or NULL. Asserts that the verb has such a flag. */
const char *cli_value(const struct cli *cli, const char *flag);
/* The values of a flag that repeats: 0 <= i < cli_count(). */
int64_t cli_count(const struct cli *cli, const char *flag);
const char *cli_nth(const struct cli *cli, const char *flag, int64_t i);
/* The folder of runs: the value of --runs, or "runs". */
const char *cli_runs(const struct cli *cli);
/* Reads a whole number in [min, max]. *out is unchanged if the flag is absent. ERR_ARG, with the
 * flag, the range and the value, for anything else. */
NODISCARD enum status cli_int(const struct cli *cli, const char *flag, int64_t min, int64_t max,
                              int64_t *out, struct err *e);

/* Results: stdout. */
void cli_out(const struct cli *cli, const char *format, ...) PRINTF_LIKE(2, 3);
/* Prints one JSON object on stdout: canonical (canonical.h), except for \u escapes for characters
 * that could control a terminal (plain_text.h). `object` is borrowed. */
void cli_out_json(const struct cli *cli, const struct json_t *object);
/* Messages: stderr (the newline is added); silent under -q. Text goes through plain_lines(), and
 * lines after the first are indented. */
void cli_note(const struct cli *cli, const char *format, ...) PRINTF_LIKE(2, 3);
/* Warnings and errors: stderr, one line, printed under -q too. */
void cli_warn(const struct cli *cli, const char *format, ...) PRINTF_LIKE(2, 3);
/* Suggests the next command, "Next: fp8lab show X", on stderr; silent under -q and --json. The
 * words after "fp8lab", NULL-terminated, are quoted for a shell, so the line can be pasted. */
void cli_next(const struct cli *cli, ...) __attribute__((sentinel));
void cli_next_words(const struct cli *cli, const char *const *words); /* NULL-terminated */
/* Suggests a whole command that begins with "fp8lab", and is quoted already. */
void cli_next_command(const struct cli *cli, const char *command);
/* Prints the error (stderr; under --json also {"schema":"fp8lab.error/1",...} on stdout) and
 * returns the exit code for it. */
int cli_fail(const struct cli *cli, const struct err *e);

/* Escape sequences for stdout, or "" if stdout has no colour. style: "bold", "red", "green",
 * "yellow", "dim"; NULL resets. */
const char *cli_style(const struct cli *cli, const char *style);

/* The exit code for a status. ERR_INTERRUPTED is EXIT_RUN_FAILED; a caller that knows the signal
 * returns 128+N itself. */
int exit_code_of(enum status status);

#endif
