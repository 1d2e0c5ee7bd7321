#include "stamps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What was known of a copy at some moments: not there yet, there. */
struct arrival {
    double not_before, not_after;
    bool was_waited_for; /* not_after is the end of a wait for it */
};

/* A reading under way. */
struct reader {
    const struct stamps_launch *launch;
    struct stamps_course *course;
    struct arrival *arrivals;
    uint32_t origin;
    uint32_t group;
    size_t done;      /* products of the group */
    uint32_t in_tile; /* K tiles of the tile seen */
    size_t passed;    /* loads issued so far, where the group's thread does that */
    double before;    /* what came last */
};

static double clock_at(const struct reader *reader, const struct gemmd_stamp *record, int which)
{
    return (double)(int32_t)(record->clock[which] - reader->origin);
}

static uint32_t kind_of(const struct gemmd_stamp *record)
{
    return record->what & ((1u << GEMMD_STAMP_LANDED_SHIFT) - 1);
}

/* --- loads ----------------------------------------------------------------------------------- */

static bool read_loads(struct reader *reader, const struct gemmd_stamp *records)
{
    struct stamps_course *course = reader->course;

    for (size_t i = 0; i < GEMMD_STAMP_RECORDS && kind_of(&records[i]) != GEMMD_STAMP_NONE; i++) {
        double at = clock_at(reader, &records[i], 0);

        if (kind_of(&records[i]) != GEMMD_STAMP_COPIES)
            return false;
        course->loads[course->load_count].issued = at;
        reader->arrivals[course->load_count++] = (struct arrival){at, INFINITY, false};
    }
    course->is_cut |= course->load_count == GEMMD_STAMP_RECORDS - 1;
    return true;
}

static void note_there(struct reader *reader, size_t load, double at, bool was_waited_for)
{
    struct arrival *arrival = &reader->arrivals[load];

    if (load >= reader->course->load_count || at >= arrival->not_after)
        return;
    arrival->not_after = at;
    arrival->was_waited_for = was_waited_for;
}

static void note_missing(struct reader *reader, size_t load, double at)
{
    struct arrival *arrival = &reader->arrivals[load];

    if (load < reader->course->load_count && at > arrival->not_before)
        arrival->not_before = at;
}

/* A look at the slots behind that of K tile `load`: so many of them are filled. */
static void note_look(struct reader *reader, size_t load, uint32_t filled, double at)
{
    for (size_t i = 1; i < reader->launch->stages; i++) {
        if (i <= filled)
            note_there(reader, load + i, at, false);
        else
            note_missing(reader, load + i, at);
    }
}

/* Loads that nobody saw arrive are of a course that was cut. */
static void settle_loads(struct reader *reader)
{
    struct stamps_course *course = reader->course;
    size_t count = 0;

    while (count < course->load_count && isfinite(reader->arrivals[count].not_after)) {
        const struct arrival *arrival = &reader->arrivals[count];
        double from = MIN(arrival->not_before, arrival->not_after);

        course->loads[count++].landed =
            arrival->was_waited_for ? arrival->not_after : (from + arrival->not_after) / 2;
    }
    course->load_count = count;
}

/* --- products -------------------------------------------------------------------------------- */

/* Whether the slot that was seen at `at` had to be waited for. */
static bool has_waited(struct reader *reader, double at)
{
    const struct stamps_course *course = reader->course;
    double before = reader->before;

    if (reader->launch->loads_in_passing && reader->group == 0) {
        while (reader->passed < course->load_count && course->loads[reader->passed].issued < at)
            reader->passed++;
        if (reader->passed > 0)
            before = MAX(before, course->loads[reader->passed - 1].issued);
    }
    return at - before > STAMPS_WAITING;
}

/* The wait's end is that of the products which had to be done: with others behind them, the K tile
 * before's, if there was one in this tile. */
static bool end_products(struct reader *reader, double at)
{
    struct stamps_course *course = reader->course;
    size_t *done = &reader->done;

    if (*done == course->product_count[reader->group])
        return false;
    course->products[reader->group][(*done)++].done = at;
    return true;
}

/* The slot of the tile's next K tile. */
static bool see_slot(struct reader *reader, double at)
{
    const struct stamps_launch *launch = reader->launch;
    struct stamps_course *course = reader->course;
    uint32_t unit = (uint32_t)course->tile_count[reader->group] - 1;
    struct stamps_product *product =
        &course->products[reader->group][course->product_count[reader->group]++];

    if (launch->is_pingpong)
        unit = unit * launch->groups + reader->group;
    *product = (struct stamps_product){
        .load = unit * launch->k_tiles + reader->in_tile,
        .begins_tile = reader->in_tile == 0,
        .seen = at,
        .issued = NAN,
        .done = NAN,
    };
    reader->in_tile++;
    note_there(reader, product->load, at, has_waited(reader, at));
    return true;
}

