/* Foreign bundles: each attack is refused, with its own text and the status for its exit code, and
 * no file stays on the disk. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
#include <archive.h>
#include <archive_entry.h>
// clang-format on

#include "runner/bundle/bundle.h"
#include "runner/bundle/guard.h"
#include "runner/bundle/unpack.h"
#include "tests/support/run_fixture.h"

static const struct bundle_options KEEP = { .checkpoints = BUNDLE_CHECKPOINTS_FULL,
                                            .keep_directory = true, .threads = 1 };

/* A scratch directory with a good run in it and its good bundle. */
struct scene {
    char parent[PATH_CAP], dir[PATH_CAP], bundle[PATH_CAP], out[PATH_CAP], hostile[PATH_CAP];
};

static int set_up(void **state) {
    struct scene *s = calloc(1, sizeof *s);
    struct err e = { 0 };
    struct bundle_result result;
    struct run_fixture f = run_fixture_default();
    scratch_directory(s->parent);
    run_fixture_write(s->parent, &f, s->dir);
    CHECK(bundle_finish(s->dir, &KEEP, &result, &e));
    strcpy(s->bundle, result.path);
    CHECK(path_join(s->out, s->parent, "out", &e));
    CHECK(path_join(s->hostile, s->parent, "hostile.tar.zst", &e));
    *state = s;
    return 0;
}

static int tear_down(void **state) {
    struct scene *s = *state;
    struct err e = { 0 };
    CHECK(tree_remove(s->parent, &e));
    free(s);
    return 0;
}

/* Verification and extraction must refuse alike, and extraction must leave no file. */
static void expect(const struct scene *s, const char *path, enum status status,
                   const char *sentence) {
    struct unpack_report report;
    struct err e = { 0 };
    char partial[PATH_CAP + 16];
    for (int extract = 0; extract < 2; extract++) {
        memset(&e, 0, sizeof e);
        enum status st = bundle_unpack(path, extract ? s->out : NULL, &BUNDLE_LIMITS, &report, &e);
        if (st != status || !strstr(e.text, sentence))
            fail_msg("expected %s \"%s\", got %s \"%s\"", status_name(status), sentence,
                     status_name(st), e.text);
        assert_false(path_exists(s->out));
        snprintf(partial, sizeof partial, "%s.partial", s->out);
        assert_false(path_exists(partial));
    }
}

/* ---- archives made by hand ----------------------------------------------------------------- */

struct hostile_entry {
    const char *name;
    unsigned type; /* AE_IF... */
    const char *link, *hardlink;
    int64_t size; /* of zeros, or of `name` where 0 < size < 64 */
};

/* Starts an archive and copies the good bundle's first `keep` entries into it (-1: all). */
static struct archive *begin(const struct scene *s, int keep) {
    struct archive *out = archive_write_new(), *in = archive_read_new();
    archive_write_set_format_pax_restricted(out);
    archive_write_add_filter_zstd(out);
    assert_int_equal(archive_write_open_filename(out, s->hostile), ARCHIVE_OK);
    archive_read_support_format_tar(in);
    archive_read_support_filter_zstd(in);
    assert_int_equal(archive_read_open_filename(in, s->bundle, 65536), ARCHIVE_OK);
    struct archive_entry *entry;
    for (int i = 0; i != keep && archive_read_next_header(in, &entry) == ARCHIVE_OK; i++) {
        char buffer[65536];
        la_ssize_t n;
        assert_int_equal(archive_write_header(out, entry), ARCHIVE_OK);
        while ((n = archive_read_data(in, buffer, sizeof buffer)) > 0)
            assert_int_equal(archive_write_data(out, buffer, (size_t)n), n);
    }
    archive_read_free(in);
    return out;
}

static void add(struct archive *out, const struct hostile_entry *h) {
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, h->name);
    archive_entry_set_filetype(entry, h->type);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, h->size);
    if (h->link) archive_entry_set_symlink(entry, h->link);
    if (h->hardlink) archive_entry_set_hardlink(entry, h->hardlink);
    if (h->type == AE_IFCHR) archive_entry_set_rdev(entry, 0x0501);
    assert_int_equal(archive_write_header(out, entry), ARCHIVE_OK);
    static const char ZEROS[1 << 16];
    for (int64_t left = h->hardlink ? 0 : h->size; left > 0;) {
        size_t n = left < (int64_t)sizeof ZEROS ? (size_t)left : sizeof ZEROS;
        assert_int_equal(archive_write_data(out, ZEROS, n), (la_ssize_t)n);
        left -= (int64_t)n;
    }
    archive_entry_free(entry);
}

