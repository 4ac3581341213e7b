/* fp8lab data tokenise: files of text into token shards. */
#include <inttypes.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/clock.h"
#include "runner/base/paths.h"
#include "runner/base/plain_text.h"
#include "runner/chat/chat_tokens.h"
#include "runner/cmd_data.h"
#include "runner/data_chat.h"

enum { THREADS_MAX = 1024 };

/* ---- progress ------------------------------------------------------------------------------ */

struct screen {
    const struct cli *cli;
    bool terminal, open; /* the cursor is at the end of a progress line */
    int64_t begin_ms;
};

static void close_line(struct screen *s) {
    if (s->open) fputs("\r\033[K", stderr);
    s->open = false;
}

static void show_progress(void *context, double share, int64_t tokens) {
    struct screen *s = context;
    if (!s->terminal) return;
    double seconds = (double)(clock_ms() - s->begin_ms) / 1e3;
    double left = share > 0 ? seconds * (1 - share) / share : 0;
    fprintf(stderr, "\r\033[Ktokenising: %3.0f %%, %.1f million tokens, %.0f s left", 100 * share,
            (double)tokens / 1e6, left);
    s->open = true;
}

static void show_warning(void *context, const char *text) {
    struct screen *s = context;
    close_line(s);
    cli_warn(s->cli, "%s", text);
}

/* ---- options ------------------------------------------------------------------------------- */

/* --eod: a token by its id or text, or none; else the one that the tokenizer is known to have. */
static enum status find_end(const struct cli *cli, const struct tokenizer *t, int32_t *end,
                            struct err *e) {
    struct tokenizer_facts f = tokenizer_facts(t);
    const char *word = cli_value(cli, "eod");
    char *rest;
    *end = f.end;
    if (word && !strcmp(word, "none")) *end = -1;
    if (!word || !strcmp(word, "none")) return OK;
    long id = strtol(word, &rest, 10);
    if (*rest || rest == word) id = tokenizer_id(t, word);
    bool any = f.kind == TOKENIZER_TIKTOKEN; /* the file does not list its special tokens */
    if (id < 0 || id >= (any ? 1 << 22 : f.vocab))
        return FAIL(e, ERR_ARG, "--eod %s: the tokenizer has no such token; name a token, an "
                    "id from 0 to %" PRId64 ", or none", word, f.vocab - 1);
    *end = (int32_t)id;
    return OK;
}

/* tokenizer.json in a folder may be named by the folder. */
static enum status open_tokenizer(const struct cli *cli, struct tokenizer **t,
                                  char path[PATH_CAP], struct err *e) {
    const char *name = cli_value(cli, "tokenizer");
    struct tokenizer_options o = { cli_value(cli, "pattern"), cli_has(cli, "ordinary") };
    if (!name)
        return FAIL(e, ERR_ARG, "data tokenise needs --tokenizer: a tokenizer.json, the folder "
                    "that has it, a tiktoken file, or the word bytes");
    if (path_is_directory(name)) TRY(path_join(path, name, "tokenizer.json", e));
    else snprintf(path, PATH_CAP, "%s", name);
    enum status st = tokenizer_open(t, path, &o, e);
    return st == ERR_IO || st == ERR_FORMAT ? ERR_CONFIG : st; /* the user must name another */
}

/* --chat: the template of the tokenizer, if it is in a folder with a tokenizer_config.json. */
static enum status open_chat(const struct cli *cli, struct chat_tokens *c, struct err *e) {
    static const char *const UNUSED[] = { "field", "eod", "ordinary" };
    const char *name = cli_value(cli, "tokenizer");
    char config[PATH_CAP];
    struct chat_template template = { 0 };
    enum chat_loss which;
    int64_t max = 0;
    for (size_t i = 0; i < sizeof UNUSED / sizeof *UNUSED; i++)
        if (cli_has(cli, UNUSED[i]))
            return FAIL(e, ERR_ARG, "--%s does not fit --chat: the template writes the whole text "
                        "and ends each conversation", UNUSED[i]);
    TRY(cli_int(cli, "max-tokens", 2, INT32_MAX, &max, e));
    *config = 0;
    if (path_is_directory(name)) TRY(path_join(config, name, "tokenizer_config.json", e));
    const char *found = *config && path_exists(config) ? config : NULL;
    enum status st = data_chat_template(cli, found, &template, &which, e);
    if (st == OK) st = chat_tokens_open(c, &template, which, max, e);
    chat_template_free(&template);
    return st == ERR_IO || st == ERR_FORMAT || st == ERR_UNSUPPORTED ? ERR_CONFIG : st;
}

