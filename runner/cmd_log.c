/* fp8lab log: what a run did, line by line, and on what. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/bundle/member.h"
#include "runner/bundle/run_pick.h"
#include "runner/bundle/run_view.h"
#include "runner/commands.h"
#include "runner/record/run_lock.h"
#include "runner/record/run_log.h"

enum { LOG_LIMIT = 256 << 20, POLL_S = 1 };

struct reading {
    const struct cli *cli;
    char path[PATH_CAP];
    json_t *lines;  /* owned; with --json */
    bool failed;    /* no memory for `lines` */
    int64_t at;     /* bytes printed */
};

/* A line of n bytes without its newline; line[n] is 0. A power loss can leave NULs in a file. */
static void put_line(struct reading *r, char *line, size_t n) {
    for (char *nul; (nul = memchr(line, 0, n));) *nul = '?';
    plain_text(line);
    if (!r->lines) {
        cli_out(r->cli, "%s\n", line);
        return;
    }
    size_t time = strcspn(line, " ");
    const char *text = line[time] ? line + time + 1 : line + time;
    json_append(r->lines, json_pack("{s:o,s:o}", "time", json_stringn(line, time), "text",
                                    json_from_text(text)), &r->failed);
}

/* Prints the whole lines of n bytes, behind which is a NUL; with `last` also a line without an end.
 * Returns their bytes. */
static int64_t put_lines(struct reading *r, char *bytes, size_t n, bool last) {
    char *from = bytes, *end;
    while ((end = memchr(from, '\n', (size_t)(bytes + n - from)))) {
        *end = '\0';
        put_line(r, from, (size_t)(end - from));
        from = end + 1;
    }
    if (last && from < bytes + n) put_line(r, from, (size_t)(bytes + n - from));
    fflush(stdout);
    return last ? (int64_t)n : from - bytes;
}

/* ---- a directory ----------------------------------------------------------------------------- */

/* Reads what the file has after r->at. *gone: the directory is no longer there. */
static enum status read_more(struct reading *r, bool last, bool *gone, struct err *e) {
    char *bytes = NULL;
    size_t n = 0;
    int fd = -1, root = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *gone = root < 0 && (errno == ENOENT || errno == ESTALE);
    if (*gone) return OK;
    if (root < 0) return FAIL(e, ERR_IO, "open %s: %s", r->path, strerror(errno));
    enum status st = open_file_beneath(root, RUN_LOG_FILE, O_RDONLY, r->path, &fd, e);
    close(root);
    if (st != OK || fd < 0) return st;
    if (lseek(fd, 0, SEEK_END) < r->at) r->at = 0; /* another run's log has taken the place */
    if (lseek(fd, r->at, SEEK_SET) < 0)
        st = FAIL(e, ERR_IO, "seek in the log of %s: %s", r->path, strerror(errno));
    if (st == OK) st = file_read_open(fd, RUN_LOG_FILE, LOG_LIMIT, &bytes, &n, e);
    close(fd);
    if (st == OK && n) r->at += put_lines(r, bytes, n, last);
    free(bytes);
    return st;
}

static enum status read_bundle(struct reading *r, const char *path, struct err *e) {
    char *bytes;
    size_t n;
    TRY(bundle_member(path, RUN_LOG_FILE, LOG_LIMIT, &bytes, &n, e));
    if (!bytes) return FAIL(e, ERR_ARG, "%s has no log", path);
    if (r->at < (int64_t)n) put_lines(r, bytes + r->at, n - (size_t)r->at, true);
    free(bytes);
    return OK;
}

/* A run that ended was packed into the bundle beside its directory. */
static enum status read_rest(struct reading *r, struct err *e) {
    char bundle[PATH_CAP];
    TRY(run_packed(r->path, bundle, e));
    return read_bundle(r, bundle, e);
}

/* Whether run.json says that the run goes on. ERR_ARG: there is none. */
static enum status says_running(const char *path, bool *running, struct err *e) {
    json_t *run = NULL;
    int fd = -1, root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    enum status st = open_file_beneath(root, DOCUMENT_run, O_RDONLY, path, &fd, e);
    if (fd >= 0) close(fd);
    else if (st == OK) st = FAIL(e, ERR_ARG, "%s is not a run: it has no %s", path, DOCUMENT_run);
    if (st == OK) st = json_read_beneath(root, DOCUMENT_run, path, &run, e);
    close(root);
    *running = st == OK && !strcmp(json_text(run, "status", ""), "running");
    json_decref(run);
    return st;
}

static enum status read_directory(struct reading *r, bool follow, struct err *e) {
    bool running, gone = false;
    TRY(says_running(r->path, &running, e));
    for (;;) {
        struct run_writer writer;
        bool over = !follow || run_lock_look(r->path, &writer) == RUN_LIFE_NONE; /* then read */
        TRY(read_more(r, over, &gone, e));
        if (gone) return read_rest(r, e);
        if (over) break;
        (void)sleep(POLL_S);
    }
    if (r->at == 0) return FAIL(e, ERR_ARG, "%s has no log yet", r->path);
    if (!follow || says_running(r->path, &running, e) != OK || !running) return OK;
    cli_warn(r->cli, "%s: its runner is gone without closing the run; fp8lab close packs it",
             r->path);
    return OK;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int cmd_log(const struct cli *cli) {
    struct reading r = { .cli = cli };
    struct err e = { 0 };
    bool follow = cli_has(cli, "follow");
    enum status st = run_locate(cli->args[0], cli_runs(cli), r.path, &e);
    if (st == OK && follow && cli->json)
        st = FAIL(&e, ERR_ARG, "--json prints the log as one object, so it does not go with "
                  "--follow");
    if (st == OK && cli->json && !(r.lines = json_array())) st = FAIL(&e, ERR_MEMORY, "a log");
    if (st == OK)
        st = path_is_directory(r.path) ? read_directory(&r, follow, &e)
                                       : read_bundle(&r, r.path, &e);
    if (st == OK && r.failed) st = FAIL(&e, ERR_MEMORY, "a log");
    if (st == OK && r.lines) {
        json_t *object = json_pack("{s:s,s:o,s:O}", "schema", "fp8lab.log/1", "path",
                                   json_from_text(r.path), "lines", r.lines);
        cli_out_json(cli, object);
        json_decref(object);
    }
    json_decref(r.lines);
    return st == OK ? EXIT_OK : cli_fail(cli, &e);
}

static const struct flag FLAGS[] = {
    { .name = "follow", .help = "-f: also print what comes, until the run ends" },
    { .name = "runs", .value = "DIR", .help = "where runs are looked up by id (default: runs)" },
};

const struct verb VERB_LOG = {
    .name = "log",
    .arguments = "RUN",
    .about = "the log of a run: what ran on what, and all that happened",
    .more = RUN_FORMS
            "\n"
            "Each line has its time in UTC. First what ran (program and commit, command,\n"
            "script, recipe, model, steps and tokens), and on what (GPUs, driver, libraries,\n"
            "machine). Then how the device computes each kind of GEMM (native, emulated), where\n"
            "its algorithms come from, evaluations, checkpoints (bytes, how long steps waited),\n"
            "warnings, resumes and stops. Last why the run ended.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = 1,
    .run = cmd_log,
};
