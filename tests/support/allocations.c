#include "tests/support/allocations.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/cases.h"
#include "tests/support/must.h"

/* ---- in place of the C library's ---- */

/* With a sanitizer, its allocator is called by ours. These functions run before the sanitizer is
 * initialised, so they are compiled without its checks. */
#if defined(__SANITIZE_ADDRESS__)
#define BEHIND(name) __interceptor_##name
#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))
#else
#define BEHIND(name) __libc_##name
#define UNCHECKED
#endif
extern void *BEHIND(malloc)(size_t n);
extern void *BEHIND(calloc)(size_t count, size_t n);
extern void *BEHIND(realloc)(void *p, size_t n);
extern void *BEHIND(memalign)(size_t alignment, size_t n);

enum { PLACES_MAX = 1 << 14, CANDIDATES_MAX = 1 << 14, DEPTH = 24,
       FROM_THEN_ON = 3 /* every third is also tried with all later ones failing */ };

/* Shared with children: the script of an experiment is evaluated in one. */
struct watch {
    atomic_bool on, collecting, from_then_on, failed;
    atomic_llong count, fail_at; /* fail_at 0: none */
    struct { uint64_t stack; int calls; } place[PLACES_MAX];
    int64_t candidate[CANDIDATES_MAX]; /* numbers of the allocations to fail, in turn */
    int64_t candidate_count;
    int calls_per_place;
    void *frame[DEPTH]; /* the stack of the first that failed */
    int depth;
};
static struct watch *watch; /* of this test program only */
static _Thread_local bool mine, inside; /* this thread is watched; it is in a function below */

/* libgomp ends the process when it gets no memory. libarchive 3.6 does too (archive_string.c), or
 * reads through NULL (archive_write_add_filter_zstd.c, archive_read.c). It also frees an object
 * twice if libzstd failed to make it. */
static bool spared(void *caller) {
    static const char *const UNSAFE[] = { "libgomp", "libarchive", "libzstd" };
    Dl_info info;
    if (!dladdr(caller, &info) || !info.dli_fname) return false;
    for (size_t i = 0; i < sizeof UNSAFE / sizeof *UNSAFE; i++)
        if (strstr(info.dli_fname, UNSAFE[i])) return true;
    return false;
}

/* FNV-1a over the return addresses. */
static uint64_t stack_hash(void) {
    void *frame[DEPTH];
    int depth = backtrace(frame, DEPTH);
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < depth; i++) h = (h ^ (uint64_t)(uintptr_t)frame[i]) * 0x100000001b3u;
    return h;
}

/* Marks the allocation to fail, unless its call stack has reached calls_per_place. */
static void collect(int64_t number) {
    uint64_t h = stack_hash();
    size_t at = h % PLACES_MAX;
    for (int tries = 0; tries < PLACES_MAX; tries++, at = (at + 1) % PLACES_MAX) {
        if (watch->place[at].calls && watch->place[at].stack != h) continue;
        watch->place[at].stack = h;
        if (watch->place[at].calls++ < watch->calls_per_place &&
            watch->candidate_count < CANDIDATES_MAX)
            watch->candidate[watch->candidate_count++] = number;
        return;
    }
}

static bool denied(void *caller) {
    int64_t number = atomic_fetch_add(&watch->count, 1) + 1, at = watch->fail_at;
    bool deny = at && (watch->from_then_on ? number >= at : number == at);
    if (!deny && !watch->collecting) return false;
    inside = true; /* dladdr and backtrace may allocate */
    deny = deny && !spared(caller);
    if (watch->collecting && !spared(caller)) collect(number);
    if (deny && !watch->failed) watch->depth = backtrace(watch->frame, DEPTH);
    if (deny) watch->failed = true;
    inside = false;
    if (deny) errno = ENOMEM;
    return deny;
}

#define DENIED (mine && watch->on && !inside && denied(__builtin_return_address(0)))