static bool begin_tile(struct reader *reader, const struct gemmd_stamp *record)
{
    struct stamps_course *course = reader->course;

    reader->before = clock_at(reader, record, 0);
    course->tiles[reader->group][course->tile_count[reader->group]++] =
        (struct stamps_tile){reader->before, NAN, NAN};
    reader->in_tile = 0;
    return see_slot(reader, clock_at(reader, record, 2));
}

/* What the tile's newest K tile did, and the slot of the next one, or the end of all. */
static bool read_k_tile(struct reader *reader, const struct gemmd_stamp *record)
{
    const struct stamps_launch *launch = reader->launch;
    struct stamps_course *course = reader->course;
    size_t count = course->product_count[reader->group];
    struct stamps_product *product = &course->products[reader->group][count - (count > 0)];
    double issued = clock_at(reader, record, 0), waited = clock_at(reader, record, 1);
    double last = clock_at(reader, record, 2);
    bool ends = reader->in_tile > launch->products_behind;

    if (count == 0 || !isnan(product->issued))
        return false;
    product->issued = issued;
    note_look(reader, product->load, record->what >> GEMMD_STAMP_LANDED_SHIFT, issued);
    reader->before = waited;
    if (ends && !end_products(reader, waited))
        return false;
    if (reader->in_tile < launch->k_tiles)
        return see_slot(reader, last);
    reader->before = last;
    course->tiles[reader->group][course->tile_count[reader->group] - 1].epilogue_begin = last;
    return launch->products_behind == 0 || end_products(reader, last);
}

static bool end_tile(struct reader *reader, const struct gemmd_stamp *record)
{
    size_t count = reader->course->tile_count[reader->group];
    struct stamps_tile *tile;

    if (count == 0 || reader->in_tile != reader->launch->k_tiles)
        return false;
    tile = &reader->course->tiles[reader->group][count - 1];
    tile->epilogue_end = reader->before = clock_at(reader, record, 0);
    return !isnan(tile->epilogue_begin);
}

static bool read_record(struct reader *reader, const struct gemmd_stamp *record)
{
    switch (kind_of(record)) {
    case GEMMD_STAMP_TILE_BEGIN:
        return begin_tile(reader, record);
    case GEMMD_STAMP_K_TILE:
        return read_k_tile(reader, record);
    case GEMMD_STAMP_TILE_END:
        return end_tile(reader, record);
    default:
        return false;
    }
}

static bool read_group(struct reader *reader, const struct gemmd_stamp *records)
{
    struct stamps_course *course = reader->course;
    size_t i;

    reader->done = 0;
    reader->in_tile = 0;
    for (i = 0; i < GEMMD_STAMP_RECORDS && kind_of(&records[i]) != GEMMD_STAMP_NONE; i++) {
        if (!read_record(reader, &records[i]))
            return false;
        course->end = MAX(course->end, reader->before);
    }
    course->is_cut |= i == GEMMD_STAMP_RECORDS - 1;
    course->product_count[reader->group] = reader->done; /* others are of a cut */
    return true;
}

bool stamps_read(const struct gemmd_stamps *stamps,
                 const struct stamps_launch *launch,
                 uint32_t cta,
                 struct stamps_course *ret_course)
{
    struct arrival *arrivals = calloc(GEMMD_STAMP_RECORDS, sizeof(*arrivals));
    struct reader reader = {.launch = launch,
                            .course = ret_course,
                            .arrivals = arrivals,
                            .origin = stamps->spans[cta][GEMMD_STAMP_GROUP_0].begin_clock};
    bool is_right = arrivals;

    *ret_course = (struct stamps_course){
        .multiprocessor = stamps->spans[cta][GEMMD_STAMP_GROUP_0].multiprocessor};
    is_right = is_right && read_loads(&reader, stamps->records[cta][GEMMD_STAMP_LOADER]);
    for (; is_right && reader.group < launch->groups; reader.group++)
        is_right = read_group(&reader, stamps->records[cta][GEMMD_STAMP_GROUP_0 + reader.group]);
    if (is_right)
        settle_loads(&reader);
    free(arrivals);
    return is_right;
}

/* --- figures --------------------------------------------------------------------------------- */

/* Of all CTAs, in clocks but the counts. */
struct sums {
    double course, fed, in_flight, main_loops, needed;
    double clocks, ns;
    uint64_t begin_ns, end_ns;
    size_t ctas, k_tiles;
    bool is_cut;
};

