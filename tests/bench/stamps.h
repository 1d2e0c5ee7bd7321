/*
 * What an instrumented kernel wrote down (kernels_src/abi/stamp.h), read: the course of a CTA, and
 * the figures of a launch that follow from all of them.
 *
 * A copy's arrival has no stamp: nobody stands there to see it. It is known from the thread that
 * waited for the slot, if it had to wait, and otherwise lies between the last look that did not yet
 * find it and the first that did; there is one in each K tile and group, and the middle counts.
 */
#pragma once

#include "../../daemon/core/std.h"
#include "../../kernels_src/abi/stamp.h"

#define STAMPS_GROUPS  2
#define STAMPS_WAITING 60 /* clocks: a step that takes longer has waited for something */

/* Of the launch whose stamps they are. */
struct stamps_launch {
    uint32_t ctas;
    uint32_t multiprocessors; /* of the device */
    uint32_t groups;          /* of warps that multiply */
    bool is_pingpong;         /* each group has a tile of its own, in turns */
    bool loads_in_passing;    /* the first group's recording thread is the loader, too */
    uint32_t products_behind; /* K tiles whose products may run on while the next ones are issued */
    uint32_t stages, slot_bytes;
    uint32_t k_tiles;       /* of a tile of D */
    uint32_t k_tile_clocks; /* what the tensor cores need for one, at the least */
};

/* Clocks since the CTA's first group began. */
struct stamps_load {
    double issued, landed;
};

struct stamps_product {
    uint32_t load;             /* number of its K tile in the CTA */
    bool begins_tile;          /* of D */
    double seen, issued, done; /* its slot is released behind that */
};

struct stamps_tile {
    double begin, epilogue_begin, epilogue_end;
};

struct stamps_course {
    uint32_t multiprocessor;
    size_t load_count, product_count[STAMPS_GROUPS], tile_count[STAMPS_GROUPS];
    double end;  /* the last event */
    bool is_cut; /* there were more events than room */
    struct stamps_load loads[GEMMD_STAMP_RECORDS];
    struct stamps_product products[STAMPS_GROUPS][GEMMD_STAMP_RECORDS];
    struct stamps_tile tiles[STAMPS_GROUPS][GEMMD_STAMP_RECORDS];
};

struct stamps_figures {
    double idle;       /* share of the device's time that products at full rate do not fill */
    double unfed;      /* share in which no product was under way */
    double loads;      /* K tiles that were issued and had not landed: the mean of a CTA's time */
    double gap_clocks; /* of a K tile, beyond what its products need: 0 is back to back */
    double clocks_per_ns;
    size_t ctas, k_tiles; /* that the figures rest on */
    bool is_cut;          /* they are of the launch's beginning */
};

/* False when the records cannot be of such a launch: an event without the one before it. What is
 * behind a cut is left out. */
bool stamps_read(const struct gemmd_stamps *stamps,
                 const struct stamps_launch *launch,
                 uint32_t cta,
                 struct stamps_course *ret_course);
/* Of all CTAs that have records. False as above, or when there are none. */
bool stamps_measure(const struct gemmd_stamps *stamps,
                    const struct stamps_launch *launch,
                    struct stamps_figures *ret_figures);
