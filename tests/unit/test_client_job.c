/*
 * What becomes a job inside libgemmd. A request can be answered before it is one: while its message
 * is still on its way out, answers are taken in.
 */
#include <poll.h>

#include "../../client/client_internal.h"
#include "client_fixture.h"

static bool is_readable(int fd)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};

    return poll(&polled, 1, 0) == 1;
}

Test(client_job, that_was_answered_before_it_was_one_shows_at_once)
{
    const struct request request = {.method = METHOD_STATS};
    struct call *call;
    int fd;

    connect_to(NULL);
    fd = gemmd_fd(connection);
    cr_assert_eq(call_start(connection, &request, -1, &call), GEMMD_OK);
    cr_assert_eq(call_await(connection, call, call_deadline(-1)), GEMMD_OK);
    cr_assert_not(is_readable(fd), "no job is answered");
    call_make_job(connection, call);
    cr_expect(is_readable(fd));
    (void)call_free(connection, call);
    cr_expect_not(is_readable(fd));
    disconnect();
}
