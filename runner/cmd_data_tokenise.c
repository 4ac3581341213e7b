/* fp8lab data tokenise: files of text into token shards. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/paths.h"
#include "runner/base/plain_text.h"
#include "runner/chat/chat_tokens.h"
#include "runner/cmd_data.h"
#include "runner/data_chat.h"
#include "runner/ingest/tokenise_screen.h"
#include "runner/ingest/tokenizer_choice.h"

/* ---- options ------------------------------------------------------------------------------- */

/* --chat --render. */
static enum status open_render(const struct cli *cli, struct chat_tokens *c, int threads,
                               int64_t max, struct err *e) {
    struct chat_renderer renderer;
    TRY(data_chat_render(cli, threads, &renderer, e));
    chat_tokens_open_with(c, &renderer, max);
    return OK;
}

/* --chat. */
static enum status open_chat(const struct cli *cli, struct chat_tokens *c, int threads,
                             struct err *e) {
    static const char *const UNUSED[] = { "field", "eod", "ordinary" };
    struct chat_template template = { 0 };
    enum chat_loss which;
    int64_t max = 0;
    for (size_t i = 0; i < sizeof UNUSED / sizeof *UNUSED; i++)
        if (cli_has(cli, UNUSED[i]))
            return FAIL(e, ERR_ARG, "--%s does not fit --chat: the template writes the whole text "
                        "and ends each conversation", UNUSED[i]);
    TRY(cli_int(cli, "max-tokens", 2, INT32_MAX, &max, e));
    if (cli_has(cli, "render")) return open_render(cli, c, threads, max, e);
    enum status st = data_chat_template(cli, &template, &which, e);
    if (st == OK) st = chat_tokens_open(c, &template, which, max, e);
    chat_template_free(&template);
    return st == ERR_IO || st == ERR_FORMAT || st == ERR_UNSUPPORTED ? ERR_CONFIG : st;
}

/* What needs --chat. */
static enum status no_chat(const struct cli *cli, struct err *e) {
    static const char *const CHAT[] = { "template", "tokenizer-config", "loss", "max-tokens",
                                        "date", "variable", "render" };
    for (size_t i = 0; i < sizeof CHAT / sizeof *CHAT; i++)
        if (cli_has(cli, CHAT[i]))
            return FAIL(e, ERR_ARG, "--%s is about conversations: add --chat", CHAT[i]);
    return OK;
}

/* Names all that is missing at once, and the whole command. */
static enum status check_given(const struct cli *cli, struct err *e) {
    const struct { bool given; const char *what; } PARTS[] = {
        { cli->arg_count > 1, "a file of text" },
        { cli_has(cli, "to"), "--to PREFIX, of the files that it makes" },
        { cli_has(cli, "tokenizer"), "--tokenizer: a tokenizer.json, the folder that has it, a "
                                     "tiktoken file, or the word bytes" },
    };
    char missing[300] = "";
    for (size_t i = 0, n = 0; i < sizeof PARTS / sizeof *PARTS; i++)
        if (!PARTS[i].given)
            n += (size_t)snprintf(missing + n, sizeof missing - n, "%s %s", n ? ";" : "",
                                  PARTS[i].what);
    if (!*missing) return OK;
    return FAIL(e, ERR_ARG, "data tokenise needs%s. The command is fp8lab data tokenise FILE... "
                "--to PREFIX --tokenizer FILE", missing);
}

/* ---- the result ---------------------------------------------------------------------------- */

static void print_chat(const struct cli *cli, const struct tokenise_result *r) {
    cli_out(cli, "  loss       %" PRId64 " tokens, %.1f %%\n", r->loss_tokens,
            100 * (double)r->loss_tokens / (double)(r->tokens ? r->tokens : 1));
    if (r->cut)
        cli_out(cli, "  cut        %" PRId64 " conversations, to --max-tokens\n", r->cut);
    if (r->lossless)
        cli_out(cli, "  no loss    %" PRId64 " conversations left out: no token of theirs would "
                "carry loss\n", r->lossless);
}

static void print_ends(const struct cli *cli, const struct tokenise_options *o) {
    struct tokenizer_facts f = tokenizer_facts(o->tokenizer);
    if (o->end >= 0) cli_out(cli, "  ends       each document with token %d\n", o->end);
    else if (f.behind >= 0)
        cli_out(cli, "  ends       each document with token %d, by the tokenizer\n", f.behind);
    else cli_out(cli, "  ends       no token ends a document; --eod names one\n");
}

