#include "model/checkpoint_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/input_file.h"
#include "model/ground/json_safe.h"
#include "model/ground/sha256_tree.h"

enum { JSON_MAX = 64 << 20 };

/* Older schemas have no hash of checkpoint.json itself. In schema 1 the hash of a file is plain
 * SHA-256, not the tree hash. */
static const char *const SCHEMAS[] = { CHECKPOINT_SCHEMA, "fp8lab.checkpoint/2",
                                       "fp8lab.checkpoint/1" };
static const char STEP_NAME[] = "step-%06lld";

enum status checkpoint_join(char out[CHECKPOINT_PATH_CAP], const char *parent, const char *name,
                            struct err *e) {
    int n = snprintf(out, CHECKPOINT_PATH_CAP, "%s/%s", parent, name);
    if (n > 0 && n < CHECKPOINT_PATH_CAP) return OK;
    return FAIL(e, ERR_IO, "the path of %s is too long", name);
}

enum status checkpoint_path(char out[CHECKPOINT_PATH_CAP], const char *parent, int64_t step,
                            struct err *e) {
    char name[64];
    snprintf(name, sizeof name, STEP_NAME, (long long)step);
    return checkpoint_join(out, parent, name, e);
}

/* ---- checkpoint.json ---- */

/* The place of the text's own SHA-256, which is `digits`; NULL if absent. A quote inside a JSON
 * string is escaped, so no string can look like this member. */
static char *own_sha256(char *text, const char *digits) {
    char member[SHA256_HEX + 16];
    int n = snprintf(member, sizeof member, "\"sha256\": \"%s\"", digits);
    char *at = strstr(text, member);
    return at ? at + n - 1 - (SHA256_HEX - 1) : NULL;
}

enum status checkpoint_sign(char *text, struct err *e) {
    char found[SHA256_HEX], *own = own_sha256(text, CHECKPOINT_UNSIGNED);
    TRY(sha256_bytes(text, strlen(text), found, e));
    memcpy(own, found, SHA256_HEX - 1);
    return OK;
}

/* Reads a small file and appends a NUL; the caller frees *text. */
static enum status read_whole(const char *path, char **text, size_t *n, struct err *e) {
    struct input_file f;
    TRY(input_open(&f, path, e));
    enum status st = OK;
    char *bytes = NULL;
    if (f.bytes > JSON_MAX)
        st = FAIL(e, ERR_FORMAT, "%s: %lld bytes, a checkpoint's has at most %d", path,
                  (long long)f.bytes, JSON_MAX);
    else if (!(bytes = malloc((size_t)f.bytes + 1)))
        st = FAIL(e, ERR_MEMORY, "no host memory for %lld bytes of %s", (long long)f.bytes, path);
    else st = input_read(&f, 0, f.bytes, bytes, e);
    *n = (size_t)f.bytes;
    input_close(&f);
    if (st != OK) {
        free(bytes);
        return st;
    }
    bytes[*n] = 0;
    *text = bytes;
    return OK;
}

static enum status check_schema(const json_t *root, const char *file, struct err *e) {
    const char *schema = json_string_value(json_object_get(root, "schema"));
    for (size_t i = 0; schema && i < sizeof SCHEMAS / sizeof *SCHEMAS; i++)
        if (strcmp(schema, SCHEMAS[i]) == 0) return OK;
    return FAIL(e, ERR_FORMAT, "%s: schema %s, wanted %s", file, schema ? schema : "none",
                CHECKPOINT_SCHEMA);
}

/* Verifies checkpoint.json's own hash; overwrites the hash in the text. A hash is verified under
 * every schema, because damage may change one schema's name into another's. */
static enum status check_own_sha256(const json_t *root, char *text, size_t n, const char *file,
                                    struct err *e) {
    const json_t *own = json_object_get(root, "sha256");
    const char *said = json_string_value(own);
    const char *schema = json_string_value(json_object_get(root, "schema"));
    char found[SHA256_HEX];
    if (!own && strcmp(schema, CHECKPOINT_SCHEMA) != 0) return OK; /* older schemas have none */
    char *at = said && strlen(said) == SHA256_HEX - 1 ? own_sha256(text, said) : NULL;
    if (!at) return FAIL(e, ERR_FORMAT, "%s: no SHA-256 of its own", file);
    memcpy(at, CHECKPOINT_UNSIGNED, SHA256_HEX - 1);
    TRY(sha256_bytes(text, n, found, e));
    if (strcmp(found, said) == 0) return OK;
    return FAIL(e, ERR_FORMAT, "%s: its own SHA-256 is %s, wanted %s", file, found, said);
}

static enum status read_position(const json_t *root, const char *file,
                                 struct checkpoint_info *info, struct err *e) {
    const json_t *step = json_object_get(root, "step"), *cursor = json_object_get(root, "cursor");
    info->step = json_integer_value(step);
    info->cursor = json_integer_value(cursor);
    info->updates_before = json_integer_value(json_object_get(root, "updates_before")); /* or 0 */
    if (json_is_integer(step) && json_is_integer(cursor) && info->step >= 0 && info->cursor >= 0)
        return OK;
    return FAIL(e, ERR_FORMAT, "%s: step %lld and cursor %lld; wanted: both, at least 0", file,
                (long long)info->step, (long long)info->cursor);
}

