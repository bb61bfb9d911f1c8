/* The JSON metadata of each message type as structs, written and read by the same code on both
 * sides. docs/reference/protocol.md specifies the fields; tests/golden has test vectors.
 *
 * Unknown keys are ignored, since later releases add some; duplicates, wrong types, missing keys,
 * nesting over 8 and texts over their limit are FEDGE_CORRUPT with the key's name. Integers are
 * JSON numbers < 2^53. Hashes are SHA-256 in lower-case hex; run ids are 32 hex digits.
 */
#ifndef FEDGE_EDGE_WIRE_PROTOCOL_H
#define FEDGE_EDGE_WIRE_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/codec/codec.h"
#include "edge/core/message.h"
#include "edge/core/status.h"
#include "edge/core/tensor.h"
#include "edge/json/json.h"

#define FEDGE_PROTOCOL_MIN 1
#define FEDGE_PROTOCOL_MAX 1
#define FEDGE_SUBPROTOCOL "fedge.v1"
#define FEDGE_PLAN_MAX_SIZE ((size_t)1 << 20) /* bytes of a plan */
#define FEDGE_HASH_TEXT 65                    /* 64 hex digits and NUL */
#define FEDGE_RUN_ID_TEXT 33                  /* 32 hex digits and NUL */
#define FEDGE_MAX_TEXT 256                    /* texts for people, with NUL */
#define FEDGE_MAX_SERVER 256                  /* a server's address, with NUL */
#define FEDGE_MAX_FEATURES 256 /* features of a HELLO; the first servers refuse more than 64 */
#define FEDGE_MAX_FIRST_FEATURES 64
#define FEDGE_MAX_MORE_FEATURES (FEDGE_MAX_FEATURES - FEDGE_MAX_FIRST_FEATURES)
#define FEDGE_MAX_READ_FEATURES                                                                    \
    96 /* features of the first list, which servers have read since 0.1.0 */
#define FEDGE_MAX_FEATURE 32
/* Bytes of all features in JSON: a HELLO with the longest errors still fits a message. */
#define FEDGE_MAX_FEATURES_SIZE 5632
#define FEDGE_MAX_NAMES 16 /* data sets and errors in a HELLO */
#define FEDGE_MAX_NAME 64
#define FEDGE_MAX_SECTIONS 16
#define FEDGE_MAX_METRICS 64

typedef struct fedge_hello {
    uint32_t protocol_min, protocol_max;
    char release[FEDGE_MAX_NAME], arch[FEDGE_MAX_NAME];
    uint64_t ram_bytes;
    uint32_t num_features, num_data, num_errors;
    /* "codec:int8", "deflate", "external", …; writers put FEDGE_MAX_FIRST_FEATURES here */
    char features[FEDGE_MAX_READ_FEATURES][FEDGE_MAX_FEATURE];
    char data[FEDGE_MAX_NAMES][FEDGE_MAX_NAME];   /* data sets of this device */
    char errors[FEDGE_MAX_NAMES][FEDGE_MAX_TEXT]; /* latest error events, newest first */
    bool hangs_up; /* the device may disconnect while it has no task */
    uint32_t num_more_features;
    char more_features[FEDGE_MAX_MORE_FEATURES]
                      [FEDGE_MAX_FEATURE]; /* the features after [features] */
} fedge_hello;

typedef struct fedge_welcome {
    uint32_t protocol; /* version in the client's range */
    uint32_t client_index;
    uint64_t server_time_ms; /* Unix time */
    char run_id[FEDGE_RUN_ID_TEXT];
    uint32_t incarnation;
    char plan[FEDGE_HASH_TEXT];
    uint64_t plan_size;
    uint32_t heartbeat_s;      /* the client's interval of pings */
    uint32_t return_within_ms; /* a client reconnects at a random time within this; 0: soon */
    /* The model file made from the plan's seed, which may be the base of a task; "": none. */
    char initial_model[FEDGE_HASH_TEXT];
} fedge_welcome;

typedef enum fedge_task_kind { FEDGE_TASK_TRAIN, FEDGE_TASK_EVALUATE } fedge_task_kind;

#define FEDGE_MAX_RETURN_WITHIN_MS 3600000
#define FEDGE_MAX_DELTAS 8
#define FEDGE_MAX_TASK_BOUNDS 1024 /* a task's metadata have no room for more */

/* A client's state of a model's list of parts. */
typedef enum fedge_list_use {
    FEDGE_LIST_UNUSED,
    FEDGE_LIST_FETCHED,
    FEDGE_LIST_HELD
} fedge_list_use;

/* A blob that updates an older model to the task's (edge/plan/update.h). */
typedef struct fedge_delta_ref {
    char base[FEDGE_HASH_TEXT],
        hash[FEDGE_HASH_TEXT]; /* hashes of the older model and of the blob */
    uint64_t size;
} fedge_delta_ref;

