#include "runner/data_folder.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/ground/json_safe.h"
#include "runner/base/bytes_text.h"
#include "runner/base/canonical.h"
#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"

struct folder {
    const char *path;
    json_t *config;              /* config.json; owned; NULL: there is none */
    json_t *tokenizer_config;    /* owned; NULL: there is none */
    int64_t weights, bytes;      /* *.safetensors */
    bool tokenizer, jinja, model_file; /* tokenizer.json, chat_template.jinja, tokenizer.model */
};

static bool has(const struct folder *f, const char *name) {
    char path[PATH_CAP];
    struct err ignored;
    return path_join(path, f->path, name, &ignored) == OK && path_exists(path);
}

/* transformers writes 1e30 as an integer of 31 digits. */
static enum status read_json(const struct folder *f, const char *name, json_t **out,
                             struct err *e) {
    char path[PATH_CAP], *bytes;
    size_t n;
    json_error_t why;
    *out = NULL;
    if (!has(f, name)) return OK;
    TRY(path_join(path, f->path, name, e));
    TRY(file_read(path, JSON_FILE_LIMIT, &bytes, &n, e));
    enum status st = json_parse(out, bytes, n, JSON_DECODE_INT_AS_REAL, &why);
    free(bytes);
    return st == OK ? OK : FAIL(e, st, "%s:%d: %s", path, why.line, why.text);
}

static enum status count_weights(struct folder *f, struct err *e) {
    DIR *dir = opendir(f->path);
    struct stat is;
    if (!dir) return FAIL(e, ERR_IO, "open %s: %s", f->path, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(dir));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".safetensors") != 0) continue;
        f->weights++;
        if (fstatat(dirfd(dir), entry->d_name, &is, 0) == 0) f->bytes += is.st_size;
    }
    closedir(dir);
    return OK;
}

static enum status read_folder(struct folder *f, struct err *e) {
    TRY(read_json(f, "config.json", &f->config, e));
    TRY(read_json(f, "tokenizer_config.json", &f->tokenizer_config, e));
    TRY(count_weights(f, e));
    f->tokenizer = has(f, "tokenizer.json");
    f->jinja = has(f, "chat_template.jinja");
    f->model_file = has(f, "tokenizer.model");
    if (f->config || f->tokenizer) return OK;
    return FAIL(e, ERR_FORMAT, "%s is a folder with neither config.json nor tokenizer.json, so no "
                "model and no tokenizer of Hugging Face; name the files in it", f->path);
}

/* The first of two names that the configuration has; 0: neither. */
static int64_t size_of(const struct folder *f, const char *name, const char *other) {
    const json_t *v = json_object_get(f->config, name);
    if (!v) v = json_object_get(f->config, other);
    return json_is_number(v) ? (int64_t)json_number_value(v) : 0;
}

static const char *template_of(const struct folder *f) {
    if (f->jinja) return "chat_template.jinja";
    return json_object_get(f->tokenizer_config, "chat_template") ? "tokenizer_config.json" : NULL;
}

static void print_model(const struct cli *cli, const struct folder *f) {
    const char *class = json_string_value(json_array_get(json_object_get(f->config,
                                                                         "architectures"), 0));
    cli_out(cli, "  model     %s%s%s: %" PRId64 " layers, width %" PRId64 ", %" PRId64
            " heads (%" PRId64 " of keys), ffn %" PRId64 "\n",
            PLAIN(json_text(f->config, "model_type", "unknown")), class ? ", " : "",
            class ? PLAIN(class) : "", size_of(f, "num_hidden_layers", "n_layer"),
            size_of(f, "hidden_size", "n_embd"), size_of(f, "num_attention_heads", "n_head"),
            size_of(f, "num_key_value_heads", "num_attention_heads"),
            size_of(f, "intermediate_size", "n_inner"));
    cli_out(cli, "  vocab     %" PRId64 "\n", size_of(f, "vocab_size", "vocab_size"));
    cli_out(cli, "  context   %" PRId64 " tokens\n",
            size_of(f, "max_position_embeddings", "n_positions"));
}

static void print_folder(const struct cli *cli, const struct folder *f) {
    const char *template = template_of(f);
    char size[BYTES_TEXT_CAP];
    cli_out(cli, "%s%s%s\n", cli_style(cli, "bold"), PLAIN(f->path), cli_style(cli, NULL));
    cli_out(cli, "  format    folder of Hugging Face: %s\n",
            f->config ? "a model" : "a tokenizer without a model");
    if (f->config) print_model(cli, f);
    if (f->weights)
        cli_out(cli, "  weights   %" PRId64 " file%s .safetensors, %s\n", f->weights,
                f->weights == 1 ? "" : "s", bytes_text((double)f->bytes, size));
    else cli_out(cli, "  weights   no file .safetensors\n");
    cli_out(cli, "  tokenizer %s\n", f->tokenizer ? "tokenizer.json"
            : f->model_file ? "tokenizer.model of sentencepiece, which is not read" : "none");
    cli_out(cli, "  chats     %s%s\n", template ? "template in " : "no template",
            template ? template : "");
}

static json_t *folder_json(const struct folder *f) {
    const char *template = template_of(f);
    return json_pack("{s:o,s:s,s:s?,s:I,s:I,s:I,s:I,s:b,s:s?}", "path", json_from_text(f->path),
                     "format", "folder", "model_type",
                     f->config ? json_text(f->config, "model_type", "unknown") : NULL, "layers",
                     (json_int_t)size_of(f, "num_hidden_layers", "n_layer"), "vocab",
                     (json_int_t)size_of(f, "vocab_size", "vocab_size"), "weights_files",
                     (json_int_t)f->weights, "weights_bytes", (json_int_t)f->bytes, "tokenizer",
                     f->tokenizer, "chat_template", template);
}

enum status data_folder(const struct cli *cli, const char *path, json_t *files, struct err *e) {
    struct folder f = { .path = path };
    bool failed = false;
    enum status st = read_folder(&f, e);
    if (st == OK && !cli->json) print_folder(cli, &f);
    else if (st == OK) json_append(files, folder_json(&f), &failed);
    json_decref(f.config);
    json_decref(f.tokenizer_config);
    return failed ? FAIL(e, ERR_MEMORY, "description of %s as JSON", path) : st;
}
