#include "../roles.h"

int compile_main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return 1;
}
