#define _GNU_SOURCE /* strncasecmp is POSIX, not C11 */

#include "aggregator/net/ws_frame.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#define MAX_CONTROL 125 /* payload bytes of a control frame */
#define KEY_SIZE 24     /* base64 characters of 16 bytes */

enum stage { STAGE_FIRST, STAGE_LENGTH, STAGE_EXTENDED, STAGE_MASK, STAGE_CONTROL };
enum opcode { CONTINUATION, TEXT, BINARY, CLOSE = 8, PING, PONG };

static int fail(fedge_ws_frames *frames, int status, const char **why, const char *text)
{
    frames->failed = true;
    *why = text;
    return status;
}

static int take_first(fedge_ws_frames *frames, uint8_t byte, const char **why)
{
    bool final = byte & 0x80;
    frames->opcode = byte & 0x0F;
    if (byte & 0x70)
        return fail(frames, FEDGE_WS_PROTOCOL_ERROR, why, "a websocket frame with reserved bits");
    switch (frames->opcode) {
    case CONTINUATION:
        if (!frames->in_message) {
            return fail(frames, FEDGE_WS_PROTOCOL_ERROR, why,
                        "a websocket frame that continues nothing");
        }
        frames->in_message = !final;
        break;
    case TEXT:
    case BINARY:
        if (frames->in_message) {
            return fail(frames, FEDGE_WS_PROTOCOL_ERROR, why,
                        "a websocket message inside another one");
        }
        frames->in_message = !final;
        break;
    case CLOSE:
    case PING:
    case PONG:
        if (!final) {
            return fail(frames, FEDGE_WS_PROTOCOL_ERROR, why,
                        "a websocket control frame in fragments");
        }
        break;
    default:
        return fail(frames, FEDGE_WS_PROTOCOL_ERROR, why,
                    "a websocket frame with a reserved opcode");
    }
    frames->stage = STAGE_LENGTH;
    return 0;
}

/* Checks the length once it is complete. */
static int check_length(fedge_ws_frames *frames, const char **why)
{
    if (frames->opcode == CLOSE && frames->length == 1) {
        return fail(frames, FEDGE_WS_PROTOCOL_ERROR, why,
                    "a websocket close frame with half a status");
    }
    frames->stage = STAGE_MASK;
    frames->left = sizeof(frames->mask);
    return 0;
}

static int take_length(fedge_ws_frames *frames, uint8_t byte, const char **why)
{
    uint8_t length = byte & 0x7F;
    if (!(byte & 0x80))
        return fail(frames, FEDGE_WS_PROTOCOL_ERROR, why, "a websocket frame that is not masked");
    if (frames->opcode >= CLOSE && length > MAX_CONTROL) {
        return fail(frames, FEDGE_WS_PROTOCOL_ERROR, why,
                    "a websocket control frame of over 125 bytes");
    }
    if (length > MAX_CONTROL) {
        frames->length = 0;
        frames->extended_64 = length == 127;
        frames->left = frames->extended_64 ? 8 : 2;
        frames->stage = STAGE_EXTENDED;
        return 0;
    }
    frames->length = length;
    return check_length(frames, why);
}

static int take_extended(fedge_ws_frames *frames, uint8_t byte, const char **why)
{
    frames->length = frames->length << 8 | byte;
    if (frames->left == 8 && byte & 0x80)
        return fail(frames, FEDGE_WS_PROTOCOL_ERROR, why, "a websocket frame of over 2^63 bytes");
    if (--frames->left > 0)
        return 0;
    if (frames->length < (frames->extended_64 ? 65536u : 126u)) {
        return fail(frames, FEDGE_WS_PROTOCOL_ERROR, why,
                    "a websocket frame whose length is not written in the shortest way");
    }
    return check_length(frames, why);
}

static void end_frame(fedge_ws_frames *frames)
{
    frames->closed = frames->opcode == CLOSE;
    frames->stage = STAGE_FIRST;
}

static void take_mask(fedge_ws_frames *frames, uint8_t byte)
{
    frames->mask[sizeof(frames->mask) - frames->left] = byte;
    if (--frames->left > 0)
        return;
    if (frames->opcode >= CLOSE && frames->length > 0) {
        frames->stage = STAGE_CONTROL;
        frames->taken = 0;
        frames->utf8_left = 0;
    } else {
        end_frame(frames);
    }
}

/* RFC 6455, 7.4: the codes an endpoint may send, including those of libraries and applications. */
static bool close_code_valid(unsigned code)
{
    return (code >= 1000 && code <= 1011 && code != 1004 && code != 1005 && code != 1006) ||
           (code >= 3000 && code <= 4999);
}

/* Takes the next byte of UTF-8 text (RFC 3629, 4). False if it is invalid. */
static bool take_utf8(fedge_ws_frames *frames, uint8_t byte)
{
    if (frames->utf8_left > 0) {
        bool right = byte >= frames->utf8_low && byte <= frames->utf8_high;
        frames->utf8_left--;
        frames->utf8_low = 0x80;
        frames->utf8_high = 0xBF;
        return right;
    }
    if (byte < 0x80)
        return true;
    frames->utf8_left = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
    frames->utf8_low = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    frames->utf8_high = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
    return byte >= 0xC2 && byte <= 0xF4;
}

static int take_control(fedge_ws_frames *frames, uint8_t byte, const char **why)
{
    uint8_t plain = byte ^ frames->mask[frames->taken % sizeof(frames->mask)];
    uint8_t index = frames->taken++;
    bool last = frames->taken == frames->length;
    if (last)
        end_frame(frames);
    if (frames->opcode != CLOSE)
        return 0;
    if (index == 0) {
        frames->close_code_high = plain;
    } else if (index == 1) {
        if (!close_code_valid((unsigned)frames->close_code_high << 8 | plain)) {
            return fail(frames, FEDGE_WS_PROTOCOL_ERROR, why,
                        "a websocket close frame with a status that is none");
        }
    } else if (!take_utf8(frames, plain) || (last && frames->utf8_left > 0)) {
        return fail(frames, FEDGE_WS_BAD_PAYLOAD, why,
                    "a websocket close frame whose reason is not UTF-8");
    }
    return 0;
}

int fedge_ws_frames_take(fedge_ws_frames *frames, uint8_t byte, const char **why)
{
    if (frames->failed || frames->closed)
        return 0;
    switch (frames->stage) {
    case STAGE_FIRST:
        return take_first(frames, byte, why);
    case STAGE_LENGTH:
        return take_length(frames, byte, why);
    case STAGE_EXTENDED:
        return take_extended(frames, byte, why);
    case STAGE_MASK:
        take_mask(frames, byte);
        return 0;
    default:
        return take_control(frames, byte, why);
    }
}

bool fedge_ws_key_valid(const char *key)
{
    static const char ALPHABET[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return strlen(key) == KEY_SIZE && strspn(key, ALPHABET) == KEY_SIZE - 2 &&
           strcmp(key + KEY_SIZE - 2, "==") == 0;
}

bool fedge_ws_has_token(const char *list, const char *token)
{
    size_t size = strlen(token);
    while (*list) {
        list += strspn(list, ", \t");
        size_t length = strcspn(list, ", \t");
        if (length == size && strncasecmp(list, token, size) == 0)
            return true;
        list += length;
    }
    return false;
}
