#include "runner/bundle/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/base/run_files.h"
#include "runner/bundle/bag_tags.h"
#include "runner/bundle/bundle_reader.h"
#include "runner/bundle/recheck.h"

enum { BLOCK = 256 * 1024 };

struct unpack {
    const char *path;
    struct bundle *bundle;    /* owned, like all members below */
    char *block;
    struct bag_tags tags;
    struct recheck *recheck;
    int root;                 /* directory to write to, or -1 */
    bool writes;              /* writing failed: the bundle is not to blame */
    const char *const *heads; /* prefixes of the paths to write; NULL: all */
    struct unpack_report *report;
};

static bool is_wanted(const struct unpack *u, const char *path) {
    if (!u->heads) return true;
    for (const char *const *head = u->heads; *head; head++)
        if (strncmp(path, *head, strlen(*head)) == 0) return true;
    return false;
}

static enum status open_output(struct unpack *u, const char *path, int *fd, struct err *e) {
    *fd = -1;
    if (u->root < 0 || !is_wanted(u, path)) return OK;
    /* O_EXCL: the directory is fresh, so an existing name came from this bundle. */
    *fd = open_beneath(u->root, path, O_WRONLY | O_CREAT | O_EXCL, 0644, 0777);
    u->writes = *fd < 0;
    return *fd >= 0 ? OK : FAIL(e, ERR_IO, "create %s: %s", path, strerror(errno));
}

/* Reads a tag file into memory; also writes it when extracting. */
static enum status take_tag(struct unpack *u, int tag, struct err *e) {
    const char *name = bag_tag_name(tag);
    int fd = -1;
    TRY(bag_tags_take(&u->tags, tag, u->bundle, e));
    TRY(open_output(u, name, &fd, e));
    if (fd < 0) return OK;
    enum status st = write_all(fd, u->tags.text[tag], strlen(u->tags.text[tag]), name, e);
    if (close(fd) != 0 && st == OK) st = FAIL(e, ERR_IO, "close %s: %s", name, strerror(errno));
    u->writes = st != OK;
    return st;
}

/* Hashes a payload file while it streams by; also writes it when extracting. */
static enum status take_payload(struct unpack *u, const struct bundle_entry *entry,
                                struct err *e) {
    char hex[SHA256_HEX];
    int fd = -1;
    struct bag_line *line = bag_manifest_find(&u->tags.manifest, entry->path);
    if (!line)
        return FAIL(e, ERR_VERIFY, "%s: extra file that the manifest does not list: %s", u->path,
                    entry->path);
    struct sha256 *sha = NULL;
    TRY(sha256_create(&sha, e));
    enum status st = open_output(u, entry->path, &fd, e);
    if (st == OK) st = recheck_begin(u->recheck, entry->path, e);
    for (size_t got = 1; st == OK && got > 0;) {
        st = bundle_read(u->bundle, u->block, BLOCK, &got, e);
        if (st != OK) break;
        sha256_add(sha, u->block, got);
        u->report->bytes += (int64_t)got;
        st = recheck_add(u->recheck, u->block, got, e);
        if (st == OK && fd >= 0) {
            st = write_all(fd, u->block, got, entry->path, e);
            u->writes = st != OK;
        }
    }
    sha256_finish(sha, hex);
    sha256_destroy(sha);
    if (fd >= 0 && close(fd) != 0 && st == OK)
        st = FAIL(e, ERR_IO, "close %s: %s", entry->path, strerror(errno));
    if (st == OK && strcmp(hex, line->hex) != 0)
        st = FAIL(e, ERR_VERIFY, "%s: wrong hash: %s is %.16s…, the manifest says %.16s…", u->path,
                  entry->path, hex, line->hex);
    line->seen = true;
    u->report->files++;
    return st;
}

/* The tag manifest is checked before the manifest, and the manifest before all other files. So the
 * message names the first file that cannot be trusted. */
static enum status check_payload_may_come(struct unpack *u, const char *name, struct err *e) {
    bool directory = bundle_is_directory(u->bundle);
    if (strncmp(name, "data/", 5) != 0)
        return FAIL(e, ERR_VERIFY, "%s: extra file that the manifest does not list: %s", u->path,
                    name);
    if (!u->tags.text[BAG_MANIFEST] && directory)
        return FAIL(e, ERR_STATE, "%s has no manifest: the run is not finished; wait for its end, "
                    "or if its runner died, fp8lab close %s", u->path, u->path);
    if (!u->tags.text[BAG_MANIFEST])
        return FAIL(e, ERR_FORMAT, "%s: %s comes before the manifest", u->path, name);
    return u->tags.vouched ? OK : bag_tags_check(&u->tags, e);
}

