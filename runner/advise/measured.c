#include "runner/advise/measured.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/run_files.h"

static const char HOW[] = "`fp8lab bench step FILE.lua --json` writes such a file";

/* Whether the file is of the machine that the facts describe. */
static bool is_of_machine(const json_t *file, const json_t *facts) {
    if (json_integer_value(json_object_get(facts, "gpu.count")) > 0)
        return !strcmp(json_text(file, "device", ""),
                       json_text(facts, "gpu.product_name", "unknown"));
    char here[64];
    snprintf(here, sizeof here, "%.20s-%.20s", json_text(facts, "cpu.arch", "?"),
             json_text(facts, "cpu.simd", "?"));
    return !strcmp(json_text(file, "backend", ""), "cpu") &&
           !strcmp(json_text(file, "architecture", ""), here);
}

static enum status read_positive(const json_t *row, const char *key, double *out, struct err *e) {
    *out = json_number_value(json_object_get(row, key));
    if (*out >= MEASURED_US_MIN && *out < 0x1p53) return OK;
    return FAIL(e, ERR_FORMAT, "\"%s\" is %g, not a number from 0.001 to 2^53", key, *out);
}

static enum status read_step(const json_t *row, struct measured_step *out, double *copy,
                             struct err *e) {
    double bytes_per_s;
    const char *kind = json_text(row, "recipe", "");
    const struct recipe_info *info = recipe_info_named(kind);
    if (!info)
        return FAIL(e, ERR_FORMAT, "\"recipe\" is \"%.32s\", which is not a recipe of this version",
                    kind);
    out->recipe = info->defaults.kind;
    snprintf(out->name, sizeof out->name, "%.120s", json_text(row, "name", "?"));
    TRY(read_positive(row, "step_us_median", &out->step_us, e));
    TRY(read_positive(row, "parts_us", &out->parts_us, e));
    TRY(read_positive(row, "copy_bytes_per_s", &bytes_per_s, e));
    if (bytes_per_s * 1e-6 > *copy) *copy = bytes_per_s * 1e-6;
    return step_works_read(json_object_get(row, "operators"), &out->works, e);
}

static bool has_step(const struct measured *m, const struct measured_step *s) {
    for (int64_t i = 0; i < m->count; i++) {
        const struct measured_step *other = &m->step[i];
        if (other->recipe == s->recipe && !strcmp(other->name, s->name) &&
            !memcmp(&other->step_us, &s->step_us, sizeof s->step_us) &&
            !memcmp(&other->parts_us, &s->parts_us, sizeof s->parts_us))
            return true;
    }
    return false;
}

static enum status add_rows(struct measured *m, const json_t *rows, struct err *e) {
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        struct measured_step *bigger =
            realloc(m->step, (size_t)(m->count + 1) * sizeof *bigger);
        if (!bigger) return FAIL(e, ERR_MEMORY, "measured steps");
        m->step = bigger;
        struct measured_step *next = &m->step[m->count];
        *next = (struct measured_step){ .recipe = RECIPE_BF16 };
        enum status st = read_step(row, next, &m->copy_bytes_per_us, e);
        bool again = st == OK && has_step(m, next);
        double best = json_number_value(json_object_get(row, "step_us_best"));
        if (best > 0 && next->step_us > STEP_BUSY_RATIO * best)
            snprintf(m->busy, sizeof m->busy, "%s", next->name);
        if (st == OK && !again) m->count++;
        else step_works_free(&next->works);
        TRY(st);
    }
    return OK;
}

static enum status add_file(struct measured *m, const json_t *file, const json_t *facts,
                            struct err *e) {
    const json_t *rows = json_object_get(file, "rows");
    if (strcmp(json_text(file, "schema", ""), "fp8lab.bench/1") != 0 ||
        strcmp(json_text(file, "kind", ""), "step") != 0)
        return FAIL(e, ERR_FORMAT, "not the output of `bench step --json`");
    if (!json_is_array(rows) || json_array_size(rows) == 0)
        return FAIL(e, ERR_FORMAT, "it has no rows");
    if (!*json_text(file, "device", ""))
        return FAIL(e, ERR_FORMAT, "\"device\" is missing: what it was measured on");
    if (is_of_machine(file, facts)) return add_rows(m, rows, e);
    snprintf(m->other, sizeof m->other, "%.120s", json_text(file, "device", ""));
    m->unused++;
    return OK;
}

enum status measured_add(struct measured *m, const char *path, const json_t *facts,
                         struct err *e) {
    json_t *file = NULL;
    struct err why;
    enum status st = json_file_read(path, &file, &why);
    if (st == ERR_FORMAT) return FAIL(e, ERR_CONFIG, "%s; %s", why.text, HOW);
    if (st != OK) return FAIL(e, st, "%s", why.text);
    st = add_file(m, file, facts, &why);
    json_decref(file);
    if (st == OK) return OK;
    return FAIL(e, st == ERR_FORMAT ? ERR_CONFIG : st, "%s: %s; %s", path, why.text, HOW);
}

void measured_free(struct measured *m) {
    for (int64_t i = 0; i < m->count; i++) step_works_free(&m->step[i].works);
    free(m->step);
    *m = (struct measured){ 0 };
}

bool measured_has(const struct measured *m, enum recipe_kind recipe) {
    for (int64_t i = 0; i < m->count; i++)
        if (m->step[i].recipe == recipe) return true;
    return false;
}
