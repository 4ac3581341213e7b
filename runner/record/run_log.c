#include "runner/record/run_log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void run_log(const struct run_dir *dir, const char *format, ...) {
    char when[32];
    struct err ignored;
    int fd;
    if (open_file_beneath(dir->root, RUN_LOG_FILE, O_WRONLY | O_APPEND | O_CREAT, dir->path, &fd,
                     &ignored) != OK)
        return;
    FILE *f = fdopen(fd, "a");
    if (!f) {
        close(fd);
        return;
    }
    run_time_now_ms(when);
    fprintf(f, "%s ", when);
    va_list args;
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    putc('\n', f);
    fclose(f);
}
