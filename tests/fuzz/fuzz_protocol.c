/* Metadata: the first byte is the type, the rest the JSON. What a reader accepts can be packed, and
 * reads back as the same fields. */
#include <stdlib.h>
#include <string.h>

#include "edge/wire/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
static const uint8_t PAYLOAD[1] = {7};

/* Reads into a static [fields] of its kind, packs, reads again, compares. */
#define ROUND_TRIP(type, read, pack)                                                               \
    static void check_##type(const fedge_message *message)                                         \
    {                                                                                              \
        static fedge_##type fields, back;                                                          \
        fedge_message again;                                                                       \
        fedge_error err;                                                                           \
        size_t size = 0;                                                                           \
        if ((read)(message, &fields, &err) != FEDGE_OK)                                            \
            return;                                                                                \
        if ((pack) != FEDGE_OK || fedge_message_unpack(frame, size, &again, &err) != FEDGE_OK ||   \
            (read)(&again, &back, &err) != FEDGE_OK || memcmp(&fields, &back, sizeof(back)) != 0)  \
            abort();                                                                               \
    }

#define OUT frame, sizeof(frame), &size, &err
ROUND_TRIP(hello, fedge_hello_read, fedge_hello_pack(&fields, OUT))
ROUND_TRIP(welcome, fedge_welcome_read, fedge_welcome_pack(&fields, OUT))
ROUND_TRIP(task, fedge_task_read, fedge_task_pack(&fields, OUT))
ROUND_TRIP(blob_ref, message->type == FEDGE_MESSAGE_FETCH ? fedge_fetch_read : fedge_chunk_read,
           message->type == FEDGE_MESSAGE_FETCH ? fedge_fetch_pack(&fields, OUT)
                                                : fedge_chunk_pack(&fields, PAYLOAD, 1, OUT))
ROUND_TRIP(upload, fedge_upload_read, fedge_upload_pack(&fields, OUT))
ROUND_TRIP(position, fedge_position_read,
           message->type == FEDGE_MESSAGE_RESUME ? fedge_resume_pack(&fields, OUT)
                                                 : fedge_part_pack(&fields, PAYLOAD, 1, OUT))
ROUND_TRIP(ack, fedge_ack_read, fedge_ack_pack(&fields, OUT))
ROUND_TRIP(notice, fedge_notice_read,
           fedge_notice_pack((fedge_message_type)message->type, &fields, OUT))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const CHECKS[])(const fedge_message *) = {
        [FEDGE_MESSAGE_HELLO] = check_hello,     [FEDGE_MESSAGE_WELCOME] = check_welcome,
        [FEDGE_MESSAGE_DECLINE] = check_notice,  [FEDGE_MESSAGE_REFUSE] = check_notice,
        [FEDGE_MESSAGE_TASK] = check_task,       [FEDGE_MESSAGE_FETCH] = check_blob_ref,
        [FEDGE_MESSAGE_CHUNK] = check_blob_ref,  [FEDGE_MESSAGE_UPLOAD] = check_upload,
        [FEDGE_MESSAGE_RESUME] = check_position, [FEDGE_MESSAGE_PART] = check_position,
        [FEDGE_MESSAGE_ACK] = check_ack,         [FEDGE_MESSAGE_CANCEL] = check_notice,
        [FEDGE_MESSAGE_BYE] = check_notice,
    };
    if (size == 0 || size > FEDGE_MESSAGE_MAX_META)
        return 0;
    const unsigned type = 1 + data[0] % (sizeof(CHECKS) / sizeof(CHECKS[0]) - 1);
    const bool carries = type == FEDGE_MESSAGE_CHUNK || type == FEDGE_MESSAGE_PART;
    const fedge_message message = {.type = type,
                                   .meta = (const char *)data + 1,
                                   .meta_size = (uint32_t)size - 1,
                                   .payload = PAYLOAD,
                                   .payload_size = carries};
    CHECKS[type](&message);
    return 0;
}
