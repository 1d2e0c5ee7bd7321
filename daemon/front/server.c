#include "../roles.h"

int front_main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return 1;
}
