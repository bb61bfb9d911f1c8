#include "tests/world/hostile_frame.h"

#include <stdbool.h>
#include <string.h>

#include "edge/core/message.h"

enum { TYPE_AT = 5, FLAGS_AT = 6, META_SIZE_AT = 8, PAYLOAD_SIZE_AT = 12, CRC_AT = 16 };

static uint32_t get_u32(const uint8_t *in)
{
    return in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static void put_u32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t below(fedge_rng *draw, uint32_t bound)
{
    return fedge_rng_below(draw, bound);
}

void hostile_seal(uint8_t *frame, size_t size)
{
    if (size < FEDGE_MESSAGE_HEADER_SIZE)
        return;
    uint32_t crc = fedge_crc32(0, frame, CRC_AT);
    crc = fedge_crc32(crc, frame + FEDGE_MESSAGE_HEADER_SIZE, size - FEDGE_MESSAGE_HEADER_SIZE);
    put_u32(frame + CRC_AT, crc);
}

/* ---- kinds of damage ------------------------------------------------------------------------- */

static size_t flip(fedge_rng *draw, uint8_t *frame, size_t size)
{
    const uint32_t count = 1 + below(draw, 4);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = below(draw, (uint32_t)size);
        frame[at] ^= (uint8_t)(1u << below(draw, 8));
    }
    return size;
}

static size_t cut(fedge_rng *draw, uint8_t *frame, size_t size)
{
    (void)frame;
    return size > 1 ? 1 + below(draw, (uint32_t)size - 1) : size;
}

static size_t extend(fedge_rng *draw, uint8_t *frame, size_t size)
{
    const size_t room = FEDGE_MESSAGE_MAX_SIZE - size, most = room < 200 ? room : 200;
    const size_t more = most > 0 ? 1 + below(draw, (uint32_t)most) : 0;
    memset(frame + size, ' ', more);
    return size + more;
}

static size_t change_type(fedge_rng *draw, uint8_t *frame, size_t size)
{
    if (size > FLAGS_AT) {
        frame[TYPE_AT] = (uint8_t)(below(draw, 2) == 0 ? below(draw, 15) : below(draw, 256));
        frame[FLAGS_AT] = (uint8_t)below(draw, 3);
    }
    return size;
}

/* Changes a length in the header, perhaps to a huge one. */
static size_t change_length(fedge_rng *draw, uint8_t *frame, size_t size)
{
    static const uint32_t LENGTHS[] = {0, 1, 16384, 16385, 65536, 65537, 1u << 24, UINT32_MAX};
    if (size < FEDGE_MESSAGE_HEADER_SIZE)
        return size;
    uint8_t *length = frame + (below(draw, 2) == 0 ? META_SIZE_AT : PAYLOAD_SIZE_AT);
    const uint32_t drawn = LENGTHS[below(draw, sizeof(LENGTHS) / sizeof(LENGTHS[0]))];
    put_u32(length, below(draw, 2) == 0 ? get_u32(length) + 1 : drawn);
    return size;
}

/* Finds the first digit after a random position of the JSON, and the number of digits; 0: there is
 * none. */
static size_t find_number(fedge_rng *draw, const uint8_t *frame, size_t size, size_t *length)
{
    const size_t head = FEDGE_MESSAGE_HEADER_SIZE, end = head + get_u32(frame + META_SIZE_AT);
    if (end > size || end <= head)
        return 0;
    size_t at = head + below(draw, (uint32_t)(end - head));
    while (at < end && (frame[at] < '0' || frame[at] > '9'))
        at++;
    size_t last = at;
    while (last < end && ((frame[last] >= '0' && frame[last] <= '9') || frame[last] == '.'))
        last++;
    *length = last - at;
    return *length > 0 ? at : 0;
}

/* Replaces a number of the JSON by another value. */
static size_t change_number(fedge_rng *draw, uint8_t *frame, size_t size)
{
    static const char *const VALUES[] = {
        "-1",         "0",     "1",          "9007199254740993",
        "1e999",      "NaN",   "-0.0",       "18446744073709551615",
        "null",       "true",  "4294967296", "9007199254740991",
        "\"x\"",      "[1,2]", "{}",         "[[[[[[[[[[[[[[[[",
        "2147483648", "65536", "1e-320",     "4294967295"};
    size_t length = 0;
    if (size < FEDGE_MESSAGE_HEADER_SIZE)
        return size;
    const size_t at = find_number(draw, frame, size, &length);
    const char *value = VALUES[below(draw, sizeof(VALUES) / sizeof(VALUES[0]))];
    const size_t count = strlen(value);
    if (at == 0 || size + count > FEDGE_MESSAGE_MAX_SIZE)
        return size;
    memmove(frame + at + count, frame + at + length, size - at - length);
    memcpy(frame + at, value, count);
    put_u32(frame + META_SIZE_AT, (uint32_t)(get_u32(frame + META_SIZE_AT) + count - length));
    return size + count - length;
}

/* Changes bytes of the JSON only, so that the header stays right. */
static size_t flip_meta(fedge_rng *draw, uint8_t *frame, size_t size)
{
    if (size <= FEDGE_MESSAGE_HEADER_SIZE)
        return size;
    const uint32_t meta = get_u32(frame + META_SIZE_AT);
    const uint32_t count = 1 + below(draw, 3);
    for (uint32_t i = 0; i < count && meta > 0 && FEDGE_MESSAGE_HEADER_SIZE + meta <= size; i++)
        frame[FEDGE_MESSAGE_HEADER_SIZE + below(draw, meta)] = (uint8_t)below(draw, 256);
    return size;
}

size_t hostile_damage(fedge_rng *draw, uint8_t *frame, size_t size)
{
    static size_t (*const KINDS[])(fedge_rng * draw, uint8_t * frame, size_t size) = {
        flip, cut, extend, change_type, change_length, change_number, change_number, flip_meta};
    const uint32_t kind = below(draw, sizeof(KINDS) / sizeof(KINDS[0]));
    const bool seals = kind >= 5 || below(draw, 2) == 0;
    size = KINDS[kind](draw, frame, size);
    if (seals)
        hostile_seal(frame, size);
    return size;
}

size_t hostile_garbage(fedge_rng *draw, uint8_t *frame)
{
    static const uint32_t SIZES[] = {1, 5, 23, 24, 25, 100, 5000};
    const size_t size = SIZES[below(draw, sizeof(SIZES) / sizeof(SIZES[0]))];
    for (size_t i = 0; i < size; i++)
        frame[i] = (uint8_t)below(draw, 256);
    if (below(draw, 2) == 0 && size >= 4)
        memcpy(frame, "FEDG", 4);
    return size;
}

bool hostile_receive(world_connection *connection, int end, hostile_inbox *in, size_t *size)
{
    world_arrival arrival;
    while (world_net_receive(connection, end, in->bytes + in->size, sizeof(in->bytes) - in->size,
                             &arrival)) {
        in->size += arrival.size;
        if (!arrival.final)
            continue;
        *size = in->size;
        in->size = 0;
        return true;
    }
    return false;
}
