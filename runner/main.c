/* Parses the command line and calls the verb. Only this file ends the process. */
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runner/base/version.h"
#include "runner/commands.h"
#include "runner/help.h"
#include "runner/init.h"
#include "runner/record/environment.h"

#define ROW(name) &name,
static const struct verb *const VERBS[] = { FP8LAB_VERBS(ROW) NULL };
enum { VERB_COUNT = sizeof VERBS / sizeof *VERBS - 1 };

/* Opens descriptors 0 to 2 if the caller closed them; otherwise a run's file could become
 * descriptor 1 and receive printed text. The direction is wrong on purpose: using them fails, as if
 * closed. */
static void occupy_standard_descriptors(void) {
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

/* An experiment may name 4096 text files, which all stay open; the usual limit is 1024. */
static void allow_open_files(void) {
    const rlim_t wanted = 8192;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* if this fails, opening a file reports the limit */
}

/* The deepest calls need 160 KiB of stack, mostly path buffers. Sanitizers need more, and workers
 * inherit the limit. */
static enum status ensure_stack(struct err *e) {
    const rlim_t needed = 512 << 10, usual = 8 << 20;
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= needed) return OK;
    const rlim_t found = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < usual ? limit.rlim_max : usual;
    if (limit.rlim_cur >= needed && setrlimit(RLIMIT_STACK, &limit) == 0) return OK;
    return FAIL(e, ERR_STATE, "the limit of the stack is %lld KiB, but fp8lab needs %lld KiB; "
                "raise the limit: ulimit -s 8192", (long long)found >> 10,
                (long long)needed >> 10);
}

/* Threads wait as those of a run do: otherwise bench would measure something else, and beside a
 * busy process eval would take many times as long. The variables must be there when libgomp is
 * loaded, so the program begins once more. */
static void wait_as_runs_do(const struct cli *cli, char **argv) {
    enum { MOST = 2, NAME_VALUE = 64 };
    char set[MOST][NAME_VALUE];
    const char *const *waiting = environment_waiting();
    size_t n = 0;
    if (!cli->verb || !cli->verb->computes || cli->help || getenv("OMP_WAIT_POLICY")) return;
    while (environ[n]) n++;
    char **vars = calloc(n + MOST + 1, sizeof *vars);
    if (!vars) return;
    memcpy(vars, environ, n * sizeof *vars);
    for (int i = 0; i < MOST && waiting[2 * i]; i++) {
        if (getenv(waiting[2 * i])) continue;
        snprintf(set[i], sizeof set[i], "%s=%s", waiting[2 * i], waiting[2 * i + 1]);
        vars[n++] = set[i];
    }
    (void)execve("/proc/self/exe", argv, vars); /* if it fails, threads spin */
    free(vars);
}

static int print_version(const struct cli *cli) {
    json_t *object =
        json_pack("{s:s,s:s}", "schema", "fp8lab.version/1", "version", FP8LAB_VERSION);
    if (cli->json) cli_out_json(cli, object);
    else cli_out(cli, "fp8lab %s\n", FP8LAB_VERSION);
    json_decref(object);
    return EXIT_OK;
}

static int dispatch(const struct cli *cli) {
    if (cli->version) return print_version(cli);
    if (cli->help) {
        if (cli->verb) help_verb(cli, cli->verb);
        else help_all(cli, VERBS, VERB_COUNT);
        return EXIT_OK;
    }
    if (cli->verb) return cli->verb->run(cli);
    help_welcome(cli, VERBS, VERB_COUNT);
    return EXIT_OK;
}

int main(int argc, char **argv) {
    struct cli cli;
    struct err e = { 0 };
    int code = EXIT_OK;
    bool ended = false;
    occupy_standard_descriptors();
    allow_open_files();
    if (ensure_stack(&e) != OK || init_become(&ended, &code, &e) != OK) {
        fprintf(stderr, "fp8lab: %s\n", e.text);
        return EXIT_SYSTEM;
    }
    if (ended) return code;
    if (cli_parse(argc, argv, VERBS, VERB_COUNT, &cli, &e) == OK) {
        wait_as_runs_do(&cli, argv);
        code = dispatch(&cli);
    } else {
        code = cli_fail(&cli, &e);
    }
    cli_free(&cli);
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == EXIT_OK) {
        fprintf(stderr, "fp8lab: writing the result: stdout is closed or full\n");
        code = EXIT_SYSTEM;
    }
    return code;
}
