#include "runner/run/slot_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/run/slot_messages.h"

/* Both processes read script and files, one after the other. */
static enum status check_config(const struct resolved_run *own, const json_t *message,
                                struct err *e) {
    const char *wanted = json_text(message, "config", "");
    if (!strcmp(own->config_sha256, wanted)) return OK;
    return FAIL(e, ERR_CONFIG, "the script or a file that it requires was changed after the "
                "command began: the configuration of %s is %.12s... now, and was %.12s...; give "
                "the command again", own->name, own->config_sha256, wanted);
}

static enum status check_row(const struct resolved_run *own, const struct inputs *in,
                             const json_t *message, struct err *e) {
    const json_t *then = json_object_get(message, "inputs");
    TRY(check_config(own, message, e));
    const char *what = strcmp(json_text(then, "data", ""), in->data) ? "the data"
                       : !inputs_same_sets(in, then) ? "the files of eval.also"
                       : strcmp(json_text(then, "weights", ""), in->weights)
                           ? "the initial weights" : NULL;
    if (!what) return OK;
    return FAIL(e, ERR_CONFIG, "%s of %s were changed after the command began; give the command "
                "again", what, own->name);
}

static enum status run_row(struct slot *s, struct suite *suite, const json_t *message,
                           struct err *e) {
    int64_t i = json_int(message, "row");
    if (i < 0 || i >= suite->resolution->run_count)
        return FAIL(e, ERR_STATE, "the parent has a row %" PRId64 ", and this process has %" PRId64
                    " rows", i, suite->resolution->run_count);
    struct suite_row *row = &suite->rows[i];
    s->row = i;
    TRY(check_row(&suite->resolution->runs[i], &row->inputs, message, e));
    s->count = json_int(message, "slots");
    TRY(slot_state_read(json_object_get(message, "state"), suite->settings->runs, &row->state, e));
    TRY(suite_run_here(suite, i, json_object_get(message, "rows"), e));
    s->row = -1;
    (void)fflush(stdout); /* before the parent knows that the row has ended */
    return slot_tell(s, json_pack("{s:s,s:I,s:o}", "event", "ended", "row", (json_int_t)i,
                                  "outcome", slot_outcome_json(&row->outcome)), e);
}

enum status slot_serve(struct slot *s, struct suite *suite, int *code, struct err *e) {
    enum status st = slot_tell(s, json_pack("{s:s}", "event", "ready"), e);
    for (bool more = true; st == OK && more;) {
        json_t *message = NULL;
        int signo = 0;
        st = slot_receive(s, suite->settings->signals, &message, &signo, e);
        if (signo) *code = EXIT_SIGNAL + signo;
        more = st == OK && message && !strcmp(json_text(message, "event", ""), "row");
        if (more) st = run_row(s, suite, message, e);
        json_decref(message);
    }
    return st;
}
