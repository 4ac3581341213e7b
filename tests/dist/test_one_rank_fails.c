/* Checkpoints when one of several ranks has no memory, or its disk an error. The rank reports the
 * error, the others learn of it in the same call, all stay in step, and the previous checkpoint is
 * kept. */
/* long: 14 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/checkpoint.h"
#include "tests/support/allocations.h"
#include "tests/support/cases.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny.h"

enum { RANKS = 2, SECONDS = 240, VOCAB = 4096 };

/* ---- wrapped functions of the C library ---- */

static int64_t calls, broken_call; /* of this process; broken_call 0: none */

static bool breaks(void) {
    if (++calls != broken_call) return false;
    errno = EIO;
    return true;
}

int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    return breaks() ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
ssize_t read(int fd, void *to, size_t n) { return breaks() ? -1 : syscall(SYS_read, fd, to, n); }
ssize_t pread(int fd, void *to, size_t n, off_t at) {
    return breaks() ? -1 : syscall(SYS_pread64, fd, to, n, at);
}
ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
    return breaks() ? -1 : syscall(SYS_pwrite64, fd, from, n, at);
}
int ftruncate(int fd, off_t n) { return breaks() ? -1 : (int)syscall(SYS_ftruncate, fd, n); }
int fsync(int fd) { return breaks() ? -1 : (int)syscall(SYS_fsync, fd); }
int mkdir(const char *path, mode_t mode) {
    return breaks() ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}
