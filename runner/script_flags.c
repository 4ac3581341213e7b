#include "runner/script_flags.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void print_errors(const struct cli *cli, const struct resolution *r) {
    for (int64_t i = 0; i < r->error_count; i++) {
        char *text = resolved_error_text(&r->errors[i]);
        if (text && *text) text[strlen(text) - 1] = '\0'; /* cli_warn ends the line */
        cli_warn(cli, "%s", text ? text : r->errors[i].text);
        free(text);
    }
}

enum status script_resolve(const struct cli *cli, struct resolution *out, struct err *e) {
    int64_t n = cli_count(cli, "set");
    const char **overrides = calloc((size_t)n + 1, sizeof *overrides);
    if (!overrides) return FAIL(e, ERR_MEMORY, "overrides");
    for (int64_t i = 0; i < n; i++) overrides[i] = cli_nth(cli, "set", i);
    struct resolve_options options = {
        .path = cli->args[0], .overrides = overrides, .override_count = n,
        .smoke = cli_has(cli, "smoke"), .lib = cli_value(cli, "lib"),
    };
    enum status st = resolve_experiment(&options, out, e);
    free(overrides);
    if (st == OK || out->error_count == 0) return st;
    print_errors(cli, out);
    return FAIL(e, st, "%" PRId64 " error%s in %s; nothing was run", out->error_count,
                out->error_count == 1 ? "" : "s", cli->args[0]);
}

void script_next(const struct cli *cli, const char *verb, bool rehearse) {
    static const char *const CARRIED[] = { "set", "lib" };
    const char **words = calloc(2 * (size_t)cli->flag_count + 6, sizeof *words);
    int64_t n = 0;
    if (!words) return;
    words[n++] = verb;
    if (rehearse || cli_has(cli, "smoke")) words[n++] = "--smoke";
    if (rehearse) words[n++] = "--anywhere";
    for (size_t f = 0; f < sizeof CARRIED / sizeof *CARRIED; f++) {
        for (int64_t i = 0; i < cli_count(cli, CARRIED[f]); i++) {
            words[n++] = f == 0 ? "--set" : "--lib";
            words[n++] = cli_nth(cli, CARRIED[f], i);
        }
    }
    if (cli->args[0][0] == '-') words[n++] = "--";
    words[n++] = cli->args[0];
    cli_next_words(cli, words);
    free(words);
}