static void end(struct archive *out) {
    assert_int_equal(archive_write_close(out), ARCHIVE_OK);
    archive_write_free(out);
}

/* The good bundle's folder. */
#define F "20261121T024823Z-tiny-0badcafe/"

static void forbidden_entries_are_rejected(void **state) {
    static const struct {
        struct hostile_entry entry;
        const char *sentence;
    } CASES[] = {
        { { "../evil", AE_IFREG, NULL, NULL, 4 }, "path that climbs out with '..' refused" },
        { { F "data/../../evil", AE_IFREG, NULL, NULL, 4 }, "climbs out with '..'" },
        { { "/etc/evil", AE_IFREG, NULL, NULL, 4 }, "absolute path refused: /etc/evil" },
        { { F "data/link", AE_IFLNK, "/etc/passwd", NULL, 0 }, "symbolic link refused" },
        { { F "data/hard", AE_IFREG, NULL, F "bagit.txt", 0 }, "hard link refused" },
        { { F "data/dev", AE_IFCHR, NULL, NULL, 0 }, "character device refused" },
        { { F "data/pipe", AE_IFIFO, NULL, NULL, 0 }, "named pipe refused" },
        { { F "bagit.txt", AE_IFREG, NULL, NULL, 4 }, "duplicate name refused" },
        { { F "Bagit.TXT", AE_IFREG, NULL, NULL, 4 }, "differ in case only refused" },
        { { F "DATA/x", AE_IFREG, NULL, NULL, 4 }, "differ in case only refused" },
        { { F "bagit.txt/x", AE_IFREG, NULL, NULL, 4 }, "both a file and a directory refused" },
        { { F "data", AE_IFREG, NULL, NULL, 4 }, "both a file and a directory refused" },
        { { F "data/./x", AE_IFREG, NULL, NULL, 4 }, "'.' path component refused" },
        { { F "data//x", AE_IFREG, NULL, NULL, 4 }, "path component refused" },
        { { F "data/a\\b", AE_IFREG, NULL, NULL, 4 }, "byte 0x5c in a name refused" },
        { { F "data/a\nb", AE_IFREG, NULL, NULL, 4 }, "byte 0x0a in a name refused" },
        { { F "data/C:x", AE_IFREG, NULL, NULL, 4 }, "byte 0x3a in a name refused" },
        { { "elsewhere/x", AE_IFREG, NULL, NULL, 4 }, "outside the bundle's folder" },
        { { "loose", AE_IFREG, NULL, NULL, 4 }, "outside the bundle's folder" },
    };
    struct scene *s = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct archive *out = begin(s, 5); /* the bag files and data/run.json */
        add(out, &CASES[i].entry);
        end(out);
        expect(s, s->hostile, ERR_FORMAT, CASES[i].sentence);
    }
}

static void limits_hold(void **state) {
    struct scene *s = *state;
    struct unpack_report report;
    struct err e = { 0 };
    struct bundle_limits limits = BUNDLE_LIMITS;
    limits.entries = 10;
    assert_int_equal(bundle_unpack(s->bundle, NULL, &limits, &report, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "more than 10 entries refused"));
    limits = BUNDLE_LIMITS;
    limits.path_bytes = 40;
    assert_int_equal(bundle_unpack(s->bundle, NULL, &limits, &report, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "at most 40 are allowed"));
    limits = BUNDLE_LIMITS;
    limits.file_bytes = 100;
    assert_int_equal(bundle_unpack(s->bundle, NULL, &limits, &report, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "refused, at most 100"));
    limits = BUNDLE_LIMITS;
    limits.total_bytes = 4000;
    assert_int_equal(bundle_unpack(s->bundle, NULL, &limits, &report, &e), ERR_FORMAT);
    assert_non_null(strstr(e.text, "more than 4000 bytes in all refused"));
}

