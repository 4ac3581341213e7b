/* What a run says about its data: the kind, the files, the share held out for evaluation. */
#ifndef FP8LAB_MODEL_DATA_OPTIONS_H
#define FP8LAB_MODEL_DATA_OPTIONS_H

#include "kernels/base.h"

enum data_kind {
    DATA_TEXT,     /* files, concatenated; one token a byte */
    DATA_MEGATRON, /* PATH.bin and PATH.idx (PATH may end in .bin) */
    DATA_LLMC,     /* llm.c: .bin with a 1,024-byte header, u16 (GPT-2) or u32 (Llama-3) tokens */
    DATA_SYNTHETIC /* generated from `seed`; equal on every machine */
};

enum data_order {
    ORDER_WINDOWS,  /* sequences of the stream as it is in the files, shuffled */
    ORDER_DOCUMENTS /* Megatron: each epoch shuffles documents, then the sequences of the result */
};

/* How a sequence of T tokens is taken from the documents. In the layouts with whole documents, a
 * document of more than T tokens is an error. */
enum data_layout {
    LAYOUT_WINDOWS, /* the next T tokens of the stream, across documents */
    LAYOUT_PACKED,  /* Megatron: whole documents one after another while they fit, then padding */
    LAYOUT_PADDED   /* Megatron: one document, then padding */
};

/* What a step knows of the documents in a sequence; Megatron only. A target is then never the first
 * token of another document. The same holds for layouts with whole documents. */
struct document_options {
    bool mask;    /* data.mask = "document": a token attends to its own document alone */
    bool restart; /* data.positions = "document": positions count from where it begins */
};

/* A source of a blend: the next `path_count` paths, one after another. */
struct data_part {
    int64_t path_count;
    double weight; /* its share of the sequences, relative to the other parts; above 0 */
};

/* Further data that are only evaluated, under a name of their own. They are read as the run's are:
 * of its kind and layout. All of their tokens are held out. */
struct data_set_options {
    const char *name;
    const char *const *paths; /* [path_count] */
    int64_t path_count;
};

/* Strings and arrays are borrowed for the duration of data_open. */
struct data_options {
    enum data_kind kind;
    const char *const *paths; /* of all parts, path_count in all */
    int64_t path_count;
    const struct data_part *parts; /* part_count; NULL: one part has all paths */
    int64_t part_count;
    const char *eval_path; /* Megatron and llm.c: a file, or NULL: the tail of each part */
    double holdout;        /* share of each part held out for evaluation, without eval_path */
    bool eval_only;        /* all tokens of all paths are for evaluation, and the last sequence is
                              padded; no eval_path, no order, nothing to train on */
    enum data_order order;
    enum data_layout layout;
    struct document_options documents; /* the trainer needs the same (model/train.h) */
    bool loss;             /* Megatron: PATH.loss beside PATH.bin has a byte for each token: 1 if it
                              counts in the loss where it is the target, 0 if not */
    const struct data_set_options *sets; /* set_count; their files are no others' */
    int64_t set_count;
    uint64_t seed;         /* synthetic only */
    const char *root;      /* prefix of all paths, absolute paths too; NULL: none */
};

enum data_split { SPLIT_TRAIN, SPLIT_EVAL };

#endif
