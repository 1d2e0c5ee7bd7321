/*
 * Times the plan's best few configurations for a shape on the device, and keeps the fastest in the
 * tuning database.
 *
 * A run takes memory of its own, fills it with random numbers, and submits trials to the queue like
 * a client's products, one at a time, the candidates in turns; the worker times them. A trial is
 * never longer than what the queue commits at once: a small product is launched several times in
 * one, a large one goes as slices, so a client waits behind tuning no longer than behind another
 * client. One run at a time.
 *
 * Runs are asked for ("tune"), or begun by the daemon itself for the shapes that came most often,
 * when nothing else has been asked for a while (TUNER_IDLE); then trials also wait as long as there
 * is other work.
 *
 * Owner: the server, by value. Thread: loop.
 */
#pragma once

#include "../plan/plan.h"
#include "job.h"
#include "tuner_mode.h"
#include "tuning_store.h"

#define TUNER_BYTES_MAX      (8ull << 30) /* of the memory of a run that was asked for */
#define TUNER_IDLE_BYTES_MAX (1ull << 30) /* and of the daemon's own */
#define TUNER_SETS_MAX       256
#define TUNER_ROUNDS         11
#define TUNER_USES           64   /* shape classes that are counted for idle runs */
#define TUNER_USES_LEAST     16   /* before a class is worth a run */
#define TUNER_QUIET_MS       1000 /* nothing was asked for so long */
#define TUNER_BUSY_MS        20   /* until an idle run looks again whether there is other work */

struct server;

/* A class that products came in and that is not tuned. */
struct tuner_use {
    struct tuning_class class;
    struct problem problem; /* one of them */
    uint64_t count;         /* 0: free */
    bool is_given_up;       /* a run for it failed */
};

struct tuner {
    enum tuner_mode mode;
    struct tuning tuning;
    struct tuning_store store;
    struct stream stream; /* the trials' */
    struct list waiting;  /* struct tuner_run */
    struct tuner_run *run;
    uv_timer_t timer; /* the next step; armed only while there is one */
    struct tuner_use uses[TUNER_USES];
    uint64_t used_ns; /* when a product came last */
    uint64_t runs, failed;
};

/* One answer to "tune", or one of the daemon's own. */
struct tuner_candidate {
    double seconds[TUNER_ROUNDS]; /* in the order of the rounds, sorted at the end */
    size_t count;
    struct fault fault; /* why it is out; status OK: it is not */
};

struct tuner_run {
    struct list link;        /* in tuner.waiting */
    struct session *session; /* NULL: nobody waits for an answer */
    uint32_t id;
    uid_t uid;
    bool is_idle; /* the daemon's own */
    struct charge charge;
    struct problem problem;
    struct plan_ranking ranking;
    size_t keep; /* candidates */
    struct tuner_candidate candidates[PLAN_RANKED_MAX];
    size_t candidate, round; /* the next trial */
    bool is_in_flight;       /* a job of ours is on its way */
    struct buffer *memory;   /* counted; NULL: not asked for yet */
    uint64_t offset[OPERAND_COUNT], set_bytes, sets, filled;
    uint32_t repeats;
    struct fault fault; /* why the run ends early */
};

void tuner_init(struct tuner *tuner, uv_loop_t *loop, enum tuner_mode mode, const char *directory);
void tuner_deinit(struct tuner *tuner); /* the loop has ended */
/* No worker any more: runs end unanswered, handles close. */
void tuner_close(struct tuner *tuner);
/* The daemon drains: who waits for a run is told so, and no run begins any more. What is under way
 * ends with the daemon, or earlier. */
void tuner_stop(struct tuner *tuner);
/* A job of a run's is in the queue, and nobody waits for the run. */
bool tuner_works_for_nobody(const struct tuner *tuner);
/* The device is known. */
void tuner_note_device(struct tuner *tuner, const struct link_device *device);
/* A product came, and this plan was chosen for it. */
void tuner_note_use(struct tuner *tuner, const struct problem *problem, const struct plan *plan);
/* Nobody waits any more for what this session asked for. */
void tuner_forget(struct tuner *tuner, struct session *session);

/* Takes the order for a run: row-major problem, defaults filled, not empty. 0: it will be answered;
 * SESSION_E_FAULT, < 0 as a handler's. */
int tuner_order(struct session *session,
                uint32_t id,
                const struct problem *problem,
                uint32_t keep,
                struct fault *ret_fault);

/* tuner_trial.c: jobs of a run. Each 0 when one is under way, SESSION_E_FAULT with why there is
 * none, < 0 for lack of memory; `ended` is called when it is over. */
int tuner_take_memory(struct server *server, struct tuner_run *run, struct fault *ret_fault);
int tuner_fill(struct server *server, struct tuner_run *run, struct fault *ret_fault);
int tuner_try(struct server *server, struct tuner_run *run, struct fault *ret_fault);
/* tuner.c: what those end in. */
void tuner_ended(struct job *job, const struct fault *fault);
void tuner_memory_changed(struct buffer *buffer);
