/* fp8lab probe: the facts that need an open device, as JSON. `hw`, `run` and `doctor` start it,
 * since they never open a device themselves. Hidden from the verb table. */
#include <jansson.h>

#include "runner/commands.h"
#include "runner/doctor/probe.h"

static int cmd_probe(const struct cli *cli) {
    struct probe_options options = {
        .backend = cli_has(cli, "backend") ? cli_value(cli, "backend") : "auto",
        .caps = cli_value(cli, "caps"),
        .ceilings = cli_has(cli, "ceilings"),
        .checks = cli_has(cli, "checks"),
    };
    json_t *answer = NULL;
    struct err e = { 0 };
    enum status st = cli_int(cli, "device", 0, 1024, &options.device, &e);
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
