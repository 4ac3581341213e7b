#include "runner/tensorboard/event_values.h"

#include <stdio.h>
#include <stdlib.h>

#include "runner/tensorboard/message.h"

enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5,
       EVENT_SESSION_LOG = 7 };
enum { SESSION_STATUS = 1, SESSION_START = 1 };
enum { SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { METADATA_PLUGIN = 1, METADATA_CLASS = 4, CLASS_TENSOR = 2 };
enum { PLUGIN_NAME = 1, PLUGIN_CONTENT = 2 };
enum { TENSOR_DTYPE = 1, TENSOR_SHAPE = 2, TENSOR_CONTENT = 4, TENSOR_STRINGS = 8 };
enum { DTYPE_OF_DOUBLE = 2, DTYPE_OF_STRING = 7 };
enum { SHAPE_DIM = 2, DIM_SIZE = 1 };
enum { HPARAMS_START = 3, HPARAMS_END = 4 };
enum { START_HPARAMS = 1, START_TIME = 5, END_STATUS = 1, END_TIME = 2 };
enum { MAP_KEY = 1, MAP_VALUE = 2 };
enum { JSON_NUMBER = 2, JSON_TEXT = 3, JSON_BOOL = 4 }; /* google.protobuf.Value */

enum { LIST_BYTES_MAX = 200 }; /* of a hyperparameter */

static void begin(struct text *m, double wall_s, int64_t step) {
    m->size = 0;
    message_double(m, EVENT_WALL_TIME, wall_s);
    message_int(m, EVENT_STEP, step);
}

void event_version(struct text *m, double wall_s) {
    begin(m, wall_s, 0);
    message_text(m, EVENT_FILE_VERSION, "brain.Event:2");
}

void event_begin(struct text *m, double wall_s, int64_t step) {
    begin(m, wall_s, step);
    size_t log = message_open(m, EVENT_SESSION_LOG);
    message_int(m, SESSION_STATUS, SESSION_START);
    message_close(m, log);
}

size_t event_open(struct text *m, double wall_s, int64_t step) {
    begin(m, wall_s, step);
    return message_open(m, EVENT_SUMMARY);
}

void event_close(struct text *m, size_t opened) { message_close(m, opened); }

/* ---- values -----------------------------------------------------------------------------------*/

void event_scalar(struct text *m, const char *tag, double value) {
    size_t v = message_open(m, SUMMARY_VALUE);
    message_text(m, VALUE_TAG, tag);
    message_float(m, VALUE_SIMPLE, (float)value);
    message_close(m, v);
}

static size_t open_metadata(struct text *m, const char *plugin) {
    size_t metadata = message_open(m, VALUE_METADATA), data = message_open(m, METADATA_PLUGIN);
    message_text(m, PLUGIN_NAME, plugin);
    message_close(m, data);
    return metadata;
}

static void add_metadata(struct text *m, const char *plugin) {
    size_t metadata = open_metadata(m, plugin);
    message_int(m, METADATA_CLASS, CLASS_TENSOR);
    message_close(m, metadata);
}

static void add_shape(struct text *m, const int64_t *dim, int dims) {
    size_t shape = message_open(m, TENSOR_SHAPE);
    for (int i = 0; i < dims; i++) {
        size_t one = message_open(m, SHAPE_DIM);
        message_int(m, DIM_SIZE, dim[i]);
        message_close(m, one);
    }
    message_close(m, shape);
}

void event_text(struct text *m, const char *tag, const struct text *markdown) {
    size_t v = message_open(m, SUMMARY_VALUE);
    message_text(m, VALUE_TAG, tag);
    add_metadata(m, "text");
    size_t tensor = message_open(m, VALUE_TENSOR);
    message_int(m, TENSOR_DTYPE, DTYPE_OF_STRING);
    add_shape(m, (const int64_t[]){ 1 }, 1);
    message_bytes(m, TENSOR_STRINGS, markdown->size ? markdown->bytes : "", markdown->size);
    m->failed |= markdown->failed;
    message_close(m, tensor);
    message_close(m, v);
}

void event_histogram(struct text *m, const char *tag, const double (*buckets)[3], int64_t count) {
    size_t v = message_open(m, SUMMARY_VALUE);
    message_text(m, VALUE_TAG, tag);
    add_metadata(m, "histograms");
    size_t tensor = message_open(m, VALUE_TENSOR);
    message_int(m, TENSOR_DTYPE, DTYPE_OF_DOUBLE);
    add_shape(m, (const int64_t[]){ count, 3 }, 2);
    message_bytes(m, TENSOR_CONTENT, buckets, (size_t)count * sizeof *buckets);
    message_close(m, tensor);
    message_close(m, v);
}

/* ---- hyperparameters --------------------------------------------------------------------------*/

/* An event of the content, which it frees. The plugin reads the metadata alone: a value has no
 * tensor. */
static void put_hparams(struct text *m, double wall_s, const char *tag, struct text *content) {
    size_t event = event_open(m, wall_s, 0);
    size_t v = message_open(m, SUMMARY_VALUE);
    message_text(m, VALUE_TAG, tag);
    size_t metadata = message_open(m, VALUE_METADATA), data = message_open(m, METADATA_PLUGIN);
    message_text(m, PLUGIN_NAME, "hparams");
    message_bytes(m, PLUGIN_CONTENT, content->size ? content->bytes : "", content->size);
    m->failed |= content->failed;
    message_close(m, data);
    message_close(m, metadata);
    message_close(m, v);
    event_close(m, event);
    text_free(content);
}

/* A long list, as of thousands of data files, is its number of items: a table shows it. */
static void add_list(struct text *m, const json_t *list) {
    char *text = NULL, count[32];
    size_t n;
    snprintf(count, sizeof count, "%zu items", json_array_size(list));
    if (json_canonical(list, &text, &n, NULL) != OK) m->failed = true;
    else if (n > LIST_BYTES_MAX) message_text(m, JSON_TEXT, count);
    else message_bytes(m, JSON_TEXT, text, n);
    free(text);
}

/* One entry of the map. Null and empty text are left out: their cell is empty. */
static void add_hparam(struct text *m, const char *name, const json_t *value) {
    size_t entry = message_open(m, START_HPARAMS);
    message_text(m, MAP_KEY, name);
    size_t v = message_open(m, MAP_VALUE);
    if (json_is_number(value)) message_double(m, JSON_NUMBER, json_number_value(value));
    else if (json_is_boolean(value)) message_int(m, JSON_BOOL, json_is_true(value));
    else if (json_is_string(value)) message_text(m, JSON_TEXT, json_string_value(value));
    else add_list(m, value);
    message_close(m, v);
    message_close(m, entry);
}

static void flatten(struct text *m, const char *path, const json_t *object) {
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)object, key, item) {
        char name[256];
        snprintf(name, sizeof name, "%s%s%s", path, *path ? "." : "", key);
        if (json_is_object(item)) flatten(m, name, item);
        else if (!json_is_null(item) && (!json_is_string(item) || *json_string_value(item)))
            add_hparam(m, name, item);
    }
}

void event_hparams(struct text *m, double wall_s, const json_t *config) {
    struct text content = { 0 };
    size_t start = message_open(&content, HPARAMS_START);
    flatten(&content, "", config);
    message_double(&content, START_TIME, wall_s);
    message_close(&content, start);
    put_hparams(m, wall_s, "_hparams_/session_start_info", &content);
}

void event_hparams_end(struct text *m, double wall_s, enum event_end how) {
    struct text content = { 0 };
    size_t end = message_open(&content, HPARAMS_END);
    message_int(&content, END_STATUS, how);
    message_double(&content, END_TIME, wall_s);
    message_close(&content, end);
    put_hparams(m, wall_s, "_hparams_/session_end_info", &content);
}
