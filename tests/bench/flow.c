#include "flow.h"

#include <stdlib.h>

int flow_figures_init(struct flow_figures *figures)
{
    *figures = (struct flow_figures){0};
    figures->latencies.values = calloc(FLOW_LATENCIES_MAX, sizeof(double));
    return figures->latencies.values ? 0 : -ENOMEM;
}

void flow_figures_deinit(struct flow_figures *figures)
{
    free(figures->latencies.values);
    figures->latencies.values = NULL;
}

static void record(struct flow_figures *figures, double start, double end, double device_seconds)
{
    figures->latencies.values[figures->products % FLOW_LATENCIES_MAX] = end - start;
    figures->products++;
    figures->latencies.count = (size_t)MIN(figures->products, FLOW_LATENCIES_MAX);
    figures->device_seconds += device_seconds;
}

int flow_run(const struct flow_engine *engine,
             size_t in_flight,
             double seconds,
             struct flow_figures *figures)
{
    double started[FLOW_IN_FLIGHT_MAX];
    uint64_t issued = 0, finished = 0;
    double begin = engine->now(), end = begin + seconds, now = begin, device_seconds;
    assert(in_flight >= 1 && in_flight <= FLOW_IN_FLIGHT_MAX);

    figures->products = 0;
    figures->seconds = figures->device_seconds = 0;
    figures->latencies.count = 0;
    do {
        while (issued - finished < in_flight && (now < end || issued == 0)) {
            started[issued % in_flight] = engine->now();
            int r = engine->start(engine->context, issued++ % in_flight);
            if (r)
                return r;
        }
        int r = engine->finish(engine->context, finished % in_flight, &device_seconds);
        if (r)
            return r;
        now = engine->now();
        if (now <= end || finished == 0) {
            record(figures, started[finished % in_flight], now, device_seconds);
            figures->seconds = now - begin;
        }
        finished++;
    } while (now < end || finished < issued);
    return 0;
}