typedef struct fedge_task {
    uint64_t task_id;
    fedge_task_kind kind;
    uint32_t round;
    char model[FEDGE_HASH_TEXT];
    uint64_t model_size;
    uint64_t deadline_ms; /* relative to now */
    double learning_rate; /* rate of this round */
    uint32_t num_bounds;  /* 0: they follow from the plan and the model */
    int8_t bounds_log2[FEDGE_MAX_TASK_BOUNDS];
    uint64_t control_size;  /* last bytes of the blob: the strategy's broadcast state; 0: none */
    bool has_last_accepted; /* set with client state: in training, and in evaluation when it is part
                               of the model */
    uint64_t last_accepted; /* task of this client's last update whose change is in c; 0: none */
    uint32_t num_deltas;    /* deltas that lead to the model from models of earlier rounds */
    fedge_delta_ref deltas[FEDGE_MAX_DELTAS];
    uint32_t delta; /* set by a client: the delta that it takes, from 1; 0: the whole model */
    char parts[FEDGE_HASH_TEXT]; /* blob with the list of the model's parts (below); "": none */
    uint64_t parts_size;
    fedge_list_use list; /* set by a client */
} fedge_task;

/* FETCH and CHUNK. In a CHUNK the payload is blob[offset, offset + payload_size). */
typedef struct fedge_blob_ref {
    char hash[FEDGE_HASH_TEXT];
    uint64_t offset;
    uint64_t size; /* CHUNK: of the whole blob; FETCH: bytes to send from [offset] on, 0: all */
} fedge_blob_ref;

typedef struct fedge_section_info {
    char name[FEDGE_MAX_NAME]; /* "delta" */
    fedge_codec codec;
    bool deflate;
    uint64_t size;     /* bytes in the upload */
    uint64_t raw_size; /* bytes after inflate; equal to size without deflate */
} fedge_section_info;

typedef struct fedge_metric {
    char name[FEDGE_MAX_NAME];
    double value; /* finite */
} fedge_metric;

/* A result: the metadata of UPLOAD and of its journal record. */
typedef struct fedge_upload {
    uint64_t task_id;
    char run_id[FEDGE_RUN_ID_TEXT];
    uint32_t incarnation;
    uint64_t size;  /* bytes of all sections; 0 for an evaluation */
    uint32_t crc32; /* CRC-32 of those bytes */
    uint64_t num_examples;
    uint32_t num_sections, num_metrics;
    fedge_section_info sections[FEDGE_MAX_SECTIONS];
    fedge_metric
        metrics[FEDGE_MAX_METRICS]; /* "loss" and "accuracy" (means), "seconds", "clamped", … */
} fedge_upload;

/* RESUME and PART: a byte offset in the upload of a task. */
typedef struct fedge_position {
    uint64_t task_id, offset;
} fedge_position;

typedef struct fedge_ack {
    uint64_t task_id;
    bool duplicate; /* it was accepted before */
} fedge_ack;

/* DECLINE, REFUSE, CANCEL and BYE. */
typedef struct fedge_notice {
    bool has_task;
    uint64_t task_id;
    /* An unknown name reads as the reason of its class: UNSUPPORTED for "never", TIMEOUT for
     * "retry", otherwise INTERNAL. */
    fedge_reason reason;
    uint64_t after_ms; /* delay for class "later" */
    char text[FEDGE_MAX_TEXT];
    char server[FEDGE_MAX_SERVER]; /* BYE, REFUSE of a connection: the server to return to; "": any
                                    */
} fedge_notice;

/* A message of a client that has sent HELLO. */
typedef struct fedge_client_message {
    fedge_message_type type;
    fedge_upload *upload; /* UPLOAD: malloc'ed; otherwise NULL */
    union {
        fedge_blob_ref blob;     /* FETCH */
        fedge_position position; /* PART */
        fedge_notice notice;     /* DECLINE, BYE */
    };
} fedge_client_message;

/* Writers pack a whole frame (header, JSON, and no payload unless stated) to out[0, out_size);
 * *size is its length. out_size of FEDGE_MESSAGE_MAX_SIZE always suffices. */