static void a_bomb_is_refused_early(void **state) {
    struct scene *s = *state;
    struct archive *out = begin(s, 5);
    add(out, &(struct hostile_entry){ F "data/logs/runner.log", AE_IFREG, NULL, NULL,
                                      INT64_C(300) << 20 });
    end(out);
    expect(s, s->hostile, ERR_FORMAT, "decompression bomb refused");
}

/* A name below F that implies `depth` new directories. */
static void deep_name(char name[512], int number, int depth) {
    int at = sprintf(name, F "data/%d", number);
    for (int i = 0; i < depth; i++) at += sprintf(name + at, "/d");
}

static void names_and_sizes_have_limits(void **state) {
    char name[300];
    struct guard *g = NULL;
    struct bundle_limits limits = BUNDLE_LIMITS;
    struct err e = { 0 };
    memset(name, 'n', sizeof name);
    name[255] = '\0';
    CHECK(guard_name(name, &limits, &e));
    name[255] = 'n';
    name[256] = '\0';
    assert_int_equal(guard_name(name, &limits, &e), ERR_FORMAT);
    assert_int_equal(guard_name("data/\x7f", &limits, &e), ERR_FORMAT);
    assert_int_equal(guard_name("data/\xc3\xa4", &limits, &e), ERR_FORMAT);
    limits.total_bytes = 10;
    CHECK(guard_create(&limits, &g, &e));
    CHECK(guard_admit(g, "a", false, 6, &e));
    assert_int_equal(guard_admit(g, "b", false, 5, &e), ERR_FORMAT); /* each alone would do */
    assert_non_null(strstr(e.text, "more than 10 bytes in all refused, at b"));
    CHECK(guard_ratio(g, 1, RATIO_FREE, &e)); /* a small one may be packed as well as it can */
    assert_int_equal(guard_ratio(g, 1, (int64_t)RATIO_FREE + 1, &e), ERR_FORMAT);
    guard_destroy(g);
}

/* As tar writes them, and in the other order; each once. */
static void a_directory_comes_before_or_behind_its_files(void **state) {
    static const struct { const char *name[3]; enum status status; } CASES[] = {
        { { "d/", "d/e/f", NULL }, OK }, { { "d/e/f", "d/", NULL }, OK },
        { { "d/", "d/e/", "d/e/f" }, OK }, { { "d/f", "d/", "d/" }, ERR_FORMAT },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct guard *g = NULL;
        struct err e = { 0 };
        enum status st = guard_create(&BUNDLE_LIMITS, &g, &e);
        for (int k = 0; k < 3 && st == OK && CASES[i].name[k]; k++) {
            char name[16];
            size_t n = strlen(CASES[i].name[k]);
            bool directory = CASES[i].name[k][n - 1] == '/';
            snprintf(name, sizeof name, "%.*s", (int)n - directory, CASES[i].name[k]);
            st = guard_admit(g, name, directory, 0, &e);
        }
        if (st == OK) st = guard_end(g, &e);
        if (st != CASES[i].status) fail_msg("case %zu: %d, %s", i, st, e.text);
        guard_destroy(g);
    }
}

static void names_are_counted_with_the_directories_they_imply(void **state) {
    struct scene *s = *state;
    char name[512];
    struct archive *out = begin(s, 5);
    for (int i = 0; i < 700; i++) {
        deep_name(name, i, 59);
        add(out, &(struct hostile_entry){ name, AE_IFDIR, NULL, NULL, 0 });
    }
    end(out);
    expect(s, s->hostile, ERR_FORMAT, "more than 40000 files and directories refused");
    out = begin(s, 5);
    deep_name(name, 1, 62);
    add(out, &(struct hostile_entry){ name, AE_IFDIR, NULL, NULL, 0 });
    end(out);
    expect(s, s->hostile, ERR_FORMAT, "name of more than 64 components refused");
}

/* ---- archives made byte by byte ------------------------------------------------------------ */

struct raw {
    char *bytes; /* owned */
    size_t n;
};

static struct raw raw_file(const char *path) {
    struct raw r = { 0 };
    struct err e = { 0 };
    CHECK(file_read(path, 1 << 30, &r.bytes, &r.n, &e));
    return r;
}

