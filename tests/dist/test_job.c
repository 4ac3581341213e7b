/* The parts of a job, without its processes: tasks from launchers' variables, the layout of ranks,
 * which cause of an end counts, the handshake. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/job/deploy.h"
#include "runner/job/job_file.h"
#include "runner/job/job_match.h"
#include "runner/job/job_members.h"
#include "runner/job/listener.h"
#include "runner/job/peer_connection.h"
#include "runner/job/rank_layout.h"
#include "runner/job/rendezvous.h"
#include "runner/job/task.h"
#include "runner/job/verdict.h"
#include "runner/job/wire.h"

/* ---- tasks ------------------------------------------------------------------------------------*/

/* Sets these variables, "A=1 B=2", and unsets all others that a launcher may set. */
static void environment(const char *variables) {
    static const char *const ALL[] = {
        "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE",
        "OMPI_MCA_ess_base_jobid", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
        "PMI_JOBID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID",
        "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NTASKS", "FP8LAB_JOB",
    };
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++) (void)unsetenv(ALL[i]);
    char *text = strdup(variables);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        assert_int_equal(setenv(word, value, 1), 0);
    }
    free(text);
}

static const char *variable(const char *name) { return getenv(name); }

static void expect_task(const char *variables, const char *launcher, int64_t index, int64_t count,
                        int64_t local_index, int64_t local_count, const char *job) {
    struct task t;
    struct err e = { 0 };
    environment(variables);
    if (task_find(variable, &t, &e) != OK) fail_msg("%s: %s", variables, e.text);
    if (launcher) assert_string_equal(t.launcher, launcher);
    else assert_null(t.launcher);
    assert_int_equal(t.index, index);
    assert_int_equal(t.count, count);
    assert_int_equal(t.local_index, local_index);
    assert_int_equal(t.local_count, local_count);
    assert_string_equal(t.job, job);
}

static void tasks_by_launcher(void **state) {
    expect_task("", NULL, 0, 1, 0, 1, "");
    expect_task("RANK=5 WORLD_SIZE=16 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=n0 "
                "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=a/b", "torchrun", 5, 16, 1, 4,
                "torchrun-a_b-29500-n0");
    expect_task("OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
                "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=prterun-n1-7@1", "mpirun", 3, 4, 1, 2,
                "mpirun-prterun-n1-7_1");
    expect_task("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1", "PMI", 1, 2, 0, 1,
                "PMI");
    expect_task("SLURM_PROCID=17 SLURM_STEP_NUM_TASKS=20 SLURM_LOCALID=1 SLURM_NODEID=2 "
                "SLURM_STEP_TASKS_PER_NODE=8(x2),4 SLURM_JOB_ID=9 SLURM_STEP_ID=0", "srun", 17, 20,
                1, 4, "srun-9-0");
    expect_task("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_NODEID=1 "
                "SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_JOB_ID=9 SLURM_STEP_ID=1 FP8LAB_JOB=mine",
                "srun", 1, 2, 0, 1, "mine");
    /* srun --mpi=pmi2: the local index is from Slurm, since PMI has none. */
    expect_task("PMI_RANK=3 PMI_SIZE=4 PMI_JOBID=9.0 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 "
                "SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_JOB_ID=9 "
                "SLURM_STEP_ID=0", "srun", 3, 4, 1, 2, "srun-9-0");
    /* mpiexec in a Slurm job, which started its proxies with srun, once a host. */
    expect_task("PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 SLURM_PROCID=1 "
                "SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_JOB_ID=9",
                "PMI", 3, 4, 1, 2, "PMI-9");
    expect_task("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 SLURM_PROCID=1 "
                "SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_JOB_ID=9", "PMI", 1, 2, 1, 2,
                "PMI-9");
    expect_task("PMI_RANK=3 PMI_SIZE=4 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=1 "
                "SLURM_JOB_ID=9", "PMI", 3, 4, 0, 1, "PMI-9");
    /* A batch script is one process. In a Slurm job mpirun's variables count. */
    expect_task("SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=9", NULL, 0, 1, 0, 1, "");
    expect_task("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_JOB_ID=9 OMPI_COMM_WORLD_RANK=1 "
                "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2",
                "mpirun", 1, 2, 1, 2, "mpirun");
    expect_task("RANK=0 WORLD_SIZE=1 MASTER_ADDR=x", NULL, 0, 1, 0, 1, "");
    /* srun, whose script also sets one of torchrun's variables. */
    expect_task("WORLD_SIZE=4 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 SLURM_NODEID=0 "
                "SLURM_STEP_TASKS_PER_NODE=4 SLURM_JOB_ID=9 SLURM_STEP_ID=0", "srun", 1, 4, 1, 4,
                "srun-9-0");
}

