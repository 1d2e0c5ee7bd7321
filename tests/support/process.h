/*
 * What /proc says of a process, for tests and measurements of leaks and idleness.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

unsigned process_descriptors(pid_t pid);
unsigned process_mappings(pid_t pid);
unsigned long process_resident_kib(pid_t pid);
/* A line of its status, "RssAnon:". */
unsigned long process_memory_kib(pid_t pid, const char *line);
/* All threads' context switches, voluntary or not: a process that sleeps makes none. */
unsigned long process_switches(pid_t pid);
bool process_maps(pid_t pid, const char *name);
bool process_was_told(pid_t pid, const char *word); /* its command line contains this */
bool process_is_named(pid_t pid, const char *name); /* as ps and the kernel's messages say it */
/* As in /proc: R computes, S sleeps, D waits in the kernel, T was stopped; 0: there is none. */
char process_state(pid_t pid);
/* Waits for as long as it takes, or until there is no such process: then false. */
bool process_await_state(pid_t pid, char state);
/* As fork(), but the child ends with this process, however that ends. */
pid_t process_fork(void);
/* A child of `parent` whose command line contains this word; 0 when there is none. */
pid_t process_child(pid_t parent, const char *word);
/* All children, `max` at most; how many were stored. */
size_t process_children(pid_t parent, pid_t *ret_pids, size_t max);
