/* fp8lab worker: one rank of a run. Started by `fp8lab run`; hidden from the verb table. */
#include "runner/commands.h"
#include "runner/worker/worker.h"

static int cmd_worker(const struct cli *cli) {
    struct worker_options options = {
        .config = cli_value(cli, "config"),
        .run_path = cli_value(cli, "run"),
        .events_fd = 3, .board_fd = -1, .rendezvous_fd = -1,
        .backend = cli_has(cli, "backend") ? cli_value(cli, "backend") : "auto",
        .caps = cli_has(cli, "caps") ? cli_value(cli, "caps") : NULL,
        .forbid = cli_value(cli, "forbid"),
        .arithmetic = cli_value(cli, "arithmetic"),
        .data_root = cli_value(cli, "data-root"),
        .choose_anew = cli_has(cli, "choose-anew"),
        .profile = cli_has(cli, "profile"),
        .world = 1,
        .choices = cli_value(cli, "choices"),
    };
    struct err e = { 0 };
    enum status st = OK;
    if (!options.config || !options.run_path)
        st = FAIL(&e, ERR_ARG, "worker needs --config and --run; use `fp8lab run`, which "
                  "starts workers");
    if (st == OK) st = cli_int(cli, "events-fd", 3, 1023, &options.events_fd, &e);
    if (st == OK) st = cli_int(cli, "threads", 0, 4096, &options.threads, &e);
    if (st == OK) st = cli_int(cli, "rank", 0, 4095, &options.rank, &e);
    if (st == OK) st = cli_int(cli, "world", 1, 4096, &options.world, &e);
    if (st == OK) st = cli_int(cli, "device", 0, 4095, &options.device, &e);
    if (st == OK) st = cli_int(cli, "board-fd", 3, 1023, &options.board_fd, &e);
    if (st == OK) st = cli_int(cli, "rendezvous-fd", 3, 1023, &options.rendezvous_fd, &e);
    if (st == OK) st = cli_int(cli, "from", 0, INT64_MAX, &options.from, &e);
    if (st == OK) st = cli_int(cli, "stop-after", 1, INT64_MAX, &options.stop_after, &e);
    if (st == OK) st = worker_run(&options, &e);
    return st == OK ? EXIT_OK : cli_fail(cli, &e);
}

static const struct flag FLAGS[] = {
    { "config", "FILE", "the resolved configuration", false },
    { "run", "DIR", "the run directory", false },
    { "events-fd", "N", "descriptor to which the events go", false },
    { "backend", "NAME", "auto, cpu or cuda", false },
    { "caps", "ARCH", "use only what a GPU of this architecture has", false },
    { "forbid", "WAYS", "do not compute in these ways, separated by \"; \"", false },
    { "arithmetic", "NAME", "how the cpu backend multiplies", false },
    { "data-root", "DIR", "data paths are relative to DIR", false },
    { "choose-anew", NULL, "make a new choice table if the run's does not fit", false },
    { "profile", NULL, "no graphs; ranges for a profiler", false },
    { "threads", "N", "threads of the cpu backend", false },
    { "rank", "N", "rank of this process", false },
    { "world", "N", "number of ranks", false },
    { "device", "N", "the GPU of this rank on its host", false },
    { "board-fd", "N", "descriptor of the memory shared with the runner", false },
    { "rendezvous-fd", "N", "rank 0: listening socket for the other ranks", false },
    { "from", "STEP", "resume from the checkpoint of this step", false },
    { "choices", "SHA256", "of the run's choice table", false },
    { "stop-after", "STEP", "checkpoint and stop after this step", false },
};

const struct verb VERB_WORKER = {
    .name = "worker",
    .arguments = "",
    .about = "one rank of a run; started by `fp8lab run`",
    VERB_FLAGS(FLAGS),
    .run = cmd_worker,
    .hidden = true,
};
