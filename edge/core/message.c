#include "edge/core/message.h"

#include <string.h>

#include "edge/core/bytes.h"

#define CRC_OFFSET 16
#define KNOWN_FLAGS FEDGE_MESSAGE_FLAG_MUST

static const uint8_t magic[4] = {'F', 'E', 'D', 'G'};

const char *fedge_message_type_name(unsigned type)
{
    switch (type) {
#define TYPE_CASE(code, value, name)                                                               \
    case value:                                                                                    \
        return name;
        FEDGE_MESSAGE_TYPE_MAP(TYPE_CASE)
#undef TYPE_CASE
    default:
        return NULL;
    }
}

typedef struct reason_text {
    const char *name;
    const char *class;
} reason_text;

static const reason_text reasons[FEDGE_REASON_COUNT] = {
#define REASON_TEXT(code, name, class) [FEDGE_REASON_##code] = {name, class},
    FEDGE_REASON_MAP(REASON_TEXT)
#undef REASON_TEXT
};

const char *fedge_reason_name(fedge_reason reason)
{
    return (unsigned)reason < FEDGE_REASON_COUNT ? reasons[reason].name : NULL;
}

const char *fedge_reason_class(fedge_reason reason)
{
    return (unsigned)reason < FEDGE_REASON_COUNT ? reasons[reason].class : NULL;
}

size_t fedge_message_size(const fedge_message *message)
{
    return (size_t)FEDGE_MESSAGE_HEADER_SIZE + message->meta_size + message->payload_size;
}

static fedge_status check_sizes(uint32_t meta_size, uint32_t payload_size, fedge_error *err)
{
    if (meta_size > FEDGE_MESSAGE_MAX_META) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "message metadata of %lu bytes is over the limit of %lu",
                          (unsigned long)meta_size, (unsigned long)FEDGE_MESSAGE_MAX_META);
    }
    if (payload_size > FEDGE_MESSAGE_MAX_PAYLOAD) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "message payload of %lu bytes is over the limit of %lu",
                          (unsigned long)payload_size, (unsigned long)FEDGE_MESSAGE_MAX_PAYLOAD);
    }
    return FEDGE_OK;
}

/* Covers bytes 0–15 and everything after the header, without the CRC and the reserved field. */
static uint32_t frame_crc(const uint8_t *frame, size_t size)
{
    uint32_t crc = fedge_crc32(0, frame, CRC_OFFSET);
    return fedge_crc32(crc, frame + FEDGE_MESSAGE_HEADER_SIZE, size - FEDGE_MESSAGE_HEADER_SIZE);
}

fedge_status fedge_message_pack(const fedge_message *message, uint8_t *out, size_t out_size,
                                fedge_error *err)
{
    if (message->type > UINT8_MAX || (message->flags & ~KNOWN_FLAGS) != 0) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "message type %u or flags 0x%x cannot be sent", message->type,
                          message->flags);
    }
    FEDGE_TRY(check_sizes(message->meta_size, message->payload_size, err));
    size_t size = fedge_message_size(message);
    if (out_size < size) {
        return fedge_fail(err, FEDGE_TOO_BIG, "a message of %zu bytes does not fit in %zu", size,
                          out_size);
    }

    /* Move the payload first: it may be in [out] already, near its final offset. */
    uint8_t *meta = out + FEDGE_MESSAGE_HEADER_SIZE;
    uint8_t *payload = meta + message->meta_size;
    if (message->payload_size > 0 && message->payload != payload)
        memmove(payload, message->payload, message->payload_size);
    if (message->meta_size > 0 && (const uint8_t *)message->meta != meta)
        memcpy(meta, message->meta, message->meta_size);
    memcpy(out, magic, sizeof(magic));
    out[4] = FEDGE_MESSAGE_VERSION;
    out[5] = (uint8_t)message->type;
    fedge_put_u16(out + 6, (uint16_t)message->flags);
    fedge_put_u32(out + 8, message->meta_size);
    fedge_put_u32(out + 12, message->payload_size);
    fedge_put_u32(out + CRC_OFFSET, frame_crc(out, size));
    fedge_put_u32(out + 20, 0);
    return FEDGE_OK;
}

fedge_status fedge_message_peek(const uint8_t *in, size_t in_size, size_t *frame_size,
                                fedge_error *err)
{
    if (in_size < FEDGE_MESSAGE_HEADER_SIZE) {
        return fedge_fail(err, FEDGE_TRUNCATED, "message of %zu bytes; its header alone has %d",
                          in_size, FEDGE_MESSAGE_HEADER_SIZE);
    }
    if (memcmp(in, magic, sizeof(magic)) != 0) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "message begins with %02x %02x %02x %02x instead of \"FEDG\"", in[0],
                          in[1], in[2], in[3]);
    }
    if (in[4] != FEDGE_MESSAGE_VERSION) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "message format version %u; this program reads version %d", in[4],
                          FEDGE_MESSAGE_VERSION);
    }
    /* A flag may change the meaning of a message, so an unknown one is not ignored. */
    unsigned flags = fedge_get_u16(in + 6);
    if ((flags & ~KNOWN_FLAGS) != 0)
        return fedge_fail(err, FEDGE_UNSUPPORTED, "message flags 0x%04x are not known", flags);
    uint32_t reserved = fedge_get_u32(in + 20);
    if (reserved != 0) {
        return fedge_fail(err, FEDGE_CORRUPT, "reserved message field is 0x%08lx instead of 0",
                          (unsigned long)reserved);
    }
    uint32_t meta_size = fedge_get_u32(in + 8);
    uint32_t payload_size = fedge_get_u32(in + 12);
    FEDGE_TRY(check_sizes(meta_size, payload_size, err));
    *frame_size = (size_t)FEDGE_MESSAGE_HEADER_SIZE + meta_size + payload_size;
    return FEDGE_OK;
}

/* peek returns the needed memory, which is bounded although the sender is not verified; the
 * checksum needs all bytes. */
fedge_status fedge_message_unpack(const uint8_t *in, size_t in_size, fedge_message *message,
                                  fedge_error *err)
{
    size_t size;
    FEDGE_TRY(fedge_message_peek(in, in_size, &size, err));
    if (in_size != size) {
        return fedge_fail(err, in_size < size ? FEDGE_TRUNCATED : FEDGE_CORRUPT,
                          "message of %zu bytes; its header announces %zu", in_size, size);
    }
    uint32_t expected = fedge_get_u32(in + CRC_OFFSET);
    uint32_t actual = frame_crc(in, size);
    if (actual != expected) {
        return fedge_fail(err, FEDGE_CORRUPT, "message CRC-32 is %08lx; its header has %08lx",
                          (unsigned long)actual, (unsigned long)expected);
    }
    uint32_t meta_size = fedge_get_u32(in + 8);
    *message = (fedge_message){
        .type = in[5],
        .flags = fedge_get_u16(in + 6),
        .meta = (const char *)in + FEDGE_MESSAGE_HEADER_SIZE,
        .meta_size = meta_size,
        .payload = in + FEDGE_MESSAGE_HEADER_SIZE + meta_size,
        .payload_size = fedge_get_u32(in + 12),
    };
    return FEDGE_OK;
}
