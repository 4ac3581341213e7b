/* A checkpoint of several ranks. Each rank writes its own share, and the bytes are those of a run
 * with one rank. An error on one rank is an error on all. */
/* long: 11 */
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "model/checkpoint.h"
#include "model/checkpoint_writer.h"
#include "tests/support/cases.h"
#include "tests/support/must.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny.h"

enum { RANKS_MAX = 4, SECONDS = 120, MIB = 1 << 20, VOCAB = 65536 };

struct job {
    enum shard_kind shard;
    const char *load;          /* directories of checkpoints; load NULL: one step instead */
    const char *save[RANKS_MAX];
    bool copies;               /* saved from a copy */
    int tight;                 /* the rank whose file size limit is 1 MiB; -1: none */
    struct outcome {
        enum status status;
        char text[1024];
        int64_t written; /* bytes given to write calls while it saved; -1 unknown */
        struct checkpoint_info info;
    } rank[RANKS_MAX];
};

/* By this process so far; -1 if the kernel does not count them. */
static int64_t bytes_written(void) {
    char line[64];
    int64_t n = -1;
    FILE *f = fopen("/proc/self/io", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "wchar: %" SCNd64, &n) == 1) break;
    if (f) fclose(f);
    return n;
}

static void allow_a_mebibyte(void) {
    struct rlimit r;
    signal(SIGXFSZ, SIG_IGN);
    if (getrlimit(RLIMIT_FSIZE, &r) != 0) abort();
    r.rlim_cur = MIB;
    if (setrlimit(RLIMIT_FSIZE, &r) != 0) abort();
}

/* With a copy, the trainer makes a step while the copy is written. */
static enum status save(struct tiny_run *r, const char *to, bool copies,
                        struct checkpoint_info *info, struct err *e) {
    struct checkpoint_writer *w;
    struct step_result s;
    int64_t write_us;
    if (!copies) return checkpoint_save(r->trainer, to, info, e);
    TRY(checkpoint_writer_create(r->trainer, INT64_MAX, &w, e));
    enum status st = checkpoint_begin(w, to, e);
    if (st == OK) st = trainer_step(r->trainer, false, &s, e);
    if (st == OK) st = checkpoint_finish(w, info, &write_us, e);
    checkpoint_writer_destroy(w);
    return st;
}

/* The embedding is so large that most leaves of a fourth of it belong to one rank. */
static int take_over_and_save(struct rank_test *t) {
    struct job *job = t->user;
    int rank = t->group.rank;
    struct outcome *out = &job->rank[rank];
    struct tiny_run r;
    struct step_result s;
    struct checkpoint_info newest;
    struct err e = { 0 };
    tiny_run_init(&r, RECIPE_DELAYED, 2);
    r.model.vocab = VOCAB;
    r.model.tied = true;
    r.train.micro_batch = 1;
    r.train.shard = job->shard;
    r.backend = t->backend;
    RANK_MUST(data_open(&r.data, &r.data_options, r.model.vocab, r.model.seq_len, r.train.seed,
                        &must_));
    RANK_MUST(trainer_create(&r.trainer, r.backend, &r.model, &r.recipe, &r.train, r.data, &must_));
    if (job->load) {
        RANK_MUST(checkpoint_latest(job->load, NULL, &newest, &must_));
        RANK_MUST(checkpoint_load(r.trainer, newest.path, &out->info, &must_));
    } else {
        RANK_MUST(trainer_step(r.trainer, false, &s, &must_));
    }
    if (rank == job->tight) allow_a_mebibyte();
    out->written = bytes_written();
    out->status = save(&r, job->save[rank], job->copies, &out->info, &e);
    if (out->written >= 0) out->written = bytes_written() - out->written;
    if (out->status != OK) snprintf(out->text, sizeof out->text, "%s", e.text);
    trainer_destroy(r.trainer);
    data_close(r.data);
    return 0;
}

static struct job *run(const struct job *what, int world) {
    struct job *job = ranks_share(what, sizeof *job);
    int code[RANKS_MAX];
    ranks_run("cpu", world, take_over_and_save, job, SECONDS, code);
    for (int r = 0; r < world; r++) assert_int_equal(code[r], 0);
    return job;
}

static void drop(struct job *job) { munmap(job, sizeof *job); }

static void shell(const char *format, const char *a, const char *b) {
    char command[512];
    snprintf(command, sizeof command, format, a, b);
    if (system(command) != 0) fail_msg("%s", command);
}

/* Checkpoints that one rank saves after a step, for other numbers of ranks to load. */
struct scratch { char dir[64], one[96], all[96], far[96]; };

static int setup(void **state) {
    struct scratch *s = calloc(1, sizeof *s);
    strcpy(s->dir, "/tmp/fp8lab-written-XXXXXX");
    if (!mkdtemp(s->dir)) return -1;
    snprintf(s->one, sizeof s->one, "%s/one", s->dir);
    snprintf(s->all, sizeof s->all, "%s/all", s->dir);
    snprintf(s->far, sizeof s->far, "%s/far", s->dir);
    struct job job = { .shard = SHARD_OPTIMIZER, .save = { s->one }, .tight = -1 };
    drop(run(&job, 1));
    *state = s;
    return 0;
}

static int teardown(void **state) {
    struct scratch *s = *state;
    shell("rm -rf %s%s", s->dir, "");
    free(s);
    return 0;
}

static struct job taken_over(const struct scratch *s, enum shard_kind shard) {
    return (struct job){ .shard = shard, .load = s->one, .tight = -1,
                         .save = { s->all, s->all, s->all, s->all } };
}

/* Rank 0 also writes the leaves that contain a shard boundary: one or two of a large tensor's
 * four. */
