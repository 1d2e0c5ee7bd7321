/*
 * Where daemon and clients meet.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../daemon/core/socket_path.h"

static char buffer[SOCKET_PATH_MAX + 1];

static void set(const char *socket, const char *runtime)
{
    socket ? setenv("GEMMD_SOCKET", socket, 1) : unsetenv("GEMMD_SOCKET");
    runtime ? setenv("XDG_RUNTIME_DIR", runtime, 1) : unsetenv("XDG_RUNTIME_DIR");
}

Test(socket_path, prefers_what_is_given)
{
    set("/tmp/other", "/run/user/1");
    cr_assert_str_eq(socket_path_default("/tmp/given", buffer), "/tmp/given");
}

Test(socket_path, takes_the_variable_before_the_runtime_directory)
{
    set("/tmp/other", "/run/user/1");
    cr_assert_str_eq(socket_path_default(NULL, buffer), "/tmp/other");
}

Test(socket_path, lies_in_the_runtime_directory)
{
    set(NULL, "/run/user/1");
    cr_assert_str_eq(socket_path_default(NULL, buffer), "/run/user/1/gemmd.sock");
}

Test(socket_path, counts_empty_variables_as_unset)
{
    set("", "");
    cr_assert_str_eq(socket_path_default(NULL, buffer), "/run/gemmd/gemmd.sock");
}

Test(socket_path, is_the_system_wide_one_when_nothing_is_set)
{
    set(NULL, NULL);
    cr_assert_str_eq(socket_path_default(NULL, buffer), "/run/gemmd/gemmd.sock");
}

Test(socket_path, never_cuts_a_path_short)
{
    char directory[2 * SOCKET_PATH_MAX];

    for (size_t length = SOCKET_PATH_MAX - 20; length < sizeof(directory) - 1; length++) {
        const char *path;

        memset(directory, 'd', length);
        directory[0] = '/';
        directory[length] = '\0';
        set(NULL, directory);
        path = socket_path_default(NULL, buffer);
        if (length + strlen("/gemmd.sock") <= SOCKET_PATH_MAX)
            cr_assert_eq(strncmp(path, directory, length), 0);
        else
            cr_assert_str_eq(path, "/run/gemmd/gemmd.sock");
    }
}
