#include "../../daemon/core/dtype.h"
#include "../../daemon/worker/cuda_running.h"

#include <criterion/criterion.h>

static const struct access some = {0x1000, 0x2000, true};

/* A product of which only A is looked at: 64 x 64 in 16 bits. */
static struct gemmd_job reader_of(uint64_t a)
{
    return (struct gemmd_job){.a = a,
                              .b = 0x100000,
                              .m = 64,
                              .n = 64,
                              .k = 64,
                              .batch = 1,
                              .lda = 64,
                              .ldb = 64,
                              .ldd = 64,
                              .alpha = 1,
                              .input = DTYPE_BF16,
                              .output = DTYPE_BF16};
}

Test(cuda_running, has_none_at_first)
{
    struct cuda_running running = {0};
    struct gemmd_job job = reader_of(some.begin);

    cr_expect_not(cuda_running_has(&running, 0), "no launch has this number");
    cr_expect_not(cuda_running_touches(&running, &job));
    cr_expect(cuda_running_has_room(&running));
}

Test(cuda_running, has_all_launches_since_one_that_let_no_other_begin_at_once)
{
    struct cuda_running running = {0};
    struct gemmd_job job = reader_of(some.begin);

    cuda_running_add(&running, true, some);
    cuda_running_add(&running, true, (struct access){0x8000, 0x9000, true});
    cr_expect_eq(running.latest, 2);
    cr_expect(cuda_running_has(&running, 1));
    cr_expect(cuda_running_has(&running, 2));
    cr_expect(cuda_running_touches(&running, &job));

    cuda_running_add(&running, false, (struct access){0xa000, 0xb000, true});
    cr_expect_not(cuda_running_has(&running, 2), "it has ended when the next begins");
    cr_expect(cuda_running_has(&running, 3));
    cr_expect_not(cuda_running_touches(&running, &job));

    cuda_running_add(&running, true, some);
    cr_expect(cuda_running_has(&running, 3));
    cr_expect(cuda_running_has(&running, 4));
    cr_expect(cuda_running_touches(&running, &job));
}

Test(cuda_running, has_room_for_as_many_as_are_compared_with)
{
    struct cuda_running running = {0};

    for (int i = 0; i < CUDA_RUNNING_MAX; i++) {
        cr_expect(cuda_running_has_room(&running));
        cuda_running_add(&running, true, some);
    }
    cr_expect_not(cuda_running_has_room(&running));
    cuda_running_add(&running, false, some);
    cr_expect(cuda_running_has_room(&running));
}
