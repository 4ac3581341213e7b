/* Checkpoint files: their content; damage and checkpoints of other runs are rejected; a checkpoint
 * is whole or absent; Python's safetensors read the same tensors (tests/outside/checkpoint.sh). */
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/cpu/cpu_backend.h"
#include "model/checkpoint.h"
#include "model/checkpoint_content.h"
#include "model/checkpoint_writer.h"
#include "model/safetensors.h"
#include "model/ground/sha256.h"
#include "model/trainer.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

static void scratch(char dir[64]) {
    strcpy(dir, "/tmp/fp8lab-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

enum { PATH_BYTES = 8192 };

static void file_in(char out[PATH_BYTES], const char *dir, const char *name) {
    assert_true(snprintf(out, PATH_BYTES, "%s/%s", dir, name) < PATH_BYTES);
}

/* Memory pads a vocabulary of 96 to 128 rows; the files must not contain the padding. */
static void open_run(struct tiny_run *r, enum recipe_kind kind) {
    tiny_run_init(r, kind, 8);
    r->train.optimizer.state = STATE_8BIT;
    MUST(tiny_run_open(r, E));
}

static void save_one(struct tiny_run *r, const char *dir, struct checkpoint_info *info) {
    struct step_result s;
    open_run(r, RECIPE_DELAYED);
    MUST(trainer_step(r->trainer, false, &s, E));
    MUST(checkpoint_save(r->trainer, dir, info, E));
}

/* After the first step and after the second. */
static void save_two(struct tiny_run *r, const char *dir, struct checkpoint_info info[2]) {
    struct step_result s;
    save_one(r, dir, &info[0]);
    MUST(trainer_step(r->trainer, false, &s, E));
    MUST(checkpoint_save(r->trainer, dir, &info[1], E));
}

static void flip_byte(const char *path, long offset, int whence) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, offset, whence), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    fputc(byte ^ 1, f);
    assert_int_equal(fclose(f), 0);
}

static void saved_twice_is_equal(void **state) {
    char dir[64];
    struct tiny_run r;
    struct checkpoint_info first, second, verified;
    scratch(dir);
    save_one(&r, dir, &first);
    assert_int_equal(first.step, 1);
    assert_int_equal(first.cursor, 4);
    MUST(checkpoint_save(r.trainer, dir, &second, E)); /* replaces it */
    assert_string_equal(first.sha256, second.sha256);
    MUST(checkpoint_verify(second.path, &verified, E));
    assert_int_equal(verified.step, 1);
    assert_int_equal(verified.bytes, second.bytes);
    assert_string_equal(verified.sha256, second.sha256);
    MUST(checkpoint_remove(second.path, E));
    MUST(checkpoint_remove(second.path, E));
    tiny_run_close(&r);
    assert_int_equal(rmdir(dir), 0); /* nothing else was left */
}

static void damage_is_refused(void **state) {
    static const char *const FILES[] = { "model.safetensors", "state.safetensors" };
    char dir[64], path[PATH_BYTES];
    struct tiny_run r, fresh;
    struct checkpoint_info info, found;
    scratch(dir);
    save_one(&r, dir, &info);
    open_run(&fresh, RECIPE_DELAYED);
    for (int i = 0; i < 2; i++) {
        file_in(path, info.path, FILES[i]);
        flip_byte(path, -3, SEEK_END);
        MUST_FAIL(ERR_FORMAT, "tree SHA-256 is",
                  checkpoint_load(fresh.trainer, info.path, &found, E));
        MUST_FAIL(ERR_FORMAT, FILES[i], checkpoint_verify(info.path, &found, E));
        flip_byte(path, -3, SEEK_END);
        struct stat s;
        assert_int_equal(stat(path, &s), 0);
        assert_int_equal(truncate(path, s.st_size - 1), 0);
        MUST_FAIL(ERR_FORMAT, "(truncated?)", checkpoint_verify(info.path, &found, E));
        MUST(checkpoint_save(r.trainer, dir, &info, E)); /* undamaged again */
    }
    file_in(path, info.path, "checkpoint.json");
    flip_byte(path, 0, SEEK_SET);
    MUST_FAIL(ERR_FORMAT, "checkpoint.json", checkpoint_verify(info.path, &found, E));
    MUST(checkpoint_save(r.trainer, dir, &info, E));
    file_in(path, info.path, "state.safetensors");
    assert_int_equal(unlink(path), 0);
    MUST_FAIL(ERR_IO, "state.safetensors", checkpoint_verify(info.path, &found, E));
    MUST(checkpoint_latest(dir, NULL, &found, E));
    assert_int_equal(found.step, -1);
    MUST(checkpoint_remove(info.path, E));
    tiny_run_close(&r);
    tiny_run_close(&fresh);
    assert_int_equal(rmdir(dir), 0);
}

