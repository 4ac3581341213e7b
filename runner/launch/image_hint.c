/* Hints for a user who started the image without the flags that it needs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/base/shell_word.h"
#include "runner/launch/launch.h"
#include "runner/record/image_record.h"

static const char *image_name(const json_t *facts) {
    const char *name = json_text(facts, "container.image", NULL);
    return name && *name ? name : "fp8lab";
}

static bool is_podman(const json_t *facts) {
    return !strcmp(json_text(facts, "container.runtime", ""), "podman");
}

/* The arguments as typed, quoted for a shell. NULL without memory. */
static char *arguments(const struct cli *cli) {
    struct text t = { 0 };
    bool failed = false;
    for (int64_t i = 1; cli->argv[i]; i++) {
        char *word = shell_word(cli->argv[i]);
        failed = failed || !word;
        text_puts(&t, i > 1 ? " " : "");
        text_puts(&t, word ? word : "");
        free(word);
    }
    if (!failed && !t.failed) return t.bytes; /* moved to the caller */
    text_free(&t);
    return NULL;
}

/* The names of the experiment's data files for a sentence; "" if it reads none. */
static void name_files(const json_t *data, struct text *out) {
    const char *path = json_text(data, "path", NULL);
    const json_t *paths = json_object_get(data, "paths"), *item;
    size_t i;
    if (path) text_puts(out, path);
    if (path && !strcmp(json_text(data, "format", ""), "megatron")) text_puts(out, ".bin and .idx");
    json_array_foreach(paths, i, item) {
        text_puts(out, i ? ", " : "");
        text_puts(out, json_string_value(item));
    }
}

/* Says which data files the run needs, or how to run without them. */
static void hint_data(const struct cli *cli, const json_t *config) {
    const json_t *data = json_object_get(config, "data");
    struct text files = { 0 };
    name_files(data, &files);
    if (files.size && !files.failed)
        cli_warn(cli, "Its data are %s: ./data of the command above is the folder data/ of the "
                 "experiment. Without them, --set data=synthetic at the end makes tokens up.",
                 files.bytes);
    else if (!strcmp(json_text(data, "kind", ""), "synthetic"))
        cli_warn(cli, "Its data are made up as it runs: none need to be brought.");
    text_free(&files);
}

/* The folder with data in our own images. */
#define IMAGE_DATA_ROOT "/opt/fp8lab"

/* The script that writes the text of one of our experiments; NULL: unknown, or not here. */
static const char *writer_of(const char *text) {
    static const struct { const char *text, *script; } WRITTEN[] = {
        { "data/quickstart.txt", "containers/export_text.sh" },
        { "data/corpus.txt", "containers/export_corpus.sh" },
        { "data/chats.jsonl", "containers/export_chats.sh" },
    };
    for (size_t i = 0; text && i < sizeof WRITTEN / sizeof *WRITTEN; i++)
        if (!strcmp(text, WRITTEN[i].text) && path_exists(WRITTEN[i].script))
            return WRITTEN[i].script;
    return NULL;
}

void image_data_hint(const json_t *config, struct err *e) {
    const json_t *data = json_object_get(config, "data");
    const char *text = json_string_value(json_array_get(json_object_get(data, "paths"), 0));
    const char *script = writer_of(text);
    char own[PATH_CAP];
    size_t n = strlen(e->text);
    bool brought = image_inside() && text && path_join(own, IMAGE_DATA_ROOT, text, NULL) == OK &&
                   path_exists(own);
    snprintf(e->text + n, sizeof e->text - n, "; %s%s%s%s%s", script ? script : "",
             script ? " " : "", script ? text : "", script ? " writes it; " : "",
             brought ? "this image has its own: run --data-root " IMAGE_DATA_ROOT
                     : "run --data-root DIR counts paths from another folder, --set data=synthetic "
                       "makes data up");
}

void image_hint(const struct cli *cli, const json_t *facts, const json_t *config) {
    if (!image_inside()) return;
    json_t *record = image_record(IMAGE_RECORD_PATH);
    char *typed = arguments(cli);
    bool podman = is_podman(facts);
    if (typed)
        cli_warn(cli, "On such a machine this starts it with all that it needs:\n"
                 "  mkdir -p data runs && %s run --rm %s --ipc=host --ulimit memlock=-1 --ulimit "
                 "stack=67108864 --stop-timeout %d -e FP8LAB_STOP_GRACE=%d %s -v "
                 "\"$PWD/data:/data\" -v \"$PWD/runs:/runs\" %s %s", podman ? "podman" : "docker",
                 podman ? "--device nvidia.com/gpu=all" : "--gpus all",
                 LAUNCH_GRACE_S, LAUNCH_GRACE_S,
                 podman ? "--userns=keep-id" : "-u \"$(id -u):$(id -g)\"", image_name(facts),
                 typed);
    hint_data(cli, config);
    if (!json_is_string(json_object_get(record, "cuda")))
        cli_warn(cli, "This image was built without CUDA, for CPUs: `make image` over a base with "
                 "CUDA builds the one for GPUs.");
    free(typed);
    json_decref(record);
}

void image_welcome(const struct cli *cli) {
    if (!image_inside()) return;
    cli_out(cli, "In a container:\n"
                 "  docker run --rm fp8lab experiments/quickstart.lua\n"
                 "      needs neither GPU nor network; the runs are gone with the container\n"
                 "  mkdir -p data runs && docker run --rm --gpus all --ipc=host \\\n"
                 "      -u \"$(id -u):$(id -g)\" -v \"$PWD/data:/data\" -v \"$PWD/runs:/runs\" \\\n"
                 "      fp8lab experiments/llama3_small_1gpu.lua\n"
                 "      on the GPUs; what it finds is in ./runs\n"
                 "  docker run --rm -v \"$PWD:/mine\" fp8lab check /mine/my.lua\n"
                 "      an experiment of yours\n\n");
}
