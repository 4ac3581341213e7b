#include "runner/certify/certify_make.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/certify/certify_cache.h"
#include "runner/certify/forbidden.h"
#include "runner/plan/backends.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U /* Linux 6.3; older headers lack it */
#endif

/* A child that takes longer hangs. A way alone is done sooner. */
enum { SECONDS_ALL = 300, SECONDS_ONE = 60 };
/* Rounds in which ways are certified once more, because others failed after them. */
enum { ROUNDS_MAX = 3 };
/* Crashes that no other way avoids, until the device is at fault. */
enum { UNEXPLAINED_MAX = 3 };

/* How a child ended. */
enum child_end {
    CHILD_ANSWERED,
    CHILD_BROKE,   /* it crashed, hung, or its device had an error: in some way */
    CHILD_OPENED_NOTHING
};

bool certify_applies(const char *backend) {
    struct err ignored;
    return strcmp(backend, "cpu") != 0 &&
           (!strcmp(backend, CERTIFY_BACKEND) || !backend_without_gpu(backend)) &&
           backend_check(CERTIFY_BACKEND, &ignored) == OK;
}

static enum status no_memory(struct err *e) {
    return FAIL(e, ERR_MEMORY, "no memory for certificates");
}

static json_t *certificates_at(const struct making *m, int64_t i) {
    char text[WAY_TEXT_CAP];
    certify_way_text(&m->ways->way[i], text);
    return certificates_of(m->list, text);
}

static bool is_missing(const struct making *m, int64_t i) {
    json_t *have = certificates_at(m, i);
    bool missing = json_array_size(have) == 0;
    json_decref(have);
    return missing;
}

static int64_t find_missing(const struct making *m, int64_t from) {
    for (int64_t i = from; i < m->ways->count; i++)
        if (is_missing(m, i)) return i;
    return -1;
}

int64_t certify_missing(const struct making *m) {
    int64_t n = 0;
    for (int64_t i = 0; i < m->ways->count; i++) n += is_missing(m, i);
    return n;
}

/* ---- what certificates forbid -----------------------------------------------------------------*/

/* The first certificate of a way says how it is computed; later ones are of other ways. */
static void add_forbidden(json_t *to, const json_t *certificates, bool *failed) {
    const json_t *one, *name;
    size_t i, k;
    char text[FORBIDDEN_NAME_CAP];
    json_array_foreach(json_object_get(json_array_get(certificates, 0), "without"), k, name)
        forbidden_add(to, json_string_value(name), failed);
    json_array_foreach(certificates, i, one) {
        const char *forbid = json_text(one, "forbid", "");
        if (strcmp(json_text(one, "outcome", ""), "failed") != 0 || !*forbid) continue;
        snprintf(text, sizeof text, "%s %s", json_text(one, "section", ""), forbid);
        forbidden_add(to, text, failed);
    }
}

json_t *certify_forbids(const struct ways *ways, const json_t *list) {
    json_t *out = json_array();
    bool failed = !out;
    for (int64_t i = 0; i < ways->count && !failed; i++) {
        char text[WAY_TEXT_CAP];
        certify_way_text(&ways->way[i], text);
        json_t *have = certificates_of(list, text);
        failed = !have;
        add_forbidden(out, have, &failed);
        json_decref(have);
    }
    return json_whole(out, failed);
}

/* Whether a certificate was made without just those names that concern its way. */
static bool was_without(const json_t *one, const struct certify_way *way, const json_t *names) {
    const json_t *name, *without = json_object_get(one, "without");
    size_t i, wanted = 0;
    json_array_foreach(names, i, name) {
        if (!way_may_use(way, json_string_value(name))) continue;
        if (!forbidden_has(without, json_string_value(name))) return false;
        wanted++;
    }
    return wanted == json_array_size(without);
}

/* The first way whose certificates are all of ways that this run does not use. */
static int64_t find_stale(const struct making *m, const json_t *forbidden) {
    for (int64_t i = 0; i < m->ways->count; i++) {
        json_t *have = certificates_at(m, i);
        size_t k, count = json_array_size(have);
        for (k = 0; k < count; k++)
            if (was_without(json_array_get(have, k), &m->ways->way[i], forbidden)) break;
        json_decref(have);
        if (count && k == count) return i;
    }
    return -1;
}

