#include "runner/doctor/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/bench/bench_ceilings.h"
#include "runner/doctor/recipe_check.h"
#include "runner/plan/backends.h"

enum { ANSWER_MAX = 1 << 16, SECONDS_MAX = 60 };

/* ---- the child --------------------------------------------------------------------------------*/

static json_t *libraries_json(struct backend *b) {
    json_t *list = json_array();
    struct library l;
    bool failed = false;
    for (int64_t i = 0; b->ops->library(b, i, &l); i++)
        json_append(list, json_pack("{s:s,s:s?,s:s?,s:s?}", "name", l.name, "version",
                                    *l.version ? l.version : NULL, "path", *l.path ? l.path : NULL,
                                    "problem", *l.problem ? l.problem : NULL), &failed);
    return json_whole(list, failed);
}

static json_t *rate_json(double tflops) { return tflops > 0 ? json_real(tflops) : json_null(); }

static enum status ceilings_json(struct backend *b, json_t **out, struct err *e) {
    double bf16 = 0, fp8 = 0;
    TRY(ceiling_large_gemm(b, DTYPE_BF16, &bf16, e));
    TRY(ceiling_large_gemm(b, DTYPE_E4M3, &fp8, e));
    *out = json_pack("{s:o,s:o}", "bf16_tflops", rate_json(bf16), "fp8_tflops", rate_json(fp8));
    return *out ? OK : FAIL(e, ERR_MEMORY, "the answer of a probe");
}

/* Each recipe gets its own backend: choices or failures of one do not affect the next. */
static json_t *checks_json(const struct probe_options *o) {
    json_t *list = json_array();
    bool failed = false;
    for (int kind = RECIPE_CHECK_FIRST; kind <= RECIPE_CHECK_LAST; kind++) {
        struct recipe_check check;
        recipe_check_run((enum recipe_kind)kind, o->backend, o->device, o->caps, &check);
        json_append(list, recipe_check_json(&check), &failed);
    }
    return json_whole(list, failed);
}

static enum status answer_of(struct backend *b, const struct probe_options *o, json_t **out,
                             struct err *e) {
    struct device_info info;
    json_t *ceilings = NULL;
    TRY(b->ops->info(b, &info, e));
    if (o->ceilings) TRY(ceilings_json(b, &ceilings, e));
    *out = json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:o,s:o?}", "schema", "fp8lab.probe/1", "backend",
                     b->ops->name, "device", info.name, "architecture", info.architecture,
                     "memory_bytes", (json_int_t)info.memory_bytes, "memory_free",
                     (json_int_t)info.memory_free, "libraries", libraries_json(b), "ceilings",
                     ceilings);
    return *out ? OK : FAIL(e, ERR_MEMORY, "the answer of a probe");
}

enum status probe_answer(const struct probe_options *o, json_t **out, struct err *e) {
    struct backend_handle h = { 0 };
    bool failed = false;
    *out = NULL;
    TRY(backend_open(o->backend, 0, o->device, &h, e));
    enum status st = answer_of(h.backend, o, out, e);
    backend_close(&h);
    TRY(st);
    json_put(*out, "checks", o->checks ? checks_json(o) : json_null(), &failed);
    *out = json_whole(*out, failed);
    return *out ? OK : FAIL(e, ERR_MEMORY, "the answer of a probe");
}

/* ---- the parent -------------------------------------------------------------------------------*/

/* In the child, between fork and exec. stderr is dropped: errors are part of the answer. */
static void exec_probe(const char *self, const struct probe_options *o, int out) {
    const char *argv[10] = { self, "probe", "--json", "--backend", o->backend };
    int n = 5;
    if (o->ceilings) argv[n++] = "--ceilings";
    if (o->checks) argv[n++] = "--checks";
    if (o->caps) argv[n++] = "--caps";
    if (o->caps) argv[n++] = o->caps;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0 && dup2(null, 0) == 0 && dup2(out, 1) == 1 && dup2(null, 2) == 2)
        (void)execv(self, (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* Reads until the other end closes; false if the time ends first. */
static bool read_answer(int fd, char *text, size_t *length, int64_t deadline_ms) {
    *length = 0;
    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int64_t left = deadline_ms - clock_ms();
        int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return false;
        ssize_t n = read(fd, text + *length, ANSWER_MAX - *length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0 || *length == ANSWER_MAX) return true;
        *length += (size_t)n;
    }
}

static enum status start_probe(const struct probe_options *o, pid_t *pid, int *fd, struct err *e) {
    char self[PATH_CAP];
    int ends[2];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return FAIL(e, ERR_IO, "read /proc/self/exe: %s", strerror(errno));
    self[n] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0) return FAIL(e, ERR_IO, "create a pipe: %s", strerror(errno));
    *pid = fork();
    if (*pid == 0) exec_probe(self, o, ends[1]);
    close(ends[1]);
    *fd = ends[0];
    if (*pid > 0) return OK;
    close(ends[0]);
    return FAIL(e, ERR_IO, "fork: %s", strerror(errno));
}

