#include "runner/removal_ask.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"

/* "1.5 GiB". */
static const char *size_text(int64_t bytes, char out[32]) {
    static const char *const UNITS[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    double n = (double)bytes;
    int unit = 0;
    for (; n >= 1024 && unit < 4; unit++) n /= 1024;
    snprintf(out, 32, "%.*f %s", unit ? 1 : 0, n, UNITS[unit]);
    return out;
}

static void print_text(const struct cli *cli, const struct removal *r) {
    const json_t *row;
    size_t i;
    char size[32];
    for (int64_t k = 0; k < r->count; k++)
        cli_out(cli, "%10s  %s  (%s)\n", size_text(r->item[k].bytes, size),
                PLAIN(r->item[k].path), PLAIN(r->item[k].why));
    json_array_foreach(r->spared, i, row)
        cli_note(cli, "stays: %s: %s", json_text(row, "path", "?"), json_text(row, "why", "?"));
}

static void print_json(const struct cli *cli, const struct removal *r, bool removed) {
    json_t *items = json_array();
    bool failed = false;
    for (int64_t k = 0; k < r->count; k++)
        json_append(items, json_pack("{s:o, s:I, s:o}", "path", json_from_text(r->item[k].path),
                                     "bytes", (json_int_t)r->item[k].bytes, "what",
                                     json_from_text(r->item[k].why)), &failed);
    json_t *object = json_pack("{s:s, s:b, s:I, s:o, s:o}", "schema", "fp8lab.removal/1", "removed",
                               removed, "bytes", (json_int_t)r->bytes, "items",
                               json_whole(items, failed), "spared",
                               r->spared ? json_incref(r->spared) : json_array());
    cli_out_json(cli, object);
    json_decref(object);
}

/* Whether the user's line begins with y or Y. */
static bool said_yes(void) {
    char line[64];
    if (!fgets(line, sizeof line, stdin)) return false;
    return line[0] == 'y' || line[0] == 'Y';
}

/* OK: remove. ERR_INTERRUPTED: the user said no. */
static enum status ask(const struct cli *cli, const struct removal *r, struct err *e) {
    char size[32];
    if (cli_has(cli, "yes")) return OK;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return FAIL(e, ERR_ARG, "nothing was removed: there is no terminal to ask on; --yes "
                    "removes without asking, --dry-run only lists");
    fprintf(stderr, "Remove these %" PRId64 ", %s, for good? [y/N] ", r->count,
            size_text(r->bytes, size));
    fflush(stderr);
    return said_yes() ? OK : FAIL(e, ERR_INTERRUPTED, "nothing was removed");
}

int removal_ask(const struct cli *cli, const struct removal *r) {
    struct err e = { 0 };
    char size[32];
    bool dry = cli_has(cli, "dry-run");
    if (!cli->json) print_text(cli, r);
    if (r->count == 0) cli_note(cli, "there is nothing to remove");
    enum status st = dry || r->count == 0 ? OK : ask(cli, r, &e);
    if (st == OK && !dry) st = removal_do(r, &e);
    if (st != OK) return cli_fail(cli, &e);
    if (cli->json) print_json(cli, r, !dry);
    else if (r->count)
        cli_note(cli, "%s %" PRId64 ", %s", dry ? "would remove" : "removed", r->count,
                 size_text(r->bytes, size));
    return EXIT_OK;
}
