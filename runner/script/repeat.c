#include "runner/script/repeat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"

/* Each run has a configuration of its own: its steps may be counted later. After an error *to is
 * still valid for resolution_destroy(). */
static enum status copy_run(const struct resolved_run *from, struct resolved_run *to,
                            struct err *e) {
    json_error_t why;
    *to = (struct resolved_run){ .name = strdup(from->name), .config = strdup(from->config),
                                 .config_bytes = from->config_bytes,
                                 .cell = json_incref(from->cell) };
    memcpy(to->config_sha256, from->config_sha256, sizeof to->config_sha256);
    if (!to->name || !to->config) return FAIL(e, ERR_MEMORY, "a repeat of %s", from->name);
    enum status st = json_parse(&to->config_json, from->config, from->config_bytes, 0, &why);
    return st == OK ? OK : FAIL(e, st, "a repeat of %s: %s", from->name, why.text);
}

enum status resolution_repeat(struct resolution *r, int64_t times, struct err *e) {
    int64_t count = r->run_count;
    if (times < 2) return OK;
    struct resolved_run *runs = realloc(r->runs, (size_t)(count * times + 1) * sizeof *runs);
    if (!runs) return FAIL(e, ERR_MEMORY, "%" PRId64 " repeats of %" PRId64 " runs", times, count);
    r->runs = runs;
    r->suite = true;
    for (int64_t i = count; i < count * times; i++) {
        r->run_count = i + 1;
        TRY(copy_run(&r->runs[i - count], &r->runs[i], e));
    }
    return OK;
}