/* A checkpoint in an older schema: checkpoint.json has no hash of its own. */
static void make_older(const char *checkpoint, const char *schema) {
    char path[PATH_BYTES];
    file_in(path, checkpoint, "checkpoint.json");
    json_t *root = json_load_file(path, 0, NULL);
    (void)json_object_del(root, "sha256");
    assert_int_equal(json_object_set_new(root, "schema", json_string(schema)), 0);
    assert_int_equal(json_dump_file(root, path, JSON_INDENT(1)), 0);
    json_decref(root);
}

/* A checkpoint without a valid data position is rejected. */
static void a_missing_position_is_rejected(void **state) {
    static const struct { const char *find, *put; } CASE[] = {
        { "\"step\": 1", "\"stop\": 1" }, { "\"cursor\": 4", "\"cursor\": -4" },
        { "\"cursor\": 4", "\"cursor\": 4.5" },
    };
    char dir[64], path[PATH_BYTES], text[8192] = "", *at;
    struct tiny_run r;
    struct checkpoint_info info, found;
    scratch(dir);
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        save_one(&r, dir, &info);
        make_older(info.path, "fp8lab.checkpoint/2");
        file_in(path, info.path, "checkpoint.json");
        FILE *f = fopen(path, "r+b");
        assert_non_null(f);
        size_t n = fread(text, 1, sizeof text - 1, f), cut = strlen(CASE[i].find);
        text[n] = 0;
        assert_non_null(at = strstr(text, CASE[i].find));
        rewind(f);
        assert_true(fprintf(f, "%.*s%s%s", (int)(at - text), text, CASE[i].put, at + cut) > 0);
        assert_int_equal(fclose(f), 0);
        MUST_FAIL(ERR_FORMAT, "wanted: both", checkpoint_load(r.trainer, info.path, &found, E));
        MUST(checkpoint_latest(dir, NULL, &found, E));
        assert_int_equal(found.step, -1);
        MUST(checkpoint_remove(info.path, E));
        tiny_run_close(&r);
    }
    assert_int_equal(rmdir(dir), 0);
}

/* The first two schemas. Schema 1 has plain file hashes, not tree hashes. */
static void older_schemas_are_read(void **state) {
    static const char *const FILES[] = { "model.safetensors", "state.safetensors" };
    char dir[64], path[PATH_BYTES], hash[SHA256_HEX];
    struct tiny_run r;
    struct checkpoint_info info, found;
    scratch(dir);
    save_one(&r, dir, &info);
    char json[PATH_BYTES];
    make_older(info.path, "fp8lab.checkpoint/3");
    MUST_FAIL(ERR_FORMAT, "no SHA-256 of its own", checkpoint_verify(info.path, &found, E));
    make_older(info.path, "fp8lab.checkpoint/2");
    MUST(checkpoint_load(r.trainer, info.path, &found, E));
    make_older(info.path, "fp8lab.checkpoint/1");
    file_in(json, info.path, "checkpoint.json");
    json_t *root = json_load_file(json, 0, NULL), *files = json_object_get(root, "files");
    for (int i = 0; i < 2; i++) {
        json_t *entry = json_object_get(files, FILES[i]);
        file_in(path, info.path, FILES[i]);
        MUST(sha256_file(path, hash, NULL, E));
        assert_int_equal(json_object_del(entry, "tree_sha256"), 0);
        assert_int_equal(json_object_set_new(entry, "sha256", json_string(hash)), 0);
    }
    assert_int_equal(json_dump_file(root, json, 0), 0);
    json_decref(root);
    MUST(checkpoint_load(r.trainer, info.path, &found, E));
    assert_int_equal(found.step, 1);
    flip_byte(path, -3, SEEK_END);
    MUST_FAIL(ERR_FORMAT, ": SHA-256 is", checkpoint_verify(info.path, &found, E));
    MUST(checkpoint_remove(info.path, E));
    tiny_run_close(&r);
    assert_int_equal(rmdir(dir), 0);
}

