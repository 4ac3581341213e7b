/* fp8lab completion: prints a shell script that completes verbs, flags, scripts and runs. It is
 * made from the same tables as --help. */
#include <stdio.h>
#include <string.h>

#include "model/recipe_kinds.h"
#include "runner/commands.h"
#include "runner/script/schema_tables.h"

#define ROW(name) &name,
static const struct verb *const VERBS[] = { FP8LAB_VERBS(ROW) };
enum { VERB_COUNT = sizeof VERBS / sizeof *VERBS };

/* ---- candidates -----------------------------------------------------------------------------*/

static bool takes(const struct verb *verb, const char *what) {
    return strstr(verb->arguments, what) != NULL;
}

/* The length of the list of words in `arguments`, such as "gemm|attention"; 0: none. */
static size_t choices_bytes(const struct verb *verb) {
    size_t n = strspn(verb->arguments, "abcdefghijklmnopqrstuvwxyz|");
    return memchr(verb->arguments, '|', n) ? n : 0;
}

static bool has_choices(const struct verb *verb) {
    return choices_bytes(verb) > 0 || takes(verb, "COMMAND");
}

static void put_verb_names(const struct cli *cli) {
    for (size_t v = 0; v < VERB_COUNT; v++)
        if (!VERBS[v]->hidden) cli_out(cli, "%s%s", v ? " " : "", VERBS[v]->name);
}

static void put_globals(const struct cli *cli) {
    for (int i = 0; i < CLI_GLOBAL_COUNT; i++) cli_out(cli, " --%s", CLI_GLOBALS[i].name);
}

/* The words that a verb's argument may be. */
static void put_choices(const struct cli *cli, const struct verb *verb) {
    if (takes(verb, "COMMAND")) put_verb_names(cli);
    for (size_t i = 0; i < choices_bytes(verb); i++)
        cli_out(cli, "%c", verb->arguments[i] == '|' ? ' ' : verb->arguments[i]);
}

/* Words that name a run (bundle/run_pick.h). */
#define RUN_WORDS "last last~1 best:eval.loss"

#define RECIPE_WORD(kind, name) " " name

/* The possible values of a flag; NULL: it has none, or they are not a fixed list. */
static const char *values_of(const struct flag *flag) {
    static const struct { const char *name, *values; } KNOWN[] = {
        { "backend", "auto cpu cuda" },
        { "launch", "docker podman apptainer srun" },
        { "caps", "sm_80 sm_89 sm_90 sm_100 sm_103 sm_120 sm_121" },
        { "arithmetic", "reference hopper ada sm_100 sm_120" },
        { "dtype", "f32 bf16 e4m3 e5m2 e2m1" },
        { "checkpoints", "old all" },
        { "loss", "all last" },
        { "recipe", "f32 bf16" RECIPE_FP8_KINDS(RECIPE_WORD) },
        { "sort", "date name status recipe model device step loss eval speed" },
        { "status", "done failed interrupted killed running time_limit" },
        { "scale", "tensor row 1x128 128x128 1x32 32x32 1x16 16x16" },
    };
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (!strcmp(flag->name, KNOWN[i].name)) return KNOWN[i].values;
    return NULL;
}

/* ---- keys of an experiment --------------------------------------------------------------------*/

enum { KEY_CAP = 160 };

static bool in_earlier(const struct field *f, const struct schema *const *variants, size_t before) {
    for (size_t i = 0; i < before; i++)
        if (schema_field(variants[i], f->key)) return true;
    return false;
}

/* The key itself, unless it is a table without a short form or a function. */
static bool takes_value(const struct field *f) {
    bool whole = f->type == FIELD_TABLE && !(f->flags & FIELD_SHORT);
    return !whole && f->type != FIELD_TABLES && f->type != FIELD_ENV && f->type != FIELD_FUNCTION;
}

