/* Which candidates of a trial are timed, and how often: trial.cu without its device. */
#ifndef FP8LAB_KERNELS_CUDA_TRIAL_ROUNDS_H
#define FP8LAB_KERNELS_CUDA_TRIAL_ROUNDS_H

#include <float.h>
#include <math.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ROUNDS = 3,         /* timings of each candidate; its best time counts */
    RUNS = 3,           /* runs in one timing; one in the first */
    LONG_US = 300,      /* runs this long: two timings of one run each are enough */
    FAR_PERCENT = 25,   /* slower than the best by more: not timed again */
    FAR_US = 200,       /* of shorter runs one timing tells less: FAR_SHORT_PERCENT */
    FAR_SHORT_PERCENT = 100,
    CLEAR_PERCENT = 10, /* a greater lead than the clock of a hot device turns (LOG.md: 8 %) */
    SHORT_US = 20,      /* runs this short do not heat the device: their clock does not fall */
    SETTLE_US = 6000,   /* run time of each candidate until the clock has adapted to both */
    SLICE_US = 3000,    /* run time of a candidate's turn after that */
    SLICES = 4,         /* even: each is first as often as second */
    RUNS_MAX = 2000,
};

/* Microseconds for one of `runs` runs in a row of candidate i; negative if it failed. */
typedef float (*rounds_time)(void *context, int i, int runs);

/* What is known of a candidate before its trial. */
struct trial_hint {
    bool counts; /* it may be chosen; others are timed once, to say what a choice among all gives */
    float seen;  /* microseconds of a run of the same shape just before; negative: none */
};

/* us of a candidate that ran but is too slow to be timed. */
static const float ROUNDS_TOO_SLOW = FLT_MAX;

/* Whether a time is so far from the best that no other timing would change the choice. */
static inline bool rounds_is_far(float us, float best) {
    float percent = best < (float)FAR_US ? (float)FAR_SHORT_PERCENT : (float)FAR_PERCENT;
    return us / (100.0f + percent) > best / 100.0f;
}

/* The least time that was seen of those that may be chosen; FLT_MAX: none was seen. */
static inline float rounds_seen(int count, const struct trial_hint *hint) {
    float least = FLT_MAX;
    for (int i = 0; hint && i < count; i++)
        if (hint[i].counts && hint[i].seen >= 0.0f) least = fminf(least, hint[i].seen);
    return least;
}

/* us [count] <- the best time of each: trial_run. hint [count]; NULL: nothing is known, and all may
 * be chosen. */
static inline void rounds_run(rounds_time time, void *context, int count,
                              const struct trial_hint *hint, float *us) {
    float best = FLT_MAX, seen = rounds_seen(count, hint);
    bool warm = seen < FLT_MAX, tells = warm && seen >= (float)FAR_US;
    int rounds = ROUNDS, runs = 1;
    for (int i = 0; i < count; i++) us[i] = ROUNDS_TOO_SLOW;
    for (int round = warm ? 0 : -1; round < rounds; round++) { /* round -1 warms up */
        for (int i = 0; i < count; i++) {
            bool counts = !hint || hint[i].counts;
            if (us[i] < 0.0f || (tells && rounds_is_far(hint[i].seen, seen))) continue;
            if (round > 0 && (!counts || rounds_is_far(us[i], best))) continue;
            float t = time(context, i, runs);
            if (t < 0.0f) us[i] = t;
            else if (round >= 0) us[i] = fminf(us[i], t);
            if (round >= 0 && t >= 0.0f && counts) best = fminf(best, t);
        }
        if (round == 0 && best > (float)LONG_US) rounds = 2;
        else if (round == 0) runs = RUNS;
    }
}

/* How many runs take slice_us: at least one, at most what the host queues in a moment. */
static inline int rounds_within(int slice_us, float us) {
    return 1 + (int)fminf((float)slice_us / fmaxf(us, 1.0f), (float)RUNS_MAX);
}

/* Whether short bursts have decided: too short to heat the device, or one leads clearly. */
static inline bool rounds_decided(int count, const float *us) {
    float best = FLT_MAX, second = FLT_MAX, longest = 0.0f;
    for (int i = 0; i < count; i++) {
        if (us[i] < 0.0f) continue;
        longest = fmaxf(longest, us[i]);
        second = fminf(second, fmaxf(best, us[i]));
        best = fminf(best, us[i]);
    }
    return longest < (float)SHORT_US || second / (100.0f + CLEAR_PERCENT) > best / 100.0f;
}

/* us [count] <- the mean times by turns: trial_settled. sum [count]: memory. Every second turn goes
 * backwards, so that a clock that still falls slows all alike. */
static inline void rounds_settled(rounds_time time, void *context, int count, float *sum,
                                  float *us) {
    rounds_run(time, context, count, NULL, us);
    if (rounds_decided(count, us)) return;
    for (int i = 0; i < count; i++) {
        sum[i] = 0.0f;
        if (us[i] >= 0.0f) us[i] = time(context, i, rounds_within(SETTLE_US, us[i]));
    }
    for (int slice = 0; slice < SLICES; slice++)
        for (int n = 0; n < count; n++) {
            int i = slice % 2 ? n : count - 1 - n;
            if (us[i] < 0.0f) continue;
            float t = time(context, i, rounds_within(SLICE_US, us[i]));
            if (t < 0.0f) us[i] = t;
            else sum[i] += t;
        }
    for (int i = 0; i < count; i++)
        if (us[i] >= 0.0f) us[i] = sum[i] / SLICES;
}

#ifdef __cplusplus
}
#endif
#endif