UNCHECKED void *malloc(size_t n) { return DENIED ? NULL : BEHIND(malloc)(n); }
UNCHECKED void *calloc(size_t count, size_t n) { return DENIED ? NULL : BEHIND(calloc)(count, n); }
UNCHECKED void *realloc(void *p, size_t n) { return DENIED ? NULL : BEHIND(realloc)(p, n); }
UNCHECKED void *aligned_alloc(size_t alignment, size_t n) {
    return DENIED ? NULL : BEHIND(memalign)(alignment, n);
}
UNCHECKED int posix_memalign(void **out, size_t alignment, size_t n) {
    void *p = DENIED ? NULL : BEHIND(memalign)(alignment, n);
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}
/* The C library's strdup would call our malloc, the sanitizer's its own. */
UNCHECKED char *strdup(const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = DENIED ? NULL : BEHIND(malloc)(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

/* ---- watching ---- */

static void begin(int64_t fail_at, bool from_then_on, bool collecting) {
    if (!watch) {
        void *frame[1];
        backtrace(frame, 1); /* loads the unwinder */
        watch = mmap(NULL, sizeof *watch, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                     0);
        assert_true(watch != MAP_FAILED);
    }
    assert_false(watch->on);
    watch->count = 0;
    watch->failed = false;
    watch->fail_at = fail_at;
    watch->from_then_on = from_then_on;
    watch->collecting = collecting;
    watch->calls_per_place = cases_all() ? 2 : 1;
    watch->on = mine = true;
}

void allocations_watch(void) { begin(0, false, false); }

void allocations_fail(int64_t fail_at, bool from_then_on) {
    begin(fail_at, from_then_on, false);
}

void allocations_collect(void) {
    if (watch) {
        memset(watch->place, 0, sizeof watch->place);
        watch->candidate_count = 0;
    }
    begin(0, false, true);
}

int64_t allocations_noted(int64_t i) {
    return i < watch->candidate_count ? watch->candidate[i] : 0;
}

int64_t allocations_end(void) {
    watch->on = mine = false;
    return watch->count;
}

/* ---- every place ---- */

static void attempt_failing(const struct fault_case *c, int64_t number, bool from_then_on) {
    struct err e = { .text = "" }, after = { .text = "" };
    const char *wrong = NULL;
    if (c->before) c->before(c->context);
    allocations_fail(number, from_then_on);
    enum status st = c->attempt(c->context, &e);
    allocations_end();
    if (st != OK && st != ERR_MEMORY && !strcasestr(e.text, "memory"))
        wrong = "the error does not mention memory";
    else if (st != OK && (!e.text[0] || e.code != st))
        wrong = "the error value and the returned status differ";
    else if (st == OK && from_then_on && !c->after && watch->failed)
        wrong = "the call returned OK without memory";
    else if (c->after && c->after(c->context, st, &after) != OK)
        wrong = after.text;
    if (!wrong) return;
    if (watch->failed) backtrace_symbols_fd(watch->frame, watch->depth, STDERR_FILENO);
    fail_msg("%s, allocation %lld%s failing as above: %s \"%s\" (%s:%d): %s", c->name,
             (long long)number, from_then_on ? " and all later ones" : "", status_name(st), e.text,
             e.file ? e.file : "", e.line, wrong);
}

static void attempt_freely(const struct fault_case *c) {
    if (c->before) c->before(c->context);
    MUST(c->attempt(c->context, E));
    if (c->after) MUST(c->after(c->context, OK, E));
}

void fault_every_allocation(const struct fault_case *c) {
    struct err e = { .text = "" };
    attempt_freely(c); /* fills the caches of libraries */
    if (c->before) c->before(c->context);
    allocations_collect();
    enum status st = c->attempt(c->context, &e);
    int64_t count = allocations_end();
    if (st != OK) fail_msg("%s: %s", c->name, e.text);
    if (c->after) MUST(c->after(c->context, OK, E));
    assert_true(count > 0 && watch->candidate_count > 0);
    assert_true(watch->candidate_count < CANDIDATES_MAX);
    int64_t step = cases_step(1, 3), failed = 0;
    for (int64_t i = 0; i < watch->candidate_count; i += step, failed++) {
        attempt_failing(c, watch->candidate[i], false);
        if (failed % FROM_THEN_ON == 0) attempt_failing(c, watch->candidate[i], true);
    }
    print_message("%s: %lld allocations, %lld of them failed in turn\n", c->name, (long long)count,
                  (long long)failed);
    attempt_freely(c);
}
