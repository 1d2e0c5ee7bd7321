/*
 * The steps of a plan, one after the other.
 *
 * A round is an item of the batch, or a group of them, and a band of the operand that stays. In it
 * the loaded part of D grows like a square from its first corner: whichever operand has less of its
 * panels there gets the next one, which is computed with all of the other one's. When the operand
 * that stays is there, the rest of the other one follows.
 */
#include "panel_plan.h"

#define ROW_ALIGNMENT 16

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t cut_down(int64_t value, int64_t unit)
{
    return value / unit * unit;
}

static int64_t divide_up(int64_t value, int64_t by)
{
    return value / by + (value % by != 0);
}

/* --- where panels begin ---------------------------------------------------------------------- */

static int64_t extent_of(const struct panel_cursor *cursor, int i)
{
    const struct panel_axis *axis = &cursor->plan->axis[i];

    return i == cursor->plan->stays ? least(axis->band, axis->extent - cursor->band * axis->band)
                                    : axis->extent;
}

/* The last whole panel's end, from where they get smaller. */
static int64_t tail_of(const struct panel_axis *axis, int64_t extent)
{
    return cut_down(extent - axis->panel, axis->unit);
}

static int64_t panel_count(const struct panel_cursor *cursor, int i)
{
    const struct panel_axis *axis = &cursor->plan->axis[i];
    int64_t extent = extent_of(cursor, i);

    if (!cursor->plan->area[i].is_staged)
        return 1;
    if (axis->slots > 0)
        return divide_up(extent, axis->panel);
    if (extent <= 4 * axis->panel)
        return divide_up(extent, axis->panel / 4);
    return 6 + divide_up(tail_of(axis, extent) - axis->panel, axis->panel);
}

/* Quarters of a panel at both ends: 1, 1, 2, 4, 4, ..., 4, 2, 1, 1. */
static int64_t panel_begin(const struct panel_cursor *cursor, int i, int64_t panel)
{
    const struct panel_axis *axis = &cursor->plan->axis[i];
    int64_t extent = extent_of(cursor, i), count = panel_count(cursor, i);
    int64_t quarter = axis->panel / 4, from_end = count - panel;

    if (panel == count)
        return extent;
    if (panel == 0)
        return 0;
    if (axis->slots > 0)
        return panel * axis->panel;
    if (extent <= 4 * axis->panel || panel < 3)
        return panel * quarter;
    if (from_end > 3)
        return (panel - 2) * axis->panel;
    return tail_of(axis, extent) + (from_end == 3 ? 0 : 4 - from_end) * quarter;
}

/* --- blocks ---------------------------------------------------------------------------------- */

static uint64_t pitch_of(const struct panel_plan *plan, int64_t columns)
{
    uint64_t width = (uint64_t)columns * plan->block_element;

    return columns == plan->dense_columns
               ? width
               : (width + ROW_ALIGNMENT - 1) / ROW_ALIGNMENT * ROW_ALIGNMENT;
}

/* Newton's way down. */
static int64_t square_root(int64_t value)
{
    int64_t root = value, next = (root + 1) / 2;

    while (next < root) {
        root = next;
        next = (root + value / root) / 2;
    }
    return root;
}

/* `extent` in equal parts of at most `most`. */
static int64_t even(int64_t extent, int64_t most, int64_t unit)
{
    int64_t each = divide_up(extent, divide_up(extent, most));

    return least(divide_up(each, unit) * unit, extent);
}

/* Blocks of the extents to be computed: whole rows of D where those lie without a gap at the
 * client's, since strided copies out take from the bus what comes in, else as near to squares as
 * the extents allow. A unit fits into a slot, and padded rows of a block are no longer than those
 * of whole units, so `high` is at least one. */
