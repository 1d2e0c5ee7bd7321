/*
 * From a gemm request to a job: shapes, operands, bounds, overlaps, the plan. Everything a client
 * can get wrong about a product is refused here, in the client's terms, before memory is touched.
 */
#include "handlers.h"

#include "../core/error.h"
#include "server.h"

#include <inttypes.h>
#include <string.h>

/* A product on its way to a job. */
struct draft {
    struct session *session;
    const struct request_gemm *request;
    struct problem problem; /* row-major */
    struct job *job;
};

static void job_freep(struct job **job)
{
    *job = job_free(*job);
}

/* The request's operand behind a role of the row-major problem, and its name on the wire. */
static enum operand_role wire_role(const struct request_gemm *request, enum operand_role role)
{
    if (request->column_major && role == OPERAND_A)
        return OPERAND_B;
    if (request->column_major && role == OPERAND_B)
        return OPERAND_A;
    return role;
}

static size_t element_size(const struct problem *problem, enum operand_role role)
{
    return dtype_size(role == OPERAND_A || role == OPERAND_B ? problem->input : problem->output);
}

static bool is_touched(const struct problem *problem, enum operand_role role)
{
    return role == OPERAND_D || problem_reads(problem, role);
}

/* --- shapes ---------------------------------------------------------------------------------- */

static enum status
read_problem(const struct request_gemm *request, struct problem *ret_problem, struct fault *fault)
{
    struct problem problem = request->problem;
    enum status status = problem_check(&problem, request->column_major, fault);

    if (status != STATUS_OK)
        return status;
    if (request->column_major)
        problem_from_column_major(&problem);
    problem_fill_defaults(&problem);
    *ret_problem = problem;
    return STATUS_OK;
}

/* alpha = 0 is k = 0: the same result, and one rule less for whoever computes. */
static void drop_unread(struct problem *problem)
{
    if (problem->alpha == 0)
        problem->k = 0;
}

/* --- operands -------------------------------------------------------------------------------- */

/* What a fault names. */
static const struct {
    const char *buffer, *offset, *data;
} arguments[OPERAND_COUNT] = {
    [OPERAND_A] = {"a.buffer", "a.offset", "a.data"},
    [OPERAND_B] = {"b.buffer", "b.offset", "b.data"},
    [OPERAND_C] = {"c.buffer", "c.offset", "c.data"},
    [OPERAND_BIAS] = {"bias.buffer", "bias.offset", "bias.data"},
    [OPERAND_D] = {"d.buffer", "d.offset", "d.data"},
};

static enum status check_buffer(const struct draft *draft,
                                enum operand_role role,
                                const struct handle *handle,
                                struct fault *fault)
{
    enum operand_role wire = wire_role(draft->request, role);
    const struct request_operand *operand = &draft->request->operand[wire];
    uint64_t span = problem_span(&draft->problem, role), end;
    size_t element = element_size(&draft->problem, role);
    const char *name = operand_name(wire), *argument = arguments[wire].buffer;

    if (!handle)
        return fault_set(fault, STATUS_NOT_FOUND, argument,
                         "%s.buffer is %" PRIu64 "; this connection has no such buffer", name,
                         operand->buffer);
    if (role == OPERAND_D && !handle_may_write(handle, argument, operand->buffer, fault))
        return fault->status;

    argument = arguments[wire].offset;
    if (operand->offset % element != 0)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, argument,
                         "%s.offset is %" PRIu64 "; allowed are multiples of the element's %zu "
                         "bytes",
                         name, operand->offset, element);
    if (add_overflows(operand->offset, span, &end) || end > handle->buffer->size)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, argument,
                         "%s.offset %" PRIu64 " and the %" PRIu64 " bytes that %s spans exceed the "
                         "buffer's %" PRIu64,
                         name, operand->offset, span, name, handle->buffer->size);
    return STATUS_OK;
}

static enum status
check_inline(const struct draft *draft, enum operand_role role, struct fault *fault)
{
    enum operand_role wire = wire_role(draft->request, role);
    const struct request_operand *operand = &draft->request->operand[wire];
    uint64_t span = problem_span(&draft->problem, role);
    const char *argument = arguments[wire].data;

    if (operand->size != span)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, argument,
                         "%s has %zu bytes; its shape, leading dimension and stride span %" PRIu64,
                         argument, operand->size, span);
    return STATUS_OK;
}

