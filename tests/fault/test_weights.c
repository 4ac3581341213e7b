/* Every allocation of reading a config.json, exporting weights, opening, hashing and importing them
 * that can fail, failing. A folder that was exported and imported again has the same weights. The
 * same for a run that begins with another's moments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/checkpoint.h"
#include "model/import.h"
#include "runner/base/run_files.h"
#include "runner/record/documents.h"
#include "runner/record/init_record.h"
#include "runner/weights/export.h"
#include "runner/weights/hf_config.h"
#include "runner/weights/weights.h"
#include "tests/support/allocations.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

static const char CONFIG[] =
    "{\"model_type\":\"qwen2\",\"hidden_size\":64,\"num_hidden_layers\":2,\"sliding_window\":8,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":96,"
    "\"vocab_size\":300,\"use_sliding_window\":true,\"max_window_layers\":0}";

struct scene {
    struct tiny_run run;
    char folder[64], exported[96], checkpoint[CHECKPOINT_PATH_CAP];
    char wanted[SHA256_HEX], found[SHA256_HEX];
};

static enum status read_config(void *context, struct err *e) {
    json_t *model = NULL;
    (void)context;
    enum status st = hf_config_read(CONFIG, sizeof CONFIG - 1, "c.json", &model, e);
    json_decref(model);
    return st;
}

static void empty_folder(void *context) {
    const struct scene *s = context;
    MUST(tree_remove(s->exported, E));
    MUST(directory_make(s->exported, E));
}

static enum status export(void *context, struct err *e) {
    const struct scene *s = context;
    struct export_report report;
    const struct export_request q = {
        .checkpoint = s->checkpoint, .to = s->exported, .model = &s->run.model,
        .recipe = &s->run.recipe, .type = EXPORT_F32, .shard_bytes = 50000,
    };
    return export_write(&q, &report, e);
}

static enum status import(void *context, struct err *e) {
    struct scene *s = context;
    struct weights w;
    char hash[SHA256_HEX];
    *s->found = '\0';
    enum status st = weights_open(s->exported, &s->run.model, &w, e);
    if (st == OK) st = weights_hash(&w, hash, e);
    const struct weight_source source = weights_source(&w);
    if (st == OK) st = trainer_import(s->run.trainer, &source, e);
    weights_close(&w);
    return st;
}

/* A later import mends what a failed one left half done. */
static enum status check(void *context, enum status st, struct err *e) {
    struct scene *s = context;
    if (st != OK) return OK;
    TRY(trainer_weights_sha256(s->run.trainer, s->found, e));
    return strcmp(s->found, s->wanted) ? FAIL(e, ERR_VERIFY, "other weights") : OK;
}

static void weights(void **state) {
    struct scene s = { .folder = "/tmp/fp8lab-weights-XXXXXX" };
    struct checkpoint_info info;
    (void)state;
    assert_non_null(mkdtemp(s.folder));
    snprintf(s.exported, sizeof s.exported, "%s/exported", s.folder);
    tiny_run_init(&s.run, RECIPE_BF16, 2);
    MUST(tiny_run_open(&s.run, E));
    MUST(checkpoint_save(s.run.trainer, s.folder, &info, E));
    MUST(trainer_weights_sha256(s.run.trainer, s.wanted, E));
    snprintf(s.checkpoint, sizeof s.checkpoint, "%s", info.path);
    fault_every_allocation(&(struct fault_case){ .name = "config.json", .attempt = read_config });
    fault_every_allocation(&(struct fault_case){ .name = "export", .before = empty_folder,
                                                 .attempt = export, .context = &s });
    empty_folder(&s);
    MUST(export(&s, E));
    fault_every_allocation(&(struct fault_case){ .name = "import", .attempt = import,
                                                 .after = check, .context = &s });
    MUST(import(&s, E));
    MUST(check(&s, OK, E));
    tiny_run_close(&s.run);
    MUST(tree_remove(s.folder, E));
}

/* ---- the optimizer's state ---- */

static void open_heir(struct scene *s) {
    tiny_run_init(&s->run, RECIPE_DELAYED, 4);
    s->run.train.optimizer.state = STATE_8BIT;
    MUST(tiny_run_open(&s->run, E));
}

static void new_heir(void *context) {
    struct scene *s = context;
    tiny_run_close(&s->run);
    open_heir(s);
}

/* Makes the record of a new run, as the runner does, and reads what it names, as a worker does. */
static enum status inherit(void *context, struct err *e) {
    struct scene *s = context;
    char path[PATH_CAP];
    json_t *record = NULL;
    struct init_imported imported;
    const struct init_origin origin = { "parent", s->checkpoint, "parent", 2, true };
    const struct init_import q = { s->folder, &s->run.model, s->run.trainer, false };
    TRY(init_record_make(&origin, &s->run.model, &record, e));
    enum status st = path_join(path, s->folder, DOCUMENT_init, e);
    if (st == OK) st = json_file_write(path, record, e);
    if (st == OK) st = init_record_import(&q, &imported, e);
    json_decref(record);
    return st;
}

static enum status check_heir(void *context, enum status st, struct err *e) {
    struct scene *s = context;
    struct step_result r;
    char found[SHA256_HEX];
    if (st != OK) return OK;
    TRY(trainer_step(s->run.trainer, false, &r, e));
    TRY(trainer_weights_sha256(s->run.trainer, found, e));
    return r.step != 3 || strcmp(found, s->wanted) ? FAIL(e, ERR_VERIFY, "other weights") : OK;
}

static void state_of_a_parent(void **state) {
    struct scene s = { .folder = "/tmp/fp8lab-weights-XXXXXX" };
    struct checkpoint_info info;
    struct step_result r;
    char folder[PATH_CAP];
    (void)state;
    assert_non_null(mkdtemp(s.folder));
    MUST(path_join(folder, s.folder, "data", E));
    MUST(directory_make(folder, E));
    MUST(path_join(folder, s.folder, "data/experiment", E));
    MUST(directory_make(folder, E));
    open_heir(&s);
    for (int i = 0; i < 2; i++) MUST(trainer_step(s.run.trainer, false, &r, E));
    MUST(checkpoint_save(s.run.trainer, s.folder, &info, E));
    snprintf(s.checkpoint, sizeof s.checkpoint, "%s", info.path);
    MUST(trainer_step(s.run.trainer, false, &r, E));
    MUST(trainer_weights_sha256(s.run.trainer, s.wanted, E));
    fault_every_allocation(&(struct fault_case){ .name = "inherit", .before = new_heir,
                                                 .attempt = inherit, .after = check_heir,
                                                 .context = &s });
    tiny_run_close(&s.run);
    MUST(tree_remove(s.folder, E));
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(weights),
                                        cmocka_unit_test(state_of_a_parent) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