static void tasks_that_do_not_fit_together(void **state) {
    static const char *const CASES[][2] = {
        { "RANK=4 WORLD_SIZE=4", "RANK=4 and WORLD_SIZE=4" },
        { "RANK=5 WORLD_SIZE=1", "RANK=5 and WORLD_SIZE=1" },
        { "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=1 SLURM_JOB_ID=9",
          "SLURM_PROCID=1 and SLURM_STEP_NUM_TASKS=1" },
        { "RANK=x WORLD_SIZE=4", "RANK is \"x\"" },
        { "RANK=0 WORLD_SIZE=0", "WORLD_SIZE is \"0\"" },
        { "RANK=1 WORLD_SIZE=4 LOCAL_RANK=3 LOCAL_WORLD_SIZE=2", "LOCAL_RANK=3 of this host's 2" },
        { "RANK=1 LOCAL_RANK=1 MASTER_ADDR=n0", "RANK=1 is set, as torchrun does, and WORLD_SIZE "
          "is not" },
        { "WORLD_SIZE=2 MASTER_ADDR=n0", "WORLD_SIZE=2 is set, as torchrun does, and RANK is not" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct task t;
        struct err e = { 0 };
        environment(CASES[i][0]);
        assert_int_equal(task_find(variable, &t, &e), ERR_CONFIG);
        if (!strstr(e.text, CASES[i][1])) fail_msg("%s: %s", CASES[i][0], e.text);
    }
    environment("");
}

static void devices_of_tasks(void **state) {
    const struct task t = { .count = 8, .local_index = 2, .local_count = 4 };
    assert_int_equal(task_device(&t, NULL, 2, 1), 5);
    assert_int_equal(task_device(&t, "0,1,2,3,4,5,6,7", 2, 1), 5);
    assert_int_equal(task_device(&t, "4,5", 2, 1), 1); /* it sees only its own GPUs */
    assert_int_equal(task_device(&t, "GPU-1", 1, 0), 0);
}

/* A launcher may show each task all GPUs of its host, or only its own: the job's number of GPUs is
 * the same. */
static void gpus_of_all_hosts(void **state) {
    static const struct {
        int64_t tasks, local_count;
        const char *visible; /* CUDA_VISIBLE_DEVICES of a task, or NULL */
        int64_t seen, wanted; /* GPUs that a task sees, that the experiment asks for */
        bool matches;
    } CASES[] = {
        { 2, 1, NULL, 8, 16, true },              { 2, 1, NULL, 4, 16, false },
        { 16, 8, NULL, 8, 16, true },             { 16, 8, "0", 1, 16, true },
        { 8, 8, "0", 1, 8, true },                { 4, 4, "0,1", 2, 8, true },
        { 2, 1, "0,1,2,3,4,5,6,7", 8, 16, true }, { 8, 8, "0,1,2,3", 4, 8, false },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct peer_connection member[15] = { 0 };
        struct job_members members = { .task = { .count = CASES[i].tasks,
                                       .local_count = CASES[i].local_count }, .peer = member };
        struct err e = { 0 };
        json_t *facts = json_pack("{s:I}", "gpu.count", (json_int_t)CASES[i].seen), *mismatch;
        json_t *config = json_pack("{s:{s:s,s:I}}", "hardware", "query", "gpu.count >= 1", "gpus",
                                   (json_int_t)CASES[i].wanted);
        for (int64_t t = 1; t < CASES[i].tasks; t++) {
            member[t - 1].facts = facts;
            snprintf(member[t - 1].host, sizeof member[t - 1].host, "there");
        }
        if (CASES[i].visible) (void)setenv("CUDA_VISIBLE_DEVICES", CASES[i].visible, 1);
        assert_int_equal(job_match(config, facts, &members, &mismatch, &e), OK);
        if ((mismatch == NULL) != CASES[i].matches) fail_msg("case %zu", i);
        (void)unsetenv("CUDA_VISIBLE_DEVICES");
        json_decref(mismatch);
        json_decref(config);
        json_decref(facts);
    }
}

static void put_file(const char *path, mode_t mode, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
}

/* Another user with write access to the folder of runs may replace the leader's file while a task
 * reads it. */
static void a_job_file_of_another_user_is_rejected(void **state) {
    char folder[] = "/tmp/fp8lab-job-XXXXXX", ours[64], theirs[64];
    struct err e = { 0 };
    json_t *file = NULL;
    assert_non_null(mkdtemp(folder));
    snprintf(ours, sizeof ours, "%s/ours", folder);
    snprintf(theirs, sizeof theirs, "%s/theirs", folder);
    put_file(ours, 0600, "{\"secret\":\"ours\"}");
    put_file(theirs, 0644, "{\"secret\":\"theirs\"}");
    pid_t parent = getpid(), child = fork();
    assert_true(child >= 0);
    while (child == 0) {
        (void)renameat2(AT_FDCWD, ours, AT_FDCWD, theirs, RENAME_EXCHANGE);
        if (getppid() != parent) _exit(0);
    }
    for (int i = 0, read = 0; read < 20000 && i < 10000000; i++) {
        enum status st = job_file_read(ours, &file, &e);
        if (st == OK) assert_string_equal(json_text(file, "secret", ""), "ours");
        else assert_int_equal(st, ERR_VERIFY);
        read += st == OK;
        json_decref(file);
        file = NULL;
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(unlink(theirs), 0);
    assert_int_equal(unlink(ours), 0);
    assert_int_equal(symlink("theirs", ours), 0);
    assert_int_equal(job_file_read(ours, &file, &e), ERR_VERIFY);
    assert_int_equal(unlink(ours), 0);
    assert_int_equal(job_file_read(ours, &file, &e), OK);
    assert_null(file);
    assert_int_equal(rmdir(folder), 0);
}

/* Three tasks of one GPU each: a host needs one GPU for each of its tasks. */
static void hosts_with_other_numbers_of_tasks(void **state) {
    static const struct {
        int64_t local_count[3], seen[3];
        bool matches;
    } CASES[] = {
        { { 2, 2, 1 }, { 2, 2, 2 }, true }, { { 2, 2, 1 }, { 2, 2, 1 }, true },
        { { 1, 2, 2 }, { 1, 2, 2 }, true }, { { 2, 2, 1 }, { 1, 1, 1 }, false },
        { { 1, 2, 2 }, { 2, 1, 1 }, false },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct peer_connection member[2] = { 0 };
        struct job_members members = {
            .task = { .count = 3, .local_count = CASES[i].local_count[0] }, .peer = member
        };
        struct err e = { 0 };
        json_t *facts[3], *mismatch;
        json_t *config = json_pack("{s:{s:s,s:i}}", "hardware", "query", "gpu.count >= 1", "gpus",
                                   3);
        for (int t = 0; t < 3; t++) {
            facts[t] = json_pack("{s:I}", "gpu.count", (json_int_t)CASES[i].seen[t]);
            if (!t) continue;
            member[t - 1].facts = facts[t];
            member[t - 1].local_count = CASES[i].local_count[t];
        }
        assert_int_equal(job_match(config, facts[0], &members, &mismatch, &e), OK);
        if ((mismatch == NULL) != CASES[i].matches) fail_msg("case %zu", i);
        json_decref(mismatch);
        json_decref(config);
        for (int t = 0; t < 3; t++) json_decref(facts[t]);
    }
}

/* RANK and WORLD_SIZE alone, one task a GPU: the GPU of each task is unknown. */
static void tasks_of_a_host_need_a_local_index(void **state) {
    struct job_members members = { 0 };
    struct err e = { 0 };
    json_t *facts = json_pack("{s:i}", "gpu.count", 8);
    environment("RANK=0 WORLD_SIZE=3 MASTER_ADDR=n0");
    assert_int_equal(task_find(variable, &members.task, &e), OK);
    members.hosts = json_pack("[{s:s},{s:s},{s:s}]", "host", "n0", "host", "n1", "host", "n1");
    assert_int_equal(job_places(facts, &members, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "tasks 1 and 2 are both on n1, and would use the same GPU: "
                                   "torchrun does not set LOCAL_RANK"));
    (void)setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    assert_int_equal(job_places(facts, &members, &e), OK);
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    json_object_set_new(json_array_get(members.hosts, 2), "host", json_string("n2"));
    assert_int_equal(job_places(facts, &members, &e), OK); /* once a host */
    json_object_set_new(json_array_get(members.hosts, 2), "host", json_string("n1"));
    environment("RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 MASTER_ADDR=n0");
    assert_int_equal(task_find(variable, &members.task, &e), OK);
    assert_int_equal(job_places(facts, &members, &e), OK);
    assert_int_equal(job_places(facts, NULL, &e), OK);
    environment("");
    json_decref(members.hosts);
    json_decref(facts);
}

/* Offloaded state of all ranks is compared with the memory of all hosts. */
static void memory_of_all_hosts(void **state) {
    static const struct { int64_t tasks, local_count, unified, wanted; } CASES[] = {
        { 2, 1, 0, 128 }, { 16, 8, 0, 128 }, { 8, 8, 0, 64 }, { 2, 1, 1, 64 },
        { 3, 2, 0, 96 }, /* one and a half hosts */
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct job_members members = { .task = { .count = CASES[i].tasks,
                                             .local_count = CASES[i].local_count } };
        struct err e = { 0 };
        json_t *found = NULL, *facts = json_pack("{s:I,s:b}", "memory.total", (json_int_t)64,
                                                 "memory.unified", (int)CASES[i].unified);
        assert_int_equal(job_memory(facts, &members, &found, &e), OK);
        assert_int_equal(json_integer_value(json_object_get(found, "memory.total")),
                         CASES[i].wanted);
        assert_int_equal(json_integer_value(json_object_get(facts, "memory.total")), 64);
        json_decref(found);
        assert_int_equal(job_memory(facts, NULL, &found, &e), OK);
        assert_ptr_equal(found, facts);
        json_decref(found);
        json_decref(facts);
    }
}

/* ---- ranks on slots ---------------------------------------------------------------------------*/

static void layouts(void **state) {
    static struct rank_layout f;
    struct err e = { 0 };
    assert_int_equal(rank_layout_init(&f, 8, 3, &e), ERR_CONFIG);
    assert_int_equal(rank_layout_init(&f, 8, 2, &e), OK);
    assert_int_equal(rank_layout_assign(&f, 16, 2, &e), OK);
    assert_int_equal(f.world, 8);
    assert_true(f.first_rank[1] == 4 && f.ranks[1] == 4 && f.slot[1][3] == 3);
    rank_layout_drop_rank(&f, 5); /* task 1, slot 1: 7 are left; 16 sequences need 4 of them */
    assert_int_equal(rank_layout_assign(&f, 16, 2, &e), OK);
    assert_int_equal(f.world, 4);
    assert_true(f.ranks[0] == 4 && f.ranks[1] == 0);
    assert_int_equal(rank_layout_assign(&f, 14, 2, &e), OK);
    assert_int_equal(f.world, 7);
    assert_true(f.first_rank[1] == 4 && f.ranks[1] == 3);
    assert_true(f.slot[1][0] == 0 && f.slot[1][1] == 2 && f.slot[1][2] == 3);
    rank_layout_drop_task(&f, 0);
    assert_int_equal(rank_layout_assign(&f, 16, 2, &e), ERR_UNSUPPORTED);
}

/* ---- why an attempt ended ---------------------------------------------------------------------*/

/* An attempt of two ranks here and two there, in which nothing has happened. */
struct four_ranks {
    struct watch watch;
    struct attempt out;
    struct supervise_options options;
    struct peer_connection there;
    struct board here[2];
};

static struct watch *begin(struct four_ranks *f) {
    *f = (struct four_ranks){ .out = { .rank = -1, .error_step = -1 } };
    f->there = (struct peer_connection){ .task = 3, .first_rank = 2, .ranks = 2, .host = "there" };
    f->options = (struct supervise_options){ .ranks = 2, .world = 4, .peer = &f->there,
                                             .peers = 1 };
    f->watch = (struct watch){ .options = &f->options, .out = &f->out, .kill_at_ms = 1 };
    f->watch.ranks = (struct ranks){ .options = &f->options, .started = 2, .host = "here" };
    for (int i = 0; i < 2; i++) {
        f->watch.ranks.rank[i].board = &f->here[i];
        f->watch.state[2 + i].known = true;
    }
    return &f->watch;
}

static void report(struct watch *w, int64_t rank, const char *event) {
    json_t *parsed = json_loads(event, 0, NULL);
    assert_non_null(parsed);
    verdict_event(w, rank, parsed);
    json_decref(parsed);
}

static enum status discard(void *user, int64_t rank, const json_t *event, struct err *e) {
    return OK;
}

/* A part that ends before the attempt, and whose ranks have reported nothing, is a failure with a
 * reason. Where there is a cause, it changes nothing. */
static void an_unexplained_end_is_a_failure(void **state) {
    static struct four_ranks f;
    struct watch *w = begin(&f);
    verdict_unexplained(w, &f.there);
    assert_true(w->ended);
    assert_int_equal(f.out.end, ATTEMPT_FAILED);
    assert_int_equal(f.out.error.code, ERR_PEER);
    assert_string_equal(f.out.error.text, "task 3 on there ended its part of the attempt and "
                                          "reported no error");
    assert_int_equal(f.out.rank, -1);
    w = begin(&f);
    verdict_settle(w, ATTEMPT_SIGNAL);
    verdict_unexplained(w, &f.there);
    assert_int_equal(f.out.end, ATTEMPT_SIGNAL);
    assert_int_equal(f.out.error.code, OK);
}

/* Rank 0 reports a lost peer, then rank 3 dies: its death is the cause. Reports after it change
 * nothing. */
static void a_cause_replaces_a_reported_loss(void **state) {
    static const char LOST[] = "{\"event\":\"error\",\"code\":\"ERR_PEER\",\"text\":\"no answer\"}";
    static struct four_ranks f;
    struct watch *w = begin(&f);
    f.options.on_event = discard;
    f.here[0].met = f.here[1].met = true;
    w->state[3].phase = BOARD_STEPPING;
    w->state[3].step = 7;
    report(w, 0, LOST);
    assert_int_equal(f.out.end, ATTEMPT_FAILED);
    assert_int_equal(f.out.reported_loss, REPORTED_LOSS_LINK);
    assert_int_equal(f.out.rank, 0);
    report(w, 3, "{\"event\":\"exit\",\"status\":9,\"log_line\":\"\"}");
    assert_int_equal(f.out.end, ATTEMPT_CRASHED);
    assert_int_equal(f.out.reported_loss, REPORTED_LOSS_NONE);
    assert_int_equal(f.out.rank, 3);
    assert_int_equal(f.out.worker_signal, SIGKILL);
    assert_string_equal(f.out.host, "there");
    assert_string_equal(f.out.operation, "step 7");
    assert_string_equal(f.out.error.text, "rank 3 on there was killed by signal 9 (Killed), last "
                                          "at step 7");
    report(w, 1, LOST);
    report(w, 2, "{\"event\":\"exit\",\"status\":256}");
    assert_int_equal(f.out.rank, 3);
}

/* Rank 2, there, cannot connect to rank 1, and exits. Rank 0, which has all its links, loses one
 * and reports it first. A failed rendezvous counts for more. */
static void a_failed_rendezvous_is_no_lost_link(void **state) {
    static const char RESET[] = "{\"event\":\"error\",\"code\":\"ERR_PEER\","
                                "\"text\":\"Connection reset by peer\"}";
    static struct four_ranks f;
    struct watch *w = begin(&f);
    f.options.on_event = discard;
    f.here[0].met = w->state[3].met = true;
    f.here[0].note.lost = 1 << 2;
    report(w, 0, RESET);
    assert_int_equal(f.out.reported_loss, REPORTED_LOSS_LINK);
    report(w, 2, "{\"event\":\"error\",\"code\":\"ERR_PEER\",\"text\":\"rank 2 connects to "
                 "rank 1: no route\"}");
    report(w, 3, RESET);
    report(w, 1, RESET); /* the same kind of loss, later */
    verdict_conclude(w);
    assert_int_equal(f.out.reported_loss, REPORTED_LOSS_RENDEZVOUS);
    assert_string_equal(f.out.error.text, "rank 2 on there: rank 2 connects to rank 1: no route");
    assert_int_equal(f.out.rank, -1); /* a connection has two ends */
}

static void hang(struct four_ranks *f) {
    const struct rank_state there[2] = { f->watch.state[2], f->watch.state[3] };
    const struct board here[2] = { f->here[0], f->here[1] };
    struct watch *w = begin(f);
    f->out.last_step = 7;
    for (int i = 0; i < 2; i++) {
        f->here[i] = here[i];
        w->state[2 + i] = there[i];
    }
    verdict_hung(w, 6000);
    assert_int_equal(f->out.end, ATTEMPT_HUNG);
}

/* The rank at fault may be on another host. */
static void a_hang_has_a_rank(void **state) {
    const struct board nine = { .where = board_word(8, BOARD_STEPPING),
                                .note = { .at = { { .count = 9, .what = "all_gather" } } } };
    static struct four_ranks f;
    struct rank_state *there = begin(&f)->state + 2;
    f.here[0] = f.here[1] = nine;
    there[0] = (struct rank_state){ .known = true, .phase = BOARD_STEPPING, .step = 8,
                                    .comm = { .at = { 9, "all_reduce" } } };
    there[1] = there[0];
    there[1].silent_ticks = 5;
    hang(&f);
    assert_int_equal(f.out.rank, 3);
    assert_string_equal(f.out.host, "there");
    assert_string_equal(f.out.operation, "step 8, all_reduce (collective 9)");
    assert_string_equal(f.out.error.text, "rank 3 on there is frozen: no sign of life for 2 s "
                                          "(last at step 8, all_reduce (collective 9)); it was "
                                          "killed");
    there[0].silent_ticks = 9; /* which of the two is at fault is unknown */
    hang(&f);
    assert_int_equal(f.out.rank, -1);
    assert_string_equal(f.out.host, "");
    assert_string_equal(f.out.error.text, "2 ranks are frozen: no sign of life of rank 2 on there "
                                          "for 4 s (last at step 8, all_reduce (collective 9)), "
                                          "nor of the others; they were killed");
    there[0].silent_ticks = there[1].silent_ticks = 0;
    f.here[1].note.at[0].count = 8;
    board_device(&f.here[1], (const char[BOARD_DEVICE_CAP]){ "swiglu_bwd or matmul" });
    hang(&f);
    assert_int_equal(f.out.rank, 1);
    assert_string_equal(f.out.host, "here");
    assert_string_equal(f.out.error.text, "rank 1 on here hung: no event for 6 s after step 7, and "
                                          "all others wait for it (last at step 8, all_gather "
                                          "(collective 8), the device in swiglu_bwd or matmul); "
                                          "it was killed");
    f.here[1].note.at[0].count = 9;
    hang(&f);
    assert_int_equal(f.out.rank, -1);
    assert_string_equal(f.out.host, "");
    assert_string_equal(f.out.error.text, "all ranks hung: no event for 6 s after step 7 (rank 0 "
                                          "on here last at step 8, all_gather (collective 9)); "
                                          "they were killed");
}

/* Two ranks here, silent for `first` and `second` ticks. Whether that ends the attempt. */
static bool frozen(int64_t first, int64_t second, struct attempt *out) {
    const struct supervise_options options = { .ranks = 2, .world = 2 };
    static struct watch w;
    struct board board = { .where = board_word(8, BOARD_STARTING) };
    *out = (struct attempt){ .rank = -1 };
    w = (struct watch){ .options = &options, .out = out };
    w.ranks = (struct ranks){ .options = &options, .started = 2, .host = "here" };
    w.ranks.rank[0] = (struct rank){ .board = &board, .silent_ticks = first };
    w.ranks.rank[1] = (struct rank){ .board = &board, .silent_ticks = second };
    return verdict_frozen(&w, 40);
}

/* A single frozen rank is at fault. Of two, none is: something else may have frozen both. */
static void a_single_frozen_rank_is_blamed(void **state) {
    struct attempt a;
    assert_false(frozen(39, 39, &a));
    assert_int_equal(a.error.code, OK);
    assert_true(frozen(19, 40, &a));
    assert_int_equal(a.end, ATTEMPT_HUNG);
    assert_int_equal(a.rank, 1);
    assert_non_null(strstr(a.error.text, "rank 1 on here is frozen: no sign of life for 20 s"));
    assert_true(frozen(38, 40, &a));
    assert_int_equal(a.rank, -1);
    assert_non_null(strstr(a.error.text, "2 ranks are frozen: no sign of life of rank 1 on here"));
}

/* The leader judges the ranks of other hosts, too, by their last heartbeats. */
static void a_frozen_rank_of_another_host_is_blamed(void **state) {
    static struct four_ranks f;
    struct watch *w = begin(&f);
    w->state[3].silent_ticks = 39;
    assert_false(verdict_frozen(w, 40));
    w->state[3].silent_ticks = 40;
    assert_true(verdict_frozen(w, 40));
    assert_int_equal(f.out.end, ATTEMPT_HUNG);
    assert_int_equal(f.out.rank, 3);
    assert_string_equal(f.out.host, "there");
    w = begin(&f);
    w->state[2].silent_ticks = 25; /* one frozen switch, for example */
    w->state[3].silent_ticks = 40;
    assert_true(verdict_frozen(w, 40));
    assert_int_equal(f.out.rank, -1);
}

/* ---- a peer that does not read ----------------------------------------------------------------*/

/* Connects to `port`, and writes until no more fits. */
static int connect_and_fill(int port, int *user_ms, int lost_ms) {
    struct err e = { 0 };
    socklen_t size = sizeof *user_ms;
    char bytes[4096] = { 0 };
    int fd;
    assert_int_equal(wire_connect("127.0.0.1", port, clock_ms() + 60000, &fd, &e), OK);
    if (lost_ms) assert_int_equal(wire_set_lost_ms(fd, lost_ms, &e), OK);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, user_ms, &size), 0);
    while (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0) continue;
    assert_int_equal(errno, EAGAIN);
    return fd;
}