static enum status
check_result(const struct draft *draft, enum operand_role role, struct fault *fault)
{
    uint64_t span = problem_span(&draft->problem, role);

    if (role != OPERAND_D)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         operand_name(wire_role(draft->request, role)),
                         "the operand is read and was not given");
    if (span > REQUEST_INLINE_MAX)
        return fault_set(fault, STATUS_LIMIT, "d",
                         "the result spans %" PRIu64 " bytes; at most %u come inline, use a buffer",
                         span, (unsigned)REQUEST_INLINE_MAX);
    return STATUS_OK;
}

static enum status resolve_operand(struct draft *draft, enum operand_role role, struct fault *fault)
{
    const struct request_operand *operand =
        &draft->request->operand[wire_role(draft->request, role)];
    struct job_operand *used = &draft->job->operand[role];
    struct handle *handle;
    enum status status;

    used->span = problem_span(&draft->problem, role);
    switch (operand->kind) {
    case OPERAND_BUFFER:
        handle = handles_find(&draft->session->handles, operand->buffer);
        status = check_buffer(draft, role, handle, fault);
        if (status == STATUS_OK)
            job_use_buffer(draft->job, role,
                           buffer_ref(copies_use(draft->session->server, handle->buffer)),
                           operand->offset, used->span);
        return status;
    case OPERAND_INLINE:
        return check_inline(draft, role, fault);
    default:
        return check_result(draft, role, fault);
    }
}

/* --- overlaps -------------------------------------------------------------------------------- */

struct rectangle {
    uint64_t row, column, rows, width; /* rows of `pitch` bytes; bytes across */
};

/* False when it does not lie within the rows of the pitch. */
static bool rectangle_of(const struct draft *draft,
                         enum operand_role role,
                         uint64_t pitch,
                         struct rectangle *ret_rectangle)
{
    const struct problem *problem = &draft->problem;
    uint64_t offset = draft->job->operand[role].offset;

    ret_rectangle->row = offset / pitch;
    ret_rectangle->column = offset % pitch;
    ret_rectangle->rows = (uint64_t)problem_rows(problem, role);
    ret_rectangle->width = (uint64_t)problem_columns(problem, role) * element_size(problem, role);
    return ret_rectangle->column + ret_rectangle->width <= pitch;
}

/* Blocked algorithms update one block of a matrix from others: their byte ranges interleave and
 * their elements do not. Anything less regular is held to its byte range. */
static bool blocks_are_apart(const struct draft *draft, enum operand_role role)
{
    const struct problem *problem = &draft->problem;
    uint64_t pitch = (uint64_t)problem->operand[OPERAND_D].ld * element_size(problem, OPERAND_D);
    struct rectangle d, other;

    if (problem->batch != 1 ||
        (uint64_t)problem->operand[role].ld * element_size(problem, role) != pitch ||
        !rectangle_of(draft, OPERAND_D, pitch, &d) || !rectangle_of(draft, role, pitch, &other))
        return false;
    return d.row + d.rows <= other.row || other.row + other.rows <= d.row ||
           d.column + d.width <= other.column || other.column + other.width <= d.column;
}

static bool is_same_place(const struct draft *draft, enum operand_role role)
{
    const struct problem_operand *left = &draft->problem.operand[OPERAND_D];
    const struct problem_operand *right = &draft->problem.operand[role];

    return draft->job->operand[OPERAND_D].offset == draft->job->operand[role].offset &&
           left->ld == right->ld && (draft->problem.batch <= 1 || left->stride == right->stride);
}

static enum status check_overlap(const struct draft *draft, struct fault *fault)
{
    const struct job_operand *d = &draft->job->operand[OPERAND_D];

    for (enum operand_role role = OPERAND_A; role < OPERAND_D; role++) {
        const struct job_operand *input = &draft->job->operand[role];
        bool is_apart =
            !d->buffer || !input->buffer || !buffer_is_same_memory(d->buffer, input->buffer) ||
            d->offset + d->span <= input->offset || input->offset + input->span <= d->offset;

        if (is_apart || blocks_are_apart(draft, role) ||
            (role == OPERAND_C && is_same_place(draft, role)))
            continue;
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "d",
                         "d overlaps %s; allowed is no overlap, or d in exactly c's place",
                         operand_name(wire_role(draft->request, role)));
    }
    return STATUS_OK;
}

/* --- plan and memory ------------------------------------------------------------------------- */

/* Offsets stand for addresses: buffers and staged operands start on at least 256 bytes, and the
 * same request must get the same configuration wherever its memory lies today. */
static enum status choose(const struct draft *draft, struct plan *ret_plan, struct fault *ret_fault)
{
    uint64_t offset[OPERAND_COUNT];

    for (enum operand_role role = OPERAND_A; role < OPERAND_COUNT; role++) {
        const struct request_operand *operand =
            &draft->request->operand[wire_role(draft->request, role)];

        offset[role] = operand->kind == OPERAND_BUFFER ? operand->offset : 0;
    }
    return plans_choose(&draft->session->server->plans, &draft->problem, offset,
                        &draft->session->server->device, ret_plan, ret_fault);
}

