/*
 * A cluster of CTAs on the CPU: every CUDA thread is a fiber of one OS thread, so a run is
 * deterministic and a data race of the kernel shows as a wrong result in one of the orders, not as
 * luck.
 *
 * A fiber runs until it meets others: at a barrier of a CTA, a warp or the cluster, a warp-wide
 * instruction, an mbarrier whose phase is not over. Three knobs move what a GPU leaves open: the
 * order in which fibers take turns, whether one CTA of a cluster, or one warp of a CTA, is far
 * ahead of the others (finds what ends or writes too early), and whether asynchronous copies and
 * products happen at once (finds slots overwritten too early) or as late as a wait allows (finds
 * missing waits). What no thread can wait for by itself (tensor copies into shared memory, arrivals
 * at another CTA) is then late until everybody waits, and comes in no order. When everybody waits
 * and nothing is left, the kernel hangs, and the run ends.
 */
#pragma once

#include <functional>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <vector>

namespace machine
{

constexpr size_t stack_size = 96 * 1024;
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

struct cta {
    barrier all, named[16];
    unsigned char *memory; /* its own until the last of its threads has ended */
    unsigned int ended;    /* threads */
};

typedef std::function<void()> action;

/* Asynchronous actions in groups; open ones are the last. */
struct action_groups {
    std::vector<action> open;
    std::vector<std::vector<action>> committed; /* oldest first */

    void commit()
    {
        committed.push_back(open);
        open.clear();
    }

    void wait(size_t pending)
    {
        while (committed.size() > pending) {
            for (const action &a : committed.front())
                a();
            committed.erase(committed.begin());
        }
    }

