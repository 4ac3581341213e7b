#include "runner/bundle/bag.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/base/canonical.h"
#include "runner/bundle/archive.h"
#include "runner/bundle/guard.h"

/* ---- writing ------------------------------------------------------------------------------- */

static const char BAGIT[] = "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n";

/* The files that the tag manifest lists, in its order. */
static const char *const TAG_FILES[] = { "bag-info.txt", "bagit.txt", "manifest-sha256.txt" };
enum { TAG_COUNT = sizeof TAG_FILES / sizeof *TAG_FILES };

static bool is_payload(const char *path) { return strncmp(path, "data/", 5) == 0; }

static bool is_bag_file(const char *path) {
    for (int i = 0; i < TAG_COUNT; i++)
        if (strcmp(path, TAG_FILES[i]) == 0) return true;
    return strcmp(path, "tagmanifest-sha256.txt") == 0;
}

static enum status hash_line(struct text *out, int root, const char *dir,
                             const struct tree_file *file, struct err *e) {
    char hex[SHA256_HEX];
    TRY(guard_name(file->path, &BUNDLE_LIMITS, e));
    int fd = open_beneath(root, file->path, O_RDONLY, 0, 0);
    if (fd < 0) return FAIL(e, ERR_IO, "open %s/%s: %s", dir, file->path, strerror(errno));
    int64_t size = 0;
    enum status st = sha256_fd(fd, file->path, hex, &size, e);
    close(fd);
    if (st == OK && size != file->size)
        st = FAIL(e, ERR_STATE, "%s/%s changed while it was hashed", dir, file->path);
    if (st != OK) return st;
    text_puts(out, hex);
    text_puts(out, "  ");
    text_puts(out, file->path);
    text_puts(out, "\n");
    return out->failed ? FAIL(e, ERR_MEMORY, "the manifest of %s", dir) : OK;
}

/* Writes the payload manifest; adds up the bytes and files that it lists. */
static enum status write_manifest(const char *dir, const struct tree *list, int64_t *bytes,
                                  int64_t *files, struct err *e) {
    enum status st = OK;
    struct text text = { 0 };
    char path[PATH_CAP];
    int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) st = FAIL(e, ERR_IO, "open %s: %s", dir, strerror(errno));
    for (int64_t i = 0; st == OK && i < list->count; i++) {
        if (!is_payload(list->file[i].path)) continue;
        st = hash_line(&text, root, dir, &list->file[i], e);
        *bytes += list->file[i].size;
        *files += 1;
    }
    if (root >= 0) close(root);
    if (st == OK) st = path_join(path, dir, "manifest-sha256.txt", e);
    if (st == OK) st = file_replace(path, text.bytes, text.size, e);
    text_free(&text);
    return st;
}

static enum status write_info(const char *dir, const struct bag_info *info, int64_t bytes,
                              int64_t files, struct err *e) {
    char text[4096], path[PATH_CAP];
    int n = snprintf(text, sizeof text,
                     "Bag-Software-Agent: %s\nBagging-Date: %s\nExternal-Description: %.1024s\n"
                     "External-Identifier: %s\nPayload-Oxum: %" PRId64 ".%" PRId64 "\n",
                     info->agent, info->date, info->description, info->identifier, bytes, files);
    if (n < 0 || n >= (int)sizeof text)
        return FAIL(e, ERR_ARG, "bag-info.txt of %d bytes is too long", n);
    TRY(path_join(path, dir, "bag-info.txt", e));
    TRY(file_replace(path, text, (size_t)n, e));
    TRY(path_join(path, dir, "bagit.txt", e));
    return file_replace(path, BAGIT, sizeof BAGIT - 1, e);
}

static enum status write_tagmanifest(const char *dir, char identity[SHA256_HEX], struct err *e) {
    char text[TAG_COUNT * (SHA256_HEX + 32)], path[PATH_CAP], hex[SHA256_HEX];
    int n = 0;
    for (int i = 0; i < TAG_COUNT; i++) {
        TRY(path_join(path, dir, TAG_FILES[i], e));
        TRY(sha256_file(path, hex, NULL, e));
        n += snprintf(text + n, sizeof text - (size_t)n, "%s  %s\n", hex, TAG_FILES[i]);
    }
    TRY(sha256_bytes(text, (size_t)n, identity, e));
    TRY(path_join(path, dir, "tagmanifest-sha256.txt", e));
    return file_replace(path, text, (size_t)n, e);
}

bool bag_holds(const char *path) { return is_payload(path) || is_bag_file(path); }

/* Keeps the payload and the bag's own files. A run's lock and other files beside data/ are not part
 * of the bag. */
static enum status list_bag(const char *dir, struct tree *list, struct err *e) {
    TRY(tree_list(dir, BUNDLE_LIMITS.entries, list, e));
    int64_t kept = 0;
    for (int64_t i = 0; i < list->count; i++) {
        const char *path = list->file[i].path;
        if (bag_holds(path)) list->file[kept++] = list->file[i];
        else free(list->file[i].path);
    }
    list->count = kept;
    return OK;
}

enum status bag_write(const char *dir, const struct bag_info *info, struct tree *list,
                      char identity[SHA256_HEX], int64_t *payload_bytes, struct err *e) {
    int64_t bytes = 0, files = 0;
    TRY(list_bag(dir, list, e));
    enum status st = write_manifest(dir, list, &bytes, &files, e);
    if (st == OK) st = write_info(dir, info, bytes, files, e);
    if (st == OK) st = write_tagmanifest(dir, identity, e);
    tree_free(list); /* list again: now the bag files and their sizes are known */
    if (st == OK) st = list_bag(dir, list, e);
    if (st == OK) archive_sort(list);
    *payload_bytes = bytes;
    return st;
}

