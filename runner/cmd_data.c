/* fp8lab data: statistics of files of text or tokens, and the losses that counting would reach. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "model/ground/input_file.h"
#include "model/ground/input_kind.h"
#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/nearest.h"
#include "runner/base/run_files.h"
#include "runner/base/plain_text.h"
#include "runner/cmd_data.h"
#include "runner/commands.h"
#include "runner/data_folder.h"
#include "runner/data_sample.h"
#include "runner/data_verify.h"
#include "runner/ingest/source_kind.h"
#include "runner/ingest/tokenizer_choice.h"
#include "runner/line_stats.h"
#include "runner/packed_text.h"
#include "runner/shard_files.h"
#include "runner/text_stats.h"
#include "runner/token_stats.h"

/* ---- text ---------------------------------------------------------------------------------- */

/* A text to describe. `packed` is zeroed for a file that is not packed. */
struct described {
    const char *path;
    const char *packed_by; /* NULL: not packed */
    struct packed_text packed;
    struct text_stats stats;
    struct line_stats lines;
};

static json_t *stats_json(const struct described *d) {
    const struct text_stats *s = &d->stats;
    const struct line_stats *l = &d->lines;
    json_t *out = json_pack("{s:o,s:s,s:I,s:I,s:f,s:f,s:s}", "path", json_from_text(d->path),
                            "format", l->kind ? "jsonl" : token_format_name(TOKENS_NONE), "bytes",
                            (json_int_t)s->bytes, "distinct_bytes", (json_int_t)s->distinct,
                            "unigram_nats", s->unigram_nats, "bigram_nats", s->bigram_nats,
                            "sha256", s->sha256);
    bool failed = !out;
    if (l->kind) {
        json_put(out, "lines", json_integer(l->lines), &failed);
        json_put(out, "keys", json_incref(l->keys), &failed);
        json_put(out, "holds", json_string(line_kind_name(l->kind)), &failed);
    }
    if (d->packed_by) {
        json_put(out, "packed_by", json_string(d->packed_by), &failed);
        json_put(out, "packed_bytes", json_integer(d->packed.packed_bytes), &failed);
        json_put(out, "files", json_integer(d->packed.files), &failed);
        json_put(out, "whole", json_boolean(d->packed.whole), &failed);
    }
    return json_whole(out, failed);
}

static void print_lines(const struct cli *cli, const struct line_stats *l) {
    cli_out(cli, "  format    JSON lines, %" PRId64 "; the first has", l->lines);
    for (size_t i = 0; i < json_array_size(l->keys) && i < 12; i++)
        cli_out(cli, "%s %s", i ? "," : "", PLAIN(json_string_value(json_array_get(l->keys, i))));
    if (l->kind == LINES_CONVERSATIONS)
        cli_out(cli, "\n  holds     conversations: data sample, data tokenise --chat\n");
    else if (l->kind == LINES_TEXT) cli_out(cli, "\n  holds     text: data tokenise\n");
    else cli_out(cli, "\n  holds     neither text nor messages: data tokenise --field NAME\n");
}

static void print_packed(const struct cli *cli, const struct described *d) {
    const struct packed_text *p = &d->packed;
    cli_out(cli, "  packed    by %s, %" PRId64 " bytes", d->packed_by, p->packed_bytes);
    if (p->files)
        cli_out(cli, ", tar: %" PRId64 " file%s", p->files, p->files == 1 ? "" : "s");
    if (p->whole) cli_out(cli, "; figures of the text in it\n");
    else cli_out(cli, "; figures of the first %d MiB in it\n", PACKED_TEXT_MAX >> 20);
}

static void print_stats(const struct cli *cli, const struct described *d) {
    const struct text_stats *s = &d->stats;
    cli_out(cli, "%s%s%s\n", cli_style(cli, "bold"), PLAIN(d->path), cli_style(cli, NULL));
    if (d->packed_by) print_packed(cli, d);
    if (d->lines.kind) print_lines(cli, &d->lines);
    cli_out(cli, "  bytes     %" PRId64 " (%" PRId64 " different values)\n", s->bytes, s->distinct);
    cli_out(cli, "  sha256    %s%s\n", s->sha256, d->packed_by ? " (packed)" : "");
    cli_out(cli, "  unigram   %.4f nats per byte\n", s->unigram_nats);
    cli_out(cli, "  bigram    %.4f nats per byte\n", s->bigram_nats);
}