    void clear()
    {
        open.clear();
        committed.clear();
    }
};

struct fiber {
    index thread, cta, grid;
    unsigned int rank; /* of the CTA in its cluster */
    ucontext_t start;
    void *resume[5]; /* of __builtin_setjmp */
    std::vector<unsigned char> stack;
    std::vector<copy> open_group;
    std::vector<std::vector<copy>> groups; /* committed, oldest first */
    action_groups stores, products;        /* bulk copies out of shared memory, wgmma */
    unsigned int turn;                     /* warp-wide instructions so far */
    const char *waits_for;                 /* what, and which one */
    unsigned int waits_at;
    bool started, done;
    bool is_in_turn;       /* has waited for the grid before, or need not */
    bool has_met;          /* the cluster: all its CTAs run and have barriers */
    bool has_new_barriers; /* of which nobody else knows before a fence */
};

struct state {
    std::vector<fiber> fibers;
    std::vector<warp> warps; /* of all CTAs */
    std::vector<cta> ctas;
    barrier cluster;
    std::vector<action> late; /* what an mbarrier will tell of, or count */
    unsigned int threads;     /* of a CTA */
    uint64_t moved;           /* waits that ended and arrivals: stands still when all wait */
    uint64_t random;
    void *scheduler[5];
    size_t current;
    bool copies_late, turns_backwards;
    bool one_ahead;      /* the first CTA or warp has all turns until nothing moves it */
    size_t ahead;        /* its fibers; 0: there is none */
    bool begins_early;   /* the kernel waits for the grid before by itself */
    bool inputs_settled; /* which what reads its inputs need not do */
    std::vector<std::pair<uint64_t, uint64_t>> inputs; /* first byte, end */
    bool lets_next_begin; /* before it has waited: the grid before let this one begin in its turn */
    std::vector<std::pair<uint64_t, uint64_t>> free; /* of which the grid before reads and writes
                                                        nothing: may be touched before the wait */
    void (*body)(void);
};

inline state self;

inline fiber &now()
{
    return self.fibers[self.current];
}

inline warp &now_warp()
{
    return self.warps[(now().rank * self.threads + now().thread.x) / warp_size];
}

inline cta &now_cta()
{
    return self.ctas[now().rank];
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

/* Whether it was the last one. */
inline bool arrive(barrier &at, unsigned int expected)
{
    self.moved++;
    if (++at.arrived < expected)
        return false;
    at.arrived = 0;
    at.generation++;
    return true;
}

inline void meet(barrier &at, unsigned int expected, const char *name = "its warp")
{
    unsigned int generation = at.generation;

    if (arrive(at, expected))
        return;
    now().waits_for = name;
    now().waits_at = expected;
    while (at.generation == generation)
        yield();
    self.moved++;
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
    now_cta().ended++;
    self.moved++;
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

/* A turn for each of these fibers, counted in the order of turns; how many were not done. */
inline size_t run_turns(size_t first, size_t end)
{
    size_t alive = 0;

    for (size_t i = first; i < end; i++) {
        self.current = self.turns_backwards ? self.fibers.size() - 1 - i : i;
        if (now().done)
            continue;
        alive++;
        resume(now());
    }
    return alive;
}

/* One round gives every fiber a turn, or those that are ahead; false when all are done. */
inline bool run_round()
{
    uint64_t moved = self.moved;
    size_t alive = run_turns(0, self.ahead);

    if (self.moved != moved)
        return true;
    return alive + run_turns(self.ahead, self.fibers.size()) > 0;
}

inline void say_who_waits()
{
    for (size_t i = 0; i < self.fibers.size(); i += warp_size) {
        const fiber &first = self.fibers[i];

        fprintf(stderr, "CTA %u thread %u %s %s %u\n", first.rank, first.thread.x,
                first.done ? "is done after" : "waits for", first.waits_for, first.waits_at);
    }
}

/* Everybody waits: one of them arrives, none in particular. */
inline void let_one_arrive()
{
    if (self.late.empty()) {
        fprintf(stderr, "all threads wait and nothing is on its way\n");
        say_who_waits();
        abort();
    }
    self.random = self.random * 6364136223846793005u + 1442695040888963407u;
    size_t chosen = (size_t)(self.random >> 33) % self.late.size();
    action arrive = self.late[chosen];
    self.late.erase(self.late.begin() + (long)chosen);
    arrive();
}

inline void fiber_reset(fiber &f, unsigned int thread, unsigned int rank)
{
    f.thread.x = thread;
    f.rank = rank;
    f.open_group.clear();
    f.groups.clear();
    f.stores.clear();
    f.products.clear();
    f.is_in_turn = !self.begins_early;
    f.has_met = f.has_new_barriers = false;
    fiber_start(f);
}

/* The end of a grid is that of all before it, so no CTA leaves before one of its threads has seen
 * the grid before end. */
inline void expect_all_waited(unsigned int cluster, unsigned int threads)
{
    for (unsigned int rank = 0; rank < cluster; rank++) {
        bool has_waited = false;

        for (unsigned int i = 0; i < threads; i++)
            has_waited |= self.fibers[rank * threads + i].is_in_turn;
        if (!has_waited) {
            fprintf(stderr, "a CTA left and has not waited for the grid before\n");
            abort();
        }
    }
}

/* `memory`: of the CTAs, one after the other. */
inline void run_cluster(unsigned int first_cta,
                        unsigned int ctas,
                        unsigned int cluster,
                        unsigned int threads,
                        unsigned char *memory,
                        size_t memory_size)
{
    uint64_t moved;

    self.fibers.resize(cluster * threads);
    self.warps.assign(cluster * threads / warp_size, warp());
    self.ctas.assign(cluster, cta());
    self.cluster = barrier();
    self.threads = threads;
    self.ahead = !self.one_ahead ? 0 : cluster == 1 ? warp_size : threads;
    self.late.clear();
    for (unsigned int i = 0; i < cluster * threads; i++) {
        fiber &f = self.fibers[i];

        f.cta.x = first_cta + i / threads;
        f.grid.x = ctas;
        fiber_reset(f, i % threads, i / threads);
    }
    for (unsigned int rank = 0; rank < cluster; rank++)
        self.ctas[rank].memory = memory + rank * memory_size;
    for (;;) {
        moved = self.moved;
        if (!run_round())
            break;
        if (self.moved == moved)
            let_one_arrive();
    }
    expect_all_waited(cluster, threads);
    if (!self.late.empty()) {
        fprintf(stderr, "the kernel ended before %zu copies and arrivals\n", self.late.size());
        abort();
    }
}

} // namespace machine