FEDGE_MUST_USE fedge_status fedge_hello_pack(const fedge_hello *hello, uint8_t *out,
                                             size_t out_size, size_t *size, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_welcome_pack(const fedge_welcome *welcome, uint8_t *out,
                                               size_t out_size, size_t *size, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_task_pack(const fedge_task *task, uint8_t *out, size_t out_size,
                                            size_t *size, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_fetch_pack(const fedge_blob_ref *ref, uint8_t *out,
                                             size_t out_size, size_t *size, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_chunk_pack(const fedge_blob_ref *ref, const uint8_t *payload,
                                             uint32_t payload_size, uint8_t *out, size_t out_size,
                                             size_t *size, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_upload_pack(const fedge_upload *upload, uint8_t *out,
                                              size_t out_size, size_t *size, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_resume_pack(const fedge_position *position, uint8_t *out,
                                              size_t out_size, size_t *size, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_part_pack(const fedge_position *position, const uint8_t *payload,
                                            uint32_t payload_size, uint8_t *out, size_t out_size,
                                            size_t *size, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_ack_pack(const fedge_ack *ack, uint8_t *out, size_t out_size,
                                           size_t *size, fedge_error *err);
/* [type] is DECLINE, REFUSE, CANCEL or BYE. */
FEDGE_MUST_USE fedge_status fedge_notice_pack(fedge_message_type type, const fedge_notice *notice,
                                              uint8_t *out, size_t out_size, size_t *size,
                                              fedge_error *err);

/* Readers take an unpacked message of the right type. */
FEDGE_MUST_USE fedge_status fedge_hello_read(const fedge_message *message, fedge_hello *hello,
                                             fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_welcome_read(const fedge_message *message, fedge_welcome *welcome,
                                               fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_task_read(const fedge_message *message, fedge_task *task,
                                            fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_fetch_read(const fedge_message *message, fedge_blob_ref *ref,
                                             fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_chunk_read(const fedge_message *message, fedge_blob_ref *ref,
                                             fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_upload_read(const fedge_message *message, fedge_upload *upload,
                                              fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_position_read(const fedge_message *message,
                                                fedge_position *position, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_ack_read(const fedge_message *message, fedge_ack *ack,
                                           fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_notice_read(const fedge_message *message, fedge_notice *notice,
                                              fedge_error *err);

/* Whether clients send messages of this type, including HELLO. */
bool fedge_is_of_clients(unsigned type);
/* Reads any client message except HELLO. Free out->upload, also after a failure. */
FEDGE_MUST_USE fedge_status fedge_client_message_read(const fedge_message *message,
                                                      fedge_client_message *out, fedge_error *err);

/* ---- lists of parts -------------------------------------------------------------------------- */

/* The list of a blob's parts. It shows a client which bytes of a model it has already, in an older
 * model or earlier in the same one, so that it fetches only the others.
 *
 *     8 bytes "FEDGPRT1", the blob's SHA-256 (32), u64 its size, little-endian; then for each part,
 *     in the order of the blob and without gaps, u32 its bytes and its SHA-256 (32)
 *
 * Parts end at the bounds of tensors, so that a tensor has the same parts in every model and at
 * every offset. Larger tensors are cut every FEDGE_PART_MAX_BYTES; consecutive small ones form one
 * part. A list is a blob, too, named by its SHA-256.
 */

#ifdef FEDGE_SMALL
#define FEDGE_TAKES_PARTS false /* small clients fetch models whole */
#else
#define FEDGE_TAKES_PARTS true
#endif

#define FEDGE_PART_MAX_BYTES (1u << 20)
#define FEDGE_PART_MIN_BYTES 4096u /* tensors of at least this size begin a new part */
#define FEDGE_PART_LIST_MAGIC "FEDGPRT1"
#define FEDGE_PART_LIST_HEAD 48u  /* bytes before the first entry */
#define FEDGE_PART_LIST_ENTRY 36u /* bytes */
#define FEDGE_PART_LIST_MAX_PARTS 65536u
#define FEDGE_PART_LIST_MAX_SIZE                                                                   \
    (FEDGE_PART_LIST_HEAD + FEDGE_PART_LIST_MAX_PARTS * FEDGE_PART_LIST_ENTRY)

/* ---- codecs in JSON -------------------------------------------------------------------------- */

/* FEDGE_JSON_CUSTOM functions of a fedge_codec: a text as in a job. An unknown codec fails with the
 * nearest name. A codec without values is not written. */
FEDGE_MUST_USE fedge_status fedge_codec_read_json(const fedge_json *json, const cJSON *node,
                                                  void *codec, fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_codec_write_json(const void *codec, const char *key,
                                                   cJSON *object, fedge_error *err);
#define FEDGE_JSON_CODEC(type, member)                                                             \
    .kind = FEDGE_JSON_CUSTOM, FEDGE_JSON_AT(type, member), .read = fedge_codec_read_json,         \
    .write = fedge_codec_write_json

/* Reads a codec that may be followed by "+deflate", or "+deflate:1" to ":9", as in a job's "up". */
FEDGE_MUST_USE fedge_status fedge_codec_read_pipeline(const fedge_json *json, const cJSON *node,
                                                      fedge_codec *codec, bool *deflate,
                                                      fedge_error *err);
/* As fedge_codec_read_pipeline. */
FEDGE_MUST_USE fedge_status fedge_codec_write_pipeline(const fedge_codec *codec, bool deflate,
                                                       const char *key, cJSON *object,
                                                       fedge_error *err);

#endif
