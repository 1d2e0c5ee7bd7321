#include "share.h"

void share_group_init(struct share_group *group)
{
    *group = (struct share_group){0};
    list_init(&group->active);
}

void share_init(struct share *share, double weight)
{
    *share = (struct share){.weight = weight};
    list_init(&share->link);
}

void flow_init(struct flow *flow)
{
    share_init(&flow->share, 1);
    list_init(&flow->ready);
}

bool share_group_is_idle(const struct share_group *group)
{
    return list_is_empty(&group->active) && group->in_service == 0;
}

void share_enter(struct share_group *group, struct share *share)
{
    if (share_group_is_idle(group))
        group->virtual = group->latest;
    share->start = MAX(share->start, group->virtual);
    list_append(&group->active, &share->link);
}

void share_leave(struct share *share)
{
    list_unlink(&share->link);
}

struct share *share_next(const struct share_group *group, share_may_fn may, enum gemmd_track track)
{
    struct share *best = NULL;

    /* A handful of uids and connections: a heap would cost more than it saves. */
    list_for_each(cursor, &group->active)
    {
        struct share *share = container_of(cursor, struct share, link);

        if ((!best || share->start < best->start) && may(share, track))
            best = share;
    }
    return best;
}

void share_charge(struct share_group *group, struct share *share, double cost)
{
    group->virtual = MAX(group->virtual, share->start);
    group->in_service++;
    share->start += cost / share->weight;
    group->latest = MAX(group->latest, share->start);
    /* Among equal tags the one served longest ago is first. */
    if (!list_is_empty(&share->link)) {
        list_unlink(&share->link);
        list_append(&group->active, &share->link);
    }
}

void share_served(struct share_group *group, struct share *share, double correction)
{
    assert(group->in_service > 0);
    group->in_service--;
    share->start += correction / share->weight;
    group->latest = MAX(group->latest, share->start);
}