/* The time that the groups' products cover, which each group has in order. */
static double covered(const struct stamps_course *course, uint32_t groups)
{
    size_t next[STAMPS_GROUPS] = {0};
    double sum = 0, end = 0;

    for (;;) {
        const struct stamps_product *first = NULL;
        uint32_t of = 0;

        for (uint32_t group = 0; group < groups; group++) {
            const struct stamps_product *product = &course->products[group][next[group]];

            if (next[group] < course->product_count[group] &&
                (!first || product->seen < first->seen)) {
                first = product;
                of = group;
            }
        }
        if (!first)
            return sum;
        next[of]++;
        sum += MAX(first->done - MAX(first->seen, end), 0);
        end = MAX(first->done, end);
    }
}

/* From a tile's first products to the end of its last ones; cooperative groups have one together,
 * of which the first group speaks. Tiles that are cut do not count. */
static void add_main_loops(struct sums *sums,
                           const struct stamps_course *course,
                           const struct stamps_launch *launch,
                           uint32_t group)
{
    const struct stamps_product *products = course->products[group];
    size_t count = course->product_count[group], tile = launch->k_tiles;

    for (size_t i = 0; i + tile <= count; i += tile) {
        sums->main_loops += products[i + tile - 1].done - products[i].seen;
        sums->needed += (double)tile * launch->k_tile_clocks;
    }
}

static void add_course(struct sums *sums,
                       const struct stamps_course *course,
                       const struct stamps_launch *launch)
{
    uint32_t tiling = launch->is_pingpong ? launch->groups : 1;

    sums->course += course->end;
    sums->fed += covered(course, launch->groups);
    sums->is_cut |= course->is_cut;
    for (size_t i = 0; i < course->load_count; i++)
        sums->in_flight += course->loads[i].landed - course->loads[i].issued;
    for (uint32_t group = 0; group < tiling; group++) {
        sums->k_tiles += course->product_count[group];
        add_main_loops(sums, course, launch, group);
    }
    sums->ctas++;
}

static void add_span(struct sums *sums,
                     const struct gemmd_stamps *stamps,
                     const struct stamps_launch *launch,
                     uint32_t cta)
{
    for (uint32_t group = 0; group < launch->groups; group++) {
        const struct gemmd_stamp_span *span = &stamps->spans[cta][GEMMD_STAMP_GROUP_0 + group];

        sums->clocks += (double)(uint32_t)(span->end_clock - span->begin_clock);
        sums->ns += (double)(span->end_ns - span->begin_ns);
        sums->begin_ns = MIN(sums->begin_ns, span->begin_ns);
        sums->end_ns = MAX(sums->end_ns, span->end_ns);
    }
}

/* The clocks that all multiprocessors had, from the first CTA's begin to the last one's end; of a
 * launch that is not all there, those of its CTAs. */
static double clocks_of_all(const struct sums *sums, const struct stamps_launch *launch)
{
    if (sums->is_cut || sums->ctas < launch->ctas)
        return sums->course;
    return (double)(sums->end_ns - sums->begin_ns) * sums->clocks / sums->ns *
           launch->multiprocessors;
}

static void
conclude(const struct sums *sums, const struct stamps_launch *launch, struct stamps_figures *ret)
{
    double all = clocks_of_all(sums, launch);

    *ret = (struct stamps_figures){
        .idle = 1 - (double)sums->k_tiles * launch->k_tile_clocks / all,
        .unfed = 1 - sums->fed / all,
        .loads = sums->in_flight / sums->course,
        .gap_clocks = (sums->main_loops - sums->needed) / (double)sums->k_tiles,
        .clocks_per_ns = sums->clocks / sums->ns,
        .ctas = sums->ctas,
        .k_tiles = sums->k_tiles,
        .is_cut = sums->is_cut || sums->ctas < launch->ctas,
    };
}

bool stamps_measure(const struct gemmd_stamps *stamps,
                    const struct stamps_launch *launch,
                    struct stamps_figures *ret_figures)
{
    struct stamps_course *course = malloc(sizeof(*course));
    struct sums sums = {.begin_ns = UINT64_MAX};
    uint32_t ctas = MIN(launch->ctas, (uint32_t)GEMMD_STAMP_CTAS);
    bool is_right = course;

    for (uint32_t cta = 0; is_right && cta < ctas; cta++) {
        is_right = stamps_read(stamps, launch, cta, course);
        if (!is_right)
            break;
        add_course(&sums, course, launch);
        add_span(&sums, stamps, launch, cta);
    }
    free(course);
    if (!is_right || sums.k_tiles == 0)
        return false;
    conclude(&sums, launch, ret_figures);
    return true;
}
