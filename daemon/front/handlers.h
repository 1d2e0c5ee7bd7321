/*
 * What each request does. Every handler returns 0 (answered, or will be), SESSION_E_FAULT with the
 * fault to answer, or < 0: the session ends.
 */
#pragma once

#include "session.h"

struct job;
struct plan;
struct queue;
struct tuner_run;
struct gemmd_completion;

/* product.c */
int product_request(struct session *session, const struct request *request, struct fault *fault);
int product_many(struct session *session, const struct request *request, struct fault *fault);
int product_explain(struct session *session, const struct request *request, struct fault *fault);
int product_tune(struct session *session, const struct request *request, struct fault *fault);

/* cancel.c: what ends a job before it ran. */
int cancel_request(struct session *session, const struct request *request, struct fault *fault);
/* Of a product that came then; 0: any time. */
uint64_t deadline_of(uint64_t received_ns, const struct request_gemm *gemm);
/* A job with this deadline was submitted, or its request parked. */
void deadline_watch(struct server *server, uint64_t deadline_ns);
void deadline_callback(uv_timer_t *timer);

/* transfer.c */
int transfer_write(struct session *session, const struct request *request, struct fault *fault);
int transfer_read(struct session *session, const struct request *request, struct fault *fault);
int transfer_copy(struct session *session, const struct request *request, struct fault *fault);

/* allocate.c */
int allocate_create(struct session *session, const struct request *request, struct fault *fault);
int allocate_register(struct session *session,
                      const struct request *request,
                      int *fd,
                      struct fault *fault);
int allocate_import(struct session *session,
                    const struct request *request,
                    int *fd,
                    struct fault *fault);
int allocate_open(struct session *session, const struct request *request, struct fault *fault);
int allocate_free(struct session *session, const struct request *request, struct fault *fault);
int allocate_freeze(struct session *session, const struct request *request, struct fault *fault);
int allocate_export(struct session *session, const struct request *request, struct fault *fault);
void allocate_answer(struct buffer *buffer, const struct fault *fault); /* its creation ended */
void allocate_forget(struct server *server, struct session *session);   /* nobody waits any more */

/* report.c */
int report_status(struct session *session, const struct request *request, struct fault *fault);
int report_stats(struct session *session, const struct request *request, struct fault *fault);
int report_explain(struct session *session,
                   uint32_t id,
                   const struct problem *problem,
                   const struct plan *plan);
/* The answer to "tune". `seconds` of the run's candidates; INFINITY: it could not be timed. */
int report_tuned(struct session *session,
                 const struct tuner_run *run,
                 const double *seconds,
                 size_t winner);

/* report_cache.c */
int cache_request(struct session *session, const struct request *request, struct fault *fault);
void cache_forget(struct server *server, struct session *session);

/* answer.c: a job's end becomes its answer. */
void answer_job(struct queue *queue,
                struct job *job,
                const struct fault *fault,
                const struct gemmd_completion *completion);
