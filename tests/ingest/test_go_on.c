/* An ingestion that is killed at any change of the disk goes on, and its files are those of a run
 * that nobody killed: with one thread and more, packed files, chats, copies and bad lines left out.
 * What is damaged, or no longer the same work or text, is said and made anew. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/base/run_files.h"
#include "runner/chat/chat_tokens.h"
#include "runner/ingest/tokenise.h"
#include "tests/support/must.h"

#define RECORDED "tests/ingest/recorded/"

/* ---- the calls that change the disk ---------------------------------------------------------- */
/* They stand in for those of libc. The process dies before call number kill_at, or finds the disk
 * full from call number full_at on. Several threads call them. */

static int calls, kill_at, full_at;

static bool full(void) {
    int n = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    if (n == kill_at) syscall(SYS_kill, getpid(), SIGKILL);
    if (!full_at || n < full_at) return false;
    errno = ENOSPC;
    return true;
}

ssize_t write(int fd, const void *bytes, size_t n) {
    return fd > 2 && full() ? -1 : syscall(SYS_write, fd, bytes, n);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) {
    return full() ? -1 : syscall(SYS_pwrite64, fd, bytes, n, at);
}

/* A killed process loses nothing that it gave to the system. */
int fsync(int fd) { return (void)fd, full() ? -1 : 0; }

int ftruncate(int fd, off_t n) { return full(), (int)syscall(SYS_ftruncate, fd, n); }

int rename(const char *from, const char *to) {
    return full(), (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    return full(), (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

int unlink(const char *path) { return full(), (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0); }

int unlinkat(int dir, const char *path, int flags) {
    return full(), (int)syscall(SYS_unlinkat, dir, path, flags);
}

/* ---- a place to work ------------------------------------------------------------------------- */

enum { PATHS = 4, TEXT = 1 << 16 };

struct place {
    char folder[64], path[PATHS][96], prefix[80], wanted[80];
    const char *paths[PATHS];
    struct tokenizer *tokenizer;
    struct tokenise_options o;
    struct tokenise_result made, first; /* by the last run; by the one that nobody killed */
    char said[TEXT]; /* all warnings of the last run */
    size_t words;
};

static void ignore_progress(void *context, double share, int64_t tokens) {
    (void)context;
    (void)share;
    (void)tokens;
}

static void hear(void *context, const char *text) {
    struct place *p = context;
    int n = snprintf(p->said + p->words, TEXT - p->words, "%s\n", text);
    p->words += (size_t)n < TEXT - p->words ? (size_t)n : 0;
}

static enum status make(struct place *p, const char *prefix, int threads, struct err *e) {
    p->o.prefix = prefix;
    p->o.threads = threads;
    p->words = 0;
    p->said[0] = '\0';
    calls = 0;
    enum status st = tokenise(&p->o, &p->made, e);
    json_decref(p->made.description);
    p->made.description = NULL;
    return st;
}

/* Files of PREFIX; `text` is in their names. */
static int files_with(const struct place *p, const char *text) {
    struct tree files;
    int count = 0;
    MUST(tree_list(p->folder, 100, &files, E));
    for (int64_t i = 0; i < files.count; i++) count += !!strstr(files.file[i].path, text);
    tree_free(&files);
    return count;
}

static void same_file(const struct place *p, const char *suffix) {
    char path[128];
    char *a = NULL, *b = NULL;
    size_t n = 0, m = 0;
    snprintf(path, sizeof path, "%s.%s", p->wanted, suffix);
    if (!path_exists(path)) return;
    MUST(file_read(path, 1 << 28, &a, &n, E));
    snprintf(path, sizeof path, "%s.%s", p->prefix, suffix);
    MUST(file_read(path, 1 << 28, &b, &m, E));
    if (n != m || memcmp(a, b, n)) fail_msg("%s differs; %s", path, p->said);
    free(a);
    free(b);
}

/* The result is the wanted one, and nothing else is left. It is removed. */
static void is_as_wanted(struct place *p) {
    static const char *const SUFFIX[] = { "bin", "idx", "json", "loss" };
    char path[128];
    for (int i = 0; i < 4; i++) {
        same_file(p, SUFFIX[i]);
        snprintf(path, sizeof path, "%s.%s", p->prefix, SUFFIX[i]);
        (void)remove(path);
    }
    assert_int_equal(files_with(p, ".part"), 0);
    assert_int_equal(files_with(p, "made."), 0);
}

/* Runs in a process that dies before its call number `at`. Whether it died. */
static bool killed(struct place *p, int threads, int at) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct err e;
        kill_at = at;
        _exit(make(p, p->prefix, threads, &e) == OK ? 0 : 1);
    }
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status)) return true;
    assert_int_equal(WEXITSTATUS(status), 0);
    return false;
}

