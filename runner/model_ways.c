#include "runner/model_ways.h"

#include <jansson.h>
#include <string.h>

#include "runner/base/run_files.h"
#include "runner/certify/certify_make.h"
#include "runner/certify/certify_model.h"
#include "runner/doctor/probe.h"
#include "runner/hardware/facts.h"

/* Facts as a run has them: they name the table of its certificates. */
static enum status gather(const struct cli *cli, json_t **facts, struct err *e) {
    char problem[256] = "";
    TRY(facts_gather(facts, problem, sizeof problem, e));
    if (!*problem) TRY(probe_facts(*facts, false, problem, sizeof problem, e));
    if (*problem) cli_warn(cli, "%s", problem);
    return OK;
}

enum status model_ways_kept(const struct cli *cli, const char *backend, int64_t device,
                            char **forbidden, struct err *e) {
    struct certify_model o = { .cli = cli, .backend = backend, .runs = "runs",
                               .device = device };
    json_t *facts = NULL;
    enum status st = certify_applies(backend) ? gather(cli, &facts, e) : OK;
    o.facts = facts;
    if (st == OK) st = certify_model(&o, forbidden, e);
    json_decref(facts);
    return st;
}

enum status model_ways_certify(const struct cli *cli, struct model_request *q,
                               const struct open_model *m, char **owned, struct err *e) {
    struct ways ways = { .way = NULL };
    const json_t *then = json_object_get(m->view.run, "forbidden");
    struct certify_model o = { .cli = cli, .backend = q->backend,
                               .cache = cli_value(cli, "cache"), .runs = q->runs,
                               .device = q->device, .ways = &ways,
                               .then = m->own_recipe ? then : NULL };
    json_t *facts = NULL;
    if (m->options.recipe.f32 || !certify_applies(q->backend)) return OK;
    enum status st = ways_of_model(&m->options, &ways, e);
    if (st == OK) st = gather(cli, &facts, e);
    o.facts = facts;
    if (st == OK) st = certify_model(&o, owned, e);
    if (st == OK) q->forbidden = *owned;
    json_decref(facts);
    ways_free(&ways);
    return st;
}
