/* Private to the backend's own files: the slots of the table that are not operators, and shared
 * functions. */
#ifndef FP8LAB_KERNELS_CUDA_BACKEND_CUH
#define FP8LAB_KERNELS_CUDA_BACKEND_CUH

#include "kernels/cuda/cuda_common.cuh"

/* ---- cuda_memory.cu ---- */
enum status cuda_info(struct backend *b, struct device_info *info, struct err *e);
enum status cuda_memory_create(struct backend *b, const char *what, int64_t bytes, void **out,
                               struct err *e);
enum status cuda_memory_create_pinned(struct backend *b, const char *what, int64_t bytes,
                                      void **out, struct err *e);
void cuda_memory_destroy(struct backend *b, void *memory);
enum status cuda_upload(struct backend *b, int lane, void *data, const void *host, int64_t bytes,
                        struct err *e);
enum status cuda_download(struct backend *b, int lane, void *host, const void *data, int64_t bytes,
                          struct err *e);

/* ---- cuda_order.cu ---- */
enum status cuda_order_open(struct cuda_backend *b, struct err *e);
void cuda_order_close(struct cuda_backend *b);
enum status cuda_readback(struct backend *b, int lane, int slot, const void *data, int64_t bytes,
                          struct err *e);
enum status cuda_readback_ready(struct backend *b, int slot, bool *ready, struct err *e);
enum status cuda_readback_fetch(struct backend *b, int slot, void *host, struct err *e);
enum status cuda_signal(struct backend *b, int lane, int event, struct err *e);
enum status cuda_wait(struct backend *b, int lane, int event, struct err *e);
enum status cuda_graph_replay(struct backend *b, enum graph_key key, bool *replayed,
                              struct err *e);
enum status cuda_graph_begin(struct backend *b, enum graph_key key, struct err *e);
enum status cuda_graph_end(struct backend *b, enum graph_key key, struct err *e);
void cuda_graph_drop(struct backend *b);

/* ---- cuda_timer.cu ---- */
enum status cuda_timer_mark(struct backend *b, int lane, int mark, struct err *e);
enum status cuda_timer_read(struct backend *b, int from, int to, double *us, struct err *e);
void cuda_timer_close(struct cuda_backend *b);

/* ---- cuda_libraries.cu ---- */
bool cuda_library(struct backend *b, int64_t i, struct library *out);

/* ---- choices.cu ---- */
enum status cuda_choices_save(struct backend *b, char **text, struct err *e);
enum status cuda_choices_load(struct backend *b, const char *text, struct err *e);
enum status cuda_choices_offer(struct backend *b, const char *text, struct err *e);
enum status cuda_choices_timed(struct backend *b, char **text, struct err *e);
double cuda_choosing_seconds(struct backend *b);
enum status cuda_attention_backend(struct backend *b, enum attention_backend which,
                                   struct err *e);
bool cuda_decision(struct backend *b, int64_t i, struct decision *out);
enum status cuda_assume_architecture(struct backend *b, const char *architecture, struct err *e);
enum status cuda_forbid(struct backend *b, const char *section, const char *way, struct err *e);
enum status cuda_set_exact(struct backend *b, bool exact, struct err *e);
void cuda_decisions_close(struct cuda_backend *b);

#endif
