#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/base/output_file.h"
#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"
#include "runner/base/text_stream.h"
#include "runner/base/version.h"
#include "runner/certify/certify_cache.h"
#include "runner/certify/certify_make.h"
#include "runner/doctor/doctor.h"
#include "runner/plan/backends.h"

static const char REPORT_MARK[] = "fp8lab doctor report\n";

/* ---- the certificates -------------------------------------------------------------------------*/

/* Says what has no certificate, and why. */
static void say_untried(struct doctor *d, const struct making *m) {
    const char *way;
    json_t *why;
    if (m->impossible) {
        doctor_say(d, FINDING_WRONG, "ways", "the message says what is missing", "no certificates "
                   "could be made: %s", m->why.text);
        return;
    }
    json_object_foreach(m->untried, way, why)
        doctor_say(d, FINDING_WARNING, "ways", "free the device's memory, or use one that works, "
                   "and repeat this", "%s: not tried: %s", way, json_string_value(why));
}

/* Reads those of earlier runs. *usable: the file is not damaged, so others can be added. */
static enum status read_certificates(struct doctor *d, const struct certify_cache *cache,
                                     json_t **list, bool *usable, struct err *e) {
    char problem[KEPT_PROBLEM_CAP], fix[PATH_CAP + 32];
    TRY(certify_cache_read(cache, list, problem, e));
    *usable = !*problem;
    snprintf(fix, sizeof fix, "delete %s/" CERTIFICATES_FILE, cache->folder);
    if (!*usable) doctor_say(d, FINDING_NOTE, "ways", fix, "%s", problem);
    return OK;
}

static enum status keep_certificates(struct doctor *d, const struct certify_cache *cache,
                                     json_t *fresh, struct err *e) {
    char problem[KEPT_PROBLEM_CAP];
    TRY(certify_cache_add(cache, fresh, problem, e));
    if (*problem)
        doctor_say(d, FINDING_NOTE, "ways", "set HOME or XDG_CACHE_HOME to a folder that you can "
                   "write", "%s", problem);
    return OK;
}

/* Certificates of the standard ways: those of the cache, others from a child. */
static enum status certify_standard(struct doctor *d, const struct certify_device *device,
                                    const struct certify_cache *cache, struct making *m,
                                    struct err *e) {
    char text[WAY_TEXT_CAP];
    bool usable;
    m->request = (struct certify_request){ .backend = device->backend, .caps = device->caps };
    if (!m->fresh || !m->untried) return FAIL(e, ERR_MEMORY, "the ways of this machine");
    TRY(read_certificates(d, cache, &m->list, &usable, e));
    TRY(certify_make(m, e));
    if (usable) TRY(keep_certificates(d, cache, m->fresh, e));
    for (int64_t i = 0; i < m->ways->count; i++) {
        certify_way_text(&m->ways->way[i], text);
        json_t *have = certificates_of(m->list, text);
        bool failed = !have || json_array_extend(d->ways, have) != 0;
        json_decref(have);
        if (failed) return FAIL(e, ERR_MEMORY, "the ways of this machine");
    }
    say_untried(d, m);
    return OK;
}

/* Where no GPU is known, the CPU or a stand-in computes each output alone: a few outputs of a long
 * product say as much as many. A GPU may compute few of them by another algorithm. */
static void fewer_outputs(struct ways *ways) {
    enum { LONG_K = 8192, FEW = 128 };
    for (int64_t i = 0; i < ways->count; i++) {
        struct certify_way *w = &ways->way[i];
        if (w->section == WAY_GEMM && w->k >= LONG_K) w->m = w->n = FEW;
    }
}

static void judge(struct doctor *d) {
    const json_t *one;
    size_t i, passed = 0;
    json_array_foreach(d->ways, i, one) {
        const char *outcome = json_text(one, "outcome", "");
        passed += !strcmp(outcome, "passed");
        if (strcmp(outcome, "failed") != 0) continue;
        const char *how = json_text(one, "how", "");
        doctor_say(d, *json_text(one, "forbid", "") ? FINDING_WARNING : FINDING_WRONG, "ways",
                   "update the driver and the libraries; fp8lab doctor --report FILE writes what "
                   "to attach to an issue", "%s%s%s: %s: %s", json_text(one, "way", "?"),
                   *how ? ", " : "", how, json_text(one, "fault", "?"),
                   json_text(one, "found", ""));
    }
    size_t all = json_array_size(d->ways);
    if (all)
        doctor_say(d, passed < all ? FINDING_NOTE : FINDING_FINE, "ways", NULL,
                   "%zu of %zu certificates pass", passed, all);
}