static void choose_block(struct panel_cursor *cursor)
{
    const struct panel_plan *plan = cursor->plan;
    int64_t rows = cursor->last[0] - cursor->first[0], columns = cursor->last[1] - cursor->first[1];
    int64_t unit_rows = plan->axis[0].unit, unit_columns = plan->axis[1].unit;
    int64_t elements = (int64_t)(plan->block_size / plan->block_element);
    int64_t wide = MAX(square_root(elements), elements / rows);
    int64_t high = (int64_t)(plan->block_size / pitch_of(plan, columns));

    cursor->block[0] = rows;
    cursor->block[1] = columns;
    if (rows <= high)
        return;
    if (columns == plan->dense_columns && high >= unit_rows) {
        cursor->block[0] = even(rows, cut_down(high, unit_rows), unit_rows);
        return;
    }
    wide = cut_down(least(wide, elements / least(rows, unit_rows)), unit_columns);
    wide = even(columns, MAX(wide, unit_columns), unit_columns);
    high = (int64_t)(plan->block_size / pitch_of(plan, wide));
    cursor->block[0] = rows <= high ? rows : even(rows, cut_down(high, unit_rows), unit_rows);
    cursor->block[1] = wide;
}

/* --- loads ----------------------------------------------------------------------------------- */

static uint64_t place_of(const struct panel_cursor *cursor, int i, int64_t index)
{
    const struct panel_axis *axis = &cursor->plan->axis[i];
    const struct panel_area *area = &cursor->plan->area[i];
    uint64_t shift = (uint64_t)cursor->item * area->item_shift % ROW_ALIGNMENT;
    int64_t at = index;

    if (axis->slots > 0)
        at = index / axis->panel % axis->slots * axis->panel + index % axis->panel;
    return area->offset + cursor->round % area->copies * area->size + shift +
           (uint64_t)at * area->along;
}

static uint64_t after_of(const struct panel_cursor *cursor, int i, int64_t panel)
{
    const struct panel_axis *axis = &cursor->plan->axis[i];

    if (axis->slots > 0 && panel >= axis->slots)
        return cursor->slot_step[panel % axis->slots];
    return cursor->plan->area[i].copies > 1 ? cursor->before_step : cursor->round_step;
}

static int64_t base_of(const struct panel_cursor *cursor, int i)
{
    return i == cursor->plan->stays ? cursor->band * cursor->plan->axis[i].band : 0;
}

/* The whole of a shared operand is there since the first item. */
static bool is_there(const struct panel_cursor *cursor, int i)
{
    const struct panel_axis *axis = &cursor->plan->axis[i];
    const struct panel_area *area = &cursor->plan->area[i];

    return !area->is_staged ||
           (area->is_shared && cursor->item > 0 && axis->slots == 0 && axis->band == axis->extent);
}

static void load(struct panel_cursor *cursor, int i, struct panel_step *step)
{
    int64_t panel = cursor->loaded[i]++;
    int64_t begin = panel_begin(cursor, i, panel), end = panel_begin(cursor, i, panel + 1);

    cursor->first[i] = begin;
    cursor->last[i] = end;
    if (is_there(cursor, i))
        return;
    step->load[step->loads++] = (struct panel_load){
        .axis = i,
        .begin = base_of(cursor, i) + begin,
        .end = base_of(cursor, i) + end,
        .offset = place_of(cursor, i, begin),
        .after = after_of(cursor, i, panel),
    };
}

/* --- rounds ---------------------------------------------------------------------------------- */

static bool next_round(struct panel_cursor *cursor)
{
    const struct panel_plan *plan = cursor->plan;
    const struct panel_axis *stays = &plan->axis[plan->stays];

    if (++cursor->band * stays->band >= stays->extent) {
        cursor->band = 0;
        cursor->item += plan->group;
    }
    cursor->round++;
    cursor->before_step = cursor->round_step;
    cursor->round_step = cursor->number;
    cursor->loaded[0] = cursor->loaded[1] = 0;
    return cursor->item < plan->batch;
}

