/* fp8lab completion: what a shell needs to complete verbs, flags, scripts and runs, made from the
 * same rows as --help. */
#include <string.h>

#include "runner/commands.h"

#define ROW(name) &name,
static const struct verb *const VERBS[] = { FP8LAB_VERBS(ROW) };
enum { VERB_COUNT = sizeof VERBS / sizeof *VERBS };

static const char *const GLOBALS = "--json --quiet --no-color --help --version";

/* ---- what a word may be -----------------------------------------------------------------------*/

static bool takes(const struct verb *verb, const char *what) {
    return strstr(verb->arguments, what) != NULL;
}

/* How many bytes of `arguments` are words to choose from, "gemm|attention"; 0: none. */
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

/* The words that a verb's argument is one of. */
static void put_choices(const struct cli *cli, const struct verb *verb) {
    if (takes(verb, "COMMAND")) put_verb_names(cli);
    for (size_t i = 0; i < choices_bytes(verb); i++)
        cli_out(cli, "%c", verb->arguments[i] == '|' ? ' ' : verb->arguments[i]);
}

/* Words that a flag's value can be, where they are few; NULL: others, or none. */
static const char *values_of(const struct flag *flag) {
    static const struct { const char *name, *values; } KNOWN[] = {
        { "backend", "auto cpu cuda" },
        { "launch", "docker podman apptainer srun" },
        { "caps", "sm_80 sm_89 sm_90 sm_100 sm_120 sm_121" },
        { "dtype", "f32 bf16 e4m3 e5m2" },
        { "scale", "tensor row 1x128 128x128 1x32" },
    };
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (!strcmp(flag->name, KNOWN[i].name)) return KNOWN[i].values;
    return NULL;
}

/* What stands after a flag: a path, a run, one of few words, or what only the user knows. */
static bool is_path(const char *value) {
    static const char *const PATHS[] = { "DIR", "FILE", "TREE" };
    for (size_t i = 0; i < sizeof PATHS / sizeof *PATHS; i++)
        if (!strcmp(value, PATHS[i])) return true;
    return false;
}

static bool takes_paths(const struct verb *verb) {
    return takes(verb, "RUN") || takes(verb, "FILE") || takes(verb, "DIR");
}

/* ---- bash, and zsh through its emulation ------------------------------------------------------*/

/* What is offered after a flag that takes a value, instead of the verb's own words. */
static void put_bash_value(const struct cli *cli, const struct flag *flag) {
    const char *values = values_of(flag);
    cli_out(cli, "        --%s) flags='%s'", flag->name, values ? values : "");
    if (strcmp(flag->value, "RUN") != 0) cli_out(cli, " runs=''");
    cli_out(cli, " files='%s' ;;\n", is_path(flag->value) ? "*" : "");
}

static void put_bash_verb(const struct cli *cli, const struct verb *verb) {
    bool values = false;
    cli_out(cli, "    %s)\n        flags='", verb->name);
    put_choices(cli, verb);
    cli_out(cli, "%s%s", has_choices(verb) ? " " : "", GLOBALS);
    for (int64_t i = 0; i < verb->flag_count; i++) cli_out(cli, " --%s", verb->flags[i].name);
    cli_out(cli, "'\n");
    if (takes_paths(verb))
        cli_out(cli, "        files='%s'\n", takes(verb, ".lua") ? "*.lua" : "*");
    if (takes(verb, "RUN"))
        cli_out(cli, "        runs=\"last $(cd runs 2>/dev/null && printf '%%s\\n' *.tar.zst)\"\n");
    for (int64_t i = 0; i < verb->flag_count; i++) {
        if (!verb->flags[i].value) continue;
        if (!values) cli_out(cli, "        case $before in\n");
        put_bash_value(cli, &verb->flags[i]);
        values = true;
    }
    cli_out(cli, "%s        ;;\n", values ? "        esac\n" : "");
}

/* A run is named by the beginning of its id, so its bundle's suffix is left out. */
static void print_bash(const struct cli *cli) {
    cli_out(cli, "_fp8lab() {\n"
                 "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
                 "    local i verb='' flags='' files='' runs='' verbs='");
    put_verb_names(cli);
    cli_out(cli, "'\n"
                 "    for ((i = 1; i < COMP_CWORD && ${#verb} == 0; i++)); do\n"
                 "        case ${COMP_WORDS[i]} in\n"
                 "        -*) ;;\n"
                 "        *.lua) verb=run ;;\n"
                 "        *) verb=${COMP_WORDS[i]} ;;\n"
                 "        esac\n"
                 "    done\n"
                 "    case $verb in\n"
                 "    '')\n        files='*.lua' flags=\"$verbs %s\"\n        ;;\n", GLOBALS);
    for (size_t v = 0; v < VERB_COUNT; v++)
        if (!VERBS[v]->hidden) put_bash_verb(cli, VERBS[v]);
    cli_out(cli, "    esac\n"
                 "    runs=${runs//.tar.zst/}\n"
                 "    COMPREPLY=($(compgen -W \"$flags ${runs//\\*/}\" -- \"$word\"))\n"
                 "    [ -z \"$files\" ] || [[ $word == -* ]] ||\n"
                 "        COMPREPLY+=($(compgen -f -X \"!$files\" -- \"$word\")"
                 " $(compgen -d -- \"$word\"))\n"
                 "}\n"
                 "complete -o filenames -F _fp8lab fp8lab\n");
}

static void print_zsh(const struct cli *cli) {
    cli_out(cli, "autoload -U +X bashcompinit && bashcompinit\n");
    print_bash(cli);
}

/* ---- fish -------------------------------------------------------------------------------------*/

/* Single quotes and backslashes are all that fish looks for inside single quotes. */
static void put_fish_text(const struct cli *cli, const char *text) {
    cli_out(cli, "'");
    for (; *text; text++) cli_out(cli, *text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
    cli_out(cli, "'");
}

static void put_fish_flag(const struct cli *cli, const struct verb *verb,
                          const struct flag *flag) {
    const char *values = flag->value ? values_of(flag) : NULL;
    cli_out(cli, "complete -c fp8lab -n '__fish_seen_subcommand_from %s' -l %s%s -d ", verb->name,
            flag->name, !flag->value ? "" : is_path(flag->value) ? " -r" : " -x");
    put_fish_text(cli, flag->help);
    if (values) cli_out(cli, " -a '%s'", values);
    cli_out(cli, "\n");
}

static void print_fish(const struct cli *cli) {
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
                         "\"last (string replace -r '.*/(.*)\\.tar\\.zst' '\\$1' runs/*.tar.zst)"
                         "\"\n", verb->name);
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
    (void)FAIL(&e, ERR_ARG, "completion %s: there are bash, zsh and fish", cli->args[0]);
    return cli_fail(cli, &e);
}

const struct verb VERB_COMPLETION = {
    .name = "completion",
    .arguments = "bash|zsh|fish",
    .about = "print what a shell needs to complete our commands",
    .more = "  bash   source <(fp8lab completion bash)\n"
            "  zsh    source <(fp8lab completion zsh)\n"
            "  fish   fp8lab completion fish | source\n"
            "Verbs, flags and their values, scripts, and the runs in ./runs are completed.\n",
    .args_min = 1,
    .args_max = 1,
    .run = cmd_completion,
};