/* Weights are read before the state. If the state file has a right hash but is no state, the
 * trainer has weights of one run and moments of another. It must reject steps. */
static void half_loaded_trainer_rejects_steps(void **state) {
    char dir[64], path[PATH_BYTES], model[PATH_BYTES];
    struct tiny_run r;
    struct step_result s;
    struct checkpoint_info info, found;
    scratch(dir);
    save_one(&r, dir, &info);
    file_in(path, info.path, "state.safetensors");
    file_in(model, info.path, "model.safetensors");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(link(model, path), 0);
    make_older(info.path, "fp8lab.checkpoint/2");
    file_in(path, info.path, "checkpoint.json");
    json_t *root = json_load_file(path, 0, NULL), *files = json_object_get(root, "files");
    json_t *copy = json_object_get(files, "model.safetensors");
    assert_int_equal(json_object_set(files, "state.safetensors", copy), 0);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
    MUST(checkpoint_verify(info.path, &found, E));
    MUST_FAIL(ERR_CONFIG, "is missing", checkpoint_load(r.trainer, info.path, &found, E));
    MUST_FAIL(ERR_STATE, "read in part", trainer_step(r.trainer, false, &s, E));
    MUST_FAIL(ERR_STATE, "nothing is saved", checkpoint_save(r.trainer, dir, &found, E));
    MUST(checkpoint_remove(info.path, E));
    struct tiny_run other;
    save_one(&other, dir, &info);
    MUST(checkpoint_load(r.trainer, info.path, &found, E)); /* a load allows steps again */
    MUST(trainer_step(r.trainer, false, &s, E));
    MUST(checkpoint_remove(info.path, E));
    tiny_run_close(&other);
    tiny_run_close(&r);
    assert_int_equal(rmdir(dir), 0);
}

static void latest_passes_over_damage(void **state) {
    char dir[64], path[PATH_BYTES];
    struct tiny_run r;
    struct checkpoint_info info[2], found;
    scratch(dir);
    save_two(&r, dir, info);
    MUST(checkpoint_latest(dir, NULL, &found, E));
    assert_int_equal(found.step, 2);
    assert_string_equal(found.damage, "");
    file_in(path, info[1].path, "model.safetensors");
    flip_byte(path, 40, SEEK_SET);
    MUST(checkpoint_latest(dir, NULL, &found, E));
    assert_int_equal(found.step, 1);
    assert_non_null(strstr(found.damage, path));
    assert_string_equal(found.path, info[0].path);
    for (int i = 0; i < 2; i++) MUST(checkpoint_remove(info[i].path, E));
    tiny_run_close(&r);
    assert_int_equal(rmdir(dir), 0);
    MUST(checkpoint_latest(dir, NULL, &found, E)); /* no directory: no checkpoint */
    assert_int_equal(found.step, -1);
}

/* An unreadable checkpoint is an error, not damage. A file that is missing, a link to itself or a
 * folder is damage. */
static void latest_fails_if_unreadable(void **state) {
    char dir[64], path[PATH_BYTES];
    struct tiny_run r;
    struct checkpoint_info info[2], found;
    scratch(dir);
    save_two(&r, dir, info);
    file_in(path, info[1].path, "state.safetensors");
    assert_int_equal(unlink(path), 0);
    char name[301];
    memset(name, 'x', 300);
    name[300] = '\0';
    assert_int_equal(symlink(name, path), 0); /* ENAMETOOLONG, for root too */
    MUST_FAIL(ERR_IO, "may be intact; make it readable and try again, or move",
              checkpoint_latest(dir, NULL, &found, E));
    MUST_FAIL(ERR_IO, path, checkpoint_latest(dir, NULL, &found, E));
    assert_int_equal(unlink(path), 0);
    for (int how = 0; how < 3; how++) {
        if (how == 1) assert_int_equal(symlink(path, path), 0);
        if (how == 2) assert_int_equal(mkdir(path, 0700), 0);
        MUST(checkpoint_latest(dir, NULL, &found, E));
        assert_int_equal(found.step, 1);
        assert_non_null(strstr(found.damage, path));
        if (how > 0) assert_int_equal(remove(path), 0);
    }
    for (int i = 0; i < 2; i++) MUST(checkpoint_remove(info[i].path, E));
    tiny_run_close(&r);
    assert_int_equal(rmdir(dir), 0);
}

