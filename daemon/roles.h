/*
 * The entry points of the three roles. Each takes its own argv (argv[0] is the role's name or the
 * program's) and returns the process's exit status.
 */
#pragma once

int front_main(int argc, char **argv);
/* `worker --device auto|cpu|cuda[:N]|GPU-<uuid> --memory FD --command-event FD --completion-event
 * FD
 * --socket FD`: started by the front only. */
int worker_main(int argc, char **argv);
/* `compile --socket FD [--kernels DIR] [--memory BYTES]`: started by the front; talks
 * jit/compile_message.h. */
int compile_main(int argc, char **argv);