/* ---- reading ------------------------------------------------------------------------------- */

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct bag_line *)a)->path, ((const struct bag_line *)b)->path);
}

static enum status parse_line(const char *line, size_t n, struct bag_line *out, const char *name,
                              int64_t number, struct err *e) {
    /* digest, white space, perhaps the '*' of sha256sum's binary mode, path */
    if (n > SHA256_HEX && n < SHA256_HEX + 4096) memcpy(out->hex, line, SHA256_HEX - 1);
    const char *path = line + SHA256_HEX - 1;
    size_t blanks = n > SHA256_HEX ? strspn(path, " \t") : 0;
    if (blanks == 0 || !sha256_is_hex(out->hex))
        return FAIL(e, ERR_FORMAT, "%s:%lld: not \"<64 hex digits>  <path>\"", name,
                    (long long)number);
    path += blanks;
    if (*path == '*') path++;
    out->path = strndup(path, (size_t)(line + n - path));
    if (!out->path) return FAIL(e, ERR_MEMORY, "the lines of %s", name);
    enum status st = guard_name(out->path, &BUNDLE_LIMITS, e);
    if (st != OK) err_prefix(e, "%s:%lld", name, (long long)number);
    return st;
}

enum status bag_manifest_parse(const char *text, const char *name, struct bag_manifest *out,
                               struct err *e) {
    enum status st = OK;
    int64_t capacity = 0;
    *out = (struct bag_manifest){ 0 };
    while (st == OK && *text) {
        size_t n = strcspn(text, "\r\n");
        if (n > 0 && out->count == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            struct bag_line *line = realloc(out->line, (size_t)capacity * sizeof *line);
            if (!line) {
                st = FAIL(e, ERR_MEMORY, "%lld lines of %s", (long long)capacity, name);
                break;
            }
            out->line = line;
        }
        if (n > 0 && out->count == BUNDLE_LIMITS.entries)
            st = FAIL(e, ERR_FORMAT, "%s lists more than %lld files", name,
                      (long long)BUNDLE_LIMITS.entries);
        if (st == OK && n > 0) {
            struct bag_line *line = &out->line[out->count++];
            *line = (struct bag_line){ 0 };
            st = parse_line(text, n, line, name, out->count, e);
        }
        text += n + (text[n] != 0);
    }
    if (st != OK) {
        bag_manifest_free(out);
        return st;
    }
    if (out->count) qsort(out->line, (size_t)out->count, sizeof *out->line, by_path);
    for (int64_t i = 1; st == OK && i < out->count; i++)
        if (strcmp(out->line[i].path, out->line[i - 1].path) == 0)
            st = FAIL(e, ERR_FORMAT, "%s lists %s twice", name, out->line[i].path);
    if (st != OK) bag_manifest_free(out);
    return st;
}

void bag_manifest_free(struct bag_manifest *m) {
    for (int64_t i = 0; i < m->count; i++) free(m->line[i].path);
    free(m->line);
    *m = (struct bag_manifest){ 0 };
}

struct bag_line *bag_manifest_find(const struct bag_manifest *m, const char *path) {
    struct bag_line key = { .path = (char *)(uintptr_t)path };
    return m->count ? bsearch(&key, m->line, (size_t)m->count, sizeof *m->line, by_path) : NULL;
}

bool bag_oxum(const char *info, int64_t *bytes, int64_t *files) {
    static const char TAG[] = "Payload-Oxum:";
    for (const char *at = info; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
        if (strncmp(at, TAG, sizeof TAG - 1) == 0)
            return sscanf(at + sizeof TAG - 1, " %" SCNd64 ".%" SCNd64, bytes, files) == 2;
    return false;
}

/* ERR_VERIFY if the file is gone or has another hash; ERR_IO if it cannot be read, which proves
 * neither. */
static enum status line_unchanged(const char *dir, const struct bag_line *line, struct err *e) {
    char path[PATH_CAP], hex[SHA256_HEX];
    TRY(path_join(path, dir, line->path, e));
    bool gone = !path_exists(path) && (errno == ENOENT || errno == ENOTDIR);
    if (!gone) TRY(sha256_file(path, hex, NULL, e));
    if (!gone && strcmp(hex, line->hex) == 0) return OK;
    return FAIL(e, ERR_VERIFY, "%s %s since the run was closed", path,
                gone ? "is gone" : "changed");
}

static bool in_part(enum bag_part part, const char *path) {
    return part == BAG_ALL || archive_is_checkpoint(path) == (part == BAG_CHECKPOINTS);
}

enum status bag_unchanged(const char *dir, enum bag_part part, struct err *e) {
    char path[PATH_CAP], *text = NULL;
    size_t n = 0;
    struct bag_manifest m;
    TRY(path_join(path, dir, "manifest-sha256.txt", e));
    TRY(file_read(path, JSON_FILE_LIMIT, &text, &n, e));
    enum status st = bag_manifest_parse(text, path, &m, e);
    free(text);
    for (int64_t i = 0; st == OK && i < m.count; i++)
        if (in_part(part, m.line[i].path)) st = line_unchanged(dir, &m.line[i], e);
    bag_manifest_free(&m);
    return st;
}