int rename(const char *from, const char *to) {
    return breaks() ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
ssize_t getrandom(void *to, size_t n, unsigned flags) {
    return breaks() ? -1 : syscall(SYS_getrandom, to, n, flags);
}

/* ---- the failures ---- */

struct job {
    int victim; /* the rank that fails */
    bool loads; /* it fails while it loads; else while it saves */
    bool disk;  /* a system call fails; else an allocation */
    char dir[64];
};

/* From here on calls are counted, and the call of this number fails (0: none). */
static void watch(const struct job *job, int64_t number) {
    calls = 0;
    broken_call = job->disk ? number : 0;
    if (job->disk) return;
    if (number) allocations_fail(number, false);
    else allocations_collect();
}

static void end_watch(const struct job *job) {
    broken_call = 0;
    if (!job->disk) allocations_end();
}

/* The number of the ith call to fail; 0: no more. `counted`: calls in the attempt that was
 * watched. */
static int64_t number_of(const struct job *job, int64_t i, int64_t counted) {
    return !job->disk ? allocations_noted(i) : i < counted ? i + 1 : 0;
}

static enum status attempt(const struct job *job, struct trainer *t, struct checkpoint_info *info,
                           struct err *e) {
    if (!job->loads) return checkpoint_save(t, job->dir, info, e);
    char path[CHECKPOINT_PATH_CAP];
    TRY(checkpoint_path(path, job->dir, 1, e));
    return checkpoint_load(t, path, info, e);
}

/* The largest value of all ranks; it also shows that the ranks are in step. */
static enum status largest(struct rank_test *t, uint32_t *value, struct err *e) {
    struct tensor x = tensor_1d(value, DTYPE_U32, 1);
    return t->backend->ops->comm.all_reduce(t->backend, LANE_COMPUTE, &x, REDUCE_MAX, e);
}

static bool reports_error(const struct job *job, bool victim, enum status st, const char *text) {
    if (!victim) return st == ERR_PEER && strstr(text, "on another rank");
    if (job->disk) return strstr(text, "Input/output error") != NULL;
    return st == ERR_MEMORY || strcasestr(text, "memory");
}

/* One failure: all ranks return an error; the failing rank's names the cause. */
static int fail_one(struct rank_test *t, struct trainer *trainer, int64_t number) {
    const struct job *job = t->user;
    bool victim = t->group.rank == job->victim;
    struct checkpoint_info info;
    struct err e = { .text = "" };
    if (victim) watch(job, number);
    enum status st = attempt(job, trainer, &info, &e);
    if (victim) end_watch(job);
    uint32_t failed = st != OK, any = failed;
    RANK_MUST(largest(t, &any, &must_));
    bool reported = st == OK || reports_error(job, victim, st, e.text);
    if (failed != any || !reported)
        fprintf(stderr, "rank %d, %s %lld of rank %d fails: %s %s\n", t->group.rank,
                job->disk ? "call" : "allocation", (long long)number, job->victim,
                status_name(st), e.text);
    RANK_CHECK(failed == any && reported);
    return 0;
}

/* The directory has the checkpoint `whole` and no other file. */
static int is_kept(struct rank_test *t, const struct checkpoint_info *whole) {
    const struct job *job = t->user;
    struct checkpoint_info info;
    char left[128];
    if (t->group.rank != 0 || job->loads) return 0;
    RANK_MUST(checkpoint_latest(job->dir, NULL, &info, &must_));
    RANK_CHECK(info.step == whole->step && strcmp(info.sha256, whole->sha256) == 0);
    snprintf(left, sizeof left, "%s/.unfinished", job->dir);
    RANK_CHECK(access(left, F_OK) != 0);
    return 0;
}

static int fail_each(struct rank_test *t, struct trainer *trainer) {
    const struct job *job = t->user;
    bool victim = t->group.rank == job->victim;
    struct checkpoint_info whole, info;
    RANK_MUST(checkpoint_save(trainer, job->dir, &whole, &must_));
    RANK_MUST(attempt(job, trainer, &info, &must_));
    if (victim) watch(job, 0);
    RANK_MUST(attempt(job, trainer, &info, &must_));
    int64_t counted = calls, failed = 0;
    if (victim) end_watch(job);
    for (int64_t i = 0;; i += cases_step(2, 5), failed++) {
        uint32_t number = victim ? (uint32_t)number_of(job, i, counted) : 0;
        RANK_MUST(largest(t, &number, &must_));
        if (number == 0) break;
        if (fail_one(t, trainer, number) != 0 || is_kept(t, &whole) != 0) return 1;
    }
    RANK_CHECK((failed > 0) == !(job->disk && job->loads && job->victim)); /* rank 0 alone reads */
    if (t->group.rank == 0)
        printf("rank %d: %lld %s failed in turn\n", job->victim, (long long)failed,
               job->disk ? "calls" : "allocations");
    RANK_MUST(attempt(job, trainer, &info, &must_));
    return 0;
}

static int one_rank(struct rank_test *t) {
    struct tiny_run r;
    struct step_result s;
    tiny_run_init(&r, RECIPE_DELAYED, 2);
    r.model.vocab = VOCAB;
    r.train.micro_batch = 1;
    r.train.shard = SHARD_PARAMETERS;
    r.backend = t->backend;
    RANK_MUST(data_open(&r.data, &r.data_options, r.model.vocab, r.model.seq_len, r.train.seed,
                        &must_));
    RANK_MUST(trainer_create(&r.trainer, r.backend, &r.model, &r.recipe, &r.train, r.data, &must_));
    RANK_MUST(trainer_step(r.trainer, false, &s, &must_));
    int code = fail_each(t, r.trainer);
    trainer_destroy(r.trainer);
    data_close(r.data);
    fflush(stdout);
    return code;
}

static void run(bool loads, bool disk) {
    for (int victim = 0; victim < RANKS; victim++) {
        struct job job = { .victim = victim, .loads = loads, .disk = disk,
                           .dir = "/dev/shm/fp8lab-fail-XXXXXX" };
        int code[RANKS];
        char command[128];
        if (!mkdtemp(job.dir)) {
            strcpy(job.dir, "/tmp/fp8lab-fail-XXXXXX");
            assert_non_null(mkdtemp(job.dir));
        }
        ranks_run("cpu", RANKS, one_rank, &job, SECONDS, code);
        snprintf(command, sizeof command, "rm -r %s", job.dir);
        assert_int_equal(system(command), 0);
        for (int r = 0; r < RANKS; r++) assert_int_equal(code[r], 0);
    }
}

static void saving_without_memory(void **state) { run(false, false); }
static void loading_without_memory(void **state) { run(true, false); }
static void saving_to_a_bad_disk(void **state) { run(false, true); }
static void loading_from_a_bad_disk(void **state) { run(true, true); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saving_without_memory),
        cmocka_unit_test(loading_without_memory),
        cmocka_unit_test(saving_to_a_bad_disk),
        cmocka_unit_test(loading_from_a_bad_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
