#include "../../daemon/core/list.h"

#include <criterion/criterion.h>

struct item {
    int value;
    struct list link;
};

static struct list head;
static struct item items[3];

static void make_items(void)
{
    list_init(&head);
    for (int i = 0; i < 3; i++) {
        items[i].value = i;
        list_init(&items[i].link);
    }
}

TestSuite(list, .init = make_items);

/* The values in order, as decimal digits, forwards; checks that backwards agrees. */
static int digits(void)
{
    int forwards = 0, count = 0, backwards = 0, weight = 1;

    list_for_each(cursor, &head)
    {
        forwards = forwards * 10 + container_of(cursor, struct item, link)->value + 1;
        count++;
    }
    for (struct list *cursor = head.previous; cursor != &head; cursor = cursor->previous) {
        backwards += weight * (container_of(cursor, struct item, link)->value + 1);
        weight *= 10;
        count--;
    }
    cr_assert_eq(count, 0);
    cr_assert_eq(forwards, backwards);
    return forwards;
}

Test(list, is_empty_until_something_is_linked)
{
    cr_assert(list_is_empty(&head));
    cr_assert(list_is_empty(&items[0].link));
    list_append(&head, &items[0].link);
    cr_assert_not(list_is_empty(&head));
    cr_assert_not(list_is_empty(&items[0].link));
}

Test(list, keeps_the_order_of_appending_and_prepending)
{
    list_append(&head, &items[0].link);
    list_append(&head, &items[1].link);
    list_prepend(&head, &items[2].link);
    cr_assert_eq(digits(), 312);
}

Test(list, inserts_before_a_position)
{
    list_append(&head, &items[0].link);
    list_append(&head, &items[1].link);
    list_insert_before(&items[1].link, &items[2].link);
    cr_assert_eq(digits(), 132);
}

Test(list, unlinks_from_any_place_and_twice)
{
    for (int i = 0; i < 3; i++)
        list_append(&head, &items[i].link);
    list_unlink(&items[1].link);
    cr_assert_eq(digits(), 13);
    list_unlink(&items[1].link);
    cr_assert_eq(digits(), 13);
    list_unlink(&items[0].link);
    list_unlink(&items[2].link);
    cr_assert(list_is_empty(&head));
}

Test(list, lets_the_cursor_unlink_itself)
{
    int seen = 0;

    for (int i = 0; i < 3; i++)
        list_append(&head, &items[i].link);
    list_for_each_safe(cursor, following, &head)
    {
        list_unlink(cursor);
        seen++;
    }
    cr_assert_eq(seen, 3);
    cr_assert(list_is_empty(&head));
}
