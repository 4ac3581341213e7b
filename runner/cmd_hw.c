/* fp8lab hw: the facts of this machine, or of a fact file; with --query, whether they match. */
#include <jansson.h>
#include <stdlib.h>

#include "model/ground/json_safe.h"
#include "runner/base/bytes_text.h"
#include "runner/base/plain_text.h"
#include "runner/commands.h"
#include "runner/doctor/doctor.h"
#include "runner/doctor/probe.h"
#include "runner/hardware/fact_names.h"
#include "runner/hardware/facts.h"
#include "runner/hardware/query.h"

static void print_value(const struct cli *cli, const struct fact_name *fact, const json_t *value) {
    if (json_is_string(value)) {
        cli_out(cli, "\"%s\"", PLAIN(json_string_value(value)));
    } else if (json_is_boolean(value)) {
        cli_out(cli, "%s", json_is_true(value) ? "true" : "false");
    } else if (fact->kind == FACT_BYTES && json_is_number(value)) {
        char size[BYTES_TEXT_CAP];
        double bytes = json_number_value(value);
        bool limit = bytes < 0x1p62; /* RLIM_INFINITY, as JSON holds it */
        cli_out(cli, "%s", limit ? bytes_query_text(bytes, size) : "no limit");
    } else if (json_is_number(value)) {
        cli_out(cli, "%.10g", json_number_value(value));
    } else {
        cli_out(cli, "%s-%s", cli_style(cli, "dim"), cli_style(cli, NULL));
    }
}

static void print_facts(const struct cli *cli, const json_t *facts) {
    for (int64_t i = 0; i < FACT_NAME_COUNT; i++) {
        const struct fact_name *fact = &FACT_NAMES[i];
        cli_out(cli, "%-22s ", fact->name);
        print_value(cli, fact, json_object_get(facts, fact->name));
        cli_out(cli, "\n");
    }
}

static int print_json(const struct cli *cli, json_t *facts, const char *query,
                      const json_t *mismatch) {
    int code = mismatch ? EXIT_HARDWARE : EXIT_OK;
    json_t *object;
    if (query)
        object = json_pack("{s:s,s:s,s:b,s:O?,s:O}", "schema", "fp8lab.hw_match/1", "query", query,
                           "matches", !mismatch, "mismatch", mismatch, "facts", facts);
    else object = json_copy(facts);
    bool failed = false;
    if (!query) json_put(object, "schema", json_string(FACTS_SCHEMA), &failed);
    object = json_whole(object, failed);
    if (!object) {
        struct err e;
        (void)FAIL(&e, ERR_MEMORY, "hardware facts as JSON");
        return cli_fail(cli, &e);
    }
    cli_out_json(cli, object);
    json_decref(object);
    return code;
}

static int report(const struct cli *cli, json_t *facts, const char *query, const json_t *mismatch) {
    if (cli->json) return print_json(cli, facts, query, mismatch);
    if (!query) {
        print_facts(cli, facts);
        cli_next(cli, "hw", "--query", "gpu.family=hopper and gpu.memory>=80GiB", NULL);
        return EXIT_OK;
    }
    if (!mismatch) {
        cli_out(cli, "matches: %s\n", query);
        return EXIT_OK;
    }
    char *text = query_mismatch_text(mismatch);
    cli_out(cli, "does not match: %s\n%s", query, text ? text : "");
    free(text);
    return EXIT_HARDWARE;
}

static int cmd_hw(const struct cli *cli) {
    const char *file = cli_value(cli, "facts"), *text = cli_value(cli, "query");
    struct err e = { 0 };
    struct query *query = NULL;
    json_t *facts = NULL, *mismatch = NULL;
    char problem[256] = "";
    enum status st = OK;
    if (text) st = query_parse(text, &query, &e);
    if (st == OK)
        st = file ? facts_load(file, &facts, &e)
                  : facts_gather(&facts, problem, sizeof problem, &e);
    if (st == OK && !file && !*problem)
        st = probe_facts(facts, false, problem, sizeof problem, &e);
    if (st == OK && !file) st = doctor_library_facts(facts, &e);
    if (st == OK && query) st = query_match(query, facts, &mismatch, &e);
    if (*problem) cli_warn(cli, "%s", problem);
    int code = st == OK ? report(cli, facts, text, mismatch) : cli_fail(cli, &e);
    json_decref(mismatch);
    json_decref(facts);
    query_free(query);
    return code;
}

static const struct flag FLAGS[] = {
    { "query", "QUERY", "does the machine match? exit 3 and an explanation if not", false },
    { "facts", "FILE", "take the facts from FILE: plan for a machine that is not here", false },
};

const struct verb VERB_HW = {
    .name = "hw",
    .arguments = "",
    .about = "show the hardware facts, or match a hardware query",
    .more = "A query is written over facts with = != < <= > >= ~ (glob), and, or, not, ( ):\n"
            "  fp8lab hw --query 'gpu.product_name=\"NVIDIA H200\" and gpu.count>=8'\n"
            "  fp8lab hw --query 'gpu.memory >= 80GiB and not memory.unified'\n"
            "Equality is exact; a fact that the machine lacks matches nothing.\n"
            "`fp8lab hw --json > my.json` writes a fact file.\n"
            "Without a GPU, library versions are those of the files that would be loaded.\n",
    VERB_FLAGS(FLAGS),
    .run = cmd_hw,
};
