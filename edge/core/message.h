/* The message frame: one binary websocket message of subprotocol "fedge.v1".
 *
 *   offset size
 *        0    4  magic "FEDG" (46 45 44 47)
 *        4    1  version (1)
 *        5    1  type
 *        6    2  flags, little-endian; bit 0 MUST: a peer that does not know the type closes with
 *                a refusal instead of skipping the message; other bits are 0
 *        8    4  meta_size, little-endian: bytes of JSON that follow the header
 *       12    4  payload_size, little-endian: bytes after the JSON
 *       16    4  CRC-32 (IEEE 802.3, as in zlib) of bytes 0–15, the JSON and the payload
 *       20    4  reserved, 0
 *       24       JSON, then payload
 *
 * Everything large (plan, model, update) travels as a blob in parts of at most
 * FEDGE_MESSAGE_MAX_PAYLOAD bytes, so a connection needs one small buffer and a transfer resumes at
 * the byte where it stopped. docs/reference/protocol.md has the fields of each type.
 */
#ifndef FEDGE_EDGE_CORE_MESSAGE_H
#define FEDGE_EDGE_CORE_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

#define FEDGE_MESSAGE_HEADER_SIZE 24
#define FEDGE_MESSAGE_VERSION 1
#define FEDGE_MESSAGE_MAX_META ((uint32_t)16 * 1024)
#define FEDGE_MESSAGE_MAX_PAYLOAD ((uint32_t)64 * 1024)
#define FEDGE_MESSAGE_MAX_SIZE                                                                     \
    (FEDGE_MESSAGE_HEADER_SIZE + FEDGE_MESSAGE_MAX_META + FEDGE_MESSAGE_MAX_PAYLOAD)
#define FEDGE_MESSAGE_FLAG_MUST 0x0001u

/* X(code, value, name). c→s is client to server. */
#define FEDGE_MESSAGE_TYPE_MAP(X)                                                                  \
    X(HELLO, 1, "hello")     /* c→s: identity and abilities */                                   \
    X(WELCOME, 2, "welcome") /* s→c: client index, run, server time, limits, plan's hash */      \
    X(DECLINE, 3, "decline") /* c→s: declines a task or plan, with a reason */                   \
    X(REFUSE, 4, "refuse")   /* s→c: refusal: of what, reason, class retry/later/never */        \
    X(TASK, 5, "task")       /* s→c: train or evaluate this model */                             \
    X(FETCH, 6, "fetch")     /* c→s: requests a blob from an offset */                           \
    X(CHUNK, 7, "chunk")     /* s→c: a part of a blob */                                         \
    X(UPLOAD, 8, "upload")   /* c→s: announces a result: description and size */                 \
    X(RESUME, 9, "resume")   /* s→c: requests the result from an offset */                       \
    X(PART, 10, "part")      /* c→s: a part of the result */                                     \
    X(ACK, 11, "ack")        /* s→c: the result is validated and durable */                      \
    X(CANCEL, 12, "cancel")  /* s→c: stop working on this task */                                \
    X(BYE, 13, "bye")        /* both: closing, why, and when to come back */

typedef enum fedge_message_type {
#define FEDGE_MESSAGE_TYPE_ENUM(code, value, name) FEDGE_MESSAGE_##code = value,
    FEDGE_MESSAGE_TYPE_MAP(FEDGE_MESSAGE_TYPE_ENUM)
#undef FEDGE_MESSAGE_TYPE_ENUM
} fedge_message_type;

/* Name of a type; NULL if unknown. */
const char *fedge_message_type_name(unsigned type);

/* Reasons of refusals, sent by name. X(code, name, class): the class tells the client what to do:
 * retry (now, with backoff), later (at the given time), never (an operator must act). */
