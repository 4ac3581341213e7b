/* Opens each library on the command line, and each library in each folder on it (RTLD_NOW). CUDA
 * libraries open their parts by name when a graph needs them, and ldd does not show these parts.
 * This program checks each library that an image has. Exit code 1 if one does not open. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int open_one(const char *path) {
    if (dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
        printf("opens  %s\n", path);
        return 0;
    }
    fprintf(stderr, "FAILS  %s: %s\n", path, dlerror());
    return 1;
}

static int open_all(const char *folder) {
    DIR *d = opendir(folder);
    int failed = d == NULL;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        char path[4096];
        if (!strstr(entry->d_name, ".so")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        failed |= open_one(path);
    }
    if (d) closedir(d);
    return failed;
}

int main(int argc, char **argv) {
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        struct stat info;
        int is_folder = stat(argv[i], &info) == 0 && S_ISDIR(info.st_mode);
        failed |= is_folder ? open_all(argv[i]) : open_one(argv[i]);
    }
    return failed;
}
