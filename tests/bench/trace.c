#include "trace.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

/* Threads of a CTA's process. */
enum { LANE_SLOTS = 1, LANE_PRODUCTS = 100, LANE_EPILOGUE = 200 };

/* One CTA on its way out. */
struct cta {
    struct trace *trace;
    const struct stamps_course *course;
    uint32_t process;
    double begin_us, clocks_per_us;
};

__attribute__((format(printf, 2, 3))) static void
event(struct trace *trace, const char *format, ...)
{
    va_list list;

    fputs(trace->has_events ? ",\n{" : "\n{", trace->file);
    trace->has_events = true;
    va_start(list, format);
    (void)vfprintf(trace->file, format, list);
    va_end(list);
    fputs("}", trace->file);
}

static void name_lane(const struct cta *cta, uint32_t lane, const char *what, uint32_t number)
{
    event(cta->trace,
          "\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":\"%s "
          "%u\"}",
          cta->process, lane, what, number);
    event(cta->trace,
          "\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%u,\"tid\":%u,\"args\":"
          "{\"sort_index\":%u}",
          cta->process, lane, lane);
}

static void
slice(const struct cta *cta, uint32_t lane, const char *what, size_t number, double from, double to)
{
    if (isnan(from) || isnan(to))
        return;
    event(cta->trace,
          "\"ph\":\"X\",\"name\":\"%s %zu\",\"pid\":%u,\"tid\":%u,\"ts\":%.4f,\"dur\":%.4f", what,
          number, cta->process, lane, cta->begin_us + from / cta->clocks_per_us,
          MAX(to - from, 0) / cta->clocks_per_us);
}

static void add_loads(const struct cta *cta, const struct stamps_launch *launch)
{
    for (uint32_t slot = 0; slot < launch->stages; slot++)
        name_lane(cta, LANE_SLOTS + slot, "TMA, slot", slot);
    for (size_t i = 0; i < cta->course->load_count; i++)
        slice(cta, LANE_SLOTS + (uint32_t)(i % launch->stages), "K tile", i,
              cta->course->loads[i].issued, cta->course->loads[i].landed);
}

/* Products of a K tile that were issued behind others begin when those are done. */
static void add_group(const struct cta *cta, uint32_t group)
{
    const struct stamps_product *products = cta->course->products[group];
    const struct stamps_tile *tiles = cta->course->tiles[group];
    double end = -INFINITY;

    name_lane(cta, LANE_PRODUCTS + group, "MMA, group", group);
    name_lane(cta, LANE_EPILOGUE + group, "epilogue, group", group);
    for (size_t i = 0; i < cta->course->product_count[group]; i++) {
        slice(cta, LANE_PRODUCTS + group, "K tile", products[i].load, MAX(products[i].seen, end),
              products[i].done);
        end = products[i].done;
    }
    for (size_t i = 0; i < cta->course->tile_count[group]; i++)
        slice(cta, LANE_EPILOGUE + group, "tile", i, tiles[i].epilogue_begin,
              tiles[i].epilogue_end);
}

static void add_cta(const struct cta *cta,
                    const char *name,
                    uint32_t number,
                    const struct stamps_launch *launch)
{
    event(cta->trace,
          "\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"args\":{\"name\":\"%s: CTA %u on "
          "multiprocessor %u\"}",
          cta->process, name, number, cta->course->multiprocessor);
    add_loads(cta, launch);
    for (uint32_t group = 0; group < launch->groups; group++)
        add_group(cta, group);
}

void trace_begin(struct trace *trace, FILE *file)
{
    *trace = (struct trace){.file = file};
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", file);
}

void trace_end(struct trace *trace)
{
    fputs("\n]}\n", trace->file);
}

static uint64_t first_begin(const struct gemmd_stamps *stamps, uint32_t ctas)
{
    uint64_t first = UINT64_MAX;

    for (uint32_t i = 0; i < ctas; i++)
        first = MIN(first, stamps->spans[i][GEMMD_STAMP_GROUP_0].begin_ns);
    return first;
}

bool trace_add(struct trace *trace,
               const char *name,
               const struct gemmd_stamps *stamps,
               const struct stamps_launch *launch,
               uint32_t ctas)
{
    struct stamps_course *course = malloc(sizeof(*course));
    uint32_t recorded = MIN(launch->ctas, (uint32_t)GEMMD_STAMP_CTAS);
    uint64_t first = first_begin(stamps, recorded);
    struct stamps_figures figures;
    bool is_right = course && stamps_measure(stamps, launch, &figures);

    for (uint32_t i = 0; is_right && i < MIN(ctas, recorded); i++) {
        const struct gemmd_stamp_span *span = &stamps->spans[i][GEMMD_STAMP_GROUP_0];
        struct cta cta = {.trace = trace,
                          .course = course,
                          .process = ++trace->processes,
                          .begin_us = (double)(span->begin_ns - first) * 1e-3,
                          .clocks_per_us = figures.clocks_per_ns * 1e3};

        is_right = stamps_read(stamps, launch, i, course);
        if (is_right)
            add_cta(&cta, name, i, launch);
    }
    free(course);
    return is_right;
}
