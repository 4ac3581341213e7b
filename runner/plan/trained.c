#include "runner/plan/trained.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runner/plan/options.h"

/* Appends the rules that freeze, or those that scale, behind `head`. */
static void add_rules(char out[TRAINED_TEXT_CAP], const struct selection *s, bool frozen,
                      const char *head) {
    static const char MORE[] = ", ...";
    size_t used = strlen(out), room = TRAINED_TEXT_CAP - sizeof MORE;
    for (int64_t i = 0; i < s->count; i++) {
        const struct selection_rule *r = &s->rule[i];
        char one[128];
        if (r->frozen != frozen) continue;
        int n = frozen ? snprintf(one, sizeof one, "%s%.80s", head, r->names)
                       : snprintf(one, sizeof one, "%s%.80s x %g", head, r->names, r->lr_scale);
        if (used + (size_t)n >= room) {
            memcpy(out + used, MORE, sizeof MORE);
            return;
        }
        memcpy(out + used, one, (size_t)n + 1);
        used += (size_t)n;
        head = ", ";
    }
}

enum status trained_text(const struct json_t *config, char out[TRAINED_TEXT_CAP], struct err *e) {
    struct run_options run;
    int64_t trained = 0;
    *out = '\0';
    TRY(options_read(config, &run, e));
    const struct selection *s = &run.train.selection;
    enum status st = s->count ? selection_trained(&run.model, s, &trained, e) : OK;
    if (st == OK && s->count) {
        snprintf(out, TRAINED_TEXT_CAP, "%" PRId64 " of %" PRId64 " parameters", trained,
                 model_parameter_count(&run.model));
        add_rules(out, s, true, "; frozen: ");
        add_rules(out, s, false, "; learning rate: ");
    }
    options_free(&run);
    return st;
}