/* Tables, archives and arrays, which would only be "not text". */
static enum status check_kind(const char *path, struct err *e) {
    struct input_file f;
    struct err ignored;
    char head[INPUT_KIND_HEAD];
    if (input_open(&f, path, &ignored) != OK) return OK;
    int64_t n = f.bytes < INPUT_KIND_HEAD ? f.bytes : INPUT_KIND_HEAD;
    bool read = input_read(&f, 0, n, head, &ignored) == OK;
    input_close(&f);
    if (!read) return OK;
    const struct source_kind kind = source_kind(head, (size_t)n);
    if (!kind.name || kind.opened) return OK;
    return FAIL(e, ERR_FORMAT, "%s is %s, which is not read as text; %s", path, kind.name,
                kind.instead ? kind.instead : "unpack it");
}

/* The judgement of a run's text, for a tokenizer. */
static enum status judge(const struct cli *cli, const struct described *d, struct err *e) {
    const struct text_stats *s = &d->stats;
    struct text_head head = s->head;
    struct text_doubts doubts = { 0 };
    char words[TEXT_HEAD_CAP];
    size_t n = strlen(d->path);
    bool bin = n > 4 && !strcmp(d->path + n - 4, ".bin"); /* without an index, or it is tokens */
    head.unpacked = d->packed_by != NULL;
    if (text_head_is_other(&head)) {
        text_head_words(words, &head, d->path);
        return FAIL(e, ERR_FORMAT, "%s. %s--bytes describes the bytes of any file. A tokenizer "
                    "needs text in UTF-8; only \"bytes\" takes any bytes", words,
                    bin ? "Megatron's tokens need the .idx beside the .bin; " : "");
    }
    text_doubts_add(&doubts, &head, d->path);
    text_doubts_warning(words, &doubts);
    if (*words) cli_warn(cli, "%s", PLAIN(words));
    const struct text_head all = { .bytes = s->bytes, .controls = s->controls };
    if (text_head_is_other(&all))
        cli_warn(cli, "%s: %.1f %% of its bytes are control characters, mostly behind the first "
                 "64 KiB, so part of it may be no text", PLAIN(d->path),
                 100 * (double)s->controls / (double)s->bytes);
    return OK;
}

static enum status describe_stats(const struct cli *cli, const struct described *d, json_t *files,
                                  struct err *e) {
    bool failed = false;
    if (!cli_has(cli, "bytes")) TRY(judge(cli, d, e));
    if (!cli->json) print_stats(cli, d);
    else json_append(files, stats_json(d), &failed);
    return failed ? FAIL(e, ERR_MEMORY, "statistics of %s as JSON", d->path) : OK;
}

static enum status measure_packed(struct described *d, struct err *e) {
    struct packed_text *p = &d->packed;
    TRY(packed_text_read(p, d->path, e));
    TRY(line_stats_memory(p->text, p->bytes, !p->whole, &d->lines, e));
    TRY(text_stats_memory(p->text, p->bytes, d->path, &d->stats, e));
    memcpy(d->stats.sha256, p->sha256, sizeof p->sha256);
    return OK;
}

/* A tokenizer drops it. As bytes a file is what it is. */
static void warn_of_mark(const struct cli *cli, const char *path) {
    struct input_file f;
    struct err ignored; /* the file was read */
    char head[3];
    if (input_open(&f, path, &ignored) != OK) return;
    bool mark = f.bytes >= 3 && input_read(&f, 0, 3, head, &ignored) == OK &&
                !memcmp(head, "\xef\xbb\xbf", 3);
    input_close(&f);
    if (mark)
        cli_warn(cli, "%s begins with a byte-order mark. A tokenizer drops it; without one, its "
                 "3 bytes are trained on. `sed -i '1s/^\\xef\\xbb\\xbf//' FILE` removes it",
                 PLAIN(path));
}

