/*
 * A worker for fuzzing, in the fuzzer's own process: the front's uv_spawn(), uv_process_kill() and
 * uv_timer_start() are replaced (linker option --wrap), and the other end of the link is played
 * here, in whatever order and with whatever answers the input says. Compile children cannot be
 * started.
 *
 * Owner: the target, one at a time. Thread: the fuzzer's.
 */
#pragma once

#include "session_input.h"

void fake_worker_reset(void);
/* One thing that a worker may do: answer messages, take commands, complete one of them, die. */
void fake_worker_act(struct session_input *input);
/* Everything that is asked for is done, and done well. True when there was something. */
bool fake_worker_work(void);