/* Inserts bytes at a position. */
static void raw_insert(struct raw *r, size_t at, const void *bytes, size_t n) {
    r->bytes = realloc(r->bytes, r->n + n);
    assert_non_null(r->bytes);
    memmove(r->bytes + at + n, r->bytes + at, r->n - at);
    memcpy(r->bytes + at, bytes, n);
    r->n += n;
}

static void raw_write(const struct scene *s, const struct raw *r) {
    struct err e = { 0 };
    CHECK(file_replace(s->hostile, r->bytes, r->n, &e));
}

/* A ustar header of that type in front of `size` bytes. POSIX.1-1988, with a checksum. */
static void tar_header(char block[512], const char *name, char type, size_t size) {
    unsigned sum = 0;
    memset(block, 0, 512);
    snprintf(block, 100, "%s", name);
    memcpy(block + 100, "0000644\0" "0000000\0" "0000000\0", 24);
    snprintf(block + 124, 12, "%011zo", size);
    memcpy(block + 136, "00000000000\0" "        ", 20);
    block[156] = type;
    memcpy(block + 257, "ustar\0" "00", 8);
    for (int i = 0; i < 512; i++) sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
}

/* Data outside every file of the bundle, which tar readers skip. */
static void tar_headers_hide_no_data(void **state) {
    static const struct {
        const char *name;
        char type;
        size_t bytes;
        const char *text, *sentence;
    } CASES[] = {
        { F "data/", 'D', 512, "Yhidden", "directory with 512 bytes of content refused" },
        { F "data/", '5', 512, "hidden", "" }, /* libarchive reads no content for this type */
        { F "x", 'x', 8192, "8192 comment=hidden", "bytes of tar headers before " F "bagit.txt" },
        { F "g", 'g', 8192, "8192 comment=hidden", "bytes of tar headers before " F "bagit.txt" },
    };
    struct scene *s = *state;
    struct raw good;
    struct unpack_report report;
    struct err e = { 0 };
    bundle_as_tar(s->bundle, &good.bytes, &good.n);
    raw_write(s, &good);
    CHECK(bundle_unpack(s->hostile, NULL, &BUNDLE_LIMITS, &report, &e));
    free(good.bytes);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct raw r;
        char block[512], *data = malloc(CASES[i].bytes);
        bundle_as_tar(s->bundle, &r.bytes, &r.n);
        tar_header(block, CASES[i].name, CASES[i].type, CASES[i].bytes);
        memset(data, 'a', CASES[i].bytes);
        memcpy(data, CASES[i].text, strlen(CASES[i].text));
        data[CASES[i].bytes - 1] = '\n';
        raw_insert(&r, 0, block, sizeof block);
        raw_insert(&r, sizeof block, data, CASES[i].bytes);
        raw_write(s, &r);
        expect(s, s->hostile, ERR_FORMAT, CASES[i].sentence);
        free(data);
        free(r.bytes);
    }
}

/* A global header after the last file describes no file. Up to 1 MB of it is read. */
static void a_header_after_the_last_file_is_rejected(void **state) {
    static const size_t SIZES[] = { 512, 8192, 512 * 1024 };
    struct scene *s = *state;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        struct raw r;
        char block[512], *data = malloc(SIZES[i]);
        bundle_as_tar(s->bundle, &r.bytes, &r.n);
        tar_header(block, F "g", 'g', SIZES[i]);
        memset(data, 'a', SIZES[i]);
        int n = snprintf(data, SIZES[i], "%zu comment=hidden", SIZES[i]);
        data[n] = 'a';
        data[SIZES[i] - 1] = '\n';
        raw_insert(&r, r.n - 1024, block, sizeof block);
        raw_insert(&r, r.n - 1024, data, SIZES[i]);
        raw_write(s, &r);
        expect(s, s->hostile, ERR_FORMAT, "bytes behind the last entry refused, at most 1024");
        free(data);
        free(r.bytes);
    }
}

