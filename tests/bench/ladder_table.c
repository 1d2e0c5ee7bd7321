#include "ladder_table.h"

static double slot_kib(const struct ladder_row *row)
{
    const struct config *config = &row->config;

    return (config->tile_m + config->tile_n) * config->tile_k * 2 / 1024.0;
}

static void print_csv(FILE *to, const struct ladder_row *row)
{
    const struct stamps_figures *figures = &row->figures;
    char text[CONFIG_TEXT_MAX];

    config_to_text(&row->config, text);
    fprintf(to, "\"%s\",%s,%.3f,%.1f,%.3f,%.4f,%.3g,%u,%u,", row->step, text, row->seconds * 1e6,
            row->flop / row->seconds * 1e-12, row->peer * 1e6, row->peer / row->seconds, row->error,
            row->clock_mhz, row->watts);
    if (row->has_figures)
        fprintf(to, "%.4f,%.4f,%.2f,%.1f,%.1f,", figures->idle, figures->unfed, figures->loads,
                figures->loads * slot_kib(row), figures->gap_clocks);
    else
        fprintf(to, ",,,,,");
    fprintf(to, "%.3f,%u,%.0f\n", row->stamped_seconds * 1e6, row->registers,
            row->compile_seconds * 1e3);
}

static void print_line(FILE *to, const struct ladder_row *row)
{
    const struct stamps_figures *figures = &row->figures;

    fprintf(to, "# %-22s %9.1f %8.1f %6.3f ", row->step, row->seconds * 1e6,
            row->flop / row->seconds * 1e-12, row->peer / row->seconds);
    if (row->has_figures)
        fprintf(to, "%6.1f %6.1f %6.2f %6.0f %6.0f ", figures->idle * 100, figures->unfed * 100,
                figures->loads, figures->loads * slot_kib(row), figures->gap_clocks);
    else
        fprintf(to, "%6s %6s %6s %6s %6s ", "-", "-", "-", "-", "-");
    fprintf(to, "%5u %6.0f\n", row->registers, row->compile_seconds * 1e3);
}

static void print_coverage(FILE *to, const struct ladder_row *row)
{
    const struct stamps_figures *figures = &row->figures;

    if (row->has_figures)
        fprintf(
            to,
            "# %s: stamps of %zu CTAs, %zu K tiles%s, %.2f GHz; instrumented it takes %.1f us\n",
            row->step, figures->ctas, figures->k_tiles,
            figures->is_cut ? " (the launch has more)" : "", figures->clocks_per_ns,
            row->stamped_seconds * 1e6);
}

void ladder_table_print(FILE *to, const struct ladder_row *rows, size_t count)
{
    fprintf(to, "step,config,us,tflops,cublaslt_best_us,ratio,error,clock_mhz,watts,idle,unfed,"
                "loads_in_flight,kib_in_flight,"
                "gap_clocks,stamped_us,registers,compile_ms\n");
    for (size_t i = 0; i < count; i++)
        if (rows[i].seconds > 0)
            print_csv(to, &rows[i]);
    fprintf(to, "# %-22s %9s %8s %6s %6s %6s %6s %6s %6s %5s %6s\n", "step", "us", "TFLOP/s",
            "ratio", "idle%", "unfed%", "loads", "KiB", "gap", "regs", "ms");
    for (size_t i = 0; i < count; i++)
        if (rows[i].seconds > 0)
            print_line(to, &rows[i]);
    for (size_t i = 0; i < count; i++)
        print_coverage(to, &rows[i]);
}
