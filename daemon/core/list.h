/*
 * Intrusive doubly linked list. A head and an unlinked node both point at themselves, so unlinking
 * twice is harmless.
 */
#pragma once

#include "std.h"

struct list {
    struct list *next;
    struct list *previous;
};

static inline void list_init(struct list *node)
{
    node->next = node;
    node->previous = node;
}

static inline bool list_is_empty(const struct list *head)
{
    return head->next == head;
}

static inline void list_insert_before(struct list *position, struct list *node)
{
    node->next = position;
    node->previous = position->previous;
    position->previous->next = node;
    position->previous = node;
}

static inline void list_append(struct list *head, struct list *node)
{
    list_insert_before(head, node);
}

static inline void list_prepend(struct list *head, struct list *node)
{
    list_insert_before(head->next, node);
}

static inline void list_unlink(struct list *node)
{
    node->previous->next = node->next;
    node->next->previous = node->previous;
    list_init(node);
}

/* `cursor` may be unlinked inside the body; `following` may not. */
#define list_for_each_safe(cursor, following, head)                                                \
    for (struct list *cursor = (head)->next, *following = cursor->next; cursor != (head);          \
         cursor = following, following = cursor->next)

#define list_for_each(cursor, head)                                                                \
    for (struct list *cursor = (head)->next; cursor != (head); cursor = cursor->next)