const json_t *certify_failure(const json_t *list, const char *name) {
    const json_t *one;
    char text[FORBIDDEN_NAME_CAP];
    size_t i;
    json_array_foreach(list, i, one) {
        snprintf(text, sizeof text, "%s %s", json_text(one, "section", ""),
                 json_text(one, "forbid", ""));
        if (!strcmp(json_text(one, "outcome", ""), "failed") && !strcmp(text, name)) return one;
    }
    return NULL;
}

void certify_forbidden_text(const json_t *list, const char *name, char *out, size_t size) {
    const json_t *one = certify_failure(list, name);
    if (one)
        snprintf(out, size, "%s is not used on this device, and another way is, since this failed: "
                 "%s: %s: %s", name, json_text(one, "way", "?"), json_text(one, "fault", "?"),
                 json_text(one, "found", ""));
    else
        snprintf(out, size, "%s is not used on this device, as in the run before", name);
}

enum status certify_check(const json_t *one, struct err *e) {
    const char *fault = json_text(one, "fault", "?");
    bool crash = !strcmp(fault, "crash");
    if (strcmp(json_text(one, "outcome", ""), "failed") != 0 || *json_text(one, "forbid", ""))
        return OK;
    return FAIL(e, ERR_HARDWARE, "%s %s here, and there is no other way: %s: %s; `fp8lab doctor "
                "--report FILE` writes what to report", json_text(one, "way", "?"),
                crash ? "crashes" : "computes wrong results", fault, json_text(one, "found", ""));
}

/* ---- children ---------------------------------------------------------------------------------*/

/* A certificate that the list lacks: of this way, or of the same way without other names. */
static bool is_new(const json_t *list, const json_t *one) {
    const json_t *other;
    size_t i;
    json_array_foreach(list, i, other)
        if (certificate_is_same(other, one)) return false;
    return true;
}

/* fresh: later commands may use it. */
static enum status put(struct making *m, json_t *one, bool fresh, struct err *e) {
    bool failed = false;
    const char *way = json_text(one, "way", "");
    (void)json_object_del(m->untried, way);
    if (is_new(m->list, one)) {
        json_append(m->list, json_incref(one), &failed);
        if (fresh) json_append(m->fresh, json_incref(one), &failed);
    }
    return failed ? no_memory(e) : OK;
}

/* *broke: the child's device broke in some way. */
static enum status take_answer(struct making *m, const json_t *answer, bool *broke,
                               struct err *why, struct err *e) {
    json_t *one;
    size_t i;
    bool failed = false;
    m->seconds += json_number_value(json_object_get(answer, "seconds"));
    json_array_foreach(json_object_get(answer, "certificates"), i, one)
        TRY(put(m, one, true, e));
    json_array_foreach(json_object_get(answer, "untried"), i, one) {
        const char *text = json_text(one, "why", "?");
        json_put(m->untried, json_text(one, "way", "?"), json_from_text(text), &failed);
        *broke |= json_is_true(json_object_get(one, "broken"));
        if (*broke) (void)FAIL(why, ERR_DEVICE, "%s", text);
    }
    return failed ? no_memory(e) : OK;
}

/* Asks for `count` ways (0: all) from `first` on. why: of another end than an answer; its code is
 * ERR_DEVICE if the child answered that the device broke, else it crashed. */
static enum status ask(struct making *m, int64_t first, int64_t count, const json_t *forbidden,
                       enum child_end *end, struct err *why, struct err *e) {
    json_t *answer = NULL;
    struct certify_request r = m->request;
    char *names = forbidden_text(forbidden);
    bool crashed = false, broke = false;
    if (!names) return no_memory(e);
    r.first = first;
    r.count = count;
    if (!r.seconds) r.seconds = count ? SECONDS_ONE : SECONDS_ALL;
    r.forbidden = names;
    enum status st = certify_ask(&r, &answer, &crashed, why);
    free(names);
    if (st == ERR_INTERRUPTED) return FAIL(e, st, "%s", why->text);
    *end = crashed ? CHILD_BROKE : st == OK ? CHILD_ANSWERED : CHILD_OPENED_NOTHING;
    if (st != OK && crashed) why->code = ERR_PEER; /* the child died */
    if (st != OK) return st == ERR_MEMORY ? no_memory(e) : OK;
    st = take_answer(m, answer, &broke, why, e);
    if (broke) *end = CHILD_BROKE;
    if (st == OK && m->answered) m->answered(m->context, answer);
    json_decref(answer);
    return st;
}

