/*
 * A CTA on the CPU: every CUDA thread is a fiber of one OS thread, so a run is deterministic and a
 * data race of the kernel shows as a wrong result in one of the orders, not as luck.
 *
 * A fiber runs until it meets others: at a CTA barrier, a warp barrier or a warp-wide instruction.
 * Two knobs move what a GPU leaves open: the order in which fibers take turns, and whether
 * asynchronous copies happen at once (finds slots overwritten too early) or as late as a wait
 * allows (finds missing waits).
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <vector>

namespace machine
{

constexpr size_t stack_size = 256 * 1024;
constexpr int warp_size = 32;

struct index {
    unsigned int x;
};

struct copy {
    unsigned char *to;
    const unsigned char *from;
    unsigned int size; /* of 16 bytes, the rest zeros */
};

/* What a lane brings to a warp-wide instruction. Two sets in turn: a lane can write the set after
 * next only when all lanes have read this one. */
struct exchange {
    const char *instruction;
    uint32_t r[8];
    double d[2];
    uint32_t s_address;
};

struct barrier {
    unsigned int arrived, generation;
};

struct warp {
    barrier meet;
    exchange lanes[2][warp_size];
};

struct fiber {
    index thread, cta, grid;
    ucontext_t start;
    void *resume[5]; /* of __builtin_setjmp */
    std::vector<unsigned char> stack;
    std::vector<copy> open_group;
    std::vector<std::vector<copy>> groups; /* committed, oldest first */
    unsigned int turn;                     /* warp-wide instructions so far */
    bool started, done;
};

struct state {
    std::vector<fiber> fibers;
    std::vector<warp> warps;
    barrier cta;
    void *scheduler[5];
    size_t current;
    bool copies_late, turns_backwards;
    void (*body)(void);
};

inline state self;

inline fiber &now()
{
    return self.fibers[self.current];
}

inline warp &now_warp()
{
    return self.warps[now().thread.x / warp_size];
}

/* A context is entered once through ucontext and from then on by the compiler's own jumps:
 * swapcontext() makes a system call, and a warp-wide instruction switches 32 times. */
__attribute__((noinline)) inline void jump(void **to)
{
    __builtin_longjmp(to, 1);
}

__attribute__((noinline)) inline void yield()
{
    if (__builtin_setjmp(now().resume) == 0)
        jump(self.scheduler);
}

__attribute__((noinline)) inline void resume(fiber &f)
{
    if (__builtin_setjmp(self.scheduler) != 0)
        return;
    if (f.started)
        jump(f.resume);
    f.started = true;
    setcontext(&f.start);
}

inline void meet(barrier &at, unsigned int expected)
{
    unsigned int generation = at.generation;

    if (++at.arrived == expected) {
        at.arrived = 0;
        at.generation++;
        return;
    }
    while (at.generation == generation)
        yield();
}

/* Publishes this lane's part of a warp-wide instruction and returns everybody's. */
inline const exchange *together(const exchange &mine)
{
    warp &w = now_warp();
    exchange *lanes = w.lanes[now().turn++ % 2];

    lanes[now().thread.x % warp_size] = mine;
    meet(w.meet, warp_size);
    for (int i = 0; i < warp_size; i++)
        if (lanes[i].instruction != mine.instruction) {
            fprintf(stderr, "lanes diverge: %s, %s\n", lanes[i].instruction, mine.instruction);
            abort();
        }
    return lanes;
}

inline void copy_now(const copy &c)
{
    for (unsigned int i = 0; i < 16; i++)
        c.to[i] = i < c.size ? c.from[i] : 0;
}

inline void fiber_main()
{
    self.body();
    now().done = true;
    yield();
}

inline void fiber_start(fiber &f)
{
    f.stack.resize(stack_size);
    f.started = f.done = false;
    f.turn = 0;
    getcontext(&f.start);
    f.start.uc_stack.ss_sp = f.stack.data();
    f.start.uc_stack.ss_size = stack_size;
    f.start.uc_link = nullptr;
    makecontext(&f.start, fiber_main, 0);
}

/* One round gives every fiber a turn; false when all are done. */
inline bool run_round()
{
    size_t count = self.fibers.size(), alive = 0;

    for (size_t i = 0; i < count; i++) {
        self.current = self.turns_backwards ? count - 1 - i : i;
        if (now().done)
            continue;
        alive++;
        resume(now());
    }
    return alive > 0;
}

inline void run_cta(unsigned int cta, unsigned int ctas, unsigned int threads)
{
    self.fibers.resize(threads);
    self.warps.assign(threads / warp_size, warp());
    self.cta = barrier();
    for (unsigned int i = 0; i < threads; i++) {
        fiber &f = self.fibers[i];

        f.thread.x = i;
        f.cta.x = cta;
        f.grid.x = ctas;
        f.open_group.clear();
        f.groups.clear();
        fiber_start(f);
    }
    while (run_round())
        ;
}

} // namespace machine
