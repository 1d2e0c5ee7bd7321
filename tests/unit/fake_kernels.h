/*
 * A kernels directory of two small files: what a compile needs, without the real kernels' time.
 * The entry point has the real one's name and file, so any portable configuration compiles.
 */
#pragma once

#include "../../daemon/plan/config.h"
#include "scratch.h"

static inline struct config fake_config(uint32_t arch)
{
    struct config configs[CONFIG_LIST_MAX];

    if (config_list(arch, configs) == 0)
        abort();
    return configs[0];
}

static inline void fake_kernels_write(const struct scratch *scratch, const char *body)
{
    struct config config = fake_config(90);
    char text[4096];

    (void)snprintf(text, sizeof(text),
                   "#include \"base/value.cuh\"\n"
                   "extern \"C\" __global__ void %s(float *data, int count)\n{\n%s\n}\n",
                   config_entry(&config), body);
    scratch_write_text(scratch, config_source(&config), text);
    scratch_write_text(scratch, "base/value.cuh", "#pragma once\n#define VALUE 1.0f\n");
}
