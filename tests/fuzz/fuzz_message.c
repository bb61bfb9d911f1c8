/* Frames: whatever is accepted lies within its bytes, and packs to the same bytes again. */
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const uint8_t *frame, size_t size)
{
    static uint8_t again[FEDGE_MESSAGE_MAX_SIZE];
    fedge_error err;
    fedge_message message;
    if (fedge_message_unpack(frame, size, &message, &err) != FEDGE_OK)
        return;
    if (fedge_message_size(&message) != size ||
        message.payload + message.payload_size != frame + size)
        abort();
    (void)fedge_message_type_name(message.type);
    if (fedge_message_pack(&message, again, sizeof(again), &err) != FEDGE_OK ||
        memcmp(frame, again, size) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t frame_size;
    fedge_error err;
    check(data, size);
    if (fedge_message_peek(data, size, &frame_size, &err) != FEDGE_OK || frame_size != size)
        return 0;
    /* Once more with the right CRC, which the fuzzer does not guess. */
    uint8_t *frame = malloc(size);
    if (!frame)
        return 0;
    memcpy(frame, data, size);
    uint32_t crc = fedge_crc32(0, frame, 16);
    fedge_put_u32(frame + 16, fedge_crc32(crc, frame + 24, size - 24));
    check(frame, size);
    free(frame);
    return 0;
}
