/*
 * Every bound a client can reach, with its reason. Each has a test that reaches it. Those PER_UID
 * are what the configuration file (gemmd.conf(5)) leaves open.
 */
#pragma once

#define LIMIT_CLIENTS              512 /* connections in all: three fds each, far under LimitNOFILE */
#define LIMIT_CLIENTS_PER_UID      256  /* half of all: one uid cannot lock the others out */
#define LIMIT_IN_FLIGHT            256  /* requests of a connection that wait for an answer */
#define LIMIT_JOBS_PER_UID         4096 /* jobs queued or running: 3 MiB of our memory */
#define LIMIT_BUFFERS_PER_UID      4096 /* one fd in the front each */
#define LIMIT_DESCRIPTORS_PER_UID  8192 /* all buffers, all connections, and some on their way */
#define LIMIT_HOST_BYTES_PER_UID   (64ull << 30) /* registered or owned host memory */
#define LIMIT_DEVICE_BYTES_PER_UID (1ull << 40)  /* the device says no first */
#define LIMIT_IMPORTED_BYTES_PER_UID                                                               \
    (1ull << 40) /* a client's own device memory: only our addresses are spent */
#define LIMIT_INLINE_BYTES_PER_UID                                                                 \
    (256ull << 20) /* staged operands and results of running jobs                                  \
                    */
#define LIMIT_MESSAGE_BYTES_PER_UID                                                                \
    (256ull << 20) /* unfinished frames of all its connections: a few that are slow at their own   \
                      bounds, not all */
#define LIMIT_OUTPUT_BYTES_PER_UID  (256ull << 20) /* unread replies, likewise */
#define LIMIT_PARTIAL_FRAME_SECONDS 30             /* half a frame, then silence */
#define LIMIT_UNREAD_SECONDS        30             /* too many replies, and none of them read */
#define LIMIT_HELLO_SECONDS         10             /* connected, then silence */
