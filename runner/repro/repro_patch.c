#include "runner/repro/repro_patch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/base/foreground.h"
#include "runner/launch/launch.h"

static bool is_commit(const char *text) {
    size_t n = strspn(text, "0123456789abcdef");
    return text[n] == '\0' && (n == 40 || n == 64);
}

/* Runs one program of the preparation, with its output on stderr. */
static enum status step(enum status failure, const char *what, struct words *argv,
                        struct err *e) {
    int code = 0;
    enum status st = argv->failed ? FAIL(e, ERR_MEMORY, "%s", what) : OK;
    if (st == OK && !program_in_path(argv->word[0]))
        st = FAIL(e, ERR_CONFIG, "--patch needs %s, and there is none in PATH", argv->word[0]);
    if (st == OK) st = foreground_run(argv->word, STDERR_FILENO, 0, &code, e);
    if (st == OK && code > EXIT_SIGNAL) st = FAIL(e, ERR_INTERRUPTED, "%s: stopped", what);
    if (st == OK && code != 0) st = FAIL(e, failure, "%s failed (exit code %d)", what, code);
    words_free(argv);
    return st;
}

static void git(struct words *w, const char *folder) {
    words_add(w, "git");
    words_add(w, "-c");
    words_add(w, "safe.directory=*"); /* a mounted tree may belong to another user */
    words_add(w, "-c");
    words_add(w, "core.hooksPath=/dev/null");
    if (folder) words_add(w, "-C");
    if (folder) words_add(w, folder);
}

static enum status check_out(const struct repro_source *s, const char *tree, const char *commit,
                             const char *folder, struct err *e) {
    char text[160];
    struct words w = { 0 };
    git(&w, NULL);
    words_add(&w, "clone");
    words_add(&w, "--quiet");
    words_add(&w, "--no-checkout");
    words_add(&w, "--");
    words_add(&w, tree);
    words_add(&w, folder);
    snprintf(text, sizeof text, "copying the source tree %.100s", tree);
    TRY(step(ERR_CONFIG, text, &w, e));
    git(&w, folder);
    words_add(&w, "checkout");
    words_add(&w, "--quiet");
    words_add(&w, "--detach");
    words_add(&w, commit);
    snprintf(text, sizeof text, "checking out the bundle's commit %.12s", commit);
    TRY(step(ERR_CONFIG, text, &w, e));
    if (!*s->patch) return OK;
    char *patch = realpath(s->patch, NULL);
    if (!patch) return FAIL(e, ERR_IO, "%s is gone", s->patch);
    git(&w, folder);
    words_add(&w, "apply");
    words_add(&w, patch);
    free(patch);
    return step(ERR_CONFIG, "applying the bundle's patch", &w, e);
}

/* Builds the GPU backend only if there is a GPU: it takes minutes. */
static enum status build(const char *folder, struct err *e) {
    struct words w = { 0 };
    words_add(&w, "make");
    words_add(&w, "--no-print-directory");
    words_addf(&w, "-j%ld", sysconf(_SC_NPROCESSORS_ONLN));
    words_add(&w, "-C");
    words_add(&w, folder);
    words_add(&w, access("/dev/nvidiactl", F_OK) == 0 ? "all" : "build/release/fp8lab");
    return step(ERR_STATE, "building the bundle's program", &w, e);
}

static enum status hand_over(const struct cli *cli, const struct repro_source *s,
                             const char *folder, int *exit_code, struct err *e) {
    static const char *const OURS[] = { "patch", NULL };
    struct words w = { 0 };
    words_addf(&w, "%s/build/release/fp8lab", folder);
    words_add(&w, "repro");
    launch_carry_flags(cli, OURS, &w);
    words_add(&w, s->bundle);
    enum status st = w.failed ? FAIL(e, ERR_MEMORY, "a command line")
                              : foreground_run(w.word, STDOUT_FILENO, 0, exit_code, e);
    words_free(&w);
    return st;
}

enum status repro_patched(const struct cli *cli, const struct repro_source *s, const char *tree,
                          int *exit_code, struct err *e) {
    char folder[PATH_CAP];
    const char *commit = json_text(s->view.commit, "commit", "");
    if (!is_commit(commit))
        return FAIL(e, ERR_CONFIG, "the bundle does not know the commit of its program (%.40s)",
                    commit);
    TRY(path_join(folder, s->work, "source", e));
    cli_note(cli, "building the bundle's program: commit %.12s%s", commit,
             *s->patch ? " and its patch" : "");
    TRY(check_out(s, tree, commit, folder, e));
    TRY(build(folder, e));
    return hand_over(cli, s, folder, exit_code, e);
}