/* The error for a checkpoint of another run names the first difference. */
static void checkpoints_of_other_runs_are_rejected(void **state) {
    char dir[64];
    struct tiny_run r;
    struct checkpoint_info info, found;
    scratch(dir);
    save_one(&r, dir, &info);
    tiny_run_close(&r);
    static const char *const WORDS[] = {
        "width 64, this run has 48", "seed 1234, this run has 5", "recipe_sha256",
        "optimizer_state \"8bit\"", "norm \"rmsnorm\", this run has \"layernorm\"",
        "norm_eps", "rope {\"theta\": 10000.0}", "rope {\"theta\": 10000.0}",
        "window 0, this run has 8",
    };
    for (int i = 0; i < 9; i++) {
        tiny_run_init(&r, i == 2 ? RECIPE_TENSORWISE : RECIPE_DELAYED, 8);
        if (i == 0) r.model.width = 48;
        if (i == 1) r.train.seed = 5;
        /* tensors of the same shapes with another meaning */
        if (i == 4) r.model.norm = NORM_LAYER;
        if (i == 5) r.model.norm_eps = 1e-6;
        if (i == 6) r.model.rope.theta = 500000;
        if (i == 7)
            r.model.rope = (struct rope_config){ .theta = 10000, .factor = 8, .low_freq_factor = 1,
                                                 .high_freq_factor = 4, .original_seq_len = 32 };
        if (i == 8) r.model.window = 8;
        r.train.optimizer.state = i == 3 ? STATE_F32 : STATE_8BIT;
        MUST(tiny_run_open(&r, E));
        MUST_FAIL(ERR_CONFIG, WORDS[i], checkpoint_load(r.trainer, info.path, &found, E));
        tiny_run_close(&r);
    }
    MUST(checkpoint_remove(info.path, E));
    assert_int_equal(rmdir(dir), 0);
}

/* A process killed while it writes leaves a directory that is not a checkpoint; the next save
 * removes it. */
static void unfinished_is_no_checkpoint(void **state) {
    char dir[64], path[PATH_BYTES];
    struct tiny_run r;
    struct checkpoint_info info, found;
    scratch(dir);
    file_in(path, dir, ".unfinished");
    assert_int_equal(mkdir(path, 0777), 0);
    file_in(path, dir, ".unfinished/model.safetensors");
    assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0666)), 0);
    MUST(checkpoint_latest(dir, NULL, &found, E));
    assert_int_equal(found.step, -1);
    save_one(&r, dir, &info);
    assert_int_equal(access(path, F_OK), -1);
    MUST(checkpoint_remove(info.path, E));
    tiny_run_close(&r);
    assert_int_equal(rmdir(dir), 0);
}

/* A file size limit stands in for a full disk: the write fails half-way. */
static void disk_full_leaves_nothing(void **state) {
    char dir[64];
    struct tiny_run r;
    struct checkpoint_info info, old;
    struct step_result s;
    struct rlimit before, tight;
    scratch(dir);
    save_one(&r, dir, &old);
    MUST(trainer_step(r.trainer, false, &s, E));
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = before;
    tight.rlim_cur = 100000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    MUST_FAIL(ERR_IO, "File too large", checkpoint_save(r.trainer, dir, &info, E));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    MUST(checkpoint_latest(dir, NULL, &info, E));
    assert_int_equal(info.step, 1);
    MUST(checkpoint_remove(old.path, E));
    tiny_run_close(&r);
    assert_int_equal(rmdir(dir), 0);
    MUST_FAIL(ERR_IO, "create /proc/fp8lab",
              (open_run(&r, RECIPE_BF16), checkpoint_save(r.trainer, "/proc/fp8lab", &info, E)));
    tiny_run_close(&r);
}