/* Their names and times would be data that no manifest lists. */
static void empty_directories_are_rejected(void **state) {
    struct scene *s = *state;
    struct unpack_report report;
    struct err e = { 0 };
    struct archive *out = begin(s, -1);
    add(out, &(struct hostile_entry){ F "data/metrics", AE_IFDIR, NULL, NULL, 0 });
    end(out);
    CHECK(bundle_unpack(s->hostile, NULL, &BUNDLE_LIMITS, &report, &e));
    out = begin(s, -1);
    add(out, &(struct hostile_entry){ F "data/hidden", AE_IFDIR, NULL, NULL, 0 });
    add(out, &(struct hostile_entry){ F "data/hidden/words", AE_IFDIR, NULL, NULL, 0 });
    end(out);
    expect(s, s->hostile, ERR_FORMAT, "empty directory refused: " F "data/hidden");
}

static void skippable_frames_are_rejected(void **state) {
    static const char FRAME[] = "\x5a\x2a\x4d\x18\x06\0\0\0hidden";
    struct scene *s = *state;
    struct raw r = raw_file(s->bundle);
    char sentence[80];
    snprintf(sentence, sizeof sentence, "skippable zstd frame refused: byte %zu of the file", r.n);
    raw_insert(&r, r.n, FRAME, sizeof FRAME - 1);
    raw_write(s, &r);
    expect(s, s->hostile, ERR_FORMAT, sentence);
    free(r.bytes);
    r = raw_file(s->bundle);
    raw_insert(&r, r.n, "hidden", 6);
    raw_write(s, &r);
    expect(s, s->hostile, ERR_FORMAT, "data that are not a zstd frame refused");
    free(r.bytes);
    r = raw_file(s->bundle);
    raw_insert(&r, 0, FRAME, sizeof FRAME - 1);
    raw_write(s, &r);
    expect(s, s->hostile, ERR_FORMAT, "is no archive, not a run bundle");
    free(r.bytes);
}

/* Compresses the file at `path` again, into s->hostile. */
static void pack_again(const struct scene *s, const char *path) {
    struct raw r = raw_file(path);
    struct archive *out = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    archive_write_set_format_raw(out);
    archive_write_add_filter_zstd(out);
    assert_int_equal(archive_write_open_filename(out, s->hostile), ARCHIVE_OK);
    archive_entry_set_pathname(entry, "inner");
    archive_entry_set_filetype(entry, AE_IFREG);
    assert_int_equal(archive_write_header(out, entry), ARCHIVE_OK);
    assert_int_equal(archive_write_data(out, r.bytes, r.n), (la_ssize_t)r.n);
    archive_entry_free(entry);
    end(out);
    free(r.bytes);
}

static void zstd_within_zstd_is_not_unpacked(void **state) {
    struct scene *s = *state;
    pack_again(s, s->bundle);
    expect(s, s->hostile, ERR_FORMAT, "damaged, or no bundle, or packed in more than one layer");
}

/* Frames of repeated bytes (RFC 8878): 16,384 blocks of 4 bytes and 128 KiB each, 2 GiB in one
 * block of the file that is read. */
static void a_frame_of_repeated_bytes_is_a_bomb(void **state) {
    static const char HEAD[] = "\x28\xb5\x2f\xfd\x00\x38", BLOCK[] = "\x02\x00\x10\x00";
    struct scene *s = *state;
    struct raw r = { 0 };
    raw_insert(&r, 0, HEAD, 6);
    for (int i = 0; i < 16384; i++) raw_insert(&r, r.n, BLOCK, 4);
    r.bytes[r.n - 4] |= 1; /* the last of the frame */
    struct raw good = raw_file(s->bundle);
    raw_insert(&r, 0, good.bytes, good.n);
    raw_write(s, &r);
    expect(s, s->hostile, ERR_FORMAT, "decompression bomb refused");
    free(good.bytes);
    free(r.bytes);
}

/* ---- archives that were good --------------------------------------------------------------- */

static void truncation_is_named(void **state) {
    static const int PERCENT[] = { 1, 30, 60, 99 };
    struct scene *s = *state;
    struct err e = { 0 };
    char *bytes = NULL;
    size_t n = 0;
    CHECK(file_read(s->bundle, 1 << 30, &bytes, &n, &e));
    for (size_t i = 0; i < sizeof PERCENT / sizeof *PERCENT; i++) {
        CHECK(file_replace(s->hostile, bytes, n * (size_t)PERCENT[i] / 100, &e));
        expect(s, s->hostile, ERR_FORMAT, "truncated");
    }
    free(bytes);
}

