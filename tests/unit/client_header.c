/*
 * A user of gemmd.h and nothing else: compiled as strict C11 and as C++, and linked against the
 * installed library.
 */
#include <gemmd.h>

int main(void)
{
    gemmd_product product = GEMMD_PRODUCT_INIT;
    gemmd_error error;
    gemmd *connection;

    if (product.size != sizeof(product) || product.batch != 1 || product.alpha != 1.0 ||
        product.beta != 0.0 || product.d.ld != GEMMD_DEFAULT || product.d.buffer)
        return 1;
    return gemmd_connect("/nowhere", &connection, &error) == GEMMD_DISCONNECTED ? 0 : 1;
}
