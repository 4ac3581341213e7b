#include "runner/repro_report.h"

#include <inttypes.h>
#include <jansson.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"

static void print_losses(const struct cli *cli, const struct repro_verdict *v) {
    const struct loss_distance *d = v->first_outside.step ? &v->first_outside : &v->worst;
    if (d->step == 0 || v->kind == REPRO_BITWISE) return;
    cli_out(cli, "  losses     %s step %" PRId64 ": %.3g nats apart, %.3g of the bundle's; allowed "
            "%.3g\n", v->first_outside.step ? "beyond the tolerance from" : "furthest apart at",
            d->step, d->nats, d->relative, d->allowed_nats);
}

static void print_band(const struct cli *cli, const struct repro_verdict *v) {
    if (!v->band || v->kind == REPRO_BITWISE) return;
    cli_out(cli, "  band       %s%s\n", PLAIN(v->band),
            v->band_counts ? "" : ": not used, since equal bits were promised and no --band names "
                                  "it");
}

static void print_speed(const struct cli *cli, const struct repro_speed *s) {
    char text[REPRO_SPEED_CAP];
    repro_speed_text(s, text);
    cli_out(cli, "  speed      %s%s%s\n", s->slower ? cli_style(cli, "red") : "", PLAIN(text),
            s->slower ? cli_style(cli, NULL) : "");
}

static void print_verdict(const struct cli *cli, const struct repro_source *source,
                          const struct run_outcome *outcome, const struct repro_verdict *v,
                          const struct repro_speed *speed) {
    const struct divergence *d = &v->first;
    size_t i;
    const json_t *reason;
    char of[64] = "";
    if (v->steps < v->of_steps)
        snprintf(of, sizeof of, "the first %" PRId64 " of ", v->steps);
    cli_out(cli, "%s%s%s  %s, %s%" PRId64 " steps\n", cli_style(cli, "bold"),
            repro_kind_name(v->kind), cli_style(cli, NULL), PLAIN(source->run->name), of,
            v->of_steps);
    cli_out(cli, "  bundle     %s\n  run        %s\n", PLAIN(source->bundle),
            outcome->bundle);
    if (d->found) {
        cli_out(cli, "  first bit  step %" PRId64 ", %s%s%s: %s in the bundle, %s here\n", d->step,
                d->stream, *d->tensor ? " of " : "", PLAIN(d->tensor), d->a_bits, d->b_bits);
    }
    print_losses(cli, v);
    print_band(cli, v);
    print_speed(cli, speed);
    json_array_foreach(v->reasons, i, reason)
        cli_out(cli, "  %s %s\n", i ? "          " : "differs   ",
                PLAIN(json_string_value(reason)));
    if (*v->note) cli_out(cli, "  note       %s\n", v->note);
    if (v->kind != REPRO_BITWISE && v->kind != REPRO_INCOMPARABLE)
        cli_out(cli, "  %s\n", json_array_size(v->reasons)
                                   ? "equal bits were not promised: some inputs differ"
                                   : "equal bits were promised: all inputs are equal");
}

/* Adds what every verdict has, and prints `object`. `run`, `speed`: new references. Takes all
 * over. */
static void print_json(const struct cli *cli, const struct repro_source *source, json_t *object,
                       json_t *run, json_t *speed, int code) {
    bool failed = false;
    json_put(object, "schema", json_string("fp8lab.repro/1"), &failed);
    json_put(object, "bundle", json_from_text(source->bundle), &failed);
    json_put(object, "parent", json_string(source->identity), &failed);
    json_put(object, "run", run, &failed);
    json_put(object, "speed", speed, &failed);
    json_put(object, "exit_code", json_integer(code), &failed);
    object = json_whole(object, failed);
    cli_out_json(cli, object);
    json_decref(object);
}

void repro_report(const struct cli *cli, const struct repro_source *source,
                  const struct run_outcome *outcome, const struct repro_verdict *verdict,
                  const struct repro_speed *speed, int code) {
    if (!cli->json) {
        print_verdict(cli, source, outcome, verdict, speed);
        return;
    }
    json_t *run = json_pack("{s:s,s:s,s:o}", "id", outcome->id, "status", outcome->status, "bundle",
                            json_from_text(outcome->bundle));
    print_json(cli, source, repro_verdict_json(verdict), run, repro_speed_json(speed), code);
}

int repro_report_refusal(const struct cli *cli, const struct repro_source *source,
                         const char *why) {
    struct repro_verdict nothing = { .kind = REPRO_INCOMPARABLE, .reasons = json_array() };
    cli_warn(cli, "%s", why);
    if (cli->json) {
        json_t *object = repro_verdict_json(&nothing);
        bool failed = false;
        json_put(object, "note", json_from_text(why), &failed);
        json_put(object, "bits_expected", json_false(), &failed);
        print_json(cli, source, json_whole(object, failed), json_null(), json_null(),
                   EXIT_HARDWARE);
    } else {
        cli_out(cli, "not comparable  %s\n", PLAIN(source->bundle));
    }
    json_decref(nothing.reasons);
    return EXIT_HARDWARE;
}