/* ---- a way that breaks its child --------------------------------------------------------------*/

/* The certificate of a way that broke its children. forbid: in which it did; NULL: not known. */
static enum status put_crash(struct making *m, int64_t i, const char *forbid,
                             const json_t *forbidden, const struct err *why, struct err *e) {
    char text[WAY_TEXT_CAP];
    const struct certify_way *way = &m->ways->way[i];
    const char *section = way_section_name(way->section);
    json_t *without = json_array(), *name;
    bool failed = false;
    size_t k;
    certify_way_text(way, text);
    json_array_foreach(forbidden, k, name)
        if (way_may_use(way, json_string_value(name)))
            json_append(without, json_incref(name), &failed);
    json_t *one = json_pack("{s:s,s:s,s:s,s:s,s:o,s:s?,s:o,s:[]}", "way", text, "section", section,
                            "outcome", "failed", "fault",
                            why->code == ERR_DEVICE ? "device error" : "crash", "found",
                            json_from_text(why->text), "forbid",
                            forbid ? forbid + strlen(section) + 1 : NULL, "without",
                            json_whole(without, failed), "agreed");
    enum status st = one ? put(m, one, forbid != NULL, e) : no_memory(e);
    json_decref(one);
    return st;
}

/* Sets of names to try a way without, in this order. */
static int other_ways(const struct certify_way *way, char names[2][FORBIDDEN_NAME_CAP]) {
    if (way->section == WAY_GEMM) {
        char gemm[FORBIDDEN_WAY_CAP];
        certify_gemm_name(way, gemm);
        snprintf(names[0], FORBIDDEN_NAME_CAP, "gemm %s", gemm);
        return way_may_use(way, names[0]);
    }
    static const char *const KERNELS[] = { "attention cudnn", "attention wgmma" };
    int n = 0;
    for (int i = 0; i < 2; i++)
        if (way_may_use(way, KERNELS[i]))
            snprintf(names[n++], FORBIDDEN_NAME_CAP, "%s", KERNELS[i]);
    return n;
}

/* Tries way i without the names whose bits are set in `which`. *found: a child lived. */
static enum status try_without(struct making *m, int64_t i, char names[2][FORBIDDEN_NAME_CAP],
                               int which, json_t *forbidden, const struct err *why, bool *found,
                               struct err *e) {
    struct err other;
    enum child_end end = CHILD_BROKE;
    json_t *without = json_copy(forbidden), *lived = json_array();
    bool failed = !without || !lived, new = false;
    struct making one = *m;
    for (int k = 0; k < 2 && !failed; k++) {
        if (!(which >> k & 1)) continue;
        new |= !forbidden_has(forbidden, names[k]);
        forbidden_add(without, names[k], &failed);
    }
    one.list = one.fresh = lived; /* the crash's certificate comes before them */
    enum status st = failed ? no_memory(e) : OK;
    if (st == OK && new) st = ask(&one, i, 1, without, &end, &other, e);
    m->seconds = one.seconds;
    *found = st == OK && end == CHILD_ANSWERED && json_array_size(lived) > 0;
    for (int k = 0; k < 2 && *found && st == OK; k++)
        if (which >> k & 1) st = put_crash(m, i, names[k], forbidden, why, e);
    json_t *certificate;
    size_t k;
    json_array_foreach(lived, k, certificate)
        if (st == OK && *found) st = put(m, certificate, true, e);
    for (int n = 0; n < 2 && *found; n++)
        if (which >> n & 1) forbidden_add(forbidden, names[n], &failed);
    json_decref(without);
    json_decref(lived);
    return st == OK && failed ? no_memory(e) : st;
}