static enum status describe_text(const struct cli *cli, const char *path, json_t *files,
                                 struct err *e) {
    struct described d = { .path = path };
    bool bytes = cli_has(cli, "bytes");
    enum status st = OK;
    if (!bytes) TRY(check_kind(path, e));
    if (!bytes) d.packed_by = packed_text_kind(path);
    if (d.packed_by) {
        st = measure_packed(&d, e);
    } else {
        if (!bytes) st = line_stats_file(path, &d.lines, e);
        if (st == OK) st = text_stats_file(path, &d.stats, e);
    }
    if (st == OK && !d.stats.bytes) st = FAIL(e, ERR_CONFIG, "%s is empty", path);
    if (st == OK && !bytes && !d.packed_by) warn_of_mark(cli, path);
    if (st == OK) st = describe_stats(cli, &d, files, e);
    json_decref(d.lines.keys);
    packed_text_free(&d.packed);
    return st;
}

/* ---- tokens -------------------------------------------------------------------------------- */

/* A number of the description beside shards; 0 without one. */
static int64_t made(const struct shard_files *f, const char *group, const char *key) {
    const json_t *d = f->description;
    return json_int(group ? json_object_get(d, group) : d, key);
}

static json_t *known(int64_t number) { return number ? json_integer(number) : json_null(); }

static json_t *tokens_json(const char *path, enum token_format format,
                           const struct token_stats *s, const struct shard_files *f) {
    bool index = format == TOKENS_MEGATRON;
    return json_pack("{s:o,s:s,s:I,s:s,s:I,s:i,s:I,s:I,s:f,s:o,s:o,s:o,s:o,s:o}", "path",
                     json_from_text(path), "format", token_format_name(format), "bytes",
                     (json_int_t)s->bytes, "sha256", s->sha256, "tokens", (json_int_t)s->tokens,
                     "token_bytes", s->token_bytes,
                     "distinct_tokens", (json_int_t)s->distinct, "id_max", (json_int_t)s->id_max,
                     "unigram_nats", s->unigram_nats, "sequences",
                     index ? json_integer(s->sequences) : json_null(), "documents",
                     index ? json_integer(s->documents) : json_null(), "text_bytes",
                     known(made(f, NULL, "text_bytes")), "vocab",
                     known(made(f, "tokenizer", "vocab")), "loss_tokens",
                     known(made(f, "shards", "loss_tokens")));
}

/* What PREFIX.json adds. */
static void print_made(const struct cli *cli, const struct token_stats *s,
                       const struct shard_files *f) {
    const json_t *tokenizer = json_object_get(f->description, "tokenizer");
    double text = (double)made(f, NULL, "text_bytes"), tokens = (double)(s->tokens ? s->tokens : 1);
    int64_t vocab = json_int(tokenizer, "vocab"), loss = made(f, "shards", "loss_tokens");
    if (!f->description) return;
    size_t sources = json_array_size(json_object_get(f->description, "sources"));
    cli_out(cli, "  text      %.2f MB of %zu file%s, %.2f bytes per token, %.4f nats per byte\n",
            text / 1e6, sources, sources == 1 ? "" : "s", text / tokens,
            text > 0 ? s->unigram_nats * tokens / text : 0);
    cli_out(cli, "  tokenizer %s, %" PRId64 " tokens, of which %.1f %% occur\n",
            PLAIN(json_text(tokenizer, "path", "unknown")), vocab,
            vocab ? 100 * (double)s->distinct / (double)vocab : 0);
    if (f->loss.path)
        cli_out(cli, "  loss      %" PRId64 " tokens, %.1f %%\n", loss,
                100 * (double)loss / tokens);
}

static void print_tokens(const struct cli *cli, const char *path, enum token_format format,
                         const struct token_stats *s, const struct shard_files *f) {
    cli_out(cli, "%s%s%s\n", cli_style(cli, "bold"), PLAIN(path), cli_style(cli, NULL));
    cli_out(cli, "  format    token ids, data = tokens { format = \"%s\" }\n",
            token_format_name(format));
    cli_out(cli, "  tokens    %" PRId64 " of %d bytes", s->tokens, s->token_bytes);
    if (format == TOKENS_MEGATRON)
        cli_out(cli, ", %" PRId64 " sequence%s, %" PRId64 " document%s", s->sequences,
                s->sequences == 1 ? "" : "s", s->documents, s->documents == 1 ? "" : "s");
    cli_out(cli, "\n  sha256    %s\n", s->sha256);
    cli_out(cli, "  ids       %" PRId64 " different, the largest %" PRId64
                 ": a vocabulary of at least %" PRId64 "\n", s->distinct, s->id_max, s->id_max + 1);
    cli_out(cli, "  unigram   %.4f nats per token\n", s->unigram_nats);
    print_made(cli, s, f);
}