static int charge(struct draft *draft, struct fault *fault)
{
    struct quota *quota = &draft->session->server->quota;
    uint64_t bytes = 0;
    int r = quota_charge(quota, draft->session->uid, QUOTA_JOBS, 1, &draft->job->charge, fault);

    for (size_t i = 0; i < OPERAND_COUNT; i++) {
        if (is_touched(&draft->problem, (enum operand_role)i) && !draft->job->operand[i].buffer)
            bytes += draft->job->operand[i].span;
    }
    if (r == 0 && bytes > 0)
        r = quota_charge(quota, draft->session->uid, QUOTA_INLINE_BYTES, bytes,
                         &draft->job->charge_inline, fault);
    return r == QUOTA_E_LIMIT ? SESSION_E_FAULT : error_trace(r);
}

static bool has_gaps(const struct problem *problem)
{
    const struct problem_operand *d = &problem->operand[OPERAND_D];

    return d->ld != problem->n || (problem->batch > 1 && d->stride != problem->m * d->ld);
}

/* Staged memory held other clients' data: what the product does not write is cleared. */
static int stage(struct draft *draft, enum operand_role role)
{
    const struct request_operand *operand =
        &draft->request->operand[wire_role(draft->request, role)];
    struct job_operand *used = &draft->job->operand[role];
    int r = staging_take(&draft->session->server->staging, used->span, &used->staging);

    if (r < 0)
        return error_trace(r);
    used->is_used = true;
    if (role != OPERAND_D)
        memcpy(staging_data(&used->staging), operand->data, used->span);
    else if (has_gaps(&draft->problem))
        memset(staging_data(&used->staging), 0, used->span);
    return 0;
}

static int stage_all(struct draft *draft)
{
    for (enum operand_role role = OPERAND_A; role < OPERAND_COUNT; role++) {
        int r = is_touched(&draft->problem, role) && !draft->job->operand[role].buffer
                    ? stage(draft, role)
                    : 0;

        if (r < 0)
            return error_trace(r);
    }
    return 0;
}

/* Lane and prediction. What is large on host memory comes in, is computed and goes out side by
 * side, and the slowest of the three decides; what is small does it in turn. */
static void weigh(const struct draft *draft, double seconds)
{
    uint64_t in = 0, out = 0;
    struct job *job = draft->job;

    for (size_t i = 0; i < OPERAND_COUNT && !draft->session->server->device.is_cpu; i++) {
        const struct job_operand *operand = &job->operand[i];

        if (operand->is_used && (!operand->buffer || operand->buffer->kind == BUFFER_HOST))
            *(i == OPERAND_D ? &out : &in) += operand->span;
    }
    job->track = in + out < QUEUE_STREAM_BYTES ? GEMMD_TRACK_MAIN : GEMMD_TRACK_STREAM;
    job->predicted_seconds =
        job->track == GEMMD_TRACK_STREAM
            ? MAX(seconds, (double)MAX(in, out) / QUEUE_BUS_BYTES_PER_SECOND)
            : seconds + ((double)in + (double)out) / QUEUE_BUS_BYTES_PER_SECOND;
}

static int start(struct draft *draft, const struct plan *plan)
{
    struct server *server = draft->session->server;
    struct job *job = draft->job;
    int r = stage_all(draft);

    if (r < 0)
        return error_trace(r);
    job->problem = draft->problem;
    job->config = plan->config;
    job->splits = plan->splits;
    job->epoch = plan->epoch;
    tuner_note_use(&server->tuner, &draft->problem, plan);
    weigh(draft, plan->predicted_seconds);
    /* BLAS takes no part of a product. */
    if (plan->config.family != CONFIG_CPU) {
        job_count_tiles(job, plan->tiles, server->device.multiprocessors);
        r = kernels_want(&server->kernels, &plan->config, &job->kernel);
        if (r < 0)
            return error_trace(r);
        job->awaits_kernel = job->kernel->state == KERNEL_COMPILING;
    }
    if (!job->operand[OPERAND_D].buffer)
        job->reply_bytes = job->operand[OPERAND_D].span;
    socket_expect(&draft->session->socket, job->reply_bytes);
    server->stats.products_by_input[job->problem.input]++;
    if (job->deadline_ns != 0)
        deadline_watch(server, job->deadline_ns);
    queue_submit(&server->queue, steal(draft->job, NULL), &draft->session->stream);
    return 0;
}

/* --- requests -------------------------------------------------------------------------------- */

