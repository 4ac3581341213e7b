/* Damaged files of weights and configurations: an error or values, never a crash. Each byte of a
 * small valid file is changed in turn, and the file is cut at each length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runner/weights/hf_config.h"
#include "runner/weights/llmc_file.h"
#include "runner/weights/tensor_files.h"

static const char HEADER[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],"
    "\"data_offsets\":[0,16]},\"b\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[16,22]},"
    "\"c\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[22,24]},"
    "\"d\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[24,32]}}";
static const unsigned char VALUES[32] = { 0, 0, 128, 63, [16] = 0, 60, 1, 0, [22] = 56, 0xff };
static const char CONFIG[] =
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"intermediate_size\":96,\"vocab_size\":300,\"rope_scaling\":"
    "{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
    "\"original_max_position_embeddings\":8192},\"quantization_config\":{\"quant_method\":\"fp8\","
    "\"weight_block_size\":[128,128]},\"layer_types\":[\"full_attention\",\"full_attention\"]}";

struct file { char path[64]; unsigned char bytes[4096]; size_t n; };

static void make(struct file *f) {
    size_t length = sizeof HEADER - 1;
    strcpy(f->path, "/tmp/fp8lab-damage-XXXXXX");
    int fd = mkstemp(f->path);
    assert_true(fd >= 0);
    close(fd);
    memset(f->bytes, 0, 8);
    f->bytes[0] = (unsigned char)length;
    f->bytes[1] = (unsigned char)(length >> 8);
    memcpy(f->bytes + 8, HEADER, length);
    memcpy(f->bytes + 8 + length, VALUES, sizeof VALUES);
    f->n = 8 + length + sizeof VALUES;
}

static void put(const struct file *f, size_t n) {
    FILE *out = fopen(f->path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(f->bytes, 1, n, out), n);
    fclose(out);
}

/* Opens the file and reads every tensor; returns whether that succeeded. */
static bool use(const struct file *f) {
    struct tensor_files t;
    struct err e = { 0 };
    float values[16];
    enum status st = tensor_files_open(f->path, &t, &e);
    for (int64_t i = 0; st == OK && i < t.count; i++) {
        struct tensor_entry *x = &t.entry[i];
        char text[96];
        tensor_text(x, text);
        st = tensor_hash(&t, x, &e);
        int64_t count = 1;
        for (int k = 0; k < x->rank && k < TENSOR_DIMS; k++) count *= x->shape[k];
        if (st == OK && x->type != WEIGHT_OTHER && count <= 16)
            st = tensor_read(&t, x, 0, count, values, &e);
    }
    if (st != OK) assert_true(e.text[0] != '\0');
    tensor_files_close(&t);
    return st == OK;
}

static void tensors(void **state) {
    struct file f;
    (void)state;
    make(&f);
    put(&f, f.n);
    assert_true(use(&f));
    for (size_t n = 0; n < f.n; n++) {
        put(&f, n);
        assert_false(use(&f));
    }
    for (size_t i = 0; i < f.n; i++)
        for (int change = 1; change < 256; change *= 4) {
            f.bytes[i] ^= (unsigned char)change;
            put(&f, f.n);
            (void)use(&f);
            f.bytes[i] ^= (unsigned char)change;
        }
    unlink(f.path);
}

/* Replaces a part of the header by another of the same length. */
static void change(struct file *f, const char *find, const char *by) {
    char *at = memmem(f->bytes, f->n, find, strlen(find));
    assert_non_null(at);
    assert_int_equal(strlen(find), strlen(by));
    memcpy(at, by, strlen(by));
}

static void tensors_follow_each_other(void **state) {
    struct file f;
    (void)state;
    make(&f);
    f.n++;
    put(&f, f.n);
    assert_false(use(&f));
    f.n--;
    change(&f, "[22,24]", "[20,22]"); /* c overlaps b */
    put(&f, f.n);
    assert_false(use(&f));
    change(&f, "[20,22]", "[22,24]");
    change(&f, "[24,32]", "[25,32]"); /* a gap before d, whose type no weight has */
    put(&f, f.n);
    assert_false(use(&f));
    change(&f, "[25,32]", "[24,32]");
    put(&f, f.n);
    assert_true(use(&f));
    unlink(f.path);
}

static void configurations(void **state) {
    char text[sizeof CONFIG];
    (void)state;
    for (size_t i = 0; i < sizeof CONFIG - 1; i++)
        for (int change = 1; change < 256; change *= 2) {
            struct err e = { 0 };
            json_t *model = NULL;
            memcpy(text, CONFIG, sizeof text);
            text[i] ^= (char)change;
            enum status st = hf_config_read(text, sizeof text - 1, "c.json", &model, &e);
            assert_true(st == OK ? model != NULL : model == NULL && e.text[0]);
            json_decref(model);
        }
}

/* Sizes of a hostile header are checked before anything is allocated for them. */
static void llmc_headers(void **state) {
    static const int32_t SIZES[] = { 0, -1, 1, 1 << 24, INT32_MAX };
    struct file f;
    (void)state;
    make(&f);
    memset(f.bytes, 0, 1024);
    for (int field = 2; field < 8; field++)
        for (size_t k = 0; k < sizeof SIZES / sizeof *SIZES; k++) {
            int32_t header[8] = { 20240326, 3, 8, 16, 1, 1, 8, 128 };
            struct tensor_files t;
            struct err e = { 0 };
            bool is;
            header[field] = SIZES[k];
            memcpy(f.bytes, header, sizeof header);
            put(&f, 1024);
            assert_int_not_equal(llmc_open(f.path, &t, &is, &e), OK);
            assert_true(is);
            tensor_files_close(&t);
        }
    unlink(f.path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors),
        cmocka_unit_test(tensors_follow_each_other),
        cmocka_unit_test(configurations),
        cmocka_unit_test(llmc_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