/* The kernel closes the connection to a peer that reads nothing, but not to a blocked leader. */
static void a_leader_may_block(void **state) {
    struct err e = { 0 };
    struct peer_connection leader, other;
    int listening, port, user_ms;
    socklen_t size = sizeof user_ms;
    assert_int_equal(wire_listen("127.0.0.1", 0, &listening, &port, &e), OK);
    int hasty = connect_and_fill(port, &user_ms, 1000);
    int patient = connect_and_fill(port, &user_ms, 0);
    assert_int_equal(user_ms, WIRE_LOST_MS);
    assert_int_equal(peer_connection_open(patient, 0, "there", &leader, &e), OK);
    assert_int_equal(getsockopt(patient, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, &size), 0);
    assert_true(user_ms >= SUPERVISE_LEADER_S * 1000);
    struct pollfd lost = { .fd = hasty };
    assert_int_equal(poll(&lost, 1, 60000), 1);
    assert_true(lost.revents & POLLERR);
    peer_connection_fill(&leader);
    assert_false(leader.lost);
    int follower = connect_and_fill(port, &user_ms, 0); /* a leader's connection to a follower */
    assert_int_equal(peer_connection_open(follower, 1, "there", &other, &e), OK);
    assert_int_equal(getsockopt(follower, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, &size), 0);
    assert_int_equal(user_ms, WIRE_LOST_MS);
    peer_connection_close(&other);
    peer_connection_close(&leader);
    close(hasty);
    close(listening);
}