static enum status describe_tokens(const struct cli *cli, const char *path,
                                   enum token_format format, json_t *files, struct err *e) {
    struct token_stats stats;
    struct shard_files f = { 0 };
    bool failed = false;
    TRY(token_stats_file(path, format, &stats, e));
    enum status st = format == TOKENS_MEGATRON ? shard_files_open(&f, path, e) : OK;
    if (st == OK && !cli->json) print_tokens(cli, path, format, &stats, &f);
    else if (st == OK) json_append(files, tokens_json(path, format, &stats, &f), &failed);
    shard_files_close(&f);
    if (st != OK) return st;
    return failed ? FAIL(e, ERR_MEMORY, "statistics of %s as JSON", path) : OK;
}

/* ---- tokenizers ---------------------------------------------------------------------------- */

static json_t *tokenizer_json(const char *path, const struct tokenizer_facts *f) {
    return json_pack("{s:o,s:s,s:I,s:s,s:I,s:I,s:I,s:I,s:I,s:s,s:o}", "path", json_from_text(path),
                     "format", f->kind == TOKENIZER_JSON ? "tokenizer.json" : "tiktoken", "bytes",
                     (json_int_t)f->bytes, "sha256", f->sha256, "vocab", (json_int_t)f->vocab,
                     "tokens", (json_int_t)f->tokens, "merges", (json_int_t)f->merges,
                     "added_tokens", (json_int_t)f->added, "special_tokens",
                     (json_int_t)f->specials, "split", f->split, "end_of_document",
                     f->end < 0 ? json_null() : json_integer(f->end));
}

static void print_tokenizer(const struct cli *cli, const char *path,
                            const struct tokenizer_facts *f) {
    cli_out(cli, "%s%s%s\n", cli_style(cli, "bold"), PLAIN(path), cli_style(cli, NULL));
    cli_out(cli, "  format    %s\n", f->kind == TOKENIZER_JSON
                                          ? "BPE tokenizer, tokenizer.json of Hugging Face"
                                          : "BPE tokenizer, tiktoken");
    cli_out(cli, "  vocab     %" PRId64 ": %" PRId64 " tokens, %" PRId64 " added, %" PRId64
                 " of them special\n", f->vocab, f->tokens, f->added, f->specials);
    cli_out(cli, "  merges    %" PRId64 "\n  splits    %s\n", f->merges, f->split);
    if (f->end >= 0) cli_out(cli, "  ends      documents with %s, %d\n", f->end_text, f->end);
    cli_out(cli, "  sha256    %s\n", f->sha256);
}

static enum status describe_tokenizer(const struct cli *cli, const char *path, json_t *files,
                                      struct err *e) {
    const struct tokenizer_options o = { .pattern = cli_value(cli, "pattern") };
    struct tokenizer *t = NULL;
    bool failed = false;
    TRY(tokenizer_open(&t, path, &o, e));
    struct tokenizer_facts f = tokenizer_facts(t);
    char eos[TOKENIZER_EOS_CAP];
    int32_t end = tokenizer_eos(t, path, eos);
    if (end >= 0) f.end = end, f.end_text = eos;
    if (!cli->json) print_tokenizer(cli, path, &f);
    else json_append(files, tokenizer_json(path, &f), &failed);
    tokenizer_close(t);
    return failed ? FAIL(e, ERR_MEMORY, "description of %s as JSON", path) : OK;
}

/* ---- the verb ------------------------------------------------------------------------------ */