/* The caller releases *root also after an error. */
static enum status read_info(const char *path, json_t **root, struct checkpoint_info *info,
                             struct err *e) {
    char file[CHECKPOINT_PATH_CAP], *text = NULL;
    size_t n = 0;
    json_error_t why;
    memset(info, 0, sizeof *info);
    snprintf(info->path, sizeof info->path, "%s", path);
    TRY(checkpoint_join(file, path, CHECKPOINT_JSON, e));
    TRY(read_whole(file, &text, &n, e));
    enum status st = sha256_bytes(text, n, info->sha256, e);
    if (st == OK) {
        st = json_parse(root, text, n, JSON_REJECT_DUPLICATES, &why);
        if (st != OK) FAIL(e, st, "%s: %s", file, why.text);
    }
    info->bytes = (int64_t)n;
    if (st == OK) st = check_schema(*root, file, e);
    if (st == OK) st = check_own_sha256(*root, text, n, file, e);
    if (st == OK) st = read_position(*root, file, info, e);
    free(text);
    return st;
}

static enum status verify_file(const char *dir, const char *name, const json_t *root,
                               struct checkpoint_info *info, struct err *e) {
    char path[CHECKPOINT_PATH_CAP], found[65];
    struct input_file f;
    const json_t *entry = json_object_get(json_object_get(root, "files"), name);
    const char *tree = json_string_value(json_object_get(entry, "tree_sha256"));
    const char *wanted = tree ? tree : json_string_value(json_object_get(entry, "sha256"));
    int64_t wanted_bytes = json_integer_value(json_object_get(entry, "bytes")), bytes;
    TRY(checkpoint_join(path, dir, name, e));
    if (!wanted)
        return FAIL(e, ERR_FORMAT, "%s/%s does not describe %s", dir, CHECKPOINT_JSON, name);
    TRY(input_open(&f, path, e));
    enum status st = OK;
    bytes = f.bytes;
    if (f.bytes == wanted_bytes)
        st = tree ? sha256_tree(&f, found, e) : sha256_fd(f.fd, path, found, &bytes, e);
    else
        st = FAIL(e, ERR_FORMAT, "%s: %lld bytes, wanted %lld%s", path, (long long)f.bytes,
                  (long long)wanted_bytes, f.bytes < wanted_bytes ? " (truncated?)" : "");
    if (st == OK) st = input_check_size(&f, bytes, e);
    if (st == OK && strcmp(found, wanted) != 0)
        st = FAIL(e, ERR_FORMAT, "%s: %s is %s, wanted %s: the file was changed or damaged; copy "
                  "it again from an intact copy", path, tree ? "tree SHA-256" : "SHA-256", found,
                  wanted);
    info->bytes += f.bytes;
    input_close(&f);
    return st;
}

static enum status verify_files(const char *path, const json_t *root, struct checkpoint_info *info,
                                struct err *e) {
    TRY(verify_file(path, CHECKPOINT_MODEL, root, info, e));
    return verify_file(path, CHECKPOINT_STATE, root, info, e);
}

enum status checkpoint_read(const char *path, json_t **root, struct checkpoint_info *info,
                            struct err *e) {
    TRY(read_info(path, root, info, e));
    return verify_files(path, *root, info, e);
}

enum status checkpoint_verify(const char *path, struct checkpoint_info *info, struct err *e) {
    json_t *root = NULL;
    enum status st = checkpoint_read(path, &root, info, e);
    json_decref(root);
    return st;
}

enum status checkpoint_choices(const char *path, char **text, struct err *e) {
    struct checkpoint_info info;
    json_t *root = NULL;
    *text = NULL;
    enum status st = read_info(path, &root, &info, e);
    const char *choices = json_string_value(json_object_get(root, "choices"));
    if (st == OK && !(*text = strdup(choices ? choices : ""))) /* older checkpoints have none */
        st = FAIL(e, ERR_MEMORY, "no host memory for a choice table");
    json_decref(root);
    return st;
}

/* ---- the directory of checkpoints ---- */

static int newest_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* The step in a directory's name as checkpoint_path() writes it; -1: another name. */
static int64_t step_of_name(const char *name) {
    char again[64];
    if (strncmp(name, "step-", 5) != 0) return -1;
    long long step = strtoll(name + 5, NULL, 10);
    snprintf(again, sizeof again, STEP_NAME, step);
    return strcmp(name, again) == 0 ? step : -1;
}