/* The trainer goes on while a copy is written: the files have the state of the copy's step. */
static void a_copy_is_written_beside_the_steps(void **state) {
    char dir[64], beside[64];
    struct tiny_run r;
    struct step_result s;
    struct checkpoint_info waited, copied, refused;
    struct checkpoint_writer *w;
    int64_t write_us;
    scratch(dir);
    scratch(beside);
    save_one(&r, dir, &waited);
    MUST_FAIL(ERR_MEMORY, "of host memory, 4096 are free",
              checkpoint_writer_create(r.trainer, 4096, &w, E));
    MUST(checkpoint_writer_create(r.trainer, INT64_MAX, &w, E));
    MUST(checkpoint_begin(w, beside, E));
    assert_true(checkpoint_begun(w));
    for (int i = 0; i < 3; i++) MUST(trainer_step(r.trainer, false, &s, E));
    MUST_FAIL(ERR_STATE, "is being written", checkpoint_begin(w, beside, E));
    MUST(checkpoint_latest(beside, NULL, &refused, E));
    assert_int_equal(refused.step, -1); /* it has no name before it is whole */
    MUST(checkpoint_finish(w, &copied, &write_us, E));
    assert_false(checkpoint_begun(w) || checkpoint_writing(w));
    assert_int_equal(copied.step, 1);
    assert_int_equal(copied.bytes, waited.bytes);
    assert_string_equal(copied.sha256, waited.sha256);
    MUST(checkpoint_begin(w, beside, E)); /* of step 4; never finished */
    checkpoint_writer_destroy(w);
    MUST(checkpoint_latest(beside, NULL, &refused, E));
    assert_int_equal(refused.step, 1);
    char unfinished[PATH_BYTES];
    file_in(unfinished, beside, ".unfinished");
    MUST(checkpoint_remove(unfinished, E));
    MUST(checkpoint_remove(waited.path, E));
    MUST(checkpoint_remove(copied.path, E));
    tiny_run_close(&r);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(rmdir(beside), 0);
}

/* A copy that cannot be written costs a checkpoint, not the run: the older one stays, the trainer
 * goes on, and the next copy is written. */
static void a_copy_without_disk_leaves_the_older_one(void **state) {
    char dir[64];
    struct tiny_run r;
    struct checkpoint_info info, old;
    struct checkpoint_writer *w;
    struct step_result s;
    struct rlimit before, tight;
    struct err e = { 0 };
    int64_t write_us;
    scratch(dir);
    save_one(&r, dir, &old);
    MUST(checkpoint_writer_create(r.trainer, INT64_MAX, &w, E));
    MUST(trainer_step(r.trainer, false, &s, E));
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = before;
    tight.rlim_cur = 100000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    enum status st = checkpoint_begin(w, dir, &e);
    if (st == OK) st = checkpoint_finish(w, &info, &write_us, &e);
    assert_int_equal(st, ERR_IO);
    assert_non_null(strstr(e.text, "File too large"));
    MUST(checkpoint_survive(r.trainer, st, E));
    MUST_FAIL(ERR_DEVICE, "", checkpoint_survive(r.trainer, (FAIL(E, ERR_DEVICE, "x")), E));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    MUST(checkpoint_latest(dir, NULL, &info, E));
    assert_int_equal(info.step, 1);
    MUST(trainer_step(r.trainer, false, &s, E));
    MUST(checkpoint_begin(w, dir, E));
    MUST(checkpoint_finish(w, &info, &write_us, E));
    assert_int_equal(info.step, 3);
    checkpoint_writer_destroy(w);
    MUST(checkpoint_remove(info.path, E));
    MUST(checkpoint_remove(old.path, E));
    tiny_run_close(&r);
    assert_int_equal(rmdir(dir), 0);
}

/* Offsets in a header are untrusted: no value may overflow the arithmetic. */
static void offsets_out_of_range_are_refused(void **state) {
    static const char *const RANGE[] = {
        "-1, 3", "0, 3", "0, 5", "1, 5", "1, -9223372036854775808", "9223372036854775807, 4",
    };
    struct err e;
    struct backend *b;
    float value = 0;
    char dir[64], path[PATH_BYTES], header[256];
    scratch(dir);
    file_in(path, dir, "x.safetensors");
    MUST(cpu_backend_open(&b, 1, E));
    const struct pieces pieces = { .b = b, .world = 1 };
    struct safetensors s = { 0 };
    MUST(safetensors_add(&s, DTYPE_F32, 1, 0, &value, E, "x"));
    for (size_t i = 0; i < sizeof RANGE / sizeof *RANGE; i++) {
        int n = snprintf(header, sizeof header, "{\"x\": {\"dtype\": \"F32\", \"shape\": [1], "
                         "\"data_offsets\": [%s]}}", RANGE[i]);
        const unsigned char length[8] = { (unsigned char)n };
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(length, 1, 8, f), 8);
        assert_true(fprintf(f, "%s%s", header, "abcd") == n + 4);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(safetensors_read(&s, &pieces, path, &e), ERR_FORMAT);
        assert_non_null(strstr(e.text, "x has bytes"));
    }
    safetensors_free(&s);
    b->ops->close(b);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* ---- the choice table ---- */