static bool has_progress(const struct place *p) {
    char path[128];
    snprintf(path, sizeof path, "%s.progress.part", p->prefix);
    return path_exists(path);
}

static void remake(struct place *p) {
    static const char *const SUFFIX[] = { "bin", "idx", "json" };
    char path[128];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s.%s", p->wanted, SUFFIX[i]);
        (void)remove(path);
    }
    MUST(make(p, p->wanted, 2, E));
}

/* Killed before each `each`-th call, then gone on, perhaps killed a second time. */
static void goes_on(struct place *p, int each) {
    int died = 0, resumed = 0;
    remake(p);
    p->first = p->made;
    for (int at = 1 + each / 2; killed(p, 1 + at % 3, at); at += each) {
        char index[128];
        struct err e = { .text = "" };
        died++;
        snprintf(index, sizeof index, "%s.idx", p->prefix);
        if (at % 4 == 3 && !path_exists(index)) (void)killed(p, 2, at / 2 + 1);
        bool saved = has_progress(p);
        p->made.text_before = 0;
        enum status st = path_exists(index) ? OK : make(p, p->prefix, 1 + (at + 1) % 3, &e);
        if (st != OK) fail_msg("after call %d: %s", at, e.text);
        if (saved && !path_exists(index)) fail_msg("after call %d: no index", at);
        resumed += p->made.text_before > 0;
        if (files_with(p, ".part")) MUST_FAIL(ERR_CONFIG, "exists", make(p, p->prefix, 1, E));
        is_as_wanted(p);
    }
    is_as_wanted(p);
    if (died < 5 || 2 * resumed < died) fail_msg("%d kills, %d went on", died, resumed);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static uint32_t draw(uint32_t *seed) { return *seed = *seed * 1664525 + 1013904223; }

/* Lines of JSON, or of plain text; one of a hundred is bad or the copy of an earlier one. */
static void write_text(const char *path, bool json, int64_t bytes, uint32_t seed,
                       const char *form) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int64_t i = 0; ftell(f) < bytes; i++) {
        char text[2048];
        uint32_t own = i % 100 == 99 ? 7 : draw(&seed);
        size_t n = 0, wanted = 40 + (own >> 8) % 1900;
        while (n < wanted)
            n += (size_t)snprintf(text + n, sizeof text - n, "w%u%s", draw(&own) >> 22,
                                  own & 4096 ? " " : ", ");
        if (json && i % 701 == 700) fprintf(f, "{\"nothing\": %lld}\n", (long long)i);
        else if (json) fprintf(f, form, text, text);
        else fprintf(f, "%s\n", text);
    }
    fclose(f);
}

static void copy_packed(const char *from, const char *to, bool tar) {
    struct archive *a = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    char *bytes;
    size_t n;
    MUST(file_read(from, 1 << 28, &bytes, &n, E));
    if (tar) archive_write_set_format_pax_restricted(a), archive_write_add_filter_gzip(a);
    else archive_write_set_format_raw(a), archive_write_add_filter_zstd(a);
    assert_int_equal(archive_write_open_filename(a, to), ARCHIVE_OK);
    for (int i = 0; i < 1 + tar; i++) {
        archive_entry_clear(entry);
        archive_entry_set_pathname(entry, i ? "b.jsonl" : "a.txt");
        archive_entry_set_size(entry, (la_int64_t)n);
        archive_entry_set_filetype(entry, AE_IFREG);
        archive_entry_set_perm(entry, 0644);
        assert_int_equal(archive_write_header(a, entry), ARCHIVE_OK);
        assert_int_equal(archive_write_data(a, bytes, n), n);
    }
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
    archive_entry_free(entry);
    free(bytes);
}

static void open_place(struct place *p, const char *tokenizer, const char *const *names) {
    *p = (struct place){ .folder = "/tmp/fp8lab-test-XXXXXX" };
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->prefix, sizeof p->prefix, "%s/made", p->folder);
    snprintf(p->wanted, sizeof p->wanted, "%s/wanted", p->folder);
    p->o = (struct tokenise_options){ .tokenizer_path = "t", .paths = p->paths, .end = 5,
                                      .skip_bad = 100, .save_bytes = 1, .progress = ignore_progress,
                                      .warn = hear, .context = p };
    for (int i = 0; i < PATHS && names[i]; i++) {
        int length = (int)strlen(p->folder);
        memcpy(p->path[i], p->folder, (size_t)length);
        snprintf(p->path[i] + length, sizeof p->path[i] - (size_t)length, "/%s", names[i]);
        p->paths[i] = p->path[i];
        p->o.path_count++;
    }
    MUST(tokenizer_open(&p->tokenizer, tokenizer, &(struct tokenizer_options){ 0 }, E));
    p->o.tokenizer = p->tokenizer;
}