static enum status describe(const struct cli *cli, const char *path, json_t *files,
                            struct err *e) {
    enum token_format format = TOKENS_NONE;
    enum tokenizer_kind tokenizer = TOKENIZER_BYTES;
    struct err ignored; /* a pipe is text; a missing file is said below */
    if (!cli_has(cli, "bytes") && path_is_directory(path))
        return data_folder(cli, path, files, e);
    if (!cli_has(cli, "bytes") && tokenizer_find(path, &tokenizer, &ignored) == OK &&
        tokenizer != TOKENIZER_BYTES)
        return describe_tokenizer(cli, path, files, e);
    if (!cli_has(cli, "bytes")) TRY(token_format_find(path, &format, e));
    if (format != TOKENS_NONE) return describe_tokens(cli, path, format, files, e);
    return describe_text(cli, path, files, e);
}

/* Describes them all: this command is how to find bad ones among many files. A bad one is said at
 * its place, and exits with 2: the user must name another file or fix it. */
static int describe_all(const struct cli *cli) {
    json_t *files = json_array();
    int64_t bad = 0;
    struct err e = { 0 };
    enum status st = files ? OK : FAIL(&e, ERR_MEMORY, "the list of files");
    for (int64_t i = 0; i < cli->arg_count && st == OK; i++) {
        const char *path = cli->args[i];
        bool failed = false;
        st = describe(cli, path, files, &e);
        if (st == OK || st == ERR_MEMORY || cli->arg_count == 1) continue;
        cli_warn(cli, "%s", e.text);
        json_append(files, json_pack("{s:o,s:{s:s,s:o}}", "path", json_from_text(path), "error",
                                     "code", status_name(st), "text", json_from_text(e.text)),
                    &failed);
        st = failed ? FAIL(&e, ERR_MEMORY, "the error of %s as JSON", path) : OK;
        bad++;
    }
    json_t *object = NULL;
    if (st == OK && cli->json)
        object = json_pack("{s:s,s:O}", "schema", "fp8lab.data/1", "files", files);
    if (object) cli_out_json(cli, object);
    if (bad && st == OK)
        cli_warn(cli, "%" PRId64 " of %" PRId64 " files cannot be described", bad, cli->arg_count);
    json_decref(object);
    json_decref(files);
    if (st == OK) return bad ? EXIT_USAGE : EXIT_OK;
    int code = cli_fail(cli, &e);
    return st == ERR_MEMORY ? code : EXIT_USAGE;
}

/* ---- subcommands ----------------------------------------------------------------------------- */
enum subcommand { DESCRIBE, TOKENISE, SAMPLE, VERIFY, SUBCOMMANDS };
static const char *const NAMES[SUBCOMMANDS] = { "data", "data tokenise", "data sample",
                                                "data verify" };

/* The flags that not every subcommand knows, and those that know each. */
enum { D = 1 << DESCRIBE, T = 1 << TOKENISE, S = 1 << SAMPLE };
static const struct { const char *flag; int known; } OWNERS[] = {
    { "bytes", D }, { "tokenizer", T | S }, { "to", T }, { "field", T }, { "eod", T },
    { "pattern", D | T | S }, { "ordinary", T }, { "threads", T }, { "skip-bad", T | S },
    { "chat", T }, { "max-tokens", T }, { "unique", T },
    { "template", T | S }, { "render", T | S }, { "tokenizer-config", T | S },
    { "show", S }, { "loss", T | S }, { "generation-prompt", S }, { "date", T | S },
    { "variable", T | S },
};

static enum status check_flags(const struct cli *cli, enum subcommand which, struct err *e) {
    for (size_t i = 0; i < sizeof OWNERS / sizeof *OWNERS; i++) {
        char owners[128] = "";
        if (!cli_has(cli, OWNERS[i].flag) || OWNERS[i].known & 1 << which) continue;
        for (int k = 0, n = 0; k < SUBCOMMANDS; k++)
            if (OWNERS[i].known & 1 << k)
                n += snprintf(owners + n, sizeof owners - (size_t)n, "%s`fp8lab %s`",
                              n ? " and " : "", NAMES[k]);
        return FAIL(e, ERR_ARG, "--%s is a flag of %s", OWNERS[i].flag, owners);
    }
    return OK;
}

static enum subcommand subcommand_of(const struct cli *cli) {
    if (!strcmp(cli->args[0], "tokenise")) return TOKENISE;
    if (!strcmp(cli->args[0], "verify")) return VERIFY;
    return !strcmp(cli->args[0], "sample") ? SAMPLE : DESCRIBE;
}

