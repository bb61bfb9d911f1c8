/* Websocket frames: read byte by byte and frame by frame, the same ones are refused. */
#include <stdlib.h>

#include "aggregator/net/ws_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One frame from a whole stream in which data frames have no payload. */
typedef struct reader {
    const uint8_t *data;
    size_t size;
    bool in_message, closed;
} reader;

static bool utf8(const uint8_t *text, size_t size)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    for (size_t at = 0; at < size;) {
        uint8_t first = text[at];
        size_t length = first < 0x80             ? 1
                        : (first & 0xE0) == 0xC0 ? 2
                        : (first & 0xF0) == 0xE0 ? 3
                        : (first & 0xF8) == 0xF0 ? 4
                                                 : 0;
        if (length == 0 || length > size - at)
            return false;
        uint32_t code = length == 1 ? first : first & (0x7Fu >> length);
        for (size_t i = 1; i < length; i++) {
            if ((text[at + i] & 0xC0) != 0x80)
                return false;
            code = code << 6 | (text[at + i] & 0x3F);
        }
        if (code < least[length] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
            return false;
        at += length;
    }
    return true;
}

static int check_close(const uint8_t *payload, size_t size)
{
    unsigned code = size >= 2 ? (unsigned)payload[0] << 8 | payload[1] : 1000;
    bool known = code >= 1000 && code < 1012 && code != 1004 && code != 1005 && code != 1006;
    if (size == 1 || !(known || (code >= 3000 && code < 5000)))
        return FEDGE_WS_PROTOCOL_ERROR;
    return size < 2 || utf8(payload + 2, size - 2) ? 0 : FEDGE_WS_BAD_PAYLOAD;
}

/* The status that the next frame is refused with; 0: it is good, or its end is missing. */
static int read_frame(reader *from, bool *more)
{
    const uint8_t *data = from->data;
    size_t length = from->size >= 2 ? data[1] & 0x7F : 0;
    size_t bytes = length == 127 ? 8 : length == 126 ? 2 : 0;
    unsigned opcode = data[0] & 0x0F;
    bool control = opcode >= 8;
    *more = false;
    if ((data[0] & 0x70) || (opcode > 2 && opcode < 8) || opcode > 10 ||
        (control && !(data[0] & 0x80)) || (opcode == 0 && !from->in_message) ||
        ((opcode == 1 || opcode == 2) && from->in_message))
        return FEDGE_WS_PROTOCOL_ERROR;
    if (from->size >= 2 &&
        (!(data[1] & 0x80) || (control && bytes > 0) || (opcode == 8 && length == 1)))
        return FEDGE_WS_PROTOCOL_ERROR;
    if (bytes == 8 && from->size > 2 && (data[2] & 0x80))
        return FEDGE_WS_PROTOCOL_ERROR;
    if (from->size < 2 + bytes)
        return 0;
    uint64_t extended = 0;
    for (size_t i = 0; i < bytes; i++)
        extended = extended << 8 | data[2 + i];
    if ((bytes == 2 && extended < 126) || (bytes == 8 && extended < 65536))
        return FEDGE_WS_PROTOCOL_ERROR;
    size_t head = 2 + bytes + 4;
    size_t shown = control ? length : 0;
    if (from->size < head + shown)
        return 0;
    if (!control)
        from->in_message = !(data[0] & 0x80);
    from->data += head + shown;
    from->size -= head + shown;
    from->closed = opcode == 8;
    *more = !from->closed && from->size > 0;
    uint8_t payload[125];
    for (size_t i = 0; i < shown; i++)
        payload[i] = data[head + i] ^ data[head - 4 + i % 4];
    return opcode == 8 ? check_close(payload, shown) : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fedge_ws_frames frames = {0};
    reader from = {.data = data, .size = size};
    int expected = 0;
    for (bool more = size > 0; more && expected == 0;)
        expected = read_frame(&from, &more);
    int status = 0;
    for (size_t i = 0; i < size; i++) {
        const char *why = NULL;
        int now = fedge_ws_frames_take(&frames, data[i], &why);
        if (now != 0 && (status != 0 || !why || !frames.failed))
            abort();
        status = status != 0 ? status : now;
    }
    /* Of a close frame that is not whole, the byte-wise reader knows more. */
    if (status != expected && !(expected == 0 && from.size > 0 && (from.data[0] & 0x0F) == 8))
        abort();
    if (status == 0 && frames.closed != from.closed)
        abort();
    return 0;
}
