#include "runner/bundle/step_order.h"

static const int64_t STEP_MAX = INT64_C(1) << 53; /* exact as a double, too */

/* The least step that a record may have after one of step `before`. */
static int64_t least_step(int stream, int64_t before) {
    if (stream == STREAM_TELEMETRY || stream == STREAM_AUDIT) return 0;
    return stream == STREAM_TRAIN ? before + 1 : before;
}

enum status step_order_check(int stream, const struct columns *c, const char *name,
                             struct err *e) {
    const struct column *step = columns_scalar(c, "step");
    if (!c || c->rows == 0) return OK;
    if (!step || step->type != COLUMN_I64)
        return FAIL(e, ERR_FORMAT, "%s: not every record has a whole number as its step", name);
    int64_t before = 0;
    for (int64_t i = 0; i < c->rows; i++) {
        columns_pass(c, step, i);
        int64_t now = (int64_t)column_bits(step, i, 0);
        if (now < 0 || now > STEP_MAX)
            return FAIL(e, ERR_FORMAT, "%s: record %lld has step %lld, which no run reaches", name,
                        (long long)i + 1, (long long)now);
        if (i > 0 && now < least_step(stream, before))
            return FAIL(e, ERR_FORMAT, "%s: record %lld has step %lld, behind one of step %lld",
                        name, (long long)i + 1, (long long)now, (long long)before);
        before = now;
    }
    return OK;
}
