/*
 * libgemmd: bias and activation, and programs that know of neither.
 */
#include <stddef.h>
#include <string.h>

#include "client_fixture.h"

static float numbers[64];

static gemmd_product square(void)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;

    for (int i = 0; i < 64; i++)
        numbers[i] = (float)(i % 5 - 2);
    product.input = GEMMD_FP32;
    product.m = product.n = product.k = 8;
    product.a.data = product.b.data = numbers;
    return product;
}

/* A program that was compiled before products had a bias: its structs end earlier, in arrays too,
 * and what lies behind them is not theirs. */
Test(client_epilogue, takes_products_of_the_first_header)
{
    struct first {
        unsigned char bytes[offsetof(gemmd_product, bias)];
    } products[3];

    float d[3][64], whole[64];
    gemmd_product product;
    gemmd_job jobs[3];

    connect_to(NULL);
    product = square(), product.d.data = whole;
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    for (size_t i = 0; i < ARRAY_SIZE(products); i++) {
        product = square(), product.d.data = d[i], product.size = sizeof(struct first);
        memcpy(&products[i], &product, sizeof(struct first));
    }
    cr_assert_eq(gemmd_submit_many(connection, (gemmd_product *)products, 3, jobs), GEMMD_OK, "%s",
                 gemmd_last_error(connection)->message);
    for (size_t i = 0; i < ARRAY_SIZE(products); i++) {
        cr_assert_eq(gemmd_wait(connection, jobs[i], -1, NULL), GEMMD_OK);
        cr_expect_arr_eq(d[i], whole, sizeof(whole));
    }
    disconnect();
}

Test(client_epilogue, adds_a_plain_bias_and_activates)
{
    float d[64], plain[64], bias[8];
    gemmd_product product;

    connect_to(NULL);
    product = square(), product.d.data = plain;
    cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
    for (int i = 0; i < 8; i++)
        bias[i] = (float)(2 * i - 9);
    product.d.data = d;
    product.bias.data = bias;
    product.activation = GEMMD_RELU;
    for (int kind = GEMMD_BIAS_PER_ROW; kind <= GEMMD_BIAS_PER_COLUMN; kind++) {
        product.bias_kind = (gemmd_bias_kind)kind;
        cr_assert_eq(gemmd_gemm(connection, &product, NULL), GEMMD_OK);
        for (int i = 0; i < 64; i++) {
            float before = plain[i] + bias[kind == GEMMD_BIAS_PER_ROW ? i / 8 : i % 8];

            cr_expect_eq(d[i], before < 0 ? 0 : before);
        }
    }
    disconnect();
}