/* A reader that stops at the end of the archive would report the rest of the file as verified. */
static void data_after_the_end_are_rejected(void **state) {
    struct scene *s = *state;
    struct err e = { 0 };
    char *bytes = NULL, *more = NULL;
    size_t n = 0, m = 0;
    CHECK(file_read(s->bundle, 1 << 30, &bytes, &n, &e));
    struct archive *out = begin(s, 0);
    add(out, &(struct hostile_entry){ F "data/hidden", AE_IFREG, NULL, NULL, 4 });
    end(out);
    CHECK(file_read(s->hostile, 1 << 30, &more, &m, &e));
    char *both = malloc(n + m);
    assert_non_null(both);
    memcpy(both, bytes, n);
    memcpy(both + n, more, m);
    CHECK(file_replace(s->hostile, both, n + m, &e));
    expect(s, s->hostile, ERR_VERIFY, "extra file that the manifest does not list: data/hidden");
    memcpy(both + n, bytes, m < n ? m : n); /* another bundle, cut */
    CHECK(file_replace(s->hostile, both, n + m, &e));
    expect(s, s->hostile, ERR_FORMAT, "");
    free(both);
    free(more);
    free(bytes);
}

/* 256 MiB of zeros, compressed, after a good bundle: they belong to no entry. */
static void zeros_after_the_end_are_a_bomb(void **state) {
    static const char ZEROS[1 << 20];
    struct scene *s = *state;
    struct err e = { 0 };
    char *bytes = NULL, *zeros = NULL;
    size_t n = 0, m = 0;
    CHECK(file_read(s->bundle, 1 << 30, &bytes, &n, &e));
    struct archive *out = archive_write_new();
    archive_write_set_format_raw(out);
    archive_write_add_filter_zstd(out);
    assert_int_equal(archive_write_open_filename(out, s->hostile), ARCHIVE_OK);
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, "zeros");
    archive_entry_set_filetype(entry, AE_IFREG);
    assert_int_equal(archive_write_header(out, entry), ARCHIVE_OK);
    for (int i = 0; i < 256; i++)
        assert_int_equal(archive_write_data(out, ZEROS, sizeof ZEROS), sizeof ZEROS);
    archive_entry_free(entry);
    end(out);
    CHECK(file_read(s->hostile, 1 << 30, &zeros, &m, &e));
    bytes = realloc(bytes, n + m);
    assert_non_null(bytes);
    memcpy(bytes + n, zeros, m);
    CHECK(file_replace(s->hostile, bytes, n + m, &e));
    expect(s, s->hostile, ERR_FORMAT, "decompression bomb refused");
    free(bytes);
    free(zeros);
}

static void files_that_are_no_archive_are_named(void **state) {
    struct scene *s = *state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *sentence;
    } CASES[] = {
        { "just some text, no archive at all", 33, "is no archive, not a run bundle" },
        { "", 0, "is an empty file, not a run bundle" },
        { "\x1f\x8b\x08\x00\x00\x00\x00\x00", 8, "is a gzip file, not a run bundle" },
        { "PK\x03\x04....", 8, "is a zip file, not a run bundle" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct err e = { 0 };
        CHECK(file_replace(s->hostile, CASES[i].bytes, CASES[i].n, &e));
        expect(s, s->hostile, ERR_FORMAT, CASES[i].sentence);
    }
    expect(s, "/dev/null", ERR_FORMAT, "neither a bundle file nor a directory");
    expect(s, "/nowhere/at/all", ERR_IO, "/nowhere/at/all");
}

static void missing_and_extra_files_in_an_archive(void **state) {
    struct scene *s = *state;
    struct archive *out = begin(s, 6);
    end(out);
    expect(s, s->hostile, ERR_VERIFY, "missing file data/");
    out = begin(s, 3); /* without the tag manifest */
    end(out);
    expect(s, s->hostile, ERR_VERIFY, "missing file tagmanifest-sha256.txt");
    out = begin(s, -1);
    add(out, &(struct hostile_entry){ F "data/extra", AE_IFREG, NULL, NULL, 4 });
    end(out);
    expect(s, s->hostile, ERR_VERIFY, "extra file that the manifest does not list: data/extra");
    out = begin(s, 2);
    add(out, &(struct hostile_entry){ F "data/early", AE_IFREG, NULL, NULL, 4 });
    end(out);
    expect(s, s->hostile, ERR_FORMAT, "comes before the manifest");
}

