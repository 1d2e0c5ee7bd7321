/*
 * The daemon's JSON answers for people: names and values in two columns, nested maps indented,
 * arrays of maps as tables. Names carry their unit (`..._bytes`, `..._seconds`, `..._ns`), so
 * values can be written readably without a list of what the daemon may say.
 */
#include "gemmctl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEPTH_MAX   16
#define COLUMNS_MAX 24
#define CELL_MAX    128

enum json_kind {
    JSON_MAP,
    JSON_ARRAY,
    JSON_SCALAR, /* text is ready to print */
};

struct json {
    enum json_kind kind;
    char *name; /* owned; NULL in arrays and at the top */
    char *text; /* owned; scalars */
    bool is_number;
    struct json *child, *next; /* owned */
};

static void json_free(struct json *json)
{
    while (json) {
        struct json *next = json->next;

        json_free(json->child);
        free(json->name);
        free(json->text);
        free(json);
        json = next;
    }
}

static void json_freep(struct json **json)
{
    json_free(*json);
}

/* --- parsing --------------------------------------------------------------------------------- */

static void skip_space(const char **at)
{
    *at += strspn(*at, " \t\r\n");
}

/* One character of a string; anything beyond ASCII that is escaped prints as '?'. */
static char unescape(const char **at)
{
    char c = *(*at)++;

    if (c != '\\')
        return c;
    c = *(*at)++;
    switch (c) {
    case 'n':
    case 't':
    case 'r':
    case 'b':
    case 'f':
        return ' ';
    case 'u':
        *at += strnlen(*at, 4);
        return '?';
    default:
        return c;
    }
}

/* NULL when there is no string; the caller owns it. */
static char *parse_string(const char **at)
{
    const char *from = *at;
    size_t length = 0;
    char *text;

    if (*from++ != '"')
        return NULL;
    text = malloc(strlen(from) + 1);
    while (text && *from && *from != '"') {
        if (*from == '\\' && !from[1])
            break;
        text[length++] = unescape(&from);
    }
    if (!text || *from != '"') {
        free(text);
        return NULL;
    }
    text[length] = '\0';
    *at = from + 1;
    return text;
}

static struct json *parse_value(const char **at, int depth);

/* Members of a map or array up to `close`, linked in order. */
static bool parse_members(struct json *parent, const char **at, char close, int depth)
{
    struct json **link = &parent->child;

    skip_space(at);
    while (**at != close) {
        cleanup(freep) char *name = NULL;

        if (parent->child && *(*at)++ != ',')
            return false;
        skip_space(at);
        if (close == '}') {
            name = parse_string(at);
            skip_space(at);
            if (!name || *(*at)++ != ':')
                return false;
        }
        *link = parse_value(at, depth + 1);
        if (!*link)
            return false;
        (*link)->name = steal(name, NULL);
        link = &(*link)->next;
        skip_space(at);
    }
    (*at)++;
    return true;
}

static bool parse_scalar(struct json *json, const char **at)
{
    static const struct {
        const char *json, *people;
    } words[] = {{"true", "yes"}, {"false", "no"}, {"null", "-"}};

    char *end;

    json->kind = JSON_SCALAR;
    if (**at == '"') {
        json->text = parse_string(at);
        return json->text;
    }
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strncmp(*at, words[i].json, strlen(words[i].json)) == 0) {
            *at += strlen(words[i].json);
            json->text = strdup(words[i].people);
            return json->text;
        }
    }
    (void)strtod(*at, &end);
    if (end == *at)
        return false;
    json->is_number = true;
    json->text = strndup(*at, (size_t)(end - *at));
    *at = end;
    return json->text;
}

static struct json *parse_value(const char **at, int depth)
{
    struct json *json = depth < DEPTH_MAX ? calloc(1, sizeof(*json)) : NULL;
    bool is_good;

    if (!json)
        return NULL;
    skip_space(at);
    if (**at == '{' || **at == '[') {
        char close = **at == '{' ? '}' : ']';

        json->kind = close == '}' ? JSON_MAP : JSON_ARRAY;
        (*at)++;
        is_good = parse_members(json, at, close, depth);
    } else {
        is_good = parse_scalar(json, at);
    }
    if (is_good)
        return json;
    json_free(json);
    return NULL;
}

/* --- printing -------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);

    return length >= tail && strcmp(name + length - tail, end) == 0;
}

static void format_seconds(double seconds, char *ret_text, size_t size)
{
    static const struct {
        double unit;
        const char *name;
    } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};

    size_t i = 0;

    while (i < ARRAY_SIZE(units) - 1 && fabs(seconds) < units[i].unit && seconds != 0)
        i++;
    (void)snprintf(ret_text, size, "%.4g %s", seconds / units[i].unit, units[i].name);
}

static void format_bytes(double bytes, char *ret_text, size_t size)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t i = 0;

    for (; bytes >= 1024 && i < ARRAY_SIZE(units) - 1; i++)
        bytes /= 1024;
    (void)snprintf(ret_text, size, "%.4g %s", bytes, units[i]);
}

/* Seconds since the epoch, in local time. */
static void format_date(double seconds, char *ret_text, size_t size)
{
    time_t when = (time_t)seconds;
    struct tm date;

    if (!localtime_r(&when, &date) || strftime(ret_text, size, "%Y-%m-%d %H:%M", &date) == 0)
        (void)snprintf(ret_text, size, "?");
}