static void print_result(const struct cli *cli, const struct tokenise_options *o, int64_t vocab,
                         const struct tokenise_result *r) {
    double seconds = (double)r->us / 1e6, mb = (double)r->text_bytes / 1e6;
    double now = mb - (double)r->text_before / 1e6;
    cli_out(cli, "%s%s.bin%s, .idx, .json%s\n", cli_style(cli, "bold"), PLAIN(o->prefix),
            cli_style(cli, NULL), o->lines ? ", .loss" : "");
    cli_out(cli, "  tokens     %" PRId64 " in %" PRId64 " document%s\n", r->tokens, r->documents,
            r->documents == 1 ? "" : "s");
    cli_out(cli, "  text       %.2f MB, %.2f bytes per token\n", mb,
            (double)r->text_bytes / (double)(r->tokens ? r->tokens : 1));
    if (o->lines) print_chat(cli, r);
    else print_ends(cli, o);
    if (r->empty) cli_out(cli, "  empty      %" PRId64 " document%s left out\n", r->empty,
                          r->empty == 1 ? "" : "s");
    if (o->unique)
        cli_out(cli, "  duplicates %" PRId64 " document%s left out\n", r->duplicates,
                r->duplicates == 1 ? "" : "s");
    if (r->skipped) cli_out(cli, "  bad lines  %" PRId64 " left out\n", r->skipped);
    if (r->replaced)
        cli_out(cli, "  no UTF-8   %" PRId64 " places, now U+FFFD\n", r->replaced);
    if (r->dropped)
        cli_out(cli, "  dropped    %" PRId64 " characters for which there is no token\n",
                r->dropped);
    cli_out(cli, "  took       %.2f s, %.1f MB/s with %d threads\n", seconds,
            now / (seconds > 0 ? seconds : 1), o->threads);
    cli_out(cli, "  to train   data = tokens { path = \"%s\", %s }, a vocabulary of %" PRId64 "\n",
            PLAIN(o->prefix), o->lines ? "loss = true, layout = \"packed\", mask = \"document\""
            : "format = \"megatron\"", vocab);
}

static enum status run(const struct cli *cli, struct tokenizer_choice *t, struct chat_tokens *chat,
                       struct tokenise_result *r, struct err *e) {
    struct tokenise_screen screen = tokenise_screen(cli);
    struct tokenizer_options how = { .pattern = cli_value(cli, "pattern"),
                                     .ordinary = cli_has(cli, "ordinary") };
    const char *name = cli_value(cli, "tokenizer");
    int64_t threads = tokenise_threads(), skip = 0;
    struct tokenise_options o = {
        .paths = cli->args + 1, .path_count = cli->arg_count - 1, .prefix = cli_value(cli, "to"),
        .field = cli_value(cli, "field"), .progress = tokenise_screen_progress,
        .warn = tokenise_screen_warn, .context = &screen,
    };
    TRY(cli_int(cli, "threads", 1, TOKENISE_THREADS_MAX, &threads, e));
    TRY(cli_int(cli, "skip-bad", 0, INT64_MAX, &skip, e));
    TRY(check_given(cli, e));
    /* A renderer first: its children then do not copy the tokenizer's memory. */
    if (cli_has(cli, "chat")) TRY(open_chat(cli, chat, (int)threads, e));
    TRY(tokenizer_choose(t, name, &how, cli_value(cli, "eod"), "--eod", e));
    if (!cli_has(cli, "chat")) TRY(no_chat(cli, e));
    if (cli_has(cli, "chat")) o.lines = &chat->lines;
    o.tokenizer = t->tokenizer;
    o.tokenizer_path = t->path;
    o.end = t->end;
    o.threads = (int)threads;
    o.skip_bad = skip;
    o.unique = cli_has(cli, "unique");
    o.keep_bad = true; /* --skip-bad may follow */
    enum status st = tokenise(&o, r, e);
    tokenise_screen_close(&screen);
    if (st == OK && cli->json) cli_out_json(cli, r->description);
    else if (st == OK) print_result(cli, &o, t->vocab, r);
    return st;
}

int cmd_data_tokenise(const struct cli *cli) {
    struct tokenizer_choice t = { 0 };
    struct chat_tokens chat = { 0 };
    struct tokenise_result result = { 0 };
    struct err e = { 0 };
    enum status st = run(cli, &t, &chat, &result, &e);
    int code = st == OK ? EXIT_OK : cli_fail(cli, &e);
    if (st == ERR_FORMAT || st == ERR_CONFIG) code = EXIT_USAGE; /* the user's file or words */
    json_decref(result.description);
    chat_tokens_close(&chat);
    tokenizer_choice_free(&t);
    return code;
}
