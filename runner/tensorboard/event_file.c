#include "runner/tensorboard/event_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runner/record/documents.h"

/* ---- checksums --------------------------------------------------------------------------------*/

/* CRC-32C of RFC 3720, the polynomial 0x82f63b78 with its bits reversed, four bits at a time. */
static uint32_t crc32c(const void *bytes, size_t n) {
    static const uint32_t QUARTER[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    const unsigned char *x = bytes;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc = QUARTER[(crc ^ x[i]) & 15] ^ crc >> 4;
        crc = QUARTER[(crc ^ x[i] >> 4) & 15] ^ crc >> 4;
    }
    return ~crc;
}

uint32_t event_file_checksum(const void *bytes, size_t n) {
    uint32_t crc = crc32c(bytes, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- the file ---------------------------------------------------------------------------------*/

static const char HEAD[] = "events.out.tfevents.", TAIL[] = ".fp8lab";

/* The largest number of an earlier file in the folder; 0: there is none. */
static enum status last_number(int folder, int64_t *out, struct err *e) {
    *out = 0;
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
    if (!list) {
        if (copy >= 0) close(copy);
        return FAIL(e, ERR_IO, "list %s: %s", RUN_PATH_tensorboard, strerror(errno));
    }
    for (const struct dirent *entry; (entry = readdir(list));) {
        if (strncmp(entry->d_name, HEAD, sizeof HEAD - 1) != 0) continue;
        int64_t number = strtoll(entry->d_name + sizeof HEAD - 1, NULL, 10);
        if (number > *out) *out = number;
    }
    closedir(list);
    return OK;
}

static enum status open_folder(const struct run_dir *dir, int *out, struct err *e) {
    int data = open_beneath(dir->root, "data", O_RDONLY | O_DIRECTORY, 0, 0);
    if (data < 0) return open_beneath_failed(dir->path, "data", e);
    bool made = mkdirat(data, strrchr(RUN_PATH_tensorboard, '/') + 1, 0777) == 0 || errno == EEXIST;
    int why = errno;
    close(data);
    if (!made) return FAIL(e, ERR_IO, "make %s/%s: %s", dir->path, RUN_PATH_tensorboard,
                           strerror(why));
    *out = open_beneath(dir->root, RUN_PATH_tensorboard, O_RDONLY | O_DIRECTORY, 0, 0);
    return *out >= 0 ? OK : open_beneath_failed(dir->path, RUN_PATH_tensorboard, e);
}

/* The number is the time in seconds, as in other programs' files, or the last one's successor. */
enum status event_file_create(const struct run_dir *dir, struct event_file *out, struct err *e) {
    int64_t last, number = (int64_t)time(NULL);
    int folder = -1;
    *out = (struct event_file){ .fd = -1 };
    TRY(open_folder(dir, &folder, e));
    enum status st = last_number(folder, &last, e);
    if (st == OK) {
        if (number <= last) number = last + 1;
        snprintf(out->name, sizeof out->name, "%s%010" PRId64 "%s", HEAD, number, TAIL);
        out->fd = openat(folder, out->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                         0644);
        if (out->fd < 0)
            st = FAIL(e, ERR_IO, "create %s/%s/%s: %s", dir->path, RUN_PATH_tensorboard, out->name,
                      strerror(errno));
    }
    close(folder);
    return st;
}

static void add_number(struct text *record, uint64_t value, size_t bytes) {
    char raw[sizeof value];
    memcpy(raw, &value, sizeof value); /* little-endian: message.c checks */
    text_add(record, raw, bytes);
}

enum status event_file_add(struct event_file *f, const struct text *bytes, struct err *e) {
    struct text *r = &f->record;
    uint64_t length = bytes->size;
    r->size = 0;
    add_number(r, length, 8);
    add_number(r, event_file_checksum(&length, sizeof length), 4);
    if (!bytes->failed) text_add(r, bytes->bytes, bytes->size);
    add_number(r, event_file_checksum(bytes->bytes, bytes->failed ? 0 : bytes->size), 4);
    if (bytes->failed || r->failed)
        return FAIL(e, ERR_MEMORY, "a record of %s/%s", RUN_PATH_tensorboard, f->name);
    enum status st = write_all(f->fd, r->bytes, r->size, f->name, e);
    if (st == OK) f->size += (int64_t)r->size;
    else if (ftruncate(f->fd, f->size) != 0) err_prefix(e, "and its torn last record remains");
    return st;
}

void event_file_close(struct event_file *f) {
    if (f->fd >= 0) close(f->fd);
    text_free(&f->record);
    f->fd = -1;
}