static void give_up(struct making *m, const struct err *why) {
    m->impossible = true;
    m->why = *why;
}

/* Way i broke two children, the second alone. The names without which a third one lives are what
 * broke them. If there are none, the device may be at fault: that is not kept, and the ways after
 * it are not tried if it looks so. */
static enum status find_cause(struct making *m, int64_t i, json_t *forbidden,
                              const struct err *why, struct err *e) {
    char names[2][FORBIDDEN_NAME_CAP], text[WAY_TEXT_CAP];
    int count = other_ways(&m->ways->way[i], names);
    bool found = false, failed = false;
    for (int which = 1; which < 1 << count && !found; which++)
        TRY(try_without(m, i, names, which, forbidden, why, &found, e));
    if (found) return OK;
    if (why->code == ERR_DEVICE || ++m->unexplained == UNEXPLAINED_MAX) give_up(m, why);
    if (why->code != ERR_DEVICE) return put_crash(m, i, NULL, forbidden, why, e);
    certify_way_text(&m->ways->way[i], text);
    json_put(m->untried, text, json_from_text(why->text), &failed);
    return failed ? no_memory(e) : OK;
}

/* ---- all --------------------------------------------------------------------------------------*/

static enum status update(struct making *m, json_t **forbidden, struct err *e) {
    const json_t *name;
    bool failed = false;
    size_t i;
    json_decref(*forbidden);
    *forbidden = certify_forbids(m->ways, m->list);
    json_array_foreach(m->base, i, name)
        forbidden_add(*forbidden, json_string_value(name), &failed);
    return *forbidden && !failed ? OK : no_memory(e);
}

/* All ways at once; after a child broke, one at a time until the way is found that breaks it. */
static enum status make_missing(struct making *m, json_t **forbidden, struct err *e) {
    bool alone = false;
    int64_t i = find_missing(m, 0);
    while (i >= 0) {
        enum child_end end;
        struct err why = { 0 };
        TRY(ask(m, i, alone ? 1 : 0, *forbidden, &end, &why, e));
        TRY(update(m, forbidden, e));
        if (end == CHILD_OPENED_NOTHING) give_up(m, &why);
        if (end == CHILD_OPENED_NOTHING) return OK;
        if (end == CHILD_ANSWERED && !alone) return OK;
        if (end == CHILD_BROKE && alone) TRY(find_cause(m, i, *forbidden, &why, e));
        TRY(update(m, forbidden, e));
        if (m->impossible) return OK;
        i = find_missing(m, alone ? i + 1 : i);
        alone = alone == (end == CHILD_ANSWERED); /* alone until the one that breaks it */
    }
    return OK;
}

static enum status make_all(struct making *m, struct err *e) {
    json_t *forbidden = NULL;
    int64_t i;
    enum child_end end = CHILD_ANSWERED;
    struct err why;
    enum status st = update(m, &forbidden, e);
    if (st == OK) st = make_missing(m, &forbidden, e);
    for (int n = 0; n < ROUNDS_MAX && st == OK && !m->impossible && end == CHILD_ANSWERED &&
                    (i = find_stale(m, forbidden)) >= 0; n++) {
        st = ask(m, i, 0, forbidden, &end, &why, e);
        if (st == OK) st = update(m, &forbidden, e);
    }
    json_decref(forbidden);
    return st;
}

/* Memory as a file that children inherit. A kernel may refuse one that could be executed
 * (vm.memfd_noexec); one before 6.3 does not know the flag. */
static int memory_file(void) {
    int fd = memfd_create("ways", MFD_NOEXEC_SEAL);
    return fd >= 0 || errno != EINVAL ? fd : memfd_create("ways", 0);
}

/* The child reads the ways from a descriptor that it inherits. */
enum status certify_make(struct making *m, struct err *e) {
    char path[64];
    int fd = memory_file();
    if (fd < 0) return FAIL(e, ERR_IO, "memory for a list of ways: %s", strerror(errno));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    m->request.ways = path;
    enum status st = ways_write(m->ways, fd, e);
    if (st == OK) st = make_all(m, e);
    close(fd);
    m->request.ways = NULL;
    return st;
}