/* What needs --chat. */
static enum status no_chat(const struct cli *cli, struct err *e) {
    static const char *const CHAT[] = { "template", "tokenizer-config", "loss", "max-tokens",
                                        "date", "variable" };
    for (size_t i = 0; i < sizeof CHAT / sizeof *CHAT; i++)
        if (cli_has(cli, CHAT[i]))
            return FAIL(e, ERR_ARG, "--%s is about conversations: add --chat", CHAT[i]);
    return OK;
}

/* The cores that this process may use. */
static int default_threads(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > THREADS_MAX ? THREADS_MAX : n;
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

static void print_result(const struct cli *cli, const struct tokenise_options *o,
                         const struct tokenise_result *r) {
    struct tokenizer_facts f = tokenizer_facts(o->tokenizer);
    int64_t vocab = f.vocab > o->end ? f.vocab : (int64_t)o->end + 1;
    double seconds = (double)r->us / 1e6, mb = (double)r->text_bytes / 1e6;
    cli_out(cli, "%s%s.bin%s, .idx, .json%s\n", cli_style(cli, "bold"), PLAIN(o->prefix),
            cli_style(cli, NULL), o->lines ? ", .loss" : "");
    cli_out(cli, "  tokens     %" PRId64 " in %" PRId64 " documents\n", r->tokens, r->documents);
    cli_out(cli, "  text       %.2f MB, %.2f bytes a token\n", mb,
            (double)r->text_bytes / (double)(r->tokens ? r->tokens : 1));
    if (o->lines) print_chat(cli, r);
    else print_ends(cli, o);
    if (r->empty) cli_out(cli, "  empty      %" PRId64 " documents left out\n", r->empty);
    if (r->skipped) cli_out(cli, "  bad lines  %" PRId64 " left out\n", r->skipped);
    if (r->replaced)
        cli_out(cli, "  no UTF-8   %" PRId64 " places, now U+FFFD\n", r->replaced);
    if (r->dropped)
        cli_out(cli, "  dropped    %" PRId64 " characters for which there is no token\n",
                r->dropped);
    cli_out(cli, "  took       %.2f s, %.1f MB/s with %d threads\n", seconds,
            mb / (seconds > 0 ? seconds : 1), o->threads);
    cli_out(cli, "  to train   data = tokens { path = \"%s\", format = \"megatron\" }, a "
                 "vocabulary of %" PRId64 "\n", PLAIN(o->prefix), vocab);
}

static enum status run(const struct cli *cli, struct tokenizer **t, struct chat_tokens *chat,
                       struct tokenise_result *r, struct err *e) {
    char path[PATH_CAP];
    struct screen screen = { cli, !cli->quiet && isatty(STDERR_FILENO), false, clock_ms() };
    int64_t threads = default_threads(), skip = 0;
    struct tokenise_options o = {
        .paths = cli->args + 1, .path_count = cli->arg_count - 1, .prefix = cli_value(cli, "to"),
        .field = cli_value(cli, "field"), .progress = show_progress, .warn = show_warning,
        .context = &screen,
    };
    TRY(cli_int(cli, "threads", 1, THREADS_MAX, &threads, e));
    TRY(cli_int(cli, "skip-bad", 0, INT64_MAX, &skip, e));
    if (o.path_count == 0) return FAIL(e, ERR_ARG, "data tokenise: no file of text is named");
    if (!o.prefix || !*o.prefix)
        return FAIL(e, ERR_ARG, "data tokenise needs --to PREFIX, of the files that it makes");
    TRY(open_tokenizer(cli, t, path, e));
    TRY(find_end(cli, *t, &o.end, e));
    TRY(cli_has(cli, "chat") ? open_chat(cli, chat, e) : no_chat(cli, e));
    if (cli_has(cli, "chat")) o.lines = &chat->lines;
    if (o.end == tokenizer_facts(*t).behind) o.end = -1; /* the post-processor sets it */
    o.tokenizer = *t;
    o.tokenizer_path = path;
    o.threads = (int)threads;
    o.skip_bad = skip;
    enum status st = tokenise(&o, r, e);
    close_line(&screen);
    if (st == OK && cli->json) cli_out_json(cli, r->description);
    else if (st == OK) print_result(cli, &o, r);
    return st;
}

int cmd_data_tokenise(const struct cli *cli) {
    struct tokenizer *t = NULL;
    struct chat_tokens chat = { 0 };
    struct tokenise_result result = { 0 };
    struct err e = { 0 };
    enum status st = run(cli, &t, &chat, &result, &e);
    int code = st == OK ? EXIT_OK : cli_fail(cli, &e);
    if (st == ERR_FORMAT || st == ERR_CONFIG) code = EXIT_USAGE; /* the user's file or words */
    json_decref(result.description);
    chat_tokens_close(&chat);
    tokenizer_close(t);
    return code;
}
