#include "runner/run/outcome.h"

#include <math.h>
#include <stdio.h>

#include "runner/base/canonical.h"
#include "runner/base/json_number.h"
#include "runner/bundle/run_view.h"

static void print_number(const struct cli *cli, const json_t *summary, const char *key,
                         const char *format) {
    const json_t *value = json_object_get(summary, key);
    if (json_is_number(value)) cli_out(cli, format, json_number_value(value));
}

void outcome_print(const struct cli *cli, const struct run_outcome *o) {
    struct run_view view;
    if (cli->json || run_view_load(o->bundle, RUN_VIEW_BRIEF, &view, NULL) != OK) return;
    cli_out(cli, "%s%s%s", cli_style(cli, o->exit_code == EXIT_OK ? "green" : "red"), o->status,
            cli_style(cli, NULL));
    print_number(cli, view.summary, "step_last", "  step %.0f");
    print_number(cli, view.summary, "loss_final", "  loss %.4f");
    print_number(cli, view.summary, "eval_loss_final", "  eval %.4f");
    print_number(cli, view.summary, "tokens_per_s_median", "  %.0f tokens/s");
    cli_out(cli, "  %s\n", o->bundle);
    run_view_free(&view);
}

void outcome_losses(const struct run_outcome *o, double *loss, double *eval_loss) {
    struct run_view view;
    *loss = *eval_loss = (double)NAN;
    if (run_view_load(o->bundle, RUN_VIEW_BRIEF, &view, NULL) != OK) return;
    *loss = json_double(json_object_get(view.summary, "loss_final"));
    *eval_loss = json_double(json_object_get(view.summary, "eval_loss_final"));
    run_view_free(&view);
}

json_t *outcome_json(const char *name, const struct run_outcome *o, bool earlier) {
    return json_pack("{s:s,s:s,s:s,s:o,s:o,s:i,s:b,s:b}", "name", name, "id", o->id, "status",
                     o->status, "bundle", json_from_text(o->bundle), "checkpoints",
                     *o->checkpoints ? json_from_text(o->checkpoints) : json_null(), "exit_code",
                     o->exit_code, "resumable", o->resumable, "earlier", earlier);
}

void outcome_print_json(const struct cli *cli, json_t *rows) {
    json_t *object = json_pack("{s:s,s:o}", "schema", "fp8lab.run_result/1", "runs", rows);
    cli_out_json(cli, object);
    json_decref(object);
}