/* ---- the secret -------------------------------------------------------------------------------*/

/* RFC 4231, test cases 2 and 6 (a key longer than a block). */
static void signatures(void **state) {
    char out[SHA256_HEX], key[132], again[SHA256_HEX];
    struct err e = { 0 };
    assert_int_equal(secret_sign("Jefe", "what do ya want for nothing?", out, &e), OK);
    assert_string_equal(out, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, 131);
    key[131] = '\0';
    assert_int_equal(secret_sign(key, "Test Using Larger Than Block-Size Key - Hash Key First",
                                 out, &e), OK);
    assert_string_equal(out, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    assert_true(secret_equal(out, out));
    assert_int_equal(secret_make(out, &e), OK);
    assert_int_equal(secret_make(again, &e), OK);
    assert_false(secret_equal(out, again));
    assert_true(sha256_is_hex(out));
}

/* The orders hold the nonce from which a follower derives the secret of the rendezvous. */
static void the_secret_of_a_rendezvous_is_not_sent(void **state) {
    struct err e = { 0 };
    struct peer_connection member, other;
    struct job_members members = { .task = { .count = 2 }, .peer = &member };
    struct rendezvous rendezvous = { .port = 7 };
    const struct rank_layout f = { .tasks = 2, .world = 2, .each = 1, .ranks = { 1, 1 },
                                 .first_rank = { 0, 1 } };
    char wanted[SHA256_HEX];
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    assert_int_equal(peer_connection_open(ends[0], 1, "there", &member, &e), OK);
    assert_int_equal(peer_connection_open(ends[1], 2, "here", &other, &e), OK);
    assert_int_equal(secret_make(members.secret, &e), OK);
    json_t *orders = json_object(), *part = NULL;
    assert_int_equal(deploy_parts(&members, orders, &f, &rendezvous, &e), OK);
    while (!part) {
        peer_connection_fill(&other);
        assert_false(other.lost);
        part = peer_connection_next(&other);
    }
    char *text = json_dumps(part, 0);
    assert_null(strstr(text, rendezvous.secret));
    assert_null(strstr(text, members.secret));
    const char *nonce = json_string_value(json_object_get(part, "nonce"));
    assert_non_null(nonce);
    assert_int_equal(secret_of_rendezvous(members.secret, nonce, wanted, &e), OK);
    assert_string_equal(rendezvous.secret, wanted);
    free(text);
    json_decref(part);
    json_decref(orders);
    peer_connection_close(&member);
    peer_connection_close(&other);
}

/* Rank 1, in a child process: returns its exit status. */
static int join_as_one(const struct rendezvous *rendezvous) {
    struct mesh mesh;
    return (int)rendezvous_join(rendezvous, 1, 2, -1, &mesh, NULL);
}

/* A process without the secret connects as rank 1. After it exits, the real rank 1 connects. 0: the
 * first was rejected, the second accepted. */
static int connect_after_unauthenticated(const struct rendezvous *rendezvous) {
    struct rendezvous guess = *rendezvous;
    int status = 0;
    guess.secret[0] ^= 1;
    pid_t stranger = fork();
    if (stranger == 0) _exit(join_as_one(&guess));
    bool left = waitpid(stranger, &status, 0) == stranger && WIFEXITED(status);
    /* ERR_PEER: the connection was closed while it wrote. */
    bool refused = left && (WEXITSTATUS(status) == ERR_VERIFY || WEXITSTATUS(status) == ERR_PEER);
    return refused && join_as_one(rendezvous) == OK ? 0 : 1;
}

/* A process without the secret is rejected. Silent connections, more than are served at a time, do
 * not keep a rank out. */
static void processes_without_the_secret(void **state) {
    struct rendezvous rendezvous = { .address = "127.0.0.1", .timeout_s = 60, .host = "here" };
    struct err e = { 0 };
    int listening, silent[LISTENER_CALLERS_MAX + 10], count = LISTENER_CALLERS_MAX + 10;
    assert_int_equal(wire_listen("127.0.0.1", 0, &listening, &rendezvous.port, &e), OK);
    assert_int_equal(secret_make(rendezvous.secret, &e), OK);
    int64_t late = clock_ms() + 60000;
    for (int i = 0; i < count; i++)
        assert_int_equal(wire_connect("127.0.0.1", rendezvous.port, late, &silent[i], &e), OK);
    pid_t friend = fork();
    if (friend == 0) _exit(connect_after_unauthenticated(&rendezvous));
    struct mesh mesh;
    enum status st = rendezvous_join(&rendezvous, 0, 2, listening, &mesh, &e);
    if (st != OK) fail_msg("%s", e.text);
    assert_string_equal(mesh.host[1], "here");
    int status = 0;
    assert_int_equal(waitpid(friend, &status, 0), friend);
    assert_int_equal(status, 0);
    mesh_close(&mesh);
    for (int i = 0; i < count; i++) close(silent[i]);
    close(listening);
}

/* Rank 1 is stopped after it connects and before its hello, until it is rejected. */
static void a_blocked_rank_connects_again(void **state) {
    struct rendezvous rendezvous = { .address = "127.0.0.1", .timeout_s = 60, .host = "here" };
    struct err e = { 0 };
    struct mesh mesh;
    struct listener listener;
    json_t *hello;
    int listening, fd, status = 0;
    assert_int_equal(wire_listen("127.0.0.1", 0, &listening, &rendezvous.port, &e), OK);
    assert_int_equal(secret_make(rendezvous.secret, &e), OK);
    pid_t other = fork();
    if (other == 0) _exit(join_as_one(&rendezvous));
    struct pollfd call = { .fd = listening, .events = POLLIN };
    assert_int_equal(poll(&call, 1, 60000), 1);
    assert_int_equal(kill(other, SIGSTOP), 0);
    listener_open(listening, rendezvous.secret, &listener);
    while (!listener.rejected) {
        assert_int_equal(listener_next(&listener, clock_ms() + 500, -1, &fd, &hello, &e), OK);
        assert_int_equal(fd, -1);
    }
    listener_close(&listener);
    assert_int_equal(kill(other, SIGCONT), 0);
    if (rendezvous_join(&rendezvous, 0, 2, listening, &mesh, &e) != OK) fail_msg("%s", e.text);
    assert_int_equal(waitpid(other, &status, 0), other);
    assert_int_equal(status, 0);
    mesh_close(&mesh);
    close(listening);
}

/* Connects as a rank; whether the handshake succeeded. */
static bool send_hello(const struct rendezvous *rendezvous, int rank, const char *caller, int *fd) {
    int64_t late = clock_ms() + 60000;
    json_t *hello = json_pack("{s:i,s:i,s:i,s:s,s:s}", "rank", rank, "world", 3, "port", 0,
                              "caller", caller, "host", "there");
    bool good = wire_connect("127.0.0.1", rendezvous->port, late, fd, NULL) == OK &&
                wire_call(*fd, rendezvous->secret, hello, late, NULL) == OK;
    json_decref(hello);
    return good;
}

/* Rank 1 connects with the id `first` and then `second`, rank 2 once. Returns rank 0's status. */
static enum status connect_twice(const char *first, const char *second, struct err *e) {
    struct rendezvous rendezvous = { .timeout_s = 60, .host = "here" };
    struct mesh mesh;
    int listening, fd[3], status = 0;
    assert_int_equal(wire_listen("127.0.0.1", 0, &listening, &rendezvous.port, e), OK);
    assert_int_equal(secret_make(rendezvous.secret, e), OK);
    pid_t others = fork();
    if (others == 0)
        _exit(send_hello(&rendezvous, 1, first, &fd[0]) &&
              send_hello(&rendezvous, 1, second, &fd[1]) &&
              send_hello(&rendezvous, 2, first, &fd[2]) ? 0 : 1);
    enum status st = rendezvous_join(&rendezvous, 0, 3, listening, &mesh, e);
    close(listening);
    mesh_close(&mesh);
    if (st != OK) (void)kill(others, SIGKILL); /* its next attempt would wait for an answer */
    assert_int_equal(waitpid(others, &status, 0), others);
    if (st == OK) assert_int_equal(status, 0);
    return st;
}

static void a_rank_may_connect_twice_but_not_two_processes(void **state) {
    struct err e = { 0 };
    if (connect_twice("a", "a", &e) != OK) fail_msg("%s", e.text);
    assert_int_equal(connect_twice("a", "b", &e), ERR_STATE);
    assert_string_equal(e.text, "two processes connected as rank 1: on there and on there");
}

static void a_missing_rank_is_named(void **state) {
    struct rendezvous rendezvous = { .timeout_s = 1, .host = "here",
                               .expected = { "here", "here", "there", "there" } };
    struct err e = { 0 };
    struct mesh mesh;
    int listening;
    assert_int_equal(wire_listen("127.0.0.1", 0, &listening, &rendezvous.port, &e), OK);
    assert_int_equal(rendezvous_join(&rendezvous, 0, 5, listening, &mesh, &e), ERR_PEER);
    assert_string_equal(e.text, "rendezvous: rank 1 on here, 2, 3 on there, 4 did not connect to "
                                "rank 0 of 5 on here within 1 s");
    mesh_close(&mesh);
    close(listening);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_by_launcher), cmocka_unit_test(tasks_that_do_not_fit_together),
        cmocka_unit_test(devices_of_tasks), cmocka_unit_test(gpus_of_all_hosts),
        cmocka_unit_test(a_job_file_of_another_user_is_rejected),
        cmocka_unit_test(tasks_of_a_host_need_a_local_index),
        cmocka_unit_test(hosts_with_other_numbers_of_tasks),
        cmocka_unit_test(memory_of_all_hosts), cmocka_unit_test(layouts),
        cmocka_unit_test(an_unexplained_end_is_a_failure),
        cmocka_unit_test(a_cause_replaces_a_reported_loss),
        cmocka_unit_test(a_failed_rendezvous_is_no_lost_link), cmocka_unit_test(a_hang_has_a_rank),
        cmocka_unit_test(a_single_frozen_rank_is_blamed),
        cmocka_unit_test(a_frozen_rank_of_another_host_is_blamed),
        cmocka_unit_test(a_leader_may_block), cmocka_unit_test(signatures),
        cmocka_unit_test(the_secret_of_a_rendezvous_is_not_sent),
        cmocka_unit_test(processes_without_the_secret),
        cmocka_unit_test(a_blocked_rank_connects_again),
        cmocka_unit_test(a_rank_may_connect_twice_but_not_two_processes),
        cmocka_unit_test(a_missing_rank_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
