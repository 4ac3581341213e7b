/* fp8lab probe: the facts that need an open device, as JSON. `hw`, `run` and `doctor` start it,
 * since they never open a device themselves. Hidden from the verb table. */
#include <jansson.h>

#include "runner/certify/certify_child.h"
#include "runner/commands.h"
#include "runner/doctor/probe.h"

/* What needs minutes on a device of its own: the certificates of its ways. */
static int print_certificates(const struct cli *cli) {
    struct certify_request r = {
        .backend = cli_has(cli, "backend") ? cli_value(cli, "backend") : "auto",
        .caps = cli_value(cli, "caps"), .config = cli_value(cli, "config"), .ranks = 1,
        .ways = cli_value(cli, "ways"), .forbidden = cli_value(cli, "forbid"),
        .offers = cli_value(cli, "offers"), .choices = cli_value(cli, "choices"),
    };
    json_t *answer = NULL;
    struct err e = { 0 };
    enum status st = cli_int(cli, "device", 0, 1024, &r.device, &e);
    if (st == OK) st = cli_int(cli, "ranks", 1, 4096, &r.ranks, &e);
    if (st == OK) st = cli_int(cli, "first", 0, INT64_MAX, &r.first, &e);
    if (st == OK) st = cli_int(cli, "count", 0, INT64_MAX / 2, &r.count, &e);
    if (st == OK) st = certify_answer(&r, &answer, &e);
    if (st != OK) return cli_fail(cli, &e);
    cli_out_json(cli, answer);
    json_decref(answer);
    return EXIT_OK;
}

static int cmd_probe(const struct cli *cli) {
    if (cli_has(cli, "certify")) return print_certificates(cli);
    struct probe_options options = {
        .backend = cli_has(cli, "backend") ? cli_value(cli, "backend") : "auto",
        .caps = cli_value(cli, "caps"),
        .ceilings = cli_has(cli, "ceilings"),
        .checks = cli_has(cli, "checks"),
    };
    json_t *answer = NULL;
    struct err e = { 0 };
    enum status st = cli_int(cli, "device", 0, 1024, &options.device, &e);
    if (st == OK) st = cli_int(cli, "audit", 0, 86400, &options.audit_seconds, &e);
    if (st == OK) st = probe_answer(&options, &answer, &e);
    if (st != OK) return cli_fail(cli, &e);
    cli_out_json(cli, answer);
    json_decref(answer);
    return EXIT_OK;
}

static const struct flag FLAGS[] = {
    { "backend", "NAME", "auto, cpu or cuda", false },
    { "device", "INDEX", "of the cuda backend (0)", false },
    { "caps", "ARCH", "check as if the device had this architecture", false },
    { "checks", NULL, "also try every recipe", false },
    { "certify", NULL, "instead, try each way of computing against the reference", false },
    { "config", "FILE", "certify: the ways of this resolved configuration", false },
    { "ways", "FILE", "certify: the ways that another process wrote to this file", false },
    { "forbid", "WAYS", "certify: do not compute in these ways, separated by \"; \"", false },
    { "choices", "FILE", "certify: use the run's choice table in this file", false },
    { "offers", "DIR", "certify: take the kept choices in offered.json there", false },
    { "ranks", "N", "certify: the ranks of its run (1)", false },
    { "first", "N", "certify: from this way on (0)", false },
    { "count", "N", "certify: as many ways; 0: all", false },
    { "audit", "SECONDS", "also compute results again on the host, to the bit", false },
    { "ceilings", NULL, "also measure the speed of a large GEMM", false },
};

const struct verb VERB_PROBE = {
    .name = "probe",
    .arguments = "",
    .about = "print the facts of an open device as JSON; started by `fp8lab hw`",
    VERB_FLAGS(FLAGS),
    .run = cmd_probe,
    .hidden = true,
};