static void put_field(const struct cli *cli, const struct field *f, const char *path) {
    char key[KEY_CAP];
    snprintf(key, sizeof key, "%s%s%s", path, *path ? "." : "", f->key);
    bool first = f == SCHEMA_EXPERIMENT.fields;
    if (takes_value(f)) cli_out(cli, "%s%s=", first ? "" : " ", key);
    bool table = f->type == FIELD_TABLE || f->type == FIELD_WORD;
    for (const struct field *g = table && f->schema ? f->schema->fields : NULL; g && g->key; g++)
        put_field(cli, g, key);
    if (f->type != FIELD_VARIANT) return;
    for (size_t i = 0; f->variants[i]; i++)
        for (const struct field *g = f->variants[i]->fields; g->key; g++)
            if (!in_earlier(g, f->variants, i)) put_field(cli, g, key);
}

/* What --set may name, as "train.steps=". */
static void put_keys(const struct cli *cli) {
    for (const struct field *f = SCHEMA_EXPERIMENT.fields; f->key; f++) put_field(cli, f, "");
}

static bool is_key(const struct flag *flag) {
    return flag->value && !strcmp(flag->value, "KEY=VALUE");
}

/* Whether a flag's value is a path. */
static bool is_path(const char *value) {
    static const char *const PATHS[] = { "DIR", "FILE", "TREE" };
    for (size_t i = 0; i < sizeof PATHS / sizeof *PATHS; i++)
        if (!strcmp(value, PATHS[i])) return true;
    return false;
}

static bool takes_paths(const struct verb *verb) {
    return takes(verb, "RUN") || takes(verb, "FILE") || takes(verb, "DIR");
}

/* The characters of a run's id. A bundle with other characters is offered as a file only: bash does
 * not quote `$` in a candidate that is not a file name. */
#define ID_CHARACTERS "A-Za-z0-9._-"
/* Directories of runs are offered too: a live run has no bundle yet. */

/* ---- bash and zsh: the part that both shells read ---------------------------------------------*/

/* File names are untrusted text, so no shell may expand a candidate. bash's `compgen -W` expands,
 * and zsh's emulation of bash inserts candidates without quotes. So this part only sets `flags`
 * (our own words), `files` (a pattern, or empty) and `runs` (not empty: offer runs). Each shell's
 * own part compares whole names and lets the shell quote. */

/* The candidates after a flag that takes a value; they replace the verb's own. */
static void put_shell_value(const struct cli *cli, const struct flag *flag) {
    const char *values = values_of(flag);
    cli_out(cli, "        --%s) flags=", flag->name);
    if (is_key(flag)) cli_out(cli, "$keys");
    else cli_out(cli, "'%s'", values ? values : "");
    if (strcmp(flag->value, "RUN") != 0) cli_out(cli, " runs=''");
    cli_out(cli, " files='%s' ;;\n", is_path(flag->value) ? "*" : "");
}

static void put_shell_verb(const struct cli *cli, const struct verb *verb) {
    bool values = false;
    cli_out(cli, "    %s)\n        flags='", verb->name);
    put_choices(cli, verb);
    put_globals(cli);
    for (int64_t i = 0; i < verb->flag_count; i++) cli_out(cli, " --%s", verb->flags[i].name);
    cli_out(cli, "'\n");
    if (takes_paths(verb))
        cli_out(cli, "        files='%s'\n", takes(verb, ".lua") ? "*.lua" : "*");
    if (takes(verb, "RUN")) cli_out(cli, "        runs=yes\n");
    for (int64_t i = 0; i < verb->flag_count; i++) {
        if (!verb->flags[i].value) continue;
        if (!values) cli_out(cli, "        case $before in\n");
        put_shell_value(cli, &verb->flags[i]);
        values = true;
    }
    cli_out(cli, "%s        ;;\n", values ? "        esac\n" : "");
}

/* `given` holds the words between "fp8lab" and the word being completed; `before` is the last
 * one. */
static void put_shell_verbs(const struct cli *cli) {
    cli_out(cli, "    local item verb='' flags='' files='' runs='' keys='");
    put_keys(cli);
    cli_out(cli, "'\n"
                 "    for item in \"${given[@]}\"; do\n"
                 "        case $item in\n"
                 "        -*) continue ;;\n"
                 "        *.lua) verb=run ;;\n"
                 "        *) verb=$item ;;\n"
                 "        esac\n"
                 "        break\n"
                 "    done\n"
                 "    case $verb in\n"
                 "    '')\n        files='*.lua' flags='");
    put_verb_names(cli);
    put_globals(cli);
    cli_out(cli, "'\n        ;;\n");
    for (size_t v = 0; v < VERB_COUNT; v++)
        if (!VERBS[v]->hidden) put_shell_verb(cli, VERBS[v]);
    cli_out(cli, "    esac\n");
}

