/*
 * A private daemon for one test: its own directory, socket and cache, on $GEMMD_TEST_DEVICE (cpu
 * when unset). The binary is $GEMMD_TEST_DAEMON or the build's.
 *
 * Failing to start or to stop in order fails the test.
 */
#pragma once

#include "../../client/gemmd.h"
#include "../../daemon/core/std.h"
#include <sys/types.h>

struct test_daemon {
    pid_t pid;
    char directory[64];
    char socket[96];
    char cache[96];
    char log[96];
    bool has_default_cache; /* no --cache: as the environment says */
    bool has_no_streams;    /* started with descriptors 0 to 2 closed */
};

/* `arguments` (NULL, or ended by NULL) come last, so that they win. Returns when requests are
 * served. */
void test_daemon_start(struct test_daemon *daemon, const char *const *arguments);
/* Returns at once, a descriptor from which a byte comes when requests are served, or the end of the
 * file: it died. */
int test_daemon_launch(struct test_daemon *daemon, const char *const *arguments);
/* For one that is expected to fail: returns its exit status. */
int test_daemon_start_failing(struct test_daemon *daemon, const char *const *arguments);
/* SIGTERM; asserts that it ends with status 0 and removes the directory. */
void test_daemon_stop(struct test_daemon *daemon);
/* Waits for the end of a daemon that was told to end; its exit status. */
int test_daemon_wait(struct test_daemon *daemon);
void test_daemon_remove(struct test_daemon *daemon); /* the directory */

gemmd *test_daemon_connect(const struct test_daemon *daemon);
const char *test_device(void); /* "cpu" */
bool test_device_is_cpu(void);
/* A CUDA worker over tests/support/fake_driver.h, which can be told to fail; no real device is. */
bool test_device_is_fake(void);
/* Descriptors that the front may come to hold while products run: each kernel has one. */
unsigned test_kernel_descriptors(void);

pid_t test_worker_pid(gemmd *connection); /* waits until there is one */
/* Stops the worker, so that what is submitted stays under way until it goes on again (or is found
 * to hang: a CPU's after 20 s, a GPU's after 0.6 s). Returns when it stands still. */
pid_t test_worker_hold(gemmd *connection);
void test_worker_release(pid_t worker);

/* A number from the JSON of status or stats: "worker", "pid"; `group` NULL: top level. */
double test_status_number(gemmd *connection, const char *group, const char *name);
double test_stats_number(gemmd *connection, const char *group, const char *name);
/* Whether the daemon's log contains a text. */
bool test_daemon_logged(const struct test_daemon *daemon, const char *text);