static enum status take_entries(struct unpack *u, struct err *e) {
    for (;;) {
        struct bundle_entry entry;
        TRY(bundle_next(u->bundle, &entry, e));
        if (!entry.path) return OK;
        int tag = bag_tag_of(entry.path);
        if (tag >= 0) {
            TRY(take_tag(u, tag, e));
            continue;
        }
        TRY(check_payload_may_come(u, entry.path, e));
        TRY(take_payload(u, &entry, e));
    }
}

static enum status check_complete(struct unpack *u, struct err *e) {
    int64_t bytes = -1, files = -1;
    for (int64_t i = 0; i < u->tags.manifest.count; i++)
        if (!u->tags.manifest.line[i].seen)
            return FAIL(e, ERR_VERIFY, "%s: missing file %s", u->path,
                        u->tags.manifest.line[i].path);
    if (!bag_oxum(u->tags.text[BAG_INFO], &bytes, &files) || bytes != u->report->bytes ||
        files != u->report->files)
        return FAIL(e, ERR_VERIFY, "%s: Payload-Oxum says %lld bytes in %lld files, found %lld in "
                    "%lld", u->path, (long long)bytes, (long long)files,
                    (long long)u->report->bytes, (long long)u->report->files);
    return OK;
}

static enum status unpack_run(struct unpack *u, const char *path,
                              const struct bundle_limits *limits, struct err *e) {
    u->block = malloc(BLOCK);
    if (!u->block) return FAIL(e, ERR_MEMORY, "%d bytes to read %s", BLOCK, path);
    TRY(bundle_open(path, limits, &u->bundle, e));
    TRY(recheck_create(&u->recheck, e));
    TRY(take_entries(u, e));
    if (!u->tags.vouched) TRY(bag_tags_check(&u->tags, e)); /* the bundle had no payload */
    TRY(check_complete(u, e));
    TRY(recheck_finish(u->recheck, e));
    snprintf(u->report->folder, sizeof u->report->folder, "%s", bundle_folder(u->bundle));
    memcpy(u->report->identity, u->tags.hex[BAG_TAGMANIFEST], SHA256_HEX);
    return OK;
}

/* The folder gets its name, and the mode of the folders in it: that which the umask leaves. */
static enum status publish(int root, const char *work, const char *dest, struct err *e) {
    struct stat now, wanted;
    if (fstat(root, &now) != 0) return FAIL(e, ERR_IO, "stat %s: %s", work, strerror(errno));
    bool differs = fstatat(root, "data", &wanted, AT_SYMLINK_NOFOLLOW) == 0 &&
                   wanted.st_mode != now.st_mode;
    if (differs && fchmod(root, wanted.st_mode & 07777) != 0)
        return FAIL(e, ERR_IO, "chmod %s: %s", work, strerror(errno));
    return rename(work, dest) == 0
               ? OK
               : FAIL(e, ERR_IO, "rename %s to %s: %s", work, dest, strerror(errno));
}

enum status bundle_unpack(const char *path, const char *dest, const struct bundle_limits *limits,
                          struct unpack_report *report, struct err *e) {
    return bundle_unpack_part(path, dest, NULL, limits, report, e);
}

/* What to do if the folder beside the destination cannot be made. */
static const char *why_not(int error) {
    if (error == ENOENT) return "; make the folder around it first";
    if (error != EEXIST) return "";
    return "; another extraction may be writing it: wait, or remove it if none is, or name another "
           "--to";
}

enum status bundle_unpack_part(const char *path, const char *dest, const char *const *heads,
                               const struct bundle_limits *limits, struct unpack_report *report,
                               struct err *e) {
    char work[PATH_CAP];
    struct unpack u = { .path = path, .root = -1, .heads = heads, .report = report };
    *report = (struct unpack_report){ 0 };
    if (dest) {
        int n = snprintf(work, sizeof work, "%s.partial", dest);
        if (n < 0 || n >= PATH_CAP) return FAIL(e, ERR_ARG, "path too long: %.200s…", dest);
        struct stat is;
        if (lstat(dest, &is) == 0) /* a link to nothing too */
            return FAIL(e, ERR_STATE, "%s exists, and nothing is overwritten: --to DIR names "
                        "another folder", dest);
        if (mkdir(work, 0700) != 0)
            return FAIL(e, ERR_IO, "create %s: %s%s", work, strerror(errno),
                        why_not(errno));
        u.root = open(work, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (u.root < 0) return FAIL(e, ERR_IO, "open %s: %s", work, strerror(errno));
    }
    enum status st = unpack_run(&u, path, limits, e);
    if (st == OK && dest) st = publish(u.root, work, dest, e);
    if (u.root >= 0) close(u.root);
    if (st != OK && u.writes) err_prefix(e, "%s", dest);
    else if (st != OK && e && !strstr(e->text, path)) err_prefix(e, "%s", path);
    /* Removes the files of a bundle that failed. */
    if (st != OK && dest) (void)!tree_remove(work, NULL);
    bag_tags_free(&u.tags);
    recheck_destroy(u.recheck);
    bundle_close(u.bundle);
    free(u.block);
    return st;
}