/* The beginning of an id names a run, so the bundle's suffix is omitted. `read` without -r removes
 * the backslashes that an earlier TAB inserted. */
static void print_bash(const struct cli *cli) {
    cli_out(cli, "_fp8lab() {\n"
                 "    local word before=${COMP_WORDS[COMP_CWORD-1]}\n"
                 "    local given=(\"${COMP_WORDS[@]:1:COMP_CWORD-1}\")\n");
    put_shell_verbs(cli);
    cli_out(cli, "    COMPREPLY=()\n"
                 "    # shellcheck disable=SC2162\n"
                 "    IFS= read word <<<\"$2\"\n"
                 "    for item in $flags ${runs:+" RUN_WORDS "}; do\n"
                 "        [[ $item != \"$word\"* ]] || COMPREPLY+=(\"$item\")\n"
                 "    done\n"
                 "    [[ $flags != \"$keys\" ]] || compopt -o nospace 2>/dev/null\n"
                 "    while [[ $runs ]] && IFS= read -r item; do\n"
                 "        item=${item#runs/} item=${item%%.tar.zst}\n"
                 "        [[ $item != \"$word\"* || $item == *[!%s]* ]] || COMPREPLY+=(\"$item\")\n"
                 "    done < <(compgen -f -X '!*.tar.zst' -- runs/)\n"
                 "    while [[ $runs ]] && IFS= read -r item; do\n"
                 "        item=${item#runs/}\n"
                 "        [[ $item == \"$word\"* && $item =~ ^[%s]+-[0-9a-f]{8}$ ]] || continue\n"
                 "        [[ -e runs/$item.tar.zst ]] || COMPREPLY+=(\"$item\")\n"
                 "    done < <(compgen -d -- runs/)\n"
                 "    [[ $files && $word != -* ]] || return 0\n"
                 "    while IFS= read -r item; do\n"
                 "        COMPREPLY+=(\"$item\")\n"
                 "    done < <(compgen -f -X \"!$files\" -- \"$2\"; compgen -d -- \"$2\")\n"
                 "}\n"
                 "complete -o filenames -F _fp8lab fp8lab\n", ID_CHARACTERS, ID_CHARACTERS);
}

static void print_zsh(const struct cli *cli) {
    cli_out(cli, "_fp8lab() {\n"
                 "    local before=${words[CURRENT-1]} none=1\n"
                 "    local -a given=(\"${(@)words[2,CURRENT-1]}\")\n");
    put_shell_verbs(cli);
    cli_out(cli, "    local -a space=()\n"
                 "    [[ $flags != \"$keys\" ]] || space=(-S '') # its value follows\n"
                 "    compadd $space -- ${=flags} && none=0\n"
                 "    [[ -n $runs ]] && compadd -- " RUN_WORDS
                 " runs/[%s]##.tar.zst(N:t:r:r) runs/[%s]##-[0-9a-f](#c8)(N/:t) && none=0\n"
                 "    [[ -n $files && $PREFIX != -* ]] && _files -g $files && none=0\n"
                 "    return none\n"
                 "}\n"
                 "(( $+functions[compdef] )) || { autoload -U compinit && compinit -i; }\n"
                 "compdef _fp8lab fp8lab\n", ID_CHARACTERS, ID_CHARACTERS);
}

/* ---- fish -------------------------------------------------------------------------------------*/