/* Parses the child's output; an error says why it is not an answer. */
static enum status parse_answer(const char *text, size_t length, int status, json_t **out,
                                struct err *e) {
    json_error_t why;
    json_t *answer = NULL;
    if (WIFSIGNALED(status))
        return FAIL(e, ERR_DEVICE, "the process that asked the GPU was killed by signal %d",
                    WTERMSIG(status));
    if (json_parse(&answer, text, length, 0, &why) != OK)
        return FAIL(e, ERR_DEVICE, "the process that asked the GPU ended with code %d, no answer",
                    WEXITSTATUS(status));
    if (!strcmp(json_text(answer, "schema", ""), "fp8lab.probe/1")) {
        *out = answer;
        return OK;
    }
    enum status st = FAIL(e, ERR_DEVICE, "%s", json_text(json_object_get(answer, "error"), "text",
                                                         "no reason was given"));
    json_decref(answer);
    return st;
}

enum status probe_ask(const struct probe_options *o, int64_t seconds, json_t **out,
                      struct err *e) {
    pid_t pid;
    int fd, status = 0;
    size_t length = 0;
    *out = NULL;
    char *text = malloc(ANSWER_MAX);
    if (!text) return FAIL(e, ERR_MEMORY, "the answer of a probe");
    enum status st = start_probe(o, &pid, &fd, e);
    if (st == OK) {
        bool whole = read_answer(fd, text, &length, clock_ms() + seconds * 1000);
        if (!whole) (void)kill(pid, SIGKILL);
        close(fd);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
        st = whole ? parse_answer(text, length, status, out, e)
                   : FAIL(e, ERR_DEVICE, "the GPU did not answer within %" PRId64 " s", seconds);
    }
    free(text);
    return st;
}

/* ---- facts ------------------------------------------------------------------------------------*/

static void put_known(json_t *facts, const char *name, json_t *value, bool *failed) {
    if (value && !json_is_null(value)) json_put(facts, name, json_incref(value), failed);
}

enum status probe_put_facts(const json_t *answer, json_t *facts, struct err *e) {
    static const struct { const char *library, *fact; } NAMES[] = {
        { "cuda.runtime", "cuda.runtime" }, { "cublaslt", "cublaslt.version" },
        { "cudnn", "cudnn.version" }, { "nccl", "nccl.version" },
    };
    bool failed = false;
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(answer, "libraries"), i, row)
        for (size_t k = 0; k < sizeof NAMES / sizeof *NAMES; k++)
            if (!strcmp(json_text(row, "name", ""), NAMES[k].library))
                put_known(facts, NAMES[k].fact, json_object_get(row, "version"), &failed);
    const json_t *ceilings = json_object_get(answer, "ceilings");
    put_known(facts, "gpu.gemm_bf16_tflops", json_object_get(ceilings, "bf16_tflops"), &failed);
    put_known(facts, "gpu.gemm_fp8_tflops", json_object_get(ceilings, "fp8_tflops"), &failed);
    return failed ? FAIL(e, ERR_MEMORY, "hardware facts") : OK;
}

enum status probe_facts(json_t *facts, bool measure, char *problem, size_t problem_size,
                        struct err *e) {
    struct err why;
    json_t *answer = NULL;
    *problem = '\0';
    bool gpu = json_integer_value(json_object_get(facts, "gpu.count")) > 0;
    if (!gpu || backend_check("cuda", &why) != OK) return OK;
    const struct probe_options o = { .backend = "cuda", .ceilings = measure };
    if (probe_ask(&o, SECONDS_MAX, &answer, &why) != OK) {
        snprintf(problem, problem_size, "%s", why.text);
        return OK;
    }
    enum status st = probe_put_facts(answer, facts, e);
    json_decref(answer);
    return st;
}