/* A mistyped subcommand is taken for a file, which is not there. */
static enum status check_word(const struct cli *cli, struct err *e) {
    static const char *const WORDS[] = { "tokenise", "sample", "verify" };
    const char *word = cli->args[0];
    if (path_exists(word)) return OK;
    const char *near = nearest_name(word, WORDS, sizeof WORDS / sizeof *WORDS);
    if (!near || !strcmp(near, word)) return OK;
    return FAIL(e, ERR_ARG, "there is no file '%s'; did you mean 'fp8lab data %s'?", word, near);
}

static int cmd_data(const struct cli *cli) {
    enum subcommand which = subcommand_of(cli);
    struct err e = { 0 };
    if (check_word(cli, &e) != OK) return cli_fail(cli, &e);
    if (check_flags(cli, which, &e) != OK) return cli_fail(cli, &e);
    if (which == TOKENISE) return cmd_data_tokenise(cli);
    if (which == SAMPLE) return data_sample(cli);
    return which == VERIFY ? data_verify(cli) : describe_all(cli);
}

static const struct flag FLAGS[] = {
    { .name = "bytes", .help = "treat every file as bytes" },
    { .name = "tokenizer", .value = "FILE",
      .help = "tokenizer.json, its folder, tiktoken file, or bytes" },
    { .name = "to", .value = "PREFIX", .help = "tokenise: makes PREFIX.bin, .idx and .json" },
    { .name = "field", .value = "NAME", .help = "tokenise: all are JSON lines; their text" },
    { .name = "eod", .value = "TOKEN", .help = "tokenise: ends each document; none for none" },
    { .name = "pattern", .value = "NAME", .help = "of a tiktoken file: gpt2, llama3, o200k..." },
    { .name = "ordinary", .help = "tokenise: special tokens in the text are text" },
    { .name = "chat", .help = "tokenise: conversations by a chat template; adds PREFIX.loss" },
    { .name = "max-tokens", .value = "N", .help = "tokenise --chat: cuts conversations" },
    { .name = "unique", .help = "tokenise: leave out documents that came before" },
    { .name = "threads", .value = "N", .help = "tokenise: default all cores" },
    { .name = "skip-bad", .value = "N", .help = "tokenise, sample: leave out up to N bad lines" },
    DATA_SAMPLE_FLAGS,
};

const struct verb VERB_DATA = {
    .name = "data",
    .arguments = "[tokenise|sample|verify] FILE...",
    .about = "describe files of text, tokens or tokenizers; tokenise text; show chats",
    .more = "A byte-level model with a loss above the unigram entropy has learned nothing. Below\n"
            "the bigram entropy it has learned more than pairs of letters.\n"
            "Files of token ids are read as tokens: Megatron's .bin with its .idx beside it, and\n"
            "llm.c's shards. Their entropy is per token. A file with more than 1 % control\n"
            "characters is not text: data and every tokenizer but \"bytes\" reject it, exit 2.\n"
            "If one of several files is bad, the others are still described.\n"
            "`data tokenise` makes token shards of text, for data = tokens {...}: plain text is\n"
            "one document per file; of JSON lines (.jsonl) each line's \"text\" is one. Files may\n"
            "be packed (.gz, .zst, tar). The shards do not depend on the number of threads.\n"
            "With --chat each line is a conversation, rendered by the tokenizer's chat template;\n"
            "PREFIX.loss has a byte for each token, 1 if the token carries loss. With --render\n"
            "the function that FILE.lua returns renders: runner/script/KEYS.md.\n"
            "`data sample` renders the conversations of JSON lines with a chat template, and\n"
            "shows which of their text carries loss. They are messages, ShareGPT's conversations,\n"
            "prompt and completion, or Alpaca's instruction and output. Of shards it decodes\n"
            "documents.\n"
            "`data verify PREFIX` compares shards with the hashes and counts of PREFIX.json, and\n"
            "checks the index, the ids and the bytes of loss. Exit 4 if they differ.\n",
    VERB_FLAGS(FLAGS),
    .args_min = 1,
    .args_max = -1,
    .run = cmd_data,
};