static void format_scalar(const struct json *json, char *ret_text, size_t size)
{
    const char *name = json->name ? json->name : "";

    if (json->kind != JSON_SCALAR)
        (void)snprintf(ret_text, size, "...");
    else if (json->is_number && strcmp(name, "last_used") == 0)
        format_date(strtod(json->text, NULL), ret_text, size);
    else if (json->is_number && ends_with(name, "seconds"))
        format_seconds(strtod(json->text, NULL), ret_text, size);
    else if (json->is_number && ends_with(name, "_ns"))
        format_seconds(strtod(json->text, NULL) * 1e-9, ret_text, size);
    else if (json->is_number && ends_with(name, "bytes"))
        format_bytes(strtod(json->text, NULL), ret_text, size);
    else
        (void)snprintf(ret_text, size, "%s", *json->text ? json->text : "-");
}

/* Characters of the name that are printed: a unit that the value carries is left out. */
static int name_width(const struct json *json)
{
    static const char *const units[] = {"_seconds", "_ns", "_bytes"};
    size_t length = strlen(json->name);

    for (size_t i = 0; i < ARRAY_SIZE(units) && json->is_number; i++) {
        if (ends_with(json->name, units[i]))
            return (int)(length - strlen(units[i]));
    }
    return (int)length;
}

static const struct json *find_member(const struct json *map, const char *name)
{
    for (const struct json *member = map->child; member; member = member->next) {
        if (member->name && strcmp(member->name, name) == 0)
            return member;
    }
    return NULL;
}

static void format_cell(const struct json *row, const char *name, char ret_text[CELL_MAX])
{
    const struct json *cell = find_member(row, name);

    ret_text[0] = '\0';
    if (cell)
        format_scalar(cell, ret_text, CELL_MAX);
}

/* Columns are the members of the first row. */
static void print_table(FILE *stream, const struct json *array, int indent)
{
    const struct json *column = array->child->child;
    char text[CELL_MAX];
    int widths[COLUMNS_MAX];
    size_t count = 0;

    for (; column && count < COLUMNS_MAX; column = column->next, count++) {
        widths[count] = name_width(column);
        for (const struct json *row = array->child; row; row = row->next) {
            format_cell(row, column->name, text);
            widths[count] = MAX(widths[count], (int)strlen(text));
        }
    }
    (void)fprintf(stream, "%*s", indent, "");
    column = array->child->child;
    for (size_t i = 0; i < count; i++, column = column->next)
        (void)fprintf(stream, "%-*.*s%s", i + 1 < count ? widths[i] : 0, name_width(column),
                      column->name, i + 1 < count ? "  " : "\n");
    for (const struct json *row = array->child; row; row = row->next) {
        (void)fprintf(stream, "%*s", indent, "");
        column = array->child->child;
        for (size_t i = 0; i < count; i++, column = column->next) {
            format_cell(row, column->name, text);
            (void)fprintf(stream, "%-*s%s", i + 1 < count ? widths[i] : 0, text,
                          i + 1 < count ? "  " : "\n");
        }
    }
}

static void print_map(FILE *stream, const struct json *map, int indent);

static void print_array(FILE *stream, const struct json *array, int indent)
{
    char text[CELL_MAX];

    if (!array->child)
        (void)fprintf(stream, "%*s(none)\n", indent, "");
    else if (array->child->kind == JSON_MAP && array->child->child)
        print_table(stream, array, indent);
    else
        for (const struct json *member = array->child; member; member = member->next) {
            format_scalar(member, text, sizeof(text));
            (void)fprintf(stream, "%*s%s\n", indent, "", text);
        }
}

static void print_member(FILE *stream, const struct json *member, int indent, int width)
{
    char text[1024];

    if (member->kind == JSON_SCALAR) {
        format_scalar(member, text, sizeof(text));
        (void)fprintf(stream, "%*s%-*.*s  %s\n", indent, "", width, name_width(member),
                      member->name, text);
        return;
    }
    (void)fprintf(stream, "%*s%s\n", indent, "", member->name);
    if (member->kind == JSON_MAP)
        print_map(stream, member, indent + 2);
    else
        print_array(stream, member, indent + 2);
}

static void print_map(FILE *stream, const struct json *map, int indent)
{
    int width = 0;

    for (const struct json *member = map->child; member; member = member->next) {
        if (member->kind == JSON_SCALAR)
            width = MAX(width, name_width(member));
    }
    for (const struct json *member = map->child; member; member = member->next)
        print_member(stream, member, indent, width);
}

bool ctl_print_json(FILE *stream, const char *json)
{
    cleanup(json_freep) struct json *root = parse_value(&json, 0);
    char text[1024];

    if (!root) /* `json` may stand behind its end */
        return false;
    skip_space(&json);
    if (*json)
        return false;
    if (root->kind == JSON_MAP) {
        print_map(stream, root, 0);
    } else if (root->kind == JSON_ARRAY) {
        print_array(stream, root, 0);
    } else {
        format_scalar(root, text, sizeof(text));
        (void)fprintf(stream, "%s\n", text);
    }
    return true;
}