static void close_place(struct place *p) {
    tokenizer_close(p->tokenizer);
    MUST(tree_remove(p->folder, E));
}

static const char FIELD[] = "{\"text\": \"%s\"}\n";

/* ---- the tests ------------------------------------------------------------------------------- */

/* JSON lines, a plain text of several batches, and its copy, which is taken back. */
static void lines_and_copies(void **state) {
    struct place p;
    (void)state;
    open_place(&p, "bytes", (const char *const[PATHS]){ "a.jsonl", "b.txt", "c.txt", "d.jsonl" });
    write_text(p.path[0], true, 1200000, 1, FIELD);
    write_text(p.path[1], false, 1200000, 2, NULL);
    write_text(p.path[2], false, 1200000, 2, NULL);
    write_text(p.path[3], true, 1100000, 3, FIELD);
    p.o.unique = true;
    goes_on(&p, 7);
    assert_true(p.first.duplicates > 5 && p.first.skipped > 0);
    p.o.unique = false;
    goes_on(&p, 23);
    close_place(&p);
}

static void packed_files(void **state) {
    struct place p;
    char plain[96];
    (void)state;
    open_place(&p, RECORDED "qwen2.json", (const char *const[PATHS]){ "a.jsonl.zst", "b.tar.gz" });
    snprintf(plain, sizeof plain, "%s/plain", p.folder);
    write_text(plain, true, 1700000, 4, FIELD);
    copy_packed(plain, p.path[0], false);
    copy_packed(plain, p.path[1], true);
    goes_on(&p, 13);
    close_place(&p);
}

static void chats(void **state) {
    static const char TALK[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"},"
                               "{\"role\":\"assistant\",\"content\":\"%s\"}]}\n";
    struct place p;
    struct chat_tokens chat;
    struct chat_template t;
    (void)state;
    open_place(&p, RECORDED "qwen2.json", (const char *const[PATHS]){ "a.jsonl", "b.jsonl" });
    write_text(p.path[0], true, 1700000, 5, TALK);
    write_text(p.path[1], true, 1700000, 6, TALK);
    MUST(chat_template_load(&t, "tests/chat/templates/chatml.jinja", NULL, E));
    MUST(chat_tokens_open(&chat, &t, CHAT_LOSS_ALL, 300, E));
    p.o.lines = &chat.lines;
    p.o.unique = true;
    goes_on(&p, 11);
    assert_true(p.first.loss_tokens > 1000 && p.first.cut > 100);
    chat_tokens_close(&chat);
    close_place(&p);
}

/* A text that is longer than a line may be, however reading divides it. */
static void append_long_line(const char *path, const char *end) {
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fprintf(f, "{\"text\": \"");
    for (int64_t i = 0; i < 5 << 20; i++) fputc('a' + (int)(i % 26), f);
    fprintf(f, "\"}%s", end);
    fclose(f);
}

/* At the beginning of a file, within it, and without a newline at its end. */
static void lines_that_are_too_long(void **state) {
    static const char GOOD[] = "{\"text\": \"good\"}\n";
    struct place p;
    (void)state;
    open_place(&p, "bytes", (const char *const[PATHS]){ "a.jsonl", "b.jsonl", "c.jsonl" });
    p.o.part_max = 2 << 20;
    write_text(p.path[0], true, 1200000, 8, FIELD);
    append_long_line(p.path[0], "\n");
    append_long_line(p.path[0], "\r\n");
    append_long_line(p.path[1], "\n");
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(p.path[i], "a");
        assert_non_null(f);
        fputs(GOOD, f);
        fclose(f);
    }
    append_long_line(p.path[1], "");
    append_long_line(p.path[2], "\n");
    goes_on(&p, 9);
    remake(&p);
    assert_int_equal(p.made.skipped, 6); /* and one without the field */
    assert_non_null(strstr(p.said, "b.jsonl:1: a line of 2 MiB or more; divide"));
    assert_non_null(strstr(p.said, "b.jsonl:3: a line of 2 MiB"));
    assert_non_null(strstr(p.said, "c.jsonl:1: a line of 2 MiB"));
    struct tokenise_result all = p.made;
    p.o.skip_bad = 5;
    MUST_FAIL(ERR_FORMAT, "c.jsonl:1: a line of 2 MiB or more; divide its text into documents. "
              "--skip-bad N", make(&p, p.prefix, 2, E));
    p.o.skip_bad = 1;
    p.o.path_count = 1;
    write_text(p.path[0], true, 1200000, 8, FIELD);
    remake(&p);
    assert_int_equal(all.documents, p.made.documents + 2);
    assert_int_equal(all.tokens, p.made.tokens + 10); /* each document has its end */
    close_place(&p);
}

/* What a killed run left, with its last save. */
static void leave(struct place *p) {
    assert_true(killed(p, 2, 60) && has_progress(p));
}