static const char TABLE[] = "fp8lab choices 1\ndevice \"made up\"\nlibraries none\n";

static enum status made_up_choices(struct backend *b, char **text, struct err *e) {
    *text = strdup(TABLE);
    return *text ? OK : FAIL(e, ERR_MEMORY, "a table");
}

/* A checkpoint carries the choice table; loading it on another device does not require one. */
static void choices_are_saved(void **state) {
    char dir[64], *text = NULL;
    for (int made_up = 0; made_up < 2; made_up++) {
        struct tiny_run r;
        struct step_result s;
        struct checkpoint_info info, loaded;
        scratch(dir);
        open_run(&r, RECIPE_BF16);
        const struct backend_ops *real = r.backend->ops;
        struct backend_ops ops = *real;
        if (made_up) ops.choices_save = made_up_choices;
        r.backend->ops = &ops;
        MUST(trainer_step(r.trainer, false, &s, E));
        MUST(checkpoint_save(r.trainer, dir, &info, E));
        r.backend->ops = real;
        MUST(checkpoint_choices(info.path, &text, E));
        assert_string_equal(text, made_up ? TABLE : "");
        free(text);
        tiny_run_close(&r);
        open_run(&r, RECIPE_BF16);
        MUST(checkpoint_load(r.trainer, info.path, &loaded, E));
        tiny_run_close(&r);
        MUST(checkpoint_remove(info.path, E));
        MUST_FAIL(ERR_IO, "checkpoint.json", checkpoint_choices(info.path, &text, E));
        assert_int_equal(rmdir(dir), 0);
    }
}

/* ---- what the package safetensors reads ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The tensors of a file, by name: a line each, as tests/outside/read_checkpoint.py prints it. */
static void list_tensors(FILE *out, const char *dir, const char *name) {
    char path[PATH_BYTES], hex[SHA256_HEX];
    const char *key, **names;
    json_t *value;
    uint64_t bytes;
    size_t count = 0;
    file_in(path, dir, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&bytes, sizeof bytes, 1, f), 1);
    char *text = calloc(1, bytes + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, bytes, f), bytes);
    json_t *head = json_loads(text, 0, NULL);
    assert_non_null(head);
    json_object_del(head, "__metadata__");
    names = calloc(json_object_size(head), sizeof *names);
    assert_non_null(names);
    json_object_foreach(head, key, value) names[count++] = key;
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; i < count; i++) {
        const char *dtype;
        json_int_t shape[2], begin, end;
        value = json_object_get(head, names[i]);
        size_t rank = json_array_size(json_object_get(value, "shape"));
        assert_int_equal(json_unpack(value, "{s:s, s:[I,I]}", "dtype", &dtype, "data_offsets",
                                     &begin, &end), 0);
        for (size_t k = 0; k < rank; k++)
            shape[k] = json_integer_value(json_array_get(json_object_get(value, "shape"), k));
        void *data = malloc((size_t)(end - begin));
        assert_true(data && fseek(f, (long)(8 + bytes) + (long)begin, SEEK_SET) == 0);
        assert_int_equal(fread(data, 1, (size_t)(end - begin), f), end - begin);
        MUST(sha256_bytes(data, (size_t)(end - begin), hex, E));
        free(data);
        fprintf(out, "%s %s %s %lld", name, names[i], dtype, (long long)shape[0]);
        if (rank == 2) fprintf(out, "x%lld", (long long)shape[1]);
        fprintf(out, " %.16s\n", hex);
    }
    free(names);
    free(text);
    json_decref(head);
    fclose(f);
}

static void the_package_reads_the_same(void **state) {
    char dir[64], *recorded = NULL, *found = NULL;
    size_t size, recorded_size = 0;
    struct tiny_run r;
    struct checkpoint_info info;
    scratch(dir);
    save_one(&r, dir, &info);
    FILE *out = open_memstream(&found, &size), *f = fopen("tests/train/checkpoint.txt", "r");
    assert_true(out && f);
    list_tensors(out, info.path, "model.safetensors");
    list_tensors(out, info.path, "state.safetensors");
    assert_int_equal(fclose(out), 0);
    assert_true(getdelim(&recorded, &recorded_size, 0, f) > 0);
    assert_string_equal(found, recorded);
    fclose(f);
    free(found);
    free(recorded);
    MUST(checkpoint_remove(info.path, E));
    tiny_run_close(&r);
    assert_int_equal(rmdir(dir), 0);
}

