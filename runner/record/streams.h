/* The table of streams: all records of a run, their metrics, and their files. The worker, the
 * records, the bundle and the comparison read this table. A new metric is one row of it.
 *
 * A stream has one record a step, or a sample. In a stream of lines a record is one JSON object. In
 * a wide stream a record is one row of a NumPy array (npy.h), with a value for each label. */
#ifndef FP8LAB_RUNNER_RECORD_STREAMS_H
#define FP8LAB_RUNNER_RECORD_STREAMS_H

#include "model/train.h"

enum stream_id {
    STREAM_TRAIN,
    STREAM_EVAL,
    STREAM_SAMPLES,
    STREAM_TELEMETRY,
    STREAM_RANKS,
    STREAM_FP8,
    STREAM_TRACE,
    STREAM_FP8_ERROR,
    STREAM_HISTOGRAMS,
    STREAM_AUDIT,
    STREAM_EVAL_SETS,
    STREAM_COUNT
};

/* How the values of a metric are stored. */
enum column_type {
    COLUMN_I64, /* an integer; in JSON also true (1) and false (0) */
    COLUMN_F64, /* a number; NaN is null in JSON */
    COLUMN_U32, /* the bits of an f32. In a line: NAME is the number or null, NAME_bits has the 8
                   hexadecimal digits of the bits */
    COLUMN_U64  /* a fingerprint */
};

static inline int64_t column_type_bytes(enum column_type type) {
    return type == COLUMN_U32 ? 4 : 8;
}

union stream_value {
    int64_t i;
    double f;
    uint64_t u; /* COLUMN_U32: the upper 32 bits are 0 */
};

/* A generated text. Its record also has the texts themselves: worker_events.h. */
struct sample_result { int64_t number, prompt_tokens, tokens; };

/* What the worker knows when it writes a record; a stream uses the members that it needs. */
struct stream_source {
    const struct step_result *step;
    const struct eval_result *eval;
    const struct eval_result *set; /* [width], of eval.also */
    const struct sample_result *sample;
    const struct audit_record *audit;
    const struct fp8_slot *slot;   /* [width] */
    const uint64_t *fingerprint;   /* [width] */
    int64_t step_number;           /* of every record */
    int64_t width;                 /* labels of a wide stream */
    int64_t rank, device, device_bytes, dropped;
    bool masked;                   /* some tokens of the data have no loss */
};

struct metric {
    const char *name;
    const char *unit;
    enum column_type type;
    bool wide; /* a value for each label; otherwise one value a record */
    /* The value that the worker writes; `label` is 0 for a metric that is not wide. NULL: the
     * runner adds the metric to the record. */
    union stream_value (*value)(const struct stream_source *s, int64_t label);
    /* A result: results_sha256 covers its bits, and `compare` looks for the first difference. If
     * several results differ at one step, `compare` names the one with the smallest number.
     * 0: no result, but a time, a share, or a number that follows from other metrics. */
    int result;
    /* Whether a record has the metric; NULL: every one. The same for all records of a run. */
    bool (*recorded)(const struct stream_source *s);
    bool key; /* says which record this is and measures nothing: no curve is drawn of it */
};

struct stream {
    const char *name;   /* part of results_sha256 */
    const char *event;  /* the event that has a record of this stream */
    const char *file;   /* in the run directory and in the bundle */
    const char *labels; /* JSON file with the names of the values of a wide stream; NULL: lines */
    const char *labels_event;
    const struct metric *metric;
    int64_t metric_count;
    /* Files of bundle format 1 (bundle/format.h). */
    const char *old_columns, *old_lines;
};

/* Indexed by enum stream_id. */
extern const struct stream STREAMS[STREAM_COUNT];

/* A figure of summary.json that follows from one metric; null without a value, or if the value is
 * not finite. A figure of a metric that is not in every run is absent, not null, where it lacks. */
enum figure_kind {
    FIGURE_LAST,      /* the last value */
    FIGURE_LAST_BITS, /* the last value's 8 hexadecimal digits */
    FIGURE_LEAST,     /* the smallest value */
    FIGURE_LARGEST,   /* the largest value */
    FIGURE_PEAK,      /* the largest value, as an integer */
    FIGURE_SUM,       /* the sum, as an integer */
    FIGURE_MEDIAN,    /* the median of the steady window (bundle/summary.h) */
    FIGURE_MEDIAN_ALL /* the median of all records */
};
struct figure {
    const char *key;
    enum stream_id stream;
    const char *column; /* a metric; NAME_bits for FIGURE_LAST_BITS */
    enum figure_kind kind;
    double scale; /* the figure is the value times `scale` */
};
extern const struct figure FIGURES[];
extern const int64_t FIGURE_COUNT;

/* The value of one metric of a stream that is not wide; NaN if the stream has no such metric. */
double stream_number(enum stream_id stream, const char *metric, const struct stream_source *s);

/* The stream with that event, or with that file; -1: none. */
int stream_of_event(const char *event);
int stream_of_file(const char *file);

/* The column that has the bits of a result: "loss_bits" in a stream of lines, else its name. */
enum { COLUMN_NAME_CAP = 64 };
void result_column(const struct stream *s, const struct metric *m, char out[COLUMN_NAME_CAP]);

#endif