/* Whether the next panel has a place. A ring overwrites none that the rest of the band needs. */
static bool may_load(const struct panel_cursor *cursor, int i)
{
    const struct panel_axis *axis = &cursor->plan->axis[i];
    bool other_is_there = cursor->loaded[1 - i] == panel_count(cursor, 1 - i);

    return cursor->loaded[i] < panel_count(cursor, i) &&
           (axis->slots == 0 || other_is_there || cursor->loaded[i] < axis->slots);
}

/* The next panel, and what it is computed with. False after the last round. */
static bool expand(struct panel_cursor *cursor, struct panel_step *step)
{
    bool may[2] = {may_load(cursor, 0), may_load(cursor, 1)};

    if (!may[0] && !may[1]) {
        if (!next_round(cursor))
            return false;
        may[0] = may[1] = true;
    }
    if (cursor->loaded[0] == 0) {
        load(cursor, 0, step);
        load(cursor, 1, step);
    } else {
        int64_t reach[2] = {panel_begin(cursor, 0, cursor->loaded[0]),
                            panel_begin(cursor, 1, cursor->loaded[1])};
        int i = !may[0] || (may[1] && reach[1] < reach[0]) ? 1 : 0;

        cursor->first[1 - i] = 0;
        cursor->last[1 - i] = reach[1 - i];
        load(cursor, i, step);
    }
    cursor->at[0] = cursor->first[0];
    cursor->at[1] = cursor->first[1];
    choose_block(cursor);
    return true;
}

/* --- steps ----------------------------------------------------------------------------------- */

static void describe_block(const struct panel_cursor *cursor, struct panel_step *step)
{
    const struct panel_plan *plan = cursor->plan;
    uint64_t item;

    step->number = cursor->number;
    step->item = cursor->item;
    step->items = least(plan->group, plan->batch - cursor->item);
    step->row = base_of(cursor, 0) + cursor->at[0];
    step->rows = least(cursor->block[0], cursor->last[0] - cursor->at[0]);
    step->column = base_of(cursor, 1) + cursor->at[1];
    step->columns = least(cursor->block[1], cursor->last[1] - cursor->at[1]);
    for (int i = 0; i < 2; i++)
        step->operand_offset[i] = place_of(cursor, i, cursor->at[i]);
    step->block_offset = cursor->number % PANEL_BLOCK_SLOTS * plan->block_size;
    step->block_pitch = pitch_of(plan, step->columns);
    item = (uint64_t)step->rows * step->block_pitch;
    step->block_item = item;
    if (step->columns != plan->dense_columns || !plan->items_are_dense)
        step->block_item = (item + ROW_ALIGNMENT - 1) / ROW_ALIGNMENT * ROW_ALIGNMENT;
}

/* Who reads which slot of the ring. */
static void mark_slots(struct panel_cursor *cursor, const struct panel_step *step)
{
    int i = 1 - cursor->plan->stays;
    const struct panel_axis *axis = &cursor->plan->axis[i];
    int64_t end = cursor->at[i] + (i == 0 ? step->rows : step->columns);

    if (axis->slots == 0)
        return;
    for (int64_t panel = cursor->at[i] / axis->panel; panel * axis->panel < end; panel++)
        cursor->slot_step[panel % axis->slots] = cursor->number + 1;
}

static void advance(struct panel_cursor *cursor)
{
    cursor->number++;
    cursor->at[1] += cursor->block[1];
    if (cursor->at[1] < cursor->last[1])
        return;
    cursor->at[1] = cursor->first[1];
    cursor->at[0] += cursor->block[0];
}

void panel_cursor_init(struct panel_cursor *cursor, const struct panel_plan *plan)
{
    *cursor = (struct panel_cursor){.plan = plan};
}

bool panel_next(struct panel_cursor *cursor, struct panel_step *ret_step)
{
    *ret_step = (struct panel_step){0};
    if (cursor->at[0] >= cursor->last[0] && !expand(cursor, ret_step))
        return false;
    describe_block(cursor, ret_step);
    mark_slots(cursor, ret_step);
    advance(cursor);
    return true;
}
