#include "runner/run/run_status.h"

#include <string.h>

#include "runner/base/run_files.h"

enum status run_may_go_on(const json_t *run, struct err *e) {
    const char *status = json_text(run, "status", ""), *id = json_text(run, "id", "this run");
    if (!strcmp(status, "done"))
        return FAIL(e, ERR_ARG, "%s is done: there is nothing to resume; for more steps: run "
                    "--extend RUN --set train.steps=N", id);
    if (!strcmp(status, "time_limit"))
        return FAIL(e, ERR_ARG, "%s has used up train.time_limit, which counts all attempts: "
                    "there is nothing to resume; to train longer: run --extend RUN --set "
                    "train.time_limit=T", id);
    return OK;
}

bool run_is_beginning(const json_t *run) {
    const json_t *attempts = json_object_get(run, "attempts");
    size_t n = json_array_size(attempts);
    return n && !strcmp(json_text(json_array_get(attempts, n - 1), "reason", ""), REASON_AS_ASKED);
}

enum status run_may_resume(const json_t *run, struct err *e) {
    if (run_is_beginning(run))
        return FAIL(e, ERR_ARG, "%s repeated as many steps as repro --steps asked for: there is "
                    "nothing to resume; fp8lab repro without --steps repeats all",
                    json_text(run, "id", "this run"));
    return run_may_go_on(run, e);
}

bool failure_repeats(const char *code) {
    return !strcmp(code, status_name(ERR_NUMERIC)) || !strcmp(code, status_name(ERR_VERIFY));
}

bool run_fails_again(const json_t *run) {
    return !strcmp(json_text(run, "status", ""), "failed") &&
           failure_repeats(json_text(json_object_get(run, "error"), "code", ""));
}