#define FEDGE_REASON_MAP(X)                                                                        \
    X(NONE, "none", "retry")                                                                       \
    X(BAD_FRAME, "bad-frame", "never") /* magic, version, CRC, lengths, text frame */              \
    X(BAD_META, "bad-meta", "never")   /* JSON invalid, too deep; unknown or duplicate key */      \
    X(BAD_STATE, "bad-state", "never") /* a message that is not allowed in this state */           \
    X(UNKNOWN_TYPE, "unknown-type", "never")                                                       \
    X(PROTOCOL_RANGE, "protocol-range", "never") /* no common protocol version */                  \
    X(TOO_BIG, "too-big", "never")                                                                 \
    X(SCHEMA_MISMATCH, "schema-mismatch", "never") /* tensor name, shape, type, section */         \
    X(BAD_VALUE, "bad-value", "never")             /* NaN, infinity, or outside the bound */       \
    X(BAD_DATA, "bad-data", "retry")               /* wrong checksum of the whole upload */        \
    X(STALE_RUN, "stale-run", "retry")                                                             \
    X(STALE_INCARNATION, "stale-incarnation", "retry")                                             \
    X(STALE_TASK, "stale-task", "retry") /* the task is not the client's, closed or cancelled */   \
    X(NO_SPACE, "no-space", "later")                                                               \
    X(BUSY, "busy", "later")                                                                       \
    X(TIMEOUT, "timeout", "retry") /* no progress within the limit */                              \
    X(SHUTTING_DOWN, "shutting-down", "later")                                                     \
    X(RUN_COMPLETE, "run-complete", "never")                                                       \
    X(REVOKED, "revoked", "never")                                                                 \
    X(REPLACED, "replaced", "retry")       /* the same device has connected again */               \
    X(UNSUPPORTED, "unsupported", "never") /* the plan or task needs an unsupported feature */     \
    X(POLICY, "policy", "never")           /* forbidden by the device's site policy */             \
    X(NO_DATA, "no-data", "never")         /* the device lacks the job's data set */               \
    X(INTERNAL, "internal", "later")                                                               \
    X(ON_BATTERY, "on-battery", "later") /* these come from the site policy and are temporary */   \
    X(BATTERY_LOW, "battery-low", "later")                                                         \
    X(TOO_HOT, "too-hot", "later")                                                                 \
    X(METERED_LINK, "metered-link", "later")                                                       \
    X(OUTSIDE_HOURS, "outside-hours", "later")                                                     \
    X(LOW_MEMORY, "low-memory", "later")                                                           \
    X(LOW_DISK, "low-disk", "later")                                                               \
    X(COME_LATER, "come-later", "later") /* no task yet: the client disconnects until then */

typedef enum fedge_reason {
#define FEDGE_REASON_ENUM(code, name, class) FEDGE_REASON_##code,
    FEDGE_REASON_MAP(FEDGE_REASON_ENUM)
#undef FEDGE_REASON_ENUM
        FEDGE_REASON_COUNT
} fedge_reason;

const char *fedge_reason_name(fedge_reason reason);
const char *fedge_reason_class(fedge_reason reason);

/* A message that points into the caller's bytes; it owns nothing. */
typedef struct fedge_message {
    unsigned type;    /* a fedge_message_type, or an unknown one */
    unsigned flags;   /* FEDGE_MESSAGE_FLAG_… */
    const char *meta; /* JSON, not NUL-terminated */
    uint32_t meta_size;
    const uint8_t *payload;
    uint32_t payload_size;
} fedge_message;

/* Total bytes of the frame. */
size_t fedge_message_size(const fedge_message *message);

/* Writes the frame: the header to out[0..23], then JSON and payload. Both may be at their offsets
 * in [out] already, which saves the copy; the payload may also be elsewhere in [out], after the
 * JSON's offset. FEDGE_TOO_BIG: a part is over its limit or out_size is too small;
 * FEDGE_INVALID_ARGUMENT: a type over 255 or an unknown flag. */
FEDGE_MUST_USE fedge_status fedge_message_pack(const fedge_message *message, uint8_t *out,
                                               size_t out_size, fedge_error *err);

/* Checks a header of FEDGE_MESSAGE_HEADER_SIZE bytes before any memory is allocated: magic,
 * version, flags, reserved, and both lengths against the limits. *frame_size is the size of the
 * whole frame. FEDGE_CORRUPT, FEDGE_UNSUPPORTED, FEDGE_TOO_BIG. */
FEDGE_MUST_USE fedge_status fedge_message_peek(const uint8_t *in, size_t in_size,
                                               size_t *frame_size, fedge_error *err);

/* Unpacks a whole frame of exactly in_size bytes and checks its CRC. [message] points into [in] and
 * is unchanged on failure. Fails as fedge_message_peek; FEDGE_TRUNCATED: bytes are missing;
 * FEDGE_CORRUPT: too many bytes or a wrong CRC. An unknown type is not an error here. */
FEDGE_MUST_USE fedge_status fedge_message_unpack(const uint8_t *in, size_t in_size,
                                                 fedge_message *message, fedge_error *err);

/* CRC-32 as zlib's crc32(): start with 0 and pass parts in order. */
uint32_t fedge_crc32(uint32_t crc, const void *data, size_t size);

#endif
