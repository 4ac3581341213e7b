/* The processes in which a script's function renders conversations.
 *
 * One child of the caller evaluates the script once and becomes the first server; the other servers
 * are its copies. A server forks for each conversation, so nothing that the function changes is
 * left for the next one: fragments depend on the conversation alone. */
#ifndef FP8LAB_RUNNER_SCRIPT_RENDER_CHILD_H
#define FP8LAB_RUNNER_SCRIPT_RENDER_CHILD_H

#include "runner/base/canonical.h"
#include "runner/script/script_state.h"

struct render_servers {
    const char *path, *lib; /* of the script; lib may be NULL */
    const char *function;   /* its name: function_name.h */
    const struct script_limits *limits; /* of the evaluation, and of each conversation */
    struct script_trail *trail;         /* of the evaluation */
    int (*channels)[2]; /* sockets: [0] is the caller's end, [1] the server's */
    int count;
};

/* Serves until the caller closes its ends. The first frame of channel 0 says how the evaluation
 * ended: OK with [{"name", "sha256"}] of the files, or an error's status and text. Then each frame
 * is answered by one: OK with [{"text", "loss", "special"}], or a status and a text. ERR_FORMAT is
 * an error of the function, or a limit that every machine reaches with this conversation. */
_Noreturn void render_serve(const struct render_servers *r);

/* A frame is a status, a length, and the bytes. False: the other end is gone, or no memory. */
bool frame_send(int fd, enum status st, const char *bytes, size_t n);
bool frame_receive(int fd, enum status *st, struct text *out);

#endif
