/* Environment variables of a launcher. If they are left in a shell, `fp8lab run` waits for tasks
 * that were never started. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "runner/doctor/doctor.h"
#include "runner/job/task.h"

static const char *variable(const char *name) { return getenv(name); }

void doctor_launcher(struct doctor *d) {
    struct task task;
    struct err e = { 0 };
    char fix[160];
    if (!d->here) return;
    if (task_find(variable, &task, &e) != OK) {
        doctor_say(d, FINDING_WRONG, "launcher", "correct these variables or unset them: `fp8lab "
                   "run` refuses them as they are", "%s", e.text);
    } else if (task.count > 1) {
        snprintf(fix, sizeof fix, "unset %s %s, unless %s started this command", task.index_name,
                 task.count_name, task.launcher);
        doctor_say(d, FINDING_WARNING, "launcher", fix, "%s=%" PRId64 " and %s=%" PRId64
                   " are set, as by %s: `fp8lab run` is task %" PRId64 " of %" PRId64 " here, and "
                   "waits for the others", task.index_name, task.index, task.count_name, task.count,
                   task.launcher, task.index, task.count);
    }
}
