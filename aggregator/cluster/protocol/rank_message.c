#include "aggregator/cluster/protocol/rank_message.h"

#include <stdlib.h>
#include <string.h>

static fedge_rank_message *make(const fedge_rank_message_head *head)
{
    const size_t size =
        sizeof(*head) + (size_t)head->body_size + head->meta_size + head->payload_size;
    fedge_rank_message *message = calloc(1, sizeof(*message) + size);
    if (message) {
        message->size = size;
        memcpy(message->bytes, head, sizeof(*head));
    }
    return message;
}

static void put(uint8_t **at, const void *bytes, size_t size)
{
    if (size > 0) {
        memcpy(*at, bytes, size);
        *at += size;
    }
}

fedge_rank_message *fedge_rank_message_new(fedge_rank_message_kind kind, const void *body,
                                           size_t size, uint32_t to)
{
    return fedge_rank_message_with(kind, body, size, NULL, 0, to);
}

fedge_rank_message *fedge_rank_message_with(fedge_rank_message_kind kind, const void *body,
                                            size_t size, const void *more, size_t more_size,
                                            uint32_t to)
{
    const fedge_rank_message_head head = {.kind = kind, .body_size = (uint32_t)(size + more_size)};
    fedge_rank_message *message = make(&head);
    if (message) {
        uint8_t *at = message->bytes + sizeof(head);
        message->to = to;
        put(&at, body, size);
        put(&at, more, more_size);
    }
    return message;
}

fedge_rank_message *fedge_rank_message_of_request(const fedge_request *request)
{
    const fedge_rank_message_head head = {.kind = FEDGE_RANK_MESSAGE_REQUEST,
                                          .meta_size = request->meta_size,
                                          .payload_size = request->payload_size,
                                          .body_size = sizeof(*request)};
    fedge_rank_message *message = make(&head);
    if (message) {
        uint8_t *at = message->bytes + sizeof(head);
        put(&at, request, sizeof(*request));
        put(&at, request->meta, request->meta_size);
        put(&at, request->payload, request->payload_size);
    }
    return message;
}

fedge_rank_message *fedge_rank_message_of_reply(const fedge_reply *reply, uint32_t to)
{
    fedge_rank_message_head head = {.kind = FEDGE_RANK_MESSAGE_REPLY, .body_size = sizeof(*reply)};
    if (reply->blob) {
        memcpy(head.blob.hash, reply->blob->hash, sizeof(head.blob.hash));
        head.blob.size = reply->blob->size;
    }
    fedge_rank_message *message = make(&head);
    if (message) {
        uint8_t *at = message->bytes + sizeof(head);
        message->to = to;
        message->blob = reply->blob ? fedge_blob_retain(reply->blob) : NULL;
        put(&at, reply, sizeof(*reply));
    }
    return message;
}

void fedge_rank_message_free(fedge_rank_message *message)
{
    if (message) {
        fedge_blob_release(message->blob);
        free(message);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static fedge_status refuse(fedge_error *err, const char *what)
{
    return fedge_fail(err, FEDGE_CORRUPT, "a message between ranks is not whole: %s", what);
}

fedge_status fedge_rank_message_open(const uint8_t *bytes, size_t size,
                                     fedge_rank_message_head *head, const uint8_t **body,
                                     fedge_error *err)
{
    if (size < sizeof(*head))
        return refuse(err, "its head");
    memcpy(head, bytes, sizeof(*head));
    *body = bytes + sizeof(*head);
    const uint64_t rest = (uint64_t)head->body_size + head->meta_size + head->payload_size;
    if (rest != size - sizeof(*head) || head->meta_size > FEDGE_MESSAGE_MAX_META ||
        head->payload_size > FEDGE_MESSAGE_MAX_PAYLOAD)
        return refuse(err, "its lengths");
    return memchr(head->blob.hash, '\0', sizeof(head->blob.hash)) ? FEDGE_OK
                                                                  : refuse(err, "its blob's name");
}

/* The pointer in an UPLOAD is another process's: reads it from its JSON. */
static fedge_status read_upload(fedge_request *request, fedge_error *err)
{
    if (request->type != FEDGE_REQUEST_MESSAGE)
        return FEDGE_OK;
    request->message.upload = NULL;
    const fedge_message message = {
        .type = FEDGE_MESSAGE_UPLOAD, .meta = request->meta, .meta_size = request->meta_size};
    return request->message.type == FEDGE_MESSAGE_UPLOAD
               ? fedge_client_message_read(&message, &request->message, err)
               : FEDGE_OK;
}

fedge_status fedge_rank_message_request(const fedge_rank_message_head *head, const uint8_t *body,
                                        fedge_request **request, fedge_error *err)
{
    const size_t carried = (size_t)head->meta_size + head->payload_size;
    *request = NULL;
    if (head->body_size != sizeof(**request))
        return refuse(err, "a request");
    fedge_request *fresh = malloc(sizeof(*fresh));
    uint8_t *frame = malloc(carried + 1);
    if (!fresh || !frame) {
        free(fresh);
        free(frame);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a request of another rank");
    }
    memcpy(fresh, body, sizeof(*fresh));
    memcpy(frame, body + sizeof(*fresh), carried);
    fresh->item = (fedge_mailbox_item){0};

    fresh->frame = frame;
    fresh->meta = (const char *)frame;
    fresh->meta_size = head->meta_size;
    fresh->payload = frame + head->meta_size;
    fresh->payload_size = head->payload_size;
    const fedge_status status = read_upload(fresh, err);
    if (status != FEDGE_OK) {
        fedge_request_free(fresh);
        return status;
    }
    *request = fresh;
    return FEDGE_OK;
}

fedge_status fedge_rank_message_reply(const fedge_rank_message_head *head, const uint8_t *body,
                                      fedge_reply **reply, fedge_error *err)
{
    *reply = NULL;
    if (head->body_size != sizeof(**reply))
        return refuse(err, "a reply");
    fedge_reply *fresh = malloc(sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a reply of rank 0");
    memcpy(fresh, body, sizeof(*fresh));
    fresh->item = (fedge_mailbox_item){0};
    fresh->blob = NULL;
    *reply = fresh;
    return FEDGE_OK;
}
