#include "runner/record/run_log.h"

#include <stdarg.h>
#include <stdio.h>

void run_log(const struct run_dir *dir, const char *format, ...) {
    char path[PATH_CAP], when[32];
    if (path_join(path, dir->path, RUN_LOG_FILE, NULL) != OK) return;
    FILE *f = fopen(path, "ae");
    if (!f) return;
    run_time_now(when);
    fprintf(f, "%s ", when);
    va_list args;
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    putc('\n', f);
    fclose(f);
}
