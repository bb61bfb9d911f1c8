/* Requests and replies come out of a message as they went in, and a message that is not whole is
 * refused. */
#include <stdlib.h>
#include <string.h>

#include "tests/edge/core/cmocka_all.h"

#include "aggregator/cluster/protocol/rank_message.h"
#include "edge/core/rng.h"

#define TRIALS 2000

static fedge_rng numbers(uint64_t seed)
{
    return fedge_rng_stream(seed, FEDGE_PURPOSE_SAMPLE, 0, 0, 0);
}

static void fill(fedge_rng *draw, uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)fedge_rng_below(draw, 256);
}

static fedge_request *open_request(const fedge_rank_message *message, fedge_rank_message_head *head)
{
    const uint8_t *body = NULL;
    fedge_request *request = NULL;
    fedge_error err;
    assert_int_equal(fedge_rank_message_open(message->bytes, message->size, head, &body, &err),
                     FEDGE_OK);
    assert_int_equal(fedge_rank_message_request(head, body, &request, &err), FEDGE_OK);
    return request;
}

static void a_part_travels_whole(void **state)
{
    (void)state;
    uint8_t frame[512];
    for (uint64_t seed = 0; seed < 100; seed++) {
        fedge_rng draw = numbers(seed);
        fill(&draw, frame, sizeof(frame));
        fedge_request sent = {.type = FEDGE_REQUEST_MESSAGE,
                              .conn_id = fedge_rng_below(&draw, 1000) + 1,
                              .client_index = fedge_rng_below(&draw, 1000),
                              .device_id = "5",
                              .message = {.type = FEDGE_MESSAGE_PART,
                                          .position = {.task_id = seed, .offset = 7 * seed}},
                              .meta = (const char *)frame,
                              .meta_size = fedge_rng_below(&draw, 200),
                              .payload = frame + 200,
                              .payload_size = fedge_rng_below(&draw, 312)};
        fedge_rank_message *message = fedge_rank_message_of_request(&sent);
        fedge_rank_message_head head;
        fedge_request *came = open_request(message, &head);
        assert_int_equal(message->to, 0);
        assert_int_equal(came->conn_id, sent.conn_id);
        assert_int_equal(came->client_index, sent.client_index);
        assert_string_equal(came->device_id, "5");
        assert_int_equal(came->message.position.task_id, seed);
        assert_int_equal(came->message.position.offset, 7 * seed);
        assert_int_equal(came->payload_size, sent.payload_size);
        assert_memory_equal(came->payload, sent.payload, sent.payload_size);
        assert_memory_equal(came->meta, sent.meta, sent.meta_size);
        assert_null(came->message.upload);
        fedge_request_free(came);
        fedge_rank_message_free(message);
    }
}

static void an_upload_is_read_from_its_text(void **state)
{
    (void)state;
    fedge_upload upload = {.task_id = 9,
                           .run_id = "0123456789abcdef0123456789abcdef",
                           .num_examples = 12,
                           .num_metrics = 1,
                           .metrics = {{.name = "loss", .value = 0.25}}};
    static uint8_t frame[FEDGE_MESSAGE_MAX_SIZE];
    size_t size = 0;
    fedge_message wire;
    fedge_error err;
    assert_int_equal(fedge_upload_pack(&upload, frame, sizeof(frame), &size, &err), FEDGE_OK);
    assert_int_equal(fedge_message_unpack(frame, size, &wire, &err), FEDGE_OK);
    fedge_request sent = {.type = FEDGE_REQUEST_MESSAGE,
                          .conn_id = 3,
                          .message = {.type = FEDGE_MESSAGE_UPLOAD, .upload = &upload},
                          .meta = wire.meta,
                          .meta_size = wire.meta_size};
    fedge_rank_message *message = fedge_rank_message_of_request(&sent);
    fedge_rank_message_head head;
    fedge_request *came = open_request(message, &head);
    assert_ptr_not_equal(came->message.upload, &upload);
    assert_int_equal(came->message.upload->task_id, 9);
    assert_int_equal(came->message.upload->num_examples, 12);
    assert_string_equal(came->message.upload->metrics[0].name, "loss");
    assert_int_equal(came->meta_size, wire.meta_size);
    fedge_request_free(came);
    fedge_rank_message_free(message);
}

static void a_reply_names_its_blob(void **state)
{
    (void)state;
    fedge_error err;
    fedge_blob *blob = NULL;
    uint8_t *bytes = calloc(1, 100);
    assert_int_equal(fedge_blob_new(bytes, 100, &blob, &err), FEDGE_OK);
    const fedge_reply sent = {.type = FEDGE_REPLY_BLOB, .conn_id = 77, .blob = blob, .offset = 64};
    fedge_rank_message *message = fedge_rank_message_of_reply(&sent, 2);
    fedge_rank_message_head head;
    const uint8_t *body = NULL;
    fedge_reply *came = NULL;
    assert_int_equal(message->to, 2);
    assert_int_equal(fedge_rank_message_open(message->bytes, message->size, &head, &body, &err),
                     FEDGE_OK);
    assert_int_equal(fedge_rank_message_reply(&head, body, &came, &err), FEDGE_OK);
    assert_string_equal(head.blob.hash, blob->hash);
    assert_int_equal(head.blob.size, 100);
    assert_null(came->blob); /* an address of another process */
    assert_int_equal(came->offset, 64);
    fedge_reply_free(came);
    fedge_rank_message_free(message);
    fedge_blob_release(blob);
}

/* Whatever the bytes are: an answer, and nothing read beyond them. */
static void a_damaged_rank_message_is_refused(void **state)
{
    (void)state;
    const uint8_t payload[40] = {1, 2, 3};
    const fedge_request sent = {.type = FEDGE_REQUEST_MESSAGE,
                                .message = {.type = FEDGE_MESSAGE_PART},
                                .conn_id = 1,
                                .payload = payload,
                                .payload_size = sizeof(payload)};
    fedge_rank_message *message = fedge_rank_message_of_request(&sent);
    uint32_t refused = 0;
    for (uint64_t seed = 0; seed < TRIALS; seed++) {
        fedge_rng draw = numbers(seed);
        const size_t size = fedge_rng_below(&draw, (uint32_t)message->size + 1);
        uint8_t *bytes = malloc(size + 1);
        memcpy(bytes, message->bytes, size);
        if (size > 0)
            bytes[fedge_rng_below(&draw, (uint32_t)size)] ^= (uint8_t)(1 + seed % 255);
        fedge_rank_message_head head;
        const uint8_t *body = NULL;
        fedge_error err;
        refused += fedge_rank_message_open(bytes, size, &head, &body, &err) == FEDGE_CORRUPT;
        free(bytes);
    }
    assert_true(refused > TRIALS * 9 / 10); /* all that were cut */
    fedge_rank_message_head head;
    const uint8_t *body = NULL;
    fedge_error err;
    assert_int_equal(fedge_rank_message_open(message->bytes, message->size, &head, &body, &err),
                     FEDGE_OK);
    fedge_reply *reply = NULL;
    head.body_size++;
    assert_int_equal(fedge_rank_message_reply(&head, body, &reply, &err), FEDGE_CORRUPT);
    assert_null(reply);
    fedge_rank_message_free(message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_travels_whole),
        cmocka_unit_test(an_upload_is_read_from_its_text),
        cmocka_unit_test(a_reply_names_its_blob),
        cmocka_unit_test(a_damaged_rank_message_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