/* Leaves the checkpoint of save_one in a directory, for tests/outside/checkpoint.sh. */
static int leave_checkpoint(const char *dir) {
    struct tiny_run r;
    struct checkpoint_info info;
    if (mkdir(dir, 0777) != 0) return 1;
    save_one(&r, dir, &info);
    tiny_run_close(&r);
    return 0;
}

static void hash_of(const struct recipe_options *o, char hex[65]) {
    struct recipe_options site[GEMM_SITE_COUNT];
    struct recipe r = tiny_recipe(o, site, 1);
    MUST(checkpoint_recipe_sha256(&r, hex, E));
}

/* A checkpoint of another recipe is refused, so each option must count. */
static void each_option_of_a_recipe_is_hashed(void **state) {
    enum { VARIANTS = 16 };
    struct recipe_options o[VARIANTS], site[GEMM_SITE_COUNT];
    char hex[VARIANTS + 1][65];
    for (int i = 0; i < VARIANTS; i++) o[i] = tiny_recipe_options(RECIPE_DELAYED);
    o[1].kind = RECIPE_TENSORWISE;
    o[2].format = FORMAT_E4M3;
    o[3].constants = QUANT_TORCHAO;
    o[4].pow2 = !o[4].pow2;
    o[5].margin++;
    o[6].history++;
    o[7].algo = AMAX_MOST_RECENT;
    o[8].roll = ROLL_STEP;
    o[9].wgrad_bf16 = true;
    o[10].param_gather = !o[10].param_gather;
    o[11].fprop_fast = !o[11].fprop_fast;
    o[12].dgrad_fast = !o[12].dgrad_fast;
    o[13].wgrad_fast = !o[13].wgrad_fast;
    o[14].fprop_bf16 = true;
    o[15].dgrad_bf16 = true;
    for (int i = 0; i < VARIANTS; i++) hash_of(&o[i], hex[i]);
    struct recipe r = tiny_recipe(&o[0], site, 1);
    r.attention_fp8 = true;
    MUST(checkpoint_recipe_sha256(&r, hex[VARIANTS], E));
    for (int i = 0; i <= VARIANTS; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(hex[i], hex[k])) fail_msg("variants %d and %d have one hash", k, i);
}

/* Each option of NVFP4 makes another recipe; other kinds have the hashes that they had without
 * these options. */
static void options_of_nvfp4_are_hashed(void **state) {
    struct recipe_options o[5], mxfp8 = tiny_recipe_options(RECIPE_MXFP8);
    char hex[5][65], without[65], with[65];
    for (int i = 0; i < 5; i++) o[i] = tiny_recipe_options(RECIPE_NVFP4);
    o[1].hadamard = false;
    o[2].stochastic = false;
    o[3].forward_bf16_after = 7;
    o[4].weight_2d = false;
    for (int i = 0; i < 5; i++) hash_of(&o[i], hex[i]);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++) assert_string_not_equal(hex[i], hex[k]);
    hash_of(&mxfp8, without);
    mxfp8.hadamard = mxfp8.stochastic = true;
    hash_of(&mxfp8, with);
    assert_string_equal(with, without);
}

int main(int argc, char **argv) {
    if (argc == 2) return leave_checkpoint(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_twice_is_equal),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(a_missing_position_is_rejected),
        cmocka_unit_test(older_schemas_are_read),
        cmocka_unit_test(half_loaded_trainer_rejects_steps),
        cmocka_unit_test(latest_passes_over_damage),
        cmocka_unit_test(latest_fails_if_unreadable),
        cmocka_unit_test(checkpoints_of_other_runs_are_rejected),
        cmocka_unit_test(unfinished_is_no_checkpoint),
        cmocka_unit_test(disk_full_leaves_nothing),
        cmocka_unit_test(a_copy_is_written_beside_the_steps),
        cmocka_unit_test(a_copy_without_disk_leaves_the_older_one),
        cmocka_unit_test(offsets_out_of_range_are_refused),
        cmocka_unit_test(choices_are_saved),
        cmocka_unit_test(each_option_of_a_recipe_is_hashed),
        cmocka_unit_test(options_of_nvfp4_are_hashed),
        cmocka_unit_test(the_package_reads_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
