/* How a device runs FP8 attention: its kernel is chosen apart from the recipe's products. */
#ifndef FP8LAB_RUNNER_ADVISE_ATTENTION_WAY_H
#define FP8LAB_RUNNER_ADVISE_ATTENTION_WAY_H

struct json_t;

enum attention_way {
    ATTENTION_WAY_PLAIN,  /* no FP8 attention; or the CPU, which defines it */
    ATTENTION_WAY_EMULATED,
    ATTENTION_WAY_EITHER, /* cuDNN if its plan is deterministic, else emulated */
    ATTENTION_WAY_CUDNN   /* cuDNN, or the run ends */
};

/* config: resolved. cc: of the GPU, 90 for 9.0; 0: the CPU. */
enum attention_way attention_way(const struct json_t *config, int cc);
/* All static. */
const char *attention_way_name(enum attention_way way); /* "emulated"; NULL: plain */
const char *attention_way_text(enum attention_way way); /* "FP8 attention is emulated here"; "" */
/* What to do about a way that is slower than attention in BF16; "" for the others. */
const char *attention_way_hint(enum attention_way way);

#endif
