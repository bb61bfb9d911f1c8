/* What RFC 6455 demands of a client's frames, checked byte by byte. libwebsockets takes frames that
 * are not masked, lengths that are longer than they need be, and close frames of any content; its
 * server passes every byte of a frame's header, and of a control frame's payload, through here
 * before it looks at it. No sockets, no memory.
 */
#ifndef FEDGE_AGGREGATOR_NET_WS_FRAME_H
#define FEDGE_AGGREGATOR_NET_WS_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#define FEDGE_WS_PROTOCOL_ERROR 1002
#define FEDGE_WS_BAD_PAYLOAD 1007

/* Where a connection's frames stand. All zero at its start. */
typedef struct fedge_ws_frames {
    uint64_t length;       /* of the present frame's payload, as its header says */
    uint8_t stage, opcode; /* private */
    uint8_t left;          /* bytes that the present field of the header still has */
    uint8_t taken;         /* of a control frame's payload */
    uint8_t mask[4];
    uint8_t close_code_high;
    uint8_t utf8_left, utf8_low, utf8_high; /* what the reason of a close frame must go on with */
    bool extended_64, in_message;
    bool closed; /* a whole close frame has come: what follows means nothing */
    bool failed; /* a byte has broken the rules: so does what follows */
} fedge_ws_frames;

/* Takes the next byte of a header or of a control frame's payload, still masked; the payload of
 * data frames is not shown. 0, or the status to close the connection with, and *why for the log. */
int fedge_ws_frames_take(fedge_ws_frames *frames, uint8_t byte, const char **why);

/* Whether a Sec-WebSocket-Key is the base64 of 16 bytes. */
bool fedge_ws_key_valid(const char *key);

/* Whether a list of tokens, as in a Connection header, has this one, in any case. */
bool fedge_ws_has_token(const char *list, const char *token);

#endif