enum status doctor_ways(struct doctor *d, struct err *e) {
    const struct certify_device device = { .backend = d->gpu ? "cuda" : "cpu",
                                           .caps = d->gpu ? d->caps : NULL };
    struct certify_cache cache = { .key = NULL };
    struct ways ways = { .way = NULL };
    struct making m = { .ways = &ways, .fresh = json_array(), .untried = json_object() };
    struct err why;
    enum status st = OK;
    if (d->here && backend_check(device.backend, &why) != OK) {
        doctor_say(d, FINDING_NOTE, "ways", NULL, "not tried: %s", why.text);
    } else if (d->here) {
        st = ways_standard(d->gpu ? ways_twins(d->caps, d->facts) : TWINS_TRANSPOSED, &ways, e);
        if (!json_integer_value(json_object_get(d->facts, "gpu.count"))) fewer_outputs(&ways);
        if (st == OK) st = certify_cache_open(&cache, NULL, NULL, d->facts, &device, e);
        if (st == OK) st = certify_standard(d, &device, &cache, &m, e);
        if (st == OK) judge(d);
    }
    json_decref(m.list);
    json_decref(m.fresh);
    json_decref(m.untried);
    ways_free(&ways);
    certify_cache_close(&cache);
    return st;
}

/* ---- as text ----------------------------------------------------------------------------------*/

static void agreed_text(const json_t *one, char *out, size_t size) {
    const json_t *name, *list = json_object_get(one, "agreed");
    size_t i, used = 0;
    *out = '\0';
    json_array_foreach(list, i, name)
        if (used < size - 24)
            used += (size_t)snprintf(out + used, size - used, "%s%.20s", i ? " " : "",
                                     json_string_value(name));
}

void doctor_ways_text(const json_t *ways, FILE *out) {
    const json_t *one;
    size_t i;
    if (!json_array_size(ways)) return;
    fprintf(out, "%-7s %-9s %-34s %s\n", "ways", "how", "arithmetic that agreed", "what");
    json_array_foreach(ways, i, one) {
        char agreed[120];
        const char *fault = json_text(one, "fault", "");
        agreed_text(one, agreed, sizeof agreed);
        fprintf(out, "%-7s %-9s %-34s %s%s%s\n", json_text(one, "outcome", "?"),
                json_text(one, "how", "-"), *agreed ? agreed : "-",
                PLAIN(json_text(one, "way", "?")), *fault ? ": " : "", fault);
    }
}

static enum status write_report(const struct doctor *d, FILE *out, struct err *e) {
    const json_t *row;
    size_t i, bytes = 0;
    char *text = NULL;
    fprintf(out, "%sprogram %s, kernels %s\nTo attach to an issue. It names this machine's "
            "hardware, libraries and folders: read it first.\n\n", REPORT_MARK, FP8LAB_VERSION,
            backend_kernels_sha256());
    json_array_foreach(d->findings, i, row)
        fprintf(out, "%-8s %-16s %s\n", json_text(row, "level", ""), json_text(row, "topic", ""),
                PLAIN(json_text(row, "found", "")));
    fputc('\n', out);
    doctor_ways_text(d->ways, out);
    json_t *all = json_pack("{s:s,s:s,s:s,s:O,s:O,s:O,s:O,s:O}", "schema", "fp8lab.doctor/1",
                            "version", FP8LAB_VERSION, "kernels", backend_kernels_sha256(),
                            "findings", d->findings, "libraries", d->libraries, "recipes",
                            d->recipes, "ways", d->ways, "facts", d->facts);
    enum status st = all ? json_canonical(all, &text, &bytes, e)
                         : FAIL(e, ERR_MEMORY, "the report of doctor");
    if (st == OK) fprintf(out, "\n%.*s\n", (int)bytes, text);
    free(text);
    json_decref(all);
    return st;
}

enum status doctor_report_check(const char *path, struct err *e) {
    static const struct output_kind REPORT = { "report of doctor", REPORT_MARK, REPORT_MARK };
    return output_may_replace("report", path, &REPORT, e);
}

enum status doctor_report(const struct doctor *d, const char *path, struct err *e) {
    struct text text = { 0 };
    FILE *out = text_stream_open(&text);
    if (!out) return FAIL(e, ERR_MEMORY, "the report of doctor");
    enum status st = write_report(d, out, e);
    if (!text_stream_close(out, &text) && st == OK)
        st = FAIL(e, ERR_MEMORY, "the report of doctor");
    if (st == OK) st = file_replace(path, text.bytes, text.size, e);
    text_free(&text);
    return st;
}