/* Inside single quotes, fish interprets only single quotes and backslashes. */
static void put_fish_text(const struct cli *cli, const char *text) {
    cli_out(cli, "'");
    for (; *text; text++) cli_out(cli, *text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
    cli_out(cli, "'");
}

static void put_fish_globals(const struct cli *cli) {
    for (int i = 0; i < CLI_GLOBAL_COUNT; i++) {
        cli_out(cli, "complete -c fp8lab -l %s -d ", CLI_GLOBALS[i].name);
        put_fish_text(cli, CLI_GLOBALS[i].help);
        cli_out(cli, "\n");
    }
}

static void put_fish_flag(const struct cli *cli, const struct verb *verb,
                          const struct flag *flag) {
    const char *values = flag->value ? values_of(flag) : NULL;
    cli_out(cli, "complete -c fp8lab -n '__fish_seen_subcommand_from %s' -l %s%s -d ", verb->name,
            flag->name, !flag->value ? "" : is_path(flag->value) ? " -r" : " -x");
    put_fish_text(cli, flag->help);
    if (values) cli_out(cli, " -a '%s'", values);
    if (is_key(flag)) cli_out(cli, " -a '(__fp8lab_keys)'");
    if (flag->value && !strcmp(flag->value, "RUN")) cli_out(cli, " -a '(__fp8lab_runs)'");
    cli_out(cli, "\n");
}

/* fish does not expand the output of a command substitution, and quotes what it inserts. A pattern
 * without a match is an error of fish, except after `for`. */
static void print_fish(const struct cli *cli) {
    cli_out(cli, "function __fp8lab_runs\n"
                 "    for bundle in runs/*.tar.zst\n"
                 "        string replace -rf '^runs/([%s]+)\\.tar\\.zst$' '$1' -- $bundle\n"
                 "    end\n"
                 "    for folder in runs/*/\n"
                 "        string replace -rf '^runs/([%s]+-[0-9a-f]{8})/$' '$1' -- $folder\n"
                 "    end\n"
                 "end\n", ID_CHARACTERS, ID_CHARACTERS);
    cli_out(cli, "function __fp8lab_keys\n"
                 "    string split ' ' -- '");
    put_keys(cli);
    cli_out(cli, "'\n"
                 "end\n");
    put_fish_globals(cli);
    for (size_t v = 0; v < VERB_COUNT; v++) {
        const struct verb *verb = VERBS[v];
        if (verb->hidden) continue;
        cli_out(cli, "complete -c fp8lab -n __fish_use_subcommand -a %s -d ", verb->name);
        put_fish_text(cli, verb->about);
        cli_out(cli, "\n");
        for (int64_t i = 0; i < verb->flag_count; i++) put_fish_flag(cli, verb, &verb->flags[i]);
        if (has_choices(verb)) {
            cli_out(cli, "complete -c fp8lab -n '__fish_seen_subcommand_from %s'%s -a '",
                    verb->name, takes_paths(verb) ? "" : " -f");
            put_choices(cli, verb);
            cli_out(cli, "'\n");
        }
        if (takes(verb, "RUN"))
            cli_out(cli, "complete -c fp8lab -n '__fish_seen_subcommand_from %s' -a "
                         "'" RUN_WORDS " (__fp8lab_runs)'\n", verb->name);
    }
}

/* ---- the verb ---------------------------------------------------------------------------------*/

static int cmd_completion(const struct cli *cli) {
    static const struct { const char *shell; void (*print)(const struct cli *); } SHELLS[] = {
        { "bash", print_bash }, { "zsh", print_zsh }, { "fish", print_fish },
    };
    for (size_t i = 0; i < sizeof SHELLS / sizeof *SHELLS; i++) {
        if (strcmp(cli->args[0], SHELLS[i].shell) != 0) continue;
        SHELLS[i].print(cli);
        return EXIT_OK;
    }
    struct err e = { 0 };
    (void)FAIL(&e, ERR_ARG, "completion %s: the shells are bash, zsh and fish", cli->args[0]);
    return cli_fail(cli, &e);
}

const struct verb VERB_COMPLETION = {
    .name = "completion",
    .arguments = "bash|zsh|fish",
    .about = "print the script that completes fp8lab commands in a shell",
    .more = "  bash   source <(fp8lab completion bash)\n"
            "  zsh    source <(fp8lab completion zsh)\n"
            "  fish   fp8lab completion fish | source\n"
            "Completes verbs, flags and their values, keys after --set, scripts, and the runs in\n"
            "./runs.\n",
    .args_min = 1,
    .args_max = 1,
    .run = cmd_completion,
};
