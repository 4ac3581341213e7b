/* fp8lab data sample: conversations as a template renders them, and which of their text carries
 * loss. */
#ifndef FP8LAB_RUNNER_DATA_SAMPLE_H
#define FP8LAB_RUNNER_DATA_SAMPLE_H

#include "runner/base/cli.h"

/* Runs the verb; the files are the arguments behind the word "sample". Returns the exit code. */
int data_sample(const struct cli *cli);

/* The rows of its flags. */
#define DATA_SAMPLE_FLAGS                                                                     \
    { .name = "template", .value = "FILE", .help = "chats: template, Jinja or JSON" },  \
    { .name = "render", .value = "FILE.lua", .help = "chats: a Lua function, no template" },  \
    { .name = "tokenizer-config", .value = "FILE",                                            \
      .help = "chats: tokenizer_config.json with special tokens" },                          \
    { .name = "show", .value = "N", .help = "sample: conversations to show (3; 0: all)" },    \
    { .name = "loss", .value = "all|last", .help = "chats: which assistant turns (all)" },   \
    { .name = "generation-prompt", .help = "sample: add the header of the next answer" },     \
    { .name = "date", .value = "YYYY-MM-DD", .help = "chats: what strftime_now prints" },    \
    { .name = "variable", .value = "NAME=JSON", .repeats = true,                              \
      .help = "chats: a variable of the template" }

#endif
