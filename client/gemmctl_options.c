/*
 * Options and their values: one way to take them, one form of refusal.
 */
#include "../daemon/plan/config.h"
#include "gemmctl.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void print_name(FILE *stream, const struct gemmctl *ctl)
{
    (void)fprintf(stream, ctl->command->name ? "gemmctl %s: " : "gemmctl: ", ctl->command->name);
}

int ctl_usage(const struct gemmctl *ctl, const char *format, ...)
{
    const char *name = ctl->command->name;
    va_list args;

    print_name(stderr, ctl);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fprintf(stderr, "\nusage: gemmctl %s%s%s\nTry 'gemmctl %s%s--help'.\n", name ? name : "",
                  name ? " " : "", ctl->command->usage, name ? name : "", name ? " " : "");
    return CTL_USAGE;
}

int ctl_fail(struct gemmctl *ctl, const char *format, ...)
{
    va_list args;

    ctl_progress_end(ctl);
    print_name(stderr, ctl);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
    return CTL_FAILED;
}

static int refuse_option(const struct gemmctl *ctl, char **argv, int option)
{
    const char *text = argv[optind - 1];

    if (option == ':')
        return ctl_usage(ctl, "option '%s' needs a value", text);
    if (optopt >= CTL_OPTION_SOCKET)
        return ctl_usage(ctl, "option '%s' takes no value", text);
    if (optopt)
        return ctl_usage(ctl, "option '-%c' is not known", optopt);
    return ctl_usage(ctl, "option '%s' is not known", text);
}

int ctl_option(struct gemmctl *ctl, int argc, char **argv, const struct option *options)
{
    /* Before the command, options end at its name; its own may stand anywhere. */
    const char *letters = ctl->command->name ? ":" : "+:";

    for (const struct option *option = options; option->name; option++) {
        if (option->val == 'o')
            letters = ":o:";
    }
    opterr = 0;
    for (;;) {
        int option = getopt_long(argc, argv, letters, options, NULL);

        switch (option) {
        case CTL_OPTION_SOCKET:
            ctl->socket = optarg;
            continue;
        case CTL_OPTION_PROGRESS:
            ctl->progress = true;
            continue;
        case CTL_OPTION_HELP:
            ctl_print_help(ctl);
            exit(fflush(stdout) == 0 ? CTL_OK : CTL_FAILED);
        case '?':
        case ':':
            (void)refuse_option(ctl, argv, option);
            return CTL_OPTION_WRONG;
        default:
            return option;
        }
    }
}

int ctl_no_more(const struct gemmctl *ctl, int argc, char **argv)
{
    if (optind < argc)
        return ctl_usage(ctl, "unexpected argument '%s'", argv[optind]);
    return CTL_OK;
}

int ctl_parse_count(const struct gemmctl *ctl, const char *name, const char *text, int64_t *ret)
{
    char *end;
    long long value;

    errno = 0;
    value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < 0)
        return ctl_usage(ctl, "%s is '%s'; a whole number from 0 to %" PRId64 " is wanted", name,
                         text, INT64_MAX);
    *ret = value;
    return CTL_OK;
}

int ctl_parse_real(const struct gemmctl *ctl, const char *name, const char *text, double *ret)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end)
        return ctl_usage(ctl, "%s is '%s'; a number is wanted", name, text);
    *ret = value;
    return CTL_OK;
}

int ctl_parse_bytes(const struct gemmctl *ctl, const char *name, const char *text, uint64_t *ret)
{
    static const char suffixes[] = "KMGT";
    char *end;
    double value = strtod(text, &end);
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;

    if (suffix) {
        value = ldexp(value, 10 * (int)(suffix - suffixes + 1));
        end++;
    }
    if (end == text || *end || !(value >= 0 && value < 0x1p63))
        return ctl_usage(ctl, "%s is '%s'; bytes are wanted, or a number with K, M, G or T", name,
                         text);
    *ret = (uint64_t)value;
    return CTL_OK;
}

int ctl_parse_dtype(const struct gemmctl *ctl, const char *name, const char *text, enum dtype *ret)
{
    if (dtype_from_name(text, strlen(text), ret))
        return CTL_OK;
    return ctl_usage(ctl,
                     "%s is '%s'; known are bf16, fp16, fp32, fp64, int8 and, for results, "
                     "int32",
                     name, text);
}

/* Every digit of the text makes the number: sm_90a, 9.0 and 90 are one. */
int ctl_parse_arch(const struct gemmctl *ctl, const char *text, uint32_t *ret)
{
    const char *at = strncmp(text, "sm_", 3) == 0 ? text + 3 : text;
    uint32_t arch = 0;
    int digits = 0;

    for (; *at && digits < 4; at++) {
        if (*at >= '0' && *at <= '9') {
            arch = arch * 10 + (uint32_t)(*at - '0');
            digits++;
        } else if (*at != '.') {
            break;
        }
    }
    if ((*at == 'a' || *at == 'f') && at[1] == '\0')
        at++;
    if (*at || !config_architecture(arch))
        return ctl_usage(ctl,
                         "--arch is '%s'; 80, 90, sm_90a, 100 and others of sm_80 and later "
                         "are known",
                         text);
    *ret = arch;
    return CTL_OK;
}

int ctl_parse_layout(const struct gemmctl *ctl, const char *text, bool *ret_a, bool *ret_b)
{
    if (strlen(text) != 2 || strspn(text, "nt") != 2)
        return ctl_usage(ctl, "--layout is '%s'; nn, nt, tn or tt is wanted", text);
    *ret_a = text[0] == 't';
    *ret_b = text[1] == 't';
    return CTL_OK;
}

int ctl_parse_activation(const struct gemmctl *ctl, const char *text, enum activation *ret)
{
    if (activation_from_name(text, strlen(text), ret))
        return CTL_OK;
    return ctl_usage(ctl, "--activation is '%s'; none, relu, gelu, gelu_tanh or silu is wanted",
                     text);
}

int ctl_parse_axis(const struct gemmctl *ctl, const char *name, const char *text, enum bias *ret)
{
    if (strcmp(text, "row") != 0 && strcmp(text, "column") != 0)
        return ctl_usage(ctl, "%s is '%s'; row or column is wanted", name, text);
    *ret = strcmp(text, "row") == 0 ? BIAS_PER_ROW : BIAS_PER_COLUMN;
    return CTL_OK;
}
