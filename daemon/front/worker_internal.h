/*
 * Shared by worker_process.c (the process), worker_memory.c (messages), worker_pump.c (completions
 * and sleep), worker_watch.c (patience) and worker_park.c (idleness). Nobody else includes this.
 */
#pragma once

#include "worker_process.h"

void worker_poll_callback(uv_handle_t *handle); /* counts a closed handle of a process */
/* The process is no use any more: say why once, kill it; the rest follows from its end. */
void worker_lose(struct worker_process *worker, enum status status, const char *reason);

/* worker_memory.c */
void worker_messages_receive(struct worker_process *worker);
void worker_outputs_flush(struct worker_process *worker);
void worker_outputs_clear(struct worker_process *worker);
void worker_memories_forget(struct worker_process *worker); /* the process is gone */
int worker_send(struct worker_process *worker, const struct link_message *message, int fd);
/* Bytes that the process was asked to map and has not answered for. */
uint64_t worker_memory_under_way(const struct worker_process *worker);

/* worker_process.c */
void worker_hello(struct worker_process *worker, const struct link_message *message);
void worker_answered(struct worker_process *worker); /* one of answers_expected came */
void worker_watch_socket(struct worker_process *worker);

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
