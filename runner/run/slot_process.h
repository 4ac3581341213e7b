/* The process of a slot: the same command once more, with its share of the machine in its
 * environment. What it prints comes through pipes, line by line, each behind the slot's name. */
#ifndef FP8LAB_RUNNER_RUN_SLOT_PROCESS_H
#define FP8LAB_RUNNER_RUN_SLOT_PROCESS_H

#include <stdio.h>
#include <sys/types.h>

#include "kernels/base.h"
#include "runner/base/signals.h"

struct event_reader;
struct event_writer;

/* Its stdout or stderr. */
struct slot_lines {
    int fd; /* -1: closed */
    FILE *to;
    char *text; /* owned: what has no end of line yet */
    size_t used, room;
};

enum { SLOT_OUT, SLOT_ERR, SLOT_STREAMS };

struct slot_process {
    const char *name; /* borrowed */
    pid_t pid;        /* 0: it has ended */
    int ended_how;    /* as waitpid() reports it */
    struct event_reader *in; /* its messages; NULL: it was not started */
    struct event_writer *out;
    bool open;        /* more messages may come */
    struct slot_lines lines[SLOT_STREAMS];
};

/* Starts it. argv: of this command. visible: its CUDA_VISIBLE_DEVICES, or NULL: this process's.
 * results: where its stdout goes. It has the signal mask of before `signals`, a process group of
 * its own, so that a terminal's Ctrl-C reaches this process only, and dies with this one. Close
 * *out whatever the status. */
NODISCARD enum status slot_process_start(const char *const *argv, const char *visible,
                                         const struct signals *signals, FILE *results,
                                         const char *name, struct slot_process *out,
                                         struct err *e);
void slot_process_close(struct slot_process *p); /* safe on a zeroed struct; kills what runs */

/* Prints the whole lines that have come. `all`: also a last one without an end. */
void slot_process_print(struct slot_process *p, bool all);

/* Whether it has ended by now, and all that it printed was printed. */
bool slot_process_reap(struct slot_process *p);

/* "exit code 6", "signal 9 (Killed)". */
void slot_process_end_text(const struct slot_process *p, char *out, size_t size);

#endif
