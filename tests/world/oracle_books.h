/* The books of the oracle (oracle.h): what was sent and acknowledged (oracle.c), what the server's
 * disk has of that (oracle_journal.c), and which model each round made (oracle_rounds.c). */
#ifndef FEDGE_TESTS_WORLD_ORACLE_BOOKS_H
#define FEDGE_TESTS_WORLD_ORACLE_BOOKS_H

#include "edge/wire/protocol.h"
#include "tests/world/oracle.h"
#include "tests/world/plain_codec.h"
#include "tests/world/plain_step.h"

enum {
    ORACLE_MAX_CLIENTS = 32,
    ORACLE_MAX_ROUNDS = 512,
    ORACLE_MAX_TASKS = 4096,
    ORACLE_MAX_VERSIONS = 8, /* different results of one task: its client lost the earlier ones */
    ORACLE_MAX_ACCEPTED = PLAIN_MAX_UPDATES,
    ORACLE_JOURNAL_NAME = 64
};

/* An update of a journal. */
typedef struct oracle_accepted {
    uint32_t slot, crc32;
    uint64_t id, size; /* of its task; in bytes */
} oracle_accepted;

/* A result that a client has announced. */
typedef struct oracle_version {
    struct oracle_version *next;
    plain_bytes bytes; /* as announced; bytes.bytes has room for all */
    uint32_t crc32;
    plain_said said;
    uint64_t sent;     /* bytes that were sent without a gap */
    uint64_t complete; /* when the last of its bytes was sent; 0: not yet */
    const int32_t *v;  /* its values; NULL: not decoded, or invalid */
    const char *wrong; /* NULL: nothing known */
} oracle_version;

typedef struct oracle_task {
    uint64_t id;
    uint32_t incarnation, client, round, attempt;
    fedge_task_kind kind;
    uint64_t issued, acked; /* when; acked 0: not yet, or it is excused */
    int8_t bounds_log2[FEDGE_MAX_TENSORS < 64 ? FEDGE_MAX_TENSORS : 64];
    oracle_version *versions, *current; /* current: of the last UPLOAD */
    const oracle_version *used;         /* what counted, in [used_in] */
    uint32_t used_in;                   /* 0: in no round yet */
    uint64_t last_counted;              /* as the task said; 0: none */
    float *changes, *residual;          /* of its training; what was not sent. NULL: not known */
    struct oracle_task *next;           /* another training task of its round */
} oracle_task;

typedef struct oracle_round {
    char hash[FEDGE_HASH_TEXT]; /* of the model that it made; "": not known */
    bool decided;
    uint64_t named, when; /* when the hash became known, and when it was decided */
    plain_model model;
    uint32_t attempt;     /* the highest with a task */
    oracle_task *tasks;   /* of training, the newest first */
    bool sure;            /* no other set of updates would have made the model */
    bool forgot;          /* a client had lost the strategy's state: all begin anew */
    uint32_t num_counted; /* of the round's line in rounds.jsonl; 0: not read */
    uint64_t num_examples;
    /* With a buffer: what the newest attempt's journal has, when last seen. */
    oracle_accepted *accepted; /* (num_accepted); room for ORACLE_MAX_ACCEPTED */
    uint32_t num_accepted;
    bool closed; /* no other updates count */
} oracle_round;

typedef struct oracle_client {
    uint32_t incarnation;   /* of its connection's WELCOME; 0: none */
    uint32_t round;         /* the newest that it was asked for */
    bool hostile, may_lose; /* may_lose: its store was lost, or damaged */
} oracle_client;

typedef struct oracle_books {
    const fedge_job *job;
    bool models; /* the job's codec and strategy are modelled */
    bool async;
    uint32_t num_clients;
    uint64_t now;     /* counts events */
    bool damaged;     /* nothing on the server's disk is certain any more */
    uint32_t decided; /* rounds, from 0 on, whose model is known */
    char run_id[FEDGE_RUN_ID_TEXT];
    uint8_t *file; /* a model's file, of which only the values change */
    size_t file_head;
    uint32_t num_tasks;
    oracle_task *tasks; /* (ORACLE_MAX_TASKS) */
    oracle_round rounds[ORACLE_MAX_ROUNDS + 1];
    oracle_client clients[ORACLE_MAX_CLIENTS];
} oracle_books;

extern oracle_books oracle; /* of the one world that runs */

/* Memory until the next oracle_begin, all 0. */
void *oracle_memory(size_t size);
/* The server has given up earlier attempts at [round]. */
void oracle_begin_attempt(uint32_t round, uint32_t attempt);
/* The model of [round] has this hash, says [who]. */
void oracle_name(uint32_t round, const char *hash, const char *who);
/* Decides all rounds whose hash is known. */
void oracle_decide(void);
/* Of a journal on a damaged disk: the model that [round] begins with. */
void oracle_note_base(uint32_t round, const char *hash);
/* The task was acknowledged after its round was decided. */
void oracle_acked_late(const oracle_task *task);
/* Of the client's present incarnation; NULL: none. */
oracle_task *oracle_find_task(uint32_t client, uint64_t id);
/* A client announces a result. */
void oracle_check_offered(uint32_t client, const fedge_upload *upload);
/* All bytes of an update were sent. */
void oracle_check_encoded(oracle_task *task, oracle_version *version);
/* Decodes it; NULL, or what is wrong with it. */
const char *oracle_check(const oracle_task *task, oracle_version *version);
/* An update is acknowledged: it must stand in the open round's journal, come what may. */
void oracle_check_durable(const oracle_task *task);
/* The attempt at [round] whose journal the server has. */
uint32_t oracle_attempt_of(uint32_t round);
/* The journal of an attempt; NULL: none. */
const uint8_t *oracle_read_journal(uint32_t round, uint32_t attempt, char name[ORACLE_JOURNAL_NAME],
                                   size_t *size);
/* Notes which updates count in the open rounds. */
void oracle_look_at_journals(void);
/* Path of a file of the run. */
void oracle_path(const char *name, char *path, size_t size);
/* Compares what keep-best and early stopping have seen with what they had. */
void oracle_look_at_selection(void);
/* Content of a file of the run; NULL: none. */
const uint8_t *oracle_read(const char *name, size_t *size);

#endif