/* ---- directories --------------------------------------------------------------------------- */

static void changed_directories_are_named(void **state) {
    struct scene *s = *state;
    struct err e = { 0 };
    char path[PATH_CAP], moved[PATH_CAP];
    CHECK(path_join(path, s->dir, "data/decisions.json", &e));
    CHECK(path_join(moved, s->parent, "moved", &e));
    assert_int_equal(rename(path, moved), 0);
    expect(s, s->dir, ERR_VERIFY, "missing file data/decisions.json");
    put_file(s->dir, "data/decisions.json", "{\"backend\":\"cpU\"}");
    expect(s, s->dir, ERR_VERIFY, "wrong hash: data/decisions.json");
    assert_int_equal(rename(moved, path), 0);
    put_file(s->dir, "data/extra", "x");
    expect(s, s->dir, ERR_VERIFY, "extra file that the manifest does not list: data/extra");
    CHECK(path_join(path, s->dir, "data/extra", &e));
    CHECK(tree_remove(path, &e));
    assert_int_equal(symlink("/etc/passwd", path), 0);
    expect(s, s->dir, ERR_FORMAT, "data/extra is a symbolic link");
    CHECK(tree_remove(path, &e));
    CHECK(path_join(path, s->dir, "bag-info.txt", &e));
    char *info = NULL;
    size_t n = 0;
    CHECK(file_read(path, 1 << 20, &info, &n, &e));
    put_file(s->dir, "bag-info.txt", "Payload-Oxum: 1.1\n");
    expect(s, s->dir, ERR_VERIFY, "wrong hash: bag-info.txt");
    CHECK(path_join(path, s->dir, "manifest-sha256.txt", &e));
    /* The manifest lists none of these files. */
    put_file(s->dir, "manifest-sha256.txt", "%064d  data/other\n", 0);
    expect(s, s->dir, ERR_VERIFY, "wrong hash: bag-info.txt");
    put_file(s->dir, "bag-info.txt", "%s", info);
    expect(s, s->dir, ERR_VERIFY, "wrong hash: manifest-sha256.txt");
    CHECK(tree_remove(path, &e));
    expect(s, s->dir, ERR_STATE, "the run is not finished");
    free(info);
}

static void bad_manifests_are_named(void **state) {
    static const struct {
        const char *text, *sentence;
    } CASES[] = {
        { "abc  data/run.json\n", "manifest-sha256.txt:1: not" },
        { "%064d  ../evil\n", "manifest-sha256.txt:1: path that climbs out" },
        { "%064d  data/a\n%064d  data/a\n", "lists data/a twice" },
    };
    struct scene *s = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        put_file(s->dir, "manifest-sha256.txt", CASES[i].text, 0, 0);
        expect(s, s->dir, ERR_FORMAT, CASES[i].sentence);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(forbidden_entries_are_rejected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(limits_hold, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_bomb_is_refused_early, set_up, tear_down),
        cmocka_unit_test(names_and_sizes_have_limits),
        cmocka_unit_test(a_directory_comes_before_or_behind_its_files),
        cmocka_unit_test_setup_teardown(names_are_counted_with_the_directories_they_imply, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(tar_headers_hide_no_data, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_header_after_the_last_file_is_rejected, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(empty_directories_are_rejected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(skippable_frames_are_rejected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(zstd_within_zstd_is_not_unpacked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_frame_of_repeated_bytes_is_a_bomb, set_up, tear_down),
        cmocka_unit_test_setup_teardown(truncation_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(data_after_the_end_are_rejected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(zeros_after_the_end_are_a_bomb, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_that_are_no_archive_are_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(missing_and_extra_files_in_an_archive, set_up, tear_down),
        cmocka_unit_test_setup_teardown(changed_directories_are_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_manifests_are_named, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
