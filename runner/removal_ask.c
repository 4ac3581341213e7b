#include "runner/removal_ask.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/bytes_text.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"

static void print_text(const struct cli *cli, const struct removal *r) {
    const json_t *row;
    size_t i;
    char size[32];
    for (int64_t k = 0; k < r->count; k++)
        cli_out(cli, "%10s  %s  (%s)\n", bytes_text((double)r->item[k].bytes, size),
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

/* "3 items, 1.5 GiB". */
static const char *amount_text(const struct removal *r, char out[80]) {
    char size[32];
    snprintf(out, 80, "%" PRId64 " item%s, %s", r->count, r->count == 1 ? "" : "s",
             bytes_text((double)r->bytes, size));
    return out;
}

static bool is_same(const struct removal *a, const struct removal *b) {
    bool same = a->count == b->count;
    for (int64_t i = 0; same && i < a->count; i++)
        same = !strcmp(a->item[i].path, b->item[i].path);
    return same;
}

/* OK: remove. ERR_INTERRUPTED: the user said no. ERR_STATE: meanwhile the plan is another one. */
static enum status ask(const struct cli *cli, const struct removal *r, removal_plan *plan,
                       const void *context, struct err *e) {
    struct removal now = { 0 };
    char amount[80];
    if (cli_has(cli, "yes")) return OK;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return FAIL(e, ERR_ARG, "nothing was removed: there is no terminal to ask on; --yes "
                    "removes without asking, --dry-run only lists");
    fprintf(stderr, "Remove %s, for good? [y/N] ", amount_text(r, amount));
    fflush(stderr);
    if (!said_yes()) return FAIL(e, ERR_INTERRUPTED, "nothing was removed");
    enum status st = plan(context, &now, e);
    if (st == OK && !is_same(r, &now))
        st = FAIL(e, ERR_STATE, "nothing was removed: the folder changed since the question; ask "
                  "again");
    removal_free(&now);
    return st;
}

static enum status act(const struct cli *cli, const struct removal *r, removal_plan *plan,
                       const void *context, struct err *e) {
    char amount[80];
    bool dry = cli_has(cli, "dry-run");
    if (!cli->json) print_text(cli, r);
    if (r->count == 0) cli_note(cli, "there is nothing to remove");
    if (r->count && !dry) {
        TRY(ask(cli, r, plan, context, e));
        TRY(removal_do(r, e));
    }
    if (cli->json) print_json(cli, r, !dry);
    else if (r->count) cli_note(cli, "%s %s", dry ? "would remove" : "removed",
                                amount_text(r, amount));
    return OK;
}

int removal_ask(const struct cli *cli, removal_plan *plan, const void *context) {
    struct removal removal = { 0 };
    struct err e = { 0 };
    enum status st = plan(context, &removal, &e);
    if (st == OK) st = act(cli, &removal, plan, context, &e);
    removal_free(&removal);
    return st == OK ? EXIT_OK : cli_fail(cli, &e);
}