/* The steps with a directory in `parent`, newest first; the caller frees *steps. */
static enum status list_steps(const char *parent, int64_t **steps, int64_t *count, struct err *e) {
    int64_t capacity = 0;
    *steps = NULL;
    *count = 0;
    DIR *dir = opendir(parent);
    if (!dir) return errno == ENOENT ? OK : FAIL(e, ERR_IO, "open %s: %s", parent, strerror(errno));
    for (struct dirent *d; (d = readdir(dir));) {
        int64_t step = step_of_name(d->d_name);
        if (step < 0) continue;
        if (*count == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            int64_t *more = realloc(*steps, (size_t)capacity * sizeof *more);
            if (!more) {
                closedir(dir);
                free(*steps);
                *steps = NULL;
                return FAIL(e, ERR_MEMORY, "no host memory for %lld checkpoints' names",
                            (long long)capacity);
            }
            *steps = more;
        }
        (*steps)[(*count)++] = step;
    }
    closedir(dir);
    if (*count) qsort(*steps, (size_t)*count, sizeof **steps, newest_first);
    return OK;
}

bool checkpoint_lacks_file(const char *path) {
    static const char *const FILES[] = { CHECKPOINT_JSON, CHECKPOINT_MODEL, CHECKPOINT_STATE };
    char file[CHECKPOINT_PATH_CAP];
    struct err ignored;
    struct stat info;
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        if (checkpoint_join(file, path, FILES[i], &ignored) != OK) continue;
        if (stat(file, &info) == 0 ? !S_ISREG(info.st_mode)
                                   : errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
            return true;
    }
    return false;
}

/* Whether the checkpoint has the hash that the caller's log has for `step`, and contains that
 * step. */
static enum status check_logged(const struct checkpoint_log *log, const char *path, int64_t step,
                                const struct checkpoint_info *info, struct err *e) {
    char logged[SHA256_HEX] = "";
    if (log && step > log->recorded)
        return FAIL(e, ERR_FORMAT, "%s: the run's records end at step %lld, so some were lost",
                    path, (long long)log->recorded);
    if (info->step != step)
        return FAIL(e, ERR_FORMAT, "%s is of step %lld", path, (long long)info->step);
    if (log) log->look_up(log->user, step, logged);
    if (!*logged || strcmp(logged, info->sha256) == 0) return OK;
    return FAIL(e, ERR_FORMAT, "%s/%s: SHA-256 is %s, the run's log has %s", path, CHECKPOINT_JSON,
                info->sha256, logged);
}

/* Cheap checks first: hashing the large files takes minutes. */
static enum status examine_files(const char *path, const struct checkpoint_log *log, int64_t step,
                                 struct checkpoint_info *info, struct err *e) {
    json_t *root = NULL;
    enum status st = read_info(path, &root, info, e);
    if (st == OK) st = check_logged(log, path, step, info, e);
    if (st == OK) st = verify_files(path, root, info, e);
    json_decref(root);
    return st;
}

/* Verifies the checkpoint of `step`. ERR_FORMAT: it is damaged. ERR_MEMORY, ERR_IO: it cannot be
 * read, so its state is unknown. */
static enum status examine_step(const char *parent, const struct checkpoint_log *log, int64_t step,
                                struct checkpoint_info *info, struct err *e) {
    char path[CHECKPOINT_PATH_CAP];
    TRY(checkpoint_path(path, parent, step, e));
    enum status st = examine_files(path, log, step, info, e);
    if ((st == ERR_IO || st == ERR_CONFIG) && checkpoint_lacks_file(path))
        return e->code = ERR_FORMAT;
    if (st != ERR_IO) return st;
    err_prefix(e, "a checkpoint cannot be read, and may be intact; make it readable and try again, "
               "or move %s away to resume from the checkpoint before it", path);
    return ERR_IO;
}

enum status checkpoint_latest(const char *parent, const struct checkpoint_log *log,
                              struct checkpoint_info *info, struct err *e) {
    int64_t *steps, count;
    struct err first = { .code = OK }, why;
    memset(info, 0, sizeof *info);
    TRY(list_steps(parent, &steps, &count, e));
    enum status st = ERR_FORMAT;
    for (int64_t i = 0; i < count && st == ERR_FORMAT; i++) {
        st = examine_step(parent, log, steps[i], info, &why);
        if (st == ERR_FORMAT && first.code == OK) first = why;
    }
    free(steps);
    if (st == ERR_FORMAT) info->step = -1; /* no undamaged checkpoint */
    snprintf(info->damage, sizeof info->damage, "%.511s", first.text);
    if (st == OK || st == ERR_FORMAT) return OK;
    if (e) *e = why;
    return st;
}

enum status checkpoint_remove(const char *path, struct err *e) {
    static const char *const FILES[] = { CHECKPOINT_JSON, CHECKPOINT_MODEL, CHECKPOINT_STATE };
    char file[CHECKPOINT_PATH_CAP];
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        TRY(checkpoint_join(file, path, FILES[i], e));
        if (unlink(file) != 0 && errno != ENOENT)
            return FAIL(e, ERR_IO, "remove %s: %s", file, strerror(errno));
    }
    if (rmdir(path) != 0 && errno != ENOENT)
        return FAIL(e, ERR_IO, "remove %s: %s", path, strerror(errno));
    return OK;
}
