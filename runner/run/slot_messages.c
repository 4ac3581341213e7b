#include "runner/run/slot_messages.h"

#include <stdio.h>
#include <string.h>

#include "runner/base/run_files.h"

/* "" stays "". */
static enum status put_path(const char *name, const char *runs, char out[PATH_CAP],
                            struct err *e) {
    out[0] = '\0';
    return *name ? path_join(out, runs, name, e) : OK;
}

json_t *slot_state_json(const struct row_state *s) {
    char name[PATH_CAP];
    path_base(name, s->path);
    return json_pack("{s:b,s:s,s:s,s:s,s:I}", "resumes", s->kind == ROW_RESUMABLE, "run", name,
                     "id", s->id, "status", s->status, "checkpoint_step",
                     (json_int_t)s->checkpoint_step);
}

enum status slot_state_read(const json_t *message, const char *runs, struct row_state *out,
                            struct err *e) {
    bool resumes = json_is_true(json_object_get(message, "resumes"));
    *out = (struct row_state){ .kind = resumes ? ROW_RESUMABLE : ROW_NEW,
                               .checkpoint_step = json_int(message, "checkpoint_step") };
    snprintf(out->id, sizeof out->id, "%s", json_text(message, "id", ""));
    snprintf(out->status, sizeof out->status, "%s", json_text(message, "status", ""));
    return put_path(json_text(message, "run", ""), runs, out->path, e);
}

json_t *slot_outcome_json(const struct run_outcome *o) {
    char bundle[PATH_CAP], checkpoints[PATH_CAP];
    path_base(bundle, o->bundle);
    path_base(checkpoints, o->checkpoints);
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:i,s:b,s:b}", "id", o->id, "name", o->name, "status",
                     o->status, "bundle", bundle, "checkpoints", checkpoints,
                     "exit_code", o->exit_code, "resumable", o->resumable, "fails_again",
                     o->fails_again);
}

enum status slot_outcome_read(const json_t *message, const char *runs, struct run_outcome *out,
                              struct err *e) {
    *out = (struct run_outcome){
        .exit_code = (int)json_int(message, "exit_code"),
        .resumable = json_is_true(json_object_get(message, "resumable")),
        .fails_again = json_is_true(json_object_get(message, "fails_again")),
    };
    snprintf(out->id, sizeof out->id, "%s", json_text(message, "id", ""));
    snprintf(out->name, sizeof out->name, "%s", json_text(message, "name", ""));
    snprintf(out->status, sizeof out->status, "%s", json_text(message, "status", ""));
    TRY(put_path(json_text(message, "bundle", ""), runs, out->bundle, e));
    return put_path(json_text(message, "checkpoints", ""), runs, out->checkpoints, e);
}
