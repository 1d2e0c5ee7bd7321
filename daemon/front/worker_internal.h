/*
 * Shared by worker_process.c (the process), worker_memory.c (messages), worker_pump.c (completions
 * and sleep), worker_watch.c (patience), worker_park.c (idleness), worker_spawn.c (processes) and
 * worker_spare.c (the one that stands by). Nobody else includes this.
 */
#pragma once

#include "worker_process.h"

/* The process is no use any more: say why once, kill it; the rest follows from its end. */
void worker_lose(struct worker_process *worker, enum status status, const char *reason);

/* worker_memory.c */
void worker_messages_receive(struct worker_process *worker);
/* As if this one, without a descriptor, had been received. */
void worker_message(struct worker_process *worker, const struct link_message *message);
void worker_outputs_flush(struct worker_process *worker);
void worker_outputs_clear(struct worker_process *worker);
void worker_memories_forget(struct worker_process *worker); /* the process is gone */
/* The descriptor stays open until the message was answered or the process is gone. */
int worker_send(struct worker_process *worker, const struct link_message *message, int fd);
/* Bytes that the process was asked to map and has not answered for. */
uint64_t worker_memory_under_way(const struct worker_process *worker);

/* worker_process.c */
void worker_end_if_idle(struct worker_process *worker); /* while quitting: the spare is gone */
void worker_exited(uv_process_t *process, int64_t status, int signal_number); /* the uv_exit_cb */
void worker_hello(struct worker_process *worker, const struct link_message *message);
void worker_answered(struct worker_process *worker); /* one of answers_expected came */
void worker_watch_socket(struct worker_process *worker);

/* worker_spawn.c */
const char *worker_device_argument(const struct worker_process *worker);
/* Handles and a process at the other end of the link. Also after a failure they are to be closed.
 */
int worker_spawn(struct worker_handles *handles, struct link *link, uv_exit_cb exited);
void worker_handles_close(struct worker_handles *handles,
                          void (*closed)(struct worker_handles *handles));

/* worker_spare.c */
void worker_spare_init(struct worker_process *worker);
/* Starts one if there should be one and is none. */
void worker_spare_start(struct worker_process *worker);
/* Gives the spare the worker's place, which is empty; false: there is none. */
bool worker_spare_take(struct worker_process *worker);
void worker_spare_end(struct worker_process *worker); /* for good */
/* The spare's process ended, if `handles` is the spare's. */
bool worker_spare_exited(struct worker_process *worker, const struct worker_handles *handles);

/* worker_watch.c */
void worker_watch_init(struct worker_process *worker);
void worker_watch(struct worker_process *worker); /* something is due from it from now on */
void worker_watch_stop(struct worker_process *worker);

/* worker_park.c */
/* A look at a worker from which nothing is due: true once it is parked, or never will be. */
bool worker_park_look(struct worker_process *worker);
void worker_unpark(struct worker_process *worker); /* before anything is asked of it */

/* worker_pump.c */
void worker_pump_init(struct worker_process *worker);
void worker_pump_start(struct worker_process *worker);
void worker_pump_stop(struct worker_process *worker);
/* Takes what completed; true when there was something. */
bool worker_pump_drain(struct worker_process *worker);