static void flip(const char *path, off_t at) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char byte = 0;
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    assert_true(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

static void says_and_makes(struct place *p, const char *words, bool resumed) {
    MUST(make(p, p->prefix, 2, E));
    if (!strstr(p->said, words)) fail_msg("not said: %s, but %s", words, p->said);
    if (resumed != (p->made.text_before > 0)) fail_msg("resumed: %d; %s", !resumed, p->said);
    is_as_wanted(p);
}

static struct place damaged_place(void) {
    struct place p;
    open_place(&p, "bytes", (const char *const[PATHS]){ "a.jsonl", "b.txt" });
    write_text(p.path[0], true, 2500000, 1, FIELD);
    write_text(p.path[1], false, 4500000, 2, NULL);
    p.o.unique = true;
    return p;
}

/* `hear` has a pointer to the place, which has moved. */
static void settle(struct place *p) {
    for (int i = 0; i < PATHS; i++) p->paths[i] = p->path[i];
    p->o.paths = p->paths;
    p->o.context = p;
    MUST(make(p, p->wanted, 2, E));
}

static void damage_is_found(void **state) {
    static const char *const PARTS[] = { "bin", "idx", "seen", "left_out", "progress" };
    struct place p = damaged_place();
    char path[128];
    (void)state;
    settle(&p);
    for (size_t i = 0; i < 2 * sizeof PARTS / sizeof *PARTS; i++) {
        leave(&p);
        snprintf(path, sizeof path, "%s.%s.part", p.prefix, PARTS[i / 2]);
        if (i % 2) assert_int_equal(truncate(path, 60), 0);
        else flip(path, 50);
        says_and_makes(&p, "part is damaged", false);
    }
    for (int at = 0; at < 1200; at += 151) { /* each kind of member of the progress */
        leave(&p);
        snprintf(path, sizeof path, "%s.progress.part", p.prefix);
        flip(path, at);
        MUST(make(&p, p.prefix, 2, E));
        is_as_wanted(&p);
    }
    leave(&p);
    assert_int_equal(remove(path), 0);
    says_and_makes(&p, "it had saved no progress", false);
    close_place(&p);
}

static void another_text_is_made_anew(void **state) {
    struct place p = damaged_place();
    (void)state;
    settle(&p);
    leave(&p);
    flip(p.path[0], 300000); /* what was read */
    remake(&p);
    says_and_makes(&p, "the text has changed", false);
    leave(&p);
    flip(p.path[1], 4400000); /* what was not */
    remake(&p);
    says_and_makes(&p, "goes on there", true);
    leave(&p);
    write_text(p.path[1], false, 4600000, 2, NULL);
    remake(&p);
    says_and_makes(&p, "other files", false);
    leave(&p);
    p.o.end = 6;
    remake(&p);
    says_and_makes(&p, "other options", false);
    leave(&p);
    p.o.path_count = 1;
    remake(&p);
    says_and_makes(&p, "other files", false);
    leave(&p);
    p.o.skip_bad = 2;
    MUST_FAIL(ERR_FORMAT, "--skip-bad", make(&p, p.prefix, 2, E));
    assert_int_equal(files_with(&p, ".part"), 0);
    close_place(&p);
}

/* A full disk leaves no final name; when there is room, the run goes on. So it does after a bad
 * line, if it may leave it out. */
static void errors_keep_what_is_done(void **state) {
    struct place p = damaged_place();
    int resumed = 0;
    (void)state;
    settle(&p);
    for (int at = 5; at < 80; at += 9) {
        struct err e = { .text = "" };
        full_at = at;
        enum status st = make(&p, p.prefix, 2, &e);
        full_at = 0;
        if (st == OK) fail_msg("the disk was full from call %d on", at);
        if (st != ERR_IO || !strstr(e.text, "No space")) fail_msg("call %d: %s", at, e.text);
        assert_int_equal(files_with(&p, "made.bin") + files_with(&p, "made.idx"),
                         2 * has_progress(&p));
        if (has_progress(&p)) assert_non_null(strstr(p.said, "the same command goes on"));
        MUST(make(&p, p.prefix, 2, E));
        resumed += p.made.text_before > 0;
        is_as_wanted(&p);
    }
    assert_true(resumed > 3);
    p.o.skip_bad = 1;
    p.o.keep_bad = true;
    MUST_FAIL(ERR_FORMAT, "--skip-bad", make(&p, p.prefix, 1, E));
    p.o.skip_bad = 100;
    says_and_makes(&p, "goes on there", true);
    close_place(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_and_copies),
        cmocka_unit_test(packed_files),
        cmocka_unit_test(chats),
        cmocka_unit_test(lines_that_are_too_long),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(another_text_is_made_anew),
        cmocka_unit_test(errors_keep_what_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
