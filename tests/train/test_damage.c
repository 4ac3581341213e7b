/* A checkpoint with any damaged byte, or with another hash than the run's log has, is skipped in
 * favour of the older one. The damage is reported. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "model/ground/sha256.h"
#include "model/trainer.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { PATH_BYTES = 8192 };

static int64_t entries_read;

/* Counts calls of the C library's function. */
struct dirent *readdir(DIR *dir) {
    static struct dirent *(*real)(DIR *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "readdir");
    entries_read++;
    return real(dir);
}

/* Checkpoints of a small model after its first step and after its second. */
struct saved {
    char dir[64];
    struct checkpoint_info info[2];
};

static int setup(void **state) {
    struct saved *s = calloc(1, sizeof *s);
    struct tiny_run r;
    struct step_result result;
    strcpy(s->dir, "/tmp/fp8lab-damage-XXXXXX");
    if (!mkdtemp(s->dir)) return -1;
    tiny_run_init(&r, RECIPE_DELAYED, 8);
    r.train.optimizer.state = STATE_8BIT;
    MUST(tiny_run_open(&r, E));
    for (int i = 0; i < 2; i++) {
        MUST(trainer_step(r.trainer, false, &result, E));
        MUST(checkpoint_save(r.trainer, s->dir, &s->info[i], E));
    }
    tiny_run_close(&r);
    *state = s;
    return 0;
}

static int teardown(void **state) {
    struct saved *s = *state;
    for (int i = 0; i < 2; i++) MUST(checkpoint_remove(s->info[i].path, E));
    assert_int_equal(rmdir(s->dir), 0);
    free(s);
    return 0;
}

static int64_t open_file(const struct saved *s, const char *name, char path[PATH_BYTES], int *fd) {
    struct stat info;
    snprintf(path, PATH_BYTES, "%s/%s", s->info[1].path, name);
    *fd = open(path, O_RDWR);
    assert_true(*fd >= 0);
    assert_int_equal(fstat(*fd, &info), 0);
    return info.st_size;
}

static void flip(int fd, int64_t at, int bit) {
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= (unsigned char)(1 << bit);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

/* With one bit flipped the newest is skipped; then the bit is restored. */
static void flip_is_noticed(const struct saved *s, int fd, const char *path, int64_t at, int bit) {
    struct checkpoint_info found;
    flip(fd, at, bit);
    MUST(checkpoint_latest(s->dir, NULL, &found, E));
    if (found.step != 1 || !strstr(found.damage, path))
        fail_msg("bit %d of byte %lld of %s: step %lld is taken, \"%s\"", bit, (long long)at, path,
                 (long long)found.step, found.damage);
    flip(fd, at, bit);
}

static void every_byte_of_the_description(void **state) {
    const struct saved *s = *state;
    struct checkpoint_info found;
    char path[PATH_BYTES];
    int fd;
    int64_t bytes = open_file(s, "checkpoint.json", path, &fd);
    for (int64_t at = 0; at < bytes; at++)
        for (int i = 0; i < 2; i++) flip_is_noticed(s, fd, path, at, i * (1 + (int)(at % 7)));
    MUST(checkpoint_latest(s->dir, NULL, &found, E));
    assert_int_equal(found.step, 2);
    assert_string_equal(found.damage, "");
    close(fd);
}

/* In tensor files: every byte at the start of the header, then a sample of bytes. */
static void bytes_of_the_tensors(void **state) {
    static const char *const FILES[] = { "model.safetensors", "state.safetensors" };
    const struct saved *s = *state;
    char path[PATH_BYTES];
    int fd;
    for (int i = 0; i < 2; i++) {
        int64_t bytes = open_file(s, FILES[i], path, &fd);
        for (int64_t at = 0; at < bytes; at += at < 64 ? 1 : bytes / 97)
            flip_is_noticed(s, fd, path, at, (int)(at % 8));
        flip_is_noticed(s, fd, path, bytes - 1, 7);
        close(fd);
    }
}

/* The hash in the log for step 2. */
static void look_up(void *user, int64_t step, char sha256[65]) {
    if (step == 2) snprintf(sha256, SHA256_HEX, "%s", (const char *)user);
}

static void the_log_has_another(void **state) {
    struct saved *s = *state;
    struct checkpoint_info found;
    struct checkpoint_log log = { look_up, s->info[1].sha256, INT64_MAX };
    MUST(checkpoint_latest(s->dir, &log, &found, E));
    assert_int_equal(found.step, 2);
    log.user = s->info[0].sha256;
    MUST(checkpoint_latest(s->dir, &log, &found, E));
    assert_int_equal(found.step, 1);
    assert_non_null(strstr(found.damage, "the run's log has"));
    log.user = ""; /* killed before it was recorded */
    MUST(checkpoint_latest(s->dir, &log, &found, E));
    assert_int_equal(found.step, 2);
}

/* An undamaged checkpoint under the name of another step. */
static void renamed_checkpoint_is_skipped(void **state) {
    const struct saved *s = *state;
    struct checkpoint_info found;
    char path[PATH_BYTES];
    MUST(checkpoint_path(path, s->dir, 7, E));
    assert_int_equal(rename(s->info[1].path, path), 0);
    MUST(checkpoint_latest(s->dir, NULL, &found, E));
    assert_int_equal(rename(path, s->info[1].path), 0);
    assert_int_equal(found.step, 1);
    assert_non_null(strstr(found.damage, "is of step 2"));
}

/* The folder is read once, not once for each name that looks like a checkpoint. Names in another
 * form are ignored. */
static void many_false_names(void **state) {
    enum { NAMES = 3000 };
    const struct saved *s = *state;
    struct checkpoint_info found;
    char path[PATH_BYTES];
    for (int i = 0; i < NAMES; i++) {
        MUST(checkpoint_path(path, s->dir, 100 + i, E));
        assert_int_equal(mkdir(path, 0777), 0);
    }
    snprintf(path, sizeof path, "%s/step-9999", s->dir);
    assert_int_equal(mkdir(path, 0777), 0);
    entries_read = 0;
    MUST(checkpoint_latest(s->dir, NULL, &found, E));
    int64_t read = entries_read;
    assert_int_equal(rmdir(path), 0);
    for (int i = 0; i < NAMES; i++) {
        MUST(checkpoint_path(path, s->dir, 100 + i, E));
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(found.step, 2);
    assert_non_null(strstr(found.damage, "step-003099"));
    assert_in_range(read, NAMES, 2 * NAMES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_of_the_description),
        cmocka_unit_test(bytes_of_the_tensors),
        cmocka_unit_test(the_log_has_another),
        cmocka_unit_test(renamed_checkpoint_is_skipped),
        cmocka_unit_test(many_false_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
