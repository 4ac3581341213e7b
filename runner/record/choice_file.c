#include "runner/record/choice_file.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/choices.h"
#include "model/checkpoint.h"
#include "runner/record/documents.h"

static const char NONE[] = "none";
enum { TABLE_BYTES_MAX = 4 << 20 };

/* The hash of no table is "", as in run.json's inputs. */
static enum status hash_table(const char *text, char sha256[SHA256_HEX], struct err *e) {
    *sha256 = '\0';
    return *text ? sha256_bytes(text, strlen(text), sha256, e) : OK;
}

/* Reads the run's table and hashes it. The caller frees *text, also after an error. */
static enum status read_table(const char *run_path, char **text, char sha256[SHA256_HEX],
                              struct err *e) {
    char path[PATH_CAP];
    size_t n;
    *text = NULL;
    TRY(path_join(path, run_path, RUN_PATH_choices, e));
    if (path_exists(path)) TRY(file_read(path, TABLE_BYTES_MAX, text, &n, e));
    else if (!(*text = calloc(1, 1))) return FAIL(e, ERR_MEMORY, "a choice table");
    return hash_table(*text, sha256, e);
}

enum status choice_file_read(const char *run_path, const char *wanted, char **text,
                             struct err *e) {
    char sha256[SHA256_HEX];
    enum status st = read_table(run_path, text, sha256, e);
    if (st == OK && strcmp(sha256, wanted) != 0)
        st = FAIL(e, ERR_IO, "%s/%s is not the run's choice table (hash %.12s, wanted %.12s); a "
                  "shared file system may still show an old file: resume the run", run_path,
                  RUN_PATH_choices, *sha256 ? sha256 : "none", *wanted ? wanted : "none");
    if (st == OK) return OK;
    free(*text);
    *text = NULL;
    return st;
}

enum status choice_file_keep(struct run_dir *dir, const char *text, struct err *e) {
    char path[PATH_CAP], sha256[SHA256_HEX];
    TRY(path_join(path, dir->path, RUN_PATH_choices, e));
    TRY(hash_table(text, sha256, e));
    if (*text) {
        TRY(replace_beneath(dir->root, RUN_PATH_choices, dir->path, text, strlen(text), e));
    } else {
        TRY(tree_remove(path, e));
    }
    TRY(inputs_record_choices(dir->run, sha256, e));
    return run_dir_save(dir, e);
}

/* All of it: a device that rejects a line does so after the run has begun. */
static enum status check_table(const char *text, size_t bytes, struct err *e) {
    struct choices_reader reader;
    struct choice ignored;
    bool more = true;
    if (strlen(text) != bytes)
        return FAIL(e, ERR_CONFIG, "choice table: byte %zu is 0", strlen(text));
    TRY(choices_open(&reader, text, e));
    while (more) TRY(choices_next(&reader, &ignored, &more, e));
    return OK;
}

enum status choice_file_source(const char *source, char **text, struct err *e) {
    size_t n;
    *text = NULL;
    if (!strcmp(source, NONE)) {
        *text = calloc(1, 1);
        return *text ? OK : FAIL(e, ERR_MEMORY, "a choice table");
    }
    bool checkpoint = path_is_directory(source);
    if (checkpoint) TRY(checkpoint_choices(source, text, e));
    else TRY(file_read(source, TABLE_BYTES_MAX, text, &n, e));
    if (checkpoint) n = strlen(*text);
    if (checkpoint && !**text) return OK; /* of a backend without choices */
    enum status st = check_table(*text, n, e);
    if (st == OK) return OK;
    err_prefix(e, "%s", source);
    free(*text);
    *text = NULL;
    return st;
}

enum status choice_file_take(struct run_dir *dir, const char *source, struct err *e) {
    char *text;
    TRY(choice_file_source(source, &text, e));
    enum status st = choice_file_keep(dir, text, e);
    free(text);
    return st;
}

enum status choice_file_check(const struct run_dir *dir, struct err *e) {
    char *text, sha256[SHA256_HEX];
    enum status st = read_table(dir->path, &text, sha256, e);
    free(text);
    TRY(st);
    const char *then = json_text(json_object_get(dir->run, "inputs"), "choices", "");
    if (!strcmp(then, sha256)) return OK;
    return FAIL(e, ERR_CONFIG, "%s cannot be resumed as the same run: its choice table %s changed "
                "since it began (%.12s, now %.12s); --choices none makes a new table", dir->id,
                RUN_PATH_choices, *then ? then : "none", *sha256 ? sha256 : "none");
}

enum status choice_file_hash(const char *source, struct inputs *in, struct err *e) {
    char *text, sha256[SHA256_HEX];
    TRY(choice_file_source(source, &text, e));
    enum status st = hash_table(text, sha256, e);
    if (st == OK) st = inputs_choose(in, sha256, e);
    free(text);
    return st;
}
