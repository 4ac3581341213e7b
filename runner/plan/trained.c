#include "runner/plan/trained.h"

#include <inttypes.h>
#include <stdio.h>

#include "runner/plan/options.h"

/* Appends the rules that freeze, or those that scale, behind `head`. */
static void add_rules(struct text *out, const struct selection *s, bool frozen,
                      const char *head) {
    for (int64_t i = 0; i < s->count; i++) {
        const struct selection_rule *r = &s->rule[i];
        char factor[40] = "";
        if (r->frozen != frozen) continue;
        if (!frozen) snprintf(factor, sizeof factor, " x %g", r->lr_scale);
        text_puts(out, head);
        text_puts(out, r->names);
        text_puts(out, factor);
        head = ", ";
    }
}

enum status trained_text(const struct json_t *config, struct text *out, struct err *e) {
    struct run_options run;
    char counts[96];
    int64_t trained = 0;
    *out = (struct text){ 0 };
    TRY(options_read(config, &run, e));
    const struct selection *s = &run.train.selection;
    enum status st = s->count ? selection_trained(&run.model, s, &trained, e) : OK;
    if (st == OK && s->count) {
        snprintf(counts, sizeof counts, "%" PRId64 " of %" PRId64 " parameters", trained,
                 model_parameter_count(&run.model));
        text_puts(out, counts);
        add_rules(out, s, true, "; frozen: ");
        add_rules(out, s, false, "; learning rate: ");
    }
    options_free(&run);
    if (st == OK && out->failed) st = FAIL(e, ERR_MEMORY, "what is trained");
    if (st == OK) return OK;
    text_free(out);
    return st;
}
