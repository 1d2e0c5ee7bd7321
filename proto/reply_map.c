/*
 * Builder of the trees that status, stats, explain and cache.* answer: the root map is open from
 * the start; its header is written when the reply is.
 */
#include "../daemon/core/error.h"
#include "message.h"
#include "reply.h"
#include <stdlib.h>
#include <string.h>

/* Around the root: the reply's array. */
#define DEPTH_OUTSIDE 1

struct reply_map {
    struct message body; /* the root map, without a frame */
    struct pack pack;
};

int reply_map_new(struct reply_map **ret_map)
{
    struct reply_map *map = calloc(1, sizeof(*map));

    if (map == NULL)
        return error_origin(-ENOMEM);
    pack_init(&map->pack, &map->body);
    pack_open_map(&map->pack, NULL);
    *ret_map = map;
    return 0;
}

struct reply_map *reply_map_free(struct reply_map *map)
{
    if (map == NULL)
        return NULL;
    message_deinit(&map->body);
    free(map);
    return NULL;
}

static void assert_room(const struct reply_map *map)
{
    assert(map->pack.depth < SCAN_DEPTH_MAX - DEPTH_OUTSIDE);
    (void)map;
}

void reply_map_open(struct reply_map *map, const char *name)
{
    assert_room(map);
    pack_open_map(&map->pack, name);
}

void reply_map_open_array(struct reply_map *map, const char *name)
{
    assert_room(map);
    pack_open_array(&map->pack, name);
}

void reply_map_close(struct reply_map *map)
{
    assert(map->pack.depth > 1);
    pack_close(&map->pack);
}

void reply_map_text(struct reply_map *map, const char *name, const char *value)
{
    pack_string(&map->pack, name, value);
}

void reply_map_unsigned(struct reply_map *map, const char *name, uint64_t value)
{
    pack_unsigned(&map->pack, name, value);
}

void reply_map_real(struct reply_map *map, const char *name, double value)
{
    pack_real(&map->pack, name, value);
}

void reply_map_bool(struct reply_map *map, const char *name, bool value)
{
    pack_bool(&map->pack, name, value);
}

int reply_encode_map(uint32_t id, const struct reply_map *map, struct message *ret_message)
{
    struct pack pack, root = map->pack; /* a copy: the map stays open */

    message_begin(ret_message, &pack);
    pack_open_array(&pack, NULL);
    pack_unsigned(&pack, NULL, 1);
    pack_unsigned(&pack, NULL, id);
    pack_nil(&pack, NULL);

    assert(root.depth == 1);
    pack_close(&root);
    if (root.error != 0)
        pack.error = root.error;
    else
        pack_encoded(&pack, map->body.bytes, map->body.size);
    return message_finish(ret_message, &pack, 0);
}
