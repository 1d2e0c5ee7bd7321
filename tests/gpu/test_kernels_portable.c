#include "kernel_cases.h"

#include <criterion/criterion.h>

Test(kernels_portable, are_right_in_every_configuration_on_every_shape, .timeout = 900)
{
    kernel_cases_run(CONFIG_PORTABLE);
}
