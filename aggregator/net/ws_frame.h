/* Checks a client's frames by RFC 6455, byte by byte. libwebsockets accepts unmasked frames,
 * overlong lengths and invalid close frames; the transport passes every byte of a frame header and
 * of a control frame's payload through here first. No sockets, no allocation. */
#ifndef FEDGE_AGGREGATOR_NET_WS_FRAME_H
#define FEDGE_AGGREGATOR_NET_WS_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#define FEDGE_WS_PROTOCOL_ERROR 1002
#define FEDGE_WS_BAD_PAYLOAD 1007

/* Parser state of a connection, all zero at first. */
typedef struct fedge_ws_frames {
    uint64_t length;       /* payload size of the present frame */
    uint8_t stage, opcode; /* private */
    uint8_t left;          /* bytes left of the present header field */
    uint8_t taken;         /* bytes of a control frame's payload so far */
    uint8_t mask[4];
    uint8_t close_code_high;
    uint8_t utf8_left, utf8_low, utf8_high; /* UTF-8 state of a close frame's reason */
    bool extended_64, in_message;
    bool closed; /* a complete close frame has arrived; ignore later input */
    bool failed; /* a rule was broken; ignore later input */
} fedge_ws_frames;

/* Takes the next byte of a header or of a control frame's payload, still masked; payloads of data
 * frames are not passed. Returns 0, or the close status and *why for the log. */
int fedge_ws_frames_take(fedge_ws_frames *frames, uint8_t byte, const char **why);

/* Whether a Sec-WebSocket-Key is base64 of 16 bytes. */
bool fedge_ws_key_valid(const char *key);

/* Whether a list of tokens, such as a Connection header, contains [token]; case is ignored. */
bool fedge_ws_has_token(const char *list, const char *token);

#endif
