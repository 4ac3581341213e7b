/* fp8lab data: what text files hold, and the losses that counting alone would reach on them. */
#include <inttypes.h>
#include <jansson.h>

#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/commands.h"
#include "runner/text_stats.h"

static json_t *stats_json(const char *path, const struct text_stats *s) {
    return json_pack("{s:o,s:I,s:I,s:f,s:f,s:s}", "path", json_from_text(path),
                     "bytes", (json_int_t)s->bytes,
                     "distinct_bytes", (json_int_t)s->distinct, "unigram_nats", s->unigram_nats,
                     "bigram_nats", s->bigram_nats, "sha256", s->sha256);
}

static void print_stats(const struct cli *cli, const char *path, const struct text_stats *s) {
    cli_out(cli, "%s%s%s\n", cli_style(cli, "bold"), PLAIN(path), cli_style(cli, NULL));
    cli_out(cli, "  bytes     %" PRId64 " (%" PRId64 " different values)\n", s->bytes, s->distinct);
    cli_out(cli, "  sha256    %s\n", s->sha256);
    cli_out(cli, "  unigram   %.4f nats per byte\n", s->unigram_nats);
    cli_out(cli, "  bigram    %.4f nats per byte\n", s->bigram_nats);
}

static int cmd_data(const struct cli *cli) {
    int code = EXIT_OK;
    struct err e = { 0 };
    json_t *files = json_array();
    for (int64_t i = 0; i < cli->arg_count && code == EXIT_OK; i++) {
        struct text_stats stats;
        if (text_stats_file(cli->args[i], &stats, &e) != OK) {
            (void)cli_fail(cli, &e); /* a file that is missing is the user's to mend */
            code = EXIT_USAGE;
        } else if (!cli->json) {
            print_stats(cli, cli->args[i], &stats);
        } else if (json_array_append_new(files, stats_json(cli->args[i], &stats)) != 0) {
            (void)FAIL(&e, ERR_MEMORY, "statistics of %s as JSON", cli->args[i]);
            code = cli_fail(cli, &e);
        }
    }
    json_t *object = NULL;
    if (cli->json && code == EXIT_OK)
        object = json_pack("{s:s,s:O}", "schema", "fp8lab.data/1", "files", files);
    if (object) cli_out_json(cli, object);
    json_decref(object);
    json_decref(files);
    return code;
}

const struct verb VERB_DATA = {
    .name = "data",
    .arguments = "FILE...",
    .about = "describe text files: bytes, hash, and entropies to read a loss against",
    .more = "A byte-level model has learned nothing before its loss is under the unigram entropy,\n"
            "and more than pairs of letters once it is under the bigram entropy.\n",
    .args_min = 1,
    .args_max = -1,
    .run = cmd_data,
};