static void assert_shared_out(const struct job *job, int world) {
    int64_t total = 0, even = job->rank[0].info.bytes / world;
    for (int r = 0; r < world; r++) {
        int64_t n = job->rank[r].written;
        if (n < 0) {
            print_message("this kernel does not count what a process writes\n");
            return;
        }
        if (n < even / 2 || n > 2 * even)
            fail_msg("rank %d of %d wrote %" PRId64 " bytes, an even share is %" PRId64, r, world,
                     n, even);
        total += n;
    }
    assert_in_range(total, job->rank[0].info.bytes, job->rank[0].info.bytes + 4096);
}

static void each_rank_writes_its_share(void **state) {
    struct scratch *s = *state;
    for (int k = SHARD_NONE; k <= SHARD_PARAMETERS; k += cases_step(3, 3)) {
        int world = k == SHARD_GRADIENTS ? 2 : 4;
        struct job job = taken_over(s, (enum shard_kind)k), *done;
        job.copies = k >= SHARD_GRADIENTS;
        done = run(&job, world);
        for (int r = 0; r < world; r++) assert_string_equal(done->rank[r].text, "");
        shell("diff -r %s %s", s->one, s->all);
        assert_shared_out(done, world);
        assert_string_equal(done->rank[0].info.sha256, done->rank[world - 1].info.sha256);
        drop(done);
        shell("rm -r %s%s", s->all, "");
    }
}

static void flip(const char *path, int64_t at) {
    unsigned char byte;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= (unsigned char)(1 << at % 8);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* Damage is detected, whichever rank wrote the byte. */
static void damage_of_any_share_is_noticed(void **state) {
    static const char *const FILES[] = { "checkpoint.json", "model.safetensors",
                                         "state.safetensors" };
    struct scratch *s = *state;
    struct job job = taken_over(s, SHARD_PARAMETERS), *done = run(&job, RANKS_MAX);
    struct checkpoint_info found;
    assert_string_equal(done->rank[0].text, "");
    drop(done);
    for (int i = 0; i < 3; i++) {
        char path[160];
        struct stat info;
        snprintf(path, sizeof path, "%s/step-000001/%s", s->all, FILES[i]);
        assert_int_equal(stat(path, &info), 0);
        for (int64_t at = 0; at < info.st_size; at += info.st_size / 17 + 1) {
            flip(path, at);
            MUST(checkpoint_latest(s->all, NULL, &found, E));
            flip(path, at);
            assert_int_equal(found.step, -1);
            assert_non_null(strstr(found.damage, FILES[i]));
        }
    }
    MUST(checkpoint_latest(s->all, NULL, &found, E));
    assert_int_equal(found.step, 1);
    shell("rm -r %s%s", s->all, "");
}

/* The command with coreutils that model/ground/sha256.h documents. */
static void coreutils_give_the_tree_hash(void **state) {
    static const char *const FILES[] = { "model.safetensors", "state.safetensors" };
    struct scratch *s = *state;
    char step[128];
    snprintf(step, sizeof step, "%s/step-000001", s->one);
    for (int i = 0; i < 2; i++) {
        char command[512];
        snprintf(command, sizeof command, "cd %s && grep -q $(split -b 1M --filter='sha256sum | "
                 "head -c 64' %s | tr a-f A-F | basenc --base16 -d | sha256sum | head -c 64) "
                 "checkpoint.json", step, FILES[i]);
        if (system(command) != 0) fail_msg("%s", command);
    }
}

/* Ranks that see another folder (empty, or with an old file of the same name) send their bytes to
 * rank 0. The old file stays as it was. */
static void ranks_without_the_file_send_bytes(void **state) {
    struct scratch *s = *state;
    shell("mkdir %s%s", s->far, "");
    shell("cp -r %s/step-000001 %s/.unfinished", s->one, s->far);
    int first = cases_all() ? SHARD_NONE : SHARD_PARAMETERS;
    for (int k = first; k <= SHARD_PARAMETERS; k += SHARD_PARAMETERS) {
        struct job job = taken_over(s, (enum shard_kind)k);
        job.copies = k == SHARD_PARAMETERS; /* then rank 0 has too little room for them */
        job.save[1] = "/nonexistent/checkpoints";
        job.save[3] = s->far;
        struct job *done = run(&job, RANKS_MAX);
        for (int r = 0; r < RANKS_MAX; r++) assert_string_equal(done->rank[r].text, "");
        shell("diff -r %s %s", s->one, s->all);
        assert_int_equal(done->rank[1].written > 0, 0);
        assert_int_equal(done->rank[3].written > 0, 0);
        shell("diff -r %s/step-000001 %s/.unfinished", s->one, s->far);
        drop(done);
        shell("rm -r %s%s", s->all, "");
    }
}

/* One rank's disk is full: it reports the error, the others learn of it, no file is left. */
static void one_rank_that_cannot_write_fails_all(void **state) {
    struct scratch *s = *state;
    for (int tight = 0; tight < RANKS_MAX; tight += cases_step(3, 3)) {
        struct job job = taken_over(s, SHARD_PARAMETERS);
        job.tight = tight;
        job.copies = tight % 2;
        struct job *done = run(&job, RANKS_MAX);
        for (int r = 0; r < RANKS_MAX; r++) {
            const struct outcome *o = &done->rank[r];
            assert_int_equal(o->status, r == tight ? ERR_IO : ERR_PEER);
            assert_non_null(strstr(o->text, r == tight ? "File too large" : "on another rank"));
        }
        shell("rmdir %s%s", s->all, "");
        drop(done);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_writes_its_share),
        cmocka_unit_test(damage_of_any_share_is_noticed),
        cmocka_unit_test(coreutils_give_the_tree_hash),
        cmocka_unit_test(ranks_without_the_file_send_bytes),
        cmocka_unit_test(one_rank_that_cannot_write_fails_all),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
