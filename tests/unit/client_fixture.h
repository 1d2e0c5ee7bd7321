/*
 * A client and the daemon that it talks to: support/fake_daemon.h in a thread of the test, and one
 * connection. Criterion runs each test in a process of its own, so these are the test's.
 */
#pragma once

#include <criterion/criterion.h>

#include "../../client/gemmd.h"
#include "../support/fake_daemon.h"

static struct fake_daemon fake;
static gemmd *connection;

static inline void connect_to(const struct fake_options *options)
{
    gemmd_error error;

    fake_daemon_start(&fake, options);
    cr_assert_eq(gemmd_connect(fake.path, &connection, &error), GEMMD_OK, "%s", error.message);
}

static inline void disconnect(void)
{
    gemmd_close(connection);
    fake_daemon_stop(&fake);
}

static float one_a = 3, one_b = 5, one_d;

/* 1 x 1 x 1: the smallest thing that needs an answer. */
static inline gemmd_product tiny(void)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;

    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 1;
    product.a.data = &one_a;
    product.b.data = &one_b;
    product.d.data = &one_d;
    return product;
}
