#include "turns.h"

#include "job.h"

void turns_init(struct turns *turns)
{
    share_group_init(&turns->uids);
    list_init(&turns->debtors);
}

void turns_deinit(struct turns *turns)
{
    assert(share_group_is_idle(&turns->uids));
    /* An account may be held for other reasons (quota.h); debts end with the daemon. */
    list_for_each_safe(cursor, following, &turns->debtors)
    {
        struct account *account = container_of(cursor, struct account, debt_link);

        list_unlink(&account->debt_link);
        account_release(account);
    }
}

void stream_init(struct stream *stream)
{
    list_init(&stream->jobs);
    stream->must_block_again = false;
    for (size_t i = 0; i < QUOTA_PRIORITIES; i++)
        flow_init(&stream->flows[i]);
}

/* --- where a job stands ---------------------------------------------------------------------- */

static struct account *account_of(const struct job *job)
{
    return job->charge.account;
}

/* A job whose client is gone runs at the common priority, in a flow of its account. */
static size_t class_of(const struct job *job)
{
    return job->stream ? (size_t)(job->priority + QUOTA_PRIORITIES / 2) : QUOTA_PRIORITIES / 2;
}

static struct share_group *group_of(const struct job *job)
{
    return &account_of(job)->classes[class_of(job)];
}

static struct flow *flow_of(const struct job *job)
{
    return job->stream ? &job->stream->flows[class_of(job)] : &account_of(job)->orphans;
}

static bool has_work(const struct account *account)
{
    for (size_t i = 0; i < QUOTA_PRIORITIES; i++) {
        if (!list_is_empty(&account->classes[i].active))
            return true;
    }
    return false;
}

/* --- turns ----------------------------------------------------------------------------------- */

void turns_enter(struct turns *turns, struct job *job)
{
    struct account *account = account_of(job);
    struct flow *flow = flow_of(job);

    if (!has_work(account))
        share_enter(&turns->uids, &account->share);
    if (list_is_empty(&flow->ready))
        share_enter(group_of(job), &flow->share);
    list_append(&flow->ready, &job->queue_link);
    account->ready[job->track]++;
}

void turns_leave(struct job *job)
{
    struct account *account = account_of(job);
    struct flow *flow = flow_of(job);

    list_unlink(&job->queue_link);
    account->ready[job->track]--;
    if (list_is_empty(&flow->ready))
        share_leave(&flow->share);
    if (!has_work(account))
        share_leave(&account->share);
}

void turns_orphan(struct turns *turns, struct job *job, bool is_ready, uint32_t in_service)
{
    if (is_ready)
        turns_leave(job);
    group_of(job)->in_service -= in_service;
    job->stream = NULL;
    group_of(job)->in_service += in_service;
    if (is_ready)
        turns_enter(turns, job);
}

static struct job *first_of(const struct share *share)
{
    return container_of(container_of(share, struct flow, share)->ready.next, struct job,
                        queue_link);
}

static bool flow_may(const struct share *share, enum gemmd_track track)
{
    return first_of(share)->track == track;
}

static struct job *next_of(const struct account *account, enum gemmd_track track)
{
    if (account->ready[track] == 0)
        return NULL;
    for (size_t i = QUOTA_PRIORITIES; i-- > 0;) {
        const struct share *share = share_next(&account->classes[i], flow_may, track);

        if (share)
            return first_of(share);
    }
    return NULL;
}

static bool account_may(const struct share *share, enum gemmd_track track)
{
    return next_of(container_of(share, const struct account, share), track) != NULL;
}

struct job *turns_next(const struct turns *turns, enum gemmd_track track)
{
    const struct share *share = share_next(&turns->uids, account_may, track);

    return share ? next_of(container_of(share, const struct account, share), track) : NULL;
}

void turns_charge(struct turns *turns, struct job *job, double seconds)
{
    struct account *account = account_of(job);

    share_charge(&turns->uids, &account->share, seconds);
    share_charge(group_of(job), &flow_of(job)->share, seconds);
    if (list_is_empty(&account->debt_link)) {
        account_hold(account);
        list_append(&turns->debtors, &account->debt_link);
    }
}

void turns_served(struct turns *turns, struct job *job, double beyond)
{
    share_served(&turns->uids, &account_of(job)->share, beyond);
    share_served(group_of(job), &flow_of(job)->share, beyond);
}

/* --- debts ----------------------------------------------------------------------------------- */

void turns_settle(struct turns *turns)
{
    bool is_idle = share_group_is_idle(&turns->uids);

    list_for_each_safe(cursor, following, &turns->debtors)
    {
        struct account *account = container_of(cursor, struct account, debt_link);

        if (account->charges > 1 || (!is_idle && account->share.start > turns->uids.virtual))
            continue;
        list_unlink(&account->debt_link);
        account_release(account);
    }
}
