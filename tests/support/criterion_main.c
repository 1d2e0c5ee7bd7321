/*
 * main() of every program of tests: Criterion's own, but that it fails where there are no tests. A
 * linker that drops them makes no error of it, and a program that checks nothing would pass.
 */
#include <criterion/criterion.h>
#include <stdio.h>

/* Exported: the processes in which tests run look for it by name, and find Criterion's otherwise.
 */
__attribute__((visibility("default"))) int main(int argc, char **argv)
{
    struct criterion_test_set *tests = criterion_initialize();
    int r = 0;

    if (tests->tests == 0) {
        (void)fprintf(stderr, "%s: there are no tests in this program\n", argv[0]);
        r = 1;
    } else if (criterion_handle_args(argc, argv, true)) {
        r = !criterion_run_all_tests(tests);
    }
    criterion_finalize(tests);
    return r;
}
