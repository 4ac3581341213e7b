/* The record of running operators as three parties use it. A thread queues operators, the heartbeat
 * asks for them, and the device sets their marks. CUDA is a stand-in: a third thread sets the marks
 * in the order in which they were queued. */
#include <pthread.h>

#include <atomic>

/* Its functions for one operator and one mark are static. */
#include "kernels/cuda/cuda_progress.cu"

enum { OPERATORS = 4000 /* below MARKS_MAX * GROUP: each name is written once */, ANSWERS = 100 };

/* ---- the device ---- */

static struct { unsigned char *at, value; } queued[OPERATORS];
static std::atomic<int> queue_end, device_end, answers, wrong;
static std::atomic<bool> done;

/* Called by the stand-in's cudaMemsetAsync (cudart_stand_in.c). */
extern "C" void queue_mark(unsigned char *at, int value) {
    queued[queue_end].at = at;
    queued[queue_end].value = (unsigned char)value;
    queue_end++;
}

/* Sets no mark before the heartbeat has found operators running a hundred times. */
static void *run_device(void *context) {
    while (!done || device_end < queue_end) {
        if (device_end == queue_end || answers < ANSWERS) continue;
        __atomic_store_n(queued[device_end].at, queued[device_end].value, __ATOMIC_RELAXED);
        device_end++;
    }
    return NULL;
}

/* ---- the heartbeat ---- */

static void *ask(void *context) {
    struct backend *b = (struct backend *)context;
    char names[4 * 100];
    while (!done) {
        if (!cuda_in_progress(b, names, sizeof names)) continue;
        answers++;
        if (strncmp(names, "operator ", 9) != 0) wrong++;
    }
    return NULL;
}

int main(void) {
    static struct cuda_backend b; /* no member but progress and a lane is used */
    struct err e = {};
    pthread_t device, heartbeat;
    char names[400], detail[32];
    if (cuda_progress_open(&b, &e) != OK) {
        printf("FAILED: %s\n", e.text);
        return 1;
    }
    pthread_create(&device, NULL, run_device, NULL);
    pthread_create(&heartbeat, NULL, ask, &b.base);
    for (int i = 0; i < OPERATORS; i++) {
        snprintf(detail, sizeof detail, "%d", i);
        if (note(&b.base, LANE_COMPUTE, "operator", detail, &e) != OK)
            printf("FAILED: %s\n", e.text);
    }
    while (device_end < queue_end) continue;
    done = true;
    pthread_join(device, NULL);
    pthread_join(heartbeat, NULL);
    if (cuda_in_progress(&b.base, names, sizeof names))
        printf("FAILED: all marks are set, and %s is running\n", names);
    if (wrong) printf("FAILED: %d answers name no operator\n", wrong.load());
    printf("%d operators, %d answers while some were running\n", (int)OPERATORS, answers.load());
    cuda_progress_close(&b);
    return 0;
}
