#include "runner/worker/audit_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/recompute.h"
#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/hardware/nvml.h"
#include "runner/record/documents.h"
#include "runner/record/streams.h"
#include "runner/worker/worker_events.h"

enum status audit_report(struct event_writer *w, struct trainer *t, int64_t rank, struct err *e) {
    struct audit_record record;
    while (trainer_audited(t, &record)) {
        struct stream_source source = { .audit = &record, .step_number = record.step,
                                        .rank = rank };
        TRY(say_record(w, STREAM_AUDIT, &source, e));
    }
    return OK;
}

enum status audit_finish(struct event_writer *w, struct trainer *t, int64_t rank, struct err *e) {
    enum status st = trainer_audit_settle(t, e);
    return st == OK ? audit_report(w, t, rank, e) : st;
}

/* ---- a difference ---- */

/* "GPU 3 (GPU-25b4...)", or "the CPU". */
static void name_device(const struct audit_place *o, const struct backend *b, char *out,
                        size_t size) {
    struct nvml_report *report = malloc(sizeof *report);
    const char *uuid = "UUID unknown";
    if (report) {
        nvml_read(report);
        nvml_keep_visible(report, getenv("CUDA_VISIBLE_DEVICES"));
        if (o->device >= 0 && o->device < report->count) uuid = report->gpus[o->device].uuid;
    }
    if (strcmp(b->ops->name, "cpu") != 0)
        snprintf(out, size, "GPU %" PRId64 " (%s)", o->device, uuid);
    else snprintf(out, size, "the CPU");
    free(report);
}

static json_t *hex_of(const void *data, int64_t bytes) {
    static const char DIGITS[] = "0123456789abcdef";
    const unsigned char *from = data;
    char *text = malloc((size_t)bytes * 2 + 1);
    if (!text) return NULL;
    for (int64_t i = 0; i < bytes; i++) {
        text[2 * i] = DIGITS[from[i] >> 4];
        text[2 * i + 1] = DIGITS[from[i] & 15];
    }
    json_t *out = json_stringn(text, (size_t)bytes * 2);
    free(text);
    return out;
}

/* The bytes in memory order, as hexadecimal digits. */
static json_t *operand_json(const struct audit_operand *o) {
    const struct tensor *x = o->x;
    bool failed = false;
    json_t *object = json_pack("{s:s,s:s,s:[I,I]}", "name", o->name, "dtype", dtype_name(x->dtype),
                               "shape", x->dim[0], x->dim[1]);
    json_put(object, "bytes", hex_of(x->data, tensor_count(x) * dtype_bytes(x->dtype)), &failed);
    if (x->scale.kind == SCALE_NONE) return json_whole(object, failed);
    json_put(object, "scale_kind", json_string(scale_kind_name(x->scale.kind)), &failed);
    json_put(object, "scale_dtype", json_string(dtype_name(x->scale.dtype)), &failed);
    json_put(object, "scale_bytes", hex_of(x->scale.data, scale_bytes(&x->scale)), &failed);
    return json_whole(object, failed);
}

static json_t *way_json(const struct mma_way *w) {
    static const char *const FACTORS[] = { "together", "a first", "b first" };
    return json_pack("{s:i,s:i,s:i,s:I,s:I,s:I,s:s,s:b,s:b,s:b,s:b}", "group", w->mma.group,
                     "fraction", w->mma.fraction, "mantissa", w->mma.mantissa, "chain",
                     w->order.chain, "part", w->order.part, "tile", w->order.tile, "factors",
                     FACTORS[w->factors], "widened", w->widened, "rounded", w->rounded, "fused",
                     w->fused, "bias_last", w->bias_last);
}

static json_t *bits_json(uint32_t bits, enum dtype dtype) {
    return json_sprintf("%0*x", (int)dtype_bytes(dtype) * 2, bits);
}

static json_t *fault_json(const struct audit_fault *f, const char *device) {
    bool failed = false;
    json_t *object = json_pack("{s:s,s:s,s:I,s:s,s:s,s:I,s:I,s:s}", "schema",
                               "fp8lab.audit_fault/1", "device", device, "step", f->step,
                               "operator", f->name, "what", f->what, "row", f->row, "column",
                               f->col, "dtype", dtype_name(f->dtype));
    json_t *operands = json_array();
    json_put(object, "found", bits_json(f->found, f->dtype), &failed);
    json_put(object, "expected", bits_json(f->expected, f->dtype), &failed);
    for (int i = 0; i < AUDIT_OPERANDS; i++)
        if (f->operand[i].x) json_append(operands, operand_json(&f->operand[i]), &failed);
    json_put(object, "operands", operands, &failed);
    if (f->way) json_put(object, "way", way_json(f->way), &failed);
    return json_whole(object, failed);
}

void audit_explain(const struct audit_place *o, struct backend *b, const struct trainer *t,
                   struct err *why) {
    const struct audit_fault *f = t ? trainer_audit_fault(t) : NULL;
    char device[160], name[64], path[PATH_CAP];
    struct err problem = { 0 };
    if (!f || why->code != ERR_VERIFY) return;
    name_device(o, b, device, sizeof device);
    err_prefix(why, "audit: %s", device);
    if (o->rank) snprintf(name, sizeof name, "data/audit_fault_rank%" PRId64 ".json", o->rank);
    else snprintf(name, sizeof name, "%s", RUN_PATH_audit_fault);
    json_t *object = fault_json(f, device);
    enum status st = path_join(path, o->run_path, name, &problem);
    if (st == OK && !object) st = FAIL(&problem, ERR_MEMORY, "no memory");
    if (st == OK) st = json_file_write(path, object, &problem);
    json_decref(object);
    size_t n = strlen(why->text);
    snprintf(why->text + n, sizeof why->text - n, "; its operands are %s %s",
             st == OK ? "in" : "lost:", st == OK ? name : problem.text);
}