static int answer_empty_product(struct session *session, uint32_t id)
{
    cleanup(message_deinit) struct message message = MESSAGE_NULL;
    struct reply_gemm reply = {.data = NULL};
    int r = reply_encode_gemm(id, &reply, &message);

    if (r < 0)
        return error_trace(r);
    session_answer(session, &message, -1);
    return 0;
}

static enum status resolve(struct draft *draft, struct fault *fault)
{
    for (enum operand_role role = OPERAND_A; role < OPERAND_COUNT; role++) {
        enum status status =
            is_touched(&draft->problem, role) ? resolve_operand(draft, role, fault) : STATUS_OK;

        if (status != STATUS_OK)
            return status;
    }
    return check_overlap(draft, fault);
}

int product_request(struct session *session, const struct request *request, struct fault *fault)
{
    cleanup(job_freep) struct job *job = job_new();
    struct draft draft = {.session = session, .request = &request->body.gemm, .job = job};
    struct plan plan;
    int r;

    if (!job)
        return error_origin(-ENOMEM);
    job->session = session;
    job->request = request->id;
    job->method = METHOD_GEMM;
    job->kind = JOB_PRODUCT;
    job->received_ns = session->received_ns;
    job->priority = draft.request->priority;
    job->deadline_ns = deadline_of(job->received_ns, draft.request);

    if (read_problem(draft.request, &draft.problem, fault) != STATUS_OK)
        return SESSION_E_FAULT;
    if (problem_is_empty(&draft.problem))
        return answer_empty_product(session, request->id);
    drop_unread(&draft.problem);
    if (resolve(&draft, fault) != STATUS_OK || choose(&draft, &plan, fault) != STATUS_OK)
        return SESSION_E_FAULT;
    r = charge(&draft, fault);
    if (r != 0)
        return r;
    r = start(&draft, &plan);
    job = draft.job;
    return error_trace(r);
}

/* It was late while its request was parked. */
static bool was_answered(const struct session *session, const struct request_product *product)
{
    uint64_t deadline_ns = deadline_of(session->received_ns, &product->gemm);

    return product->fault.status == STATUS_OK && deadline_ns != 0 &&
           deadline_ns < session->answered_ns;
}

/* Each product is answered by itself, as `session.in_flight` counts them. */
int product_many(struct session *session, const struct request *request, struct fault *fault)
{
    const struct request_many *many = &request->body.many;

    for (size_t i = 0; i < many->count; i++) {
        const struct request one = {.id = request->id + (uint32_t)i,
                                    .method = METHOD_GEMM,
                                    .body.gemm = many->products[i].gemm};
        int r = SESSION_E_FAULT;

        /* An answer may have ended the session: the rest is dropped with it. */
        if (!socket_is_open(&session->socket)) {
            session->in_flight -= (uint32_t)(many->count - i);
            return 0;
        }
        if (was_answered(session, &many->products[i]))
            continue;
        *fault = many->products[i].fault;
        if (fault->status == STATUS_OK)
            r = product_request(session, &one, fault);
        if (r == SESSION_E_FAULT) {
            session_answer_fault(session, one.id, fault);
        } else if (r < 0) {
            session->in_flight -= (uint32_t)(many->count - i - 1);
            return error_trace(r);
        }
    }
    return 0;
}

int product_explain(struct session *session, const struct request *request, struct fault *fault)
{
    struct draft draft = {.session = session, .request = &request->body.gemm};
    struct plan plan = {.reason = "The result has no element: nothing runs."};

    if (read_problem(draft.request, &draft.problem, fault) != STATUS_OK)
        return SESSION_E_FAULT;
    if (problem_is_empty(&draft.problem))
        return report_explain(session, request->id, &draft.problem, &plan);
    drop_unread(&draft.problem);
    if (choose(&draft, &plan, fault) != STATUS_OK)
        return SESSION_E_FAULT;
    return report_explain(session, request->id, &draft.problem, &plan);
}

int product_tune(struct session *session, const struct request *request, struct fault *fault)
{
    struct draft draft = {.session = session, .request = &request->body.gemm};

    if (read_problem(draft.request, &draft.problem, fault) != STATUS_OK)
        return SESSION_E_FAULT;
    drop_unread(&draft.problem);
    if (problem_is_empty(&draft.problem) || draft.problem.k == 0) {
        (void)fault_set(fault, STATUS_INVALID_ARGUMENT, "m",
                        "there is nothing to tune: no product is computed when m, n, k, batch or "
                        "alpha is 0");
        return SESSION_E_FAULT;
    }
    return tuner_order(session, request->id, &draft.problem, draft.request->keep, fault);
}
