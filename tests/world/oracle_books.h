/* The records of the oracle (oracle.h): messages and acknowledgements (oracle.c), the server's
 * journal (oracle_journal.c) and the model of each round (oracle_rounds.c). */
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
    ORACLE_MAX_VERSIONS = 8, /* results of one task, when its client lost earlier ones */
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
    plain_bytes bytes; /* sizes as announced; bytes.bytes has room for all bytes */
    uint32_t crc32;
    plain_said said;
    uint64_t sent;     /* number of bytes sent so far, without a gap */
    uint64_t complete; /* time of its last byte; 0: not sent yet */
    const int32_t *v;  /* decoded values; NULL: not decoded, or invalid */
    const char *wrong; /* what is wrong with it; NULL: nothing is known */
} oracle_version;

typedef struct oracle_task {
    uint64_t id;
    uint32_t incarnation, client, round, attempt;
    fedge_task_kind kind;
    uint64_t issued, acked; /* times; acked 0: not acknowledged, or a loss is allowed */
    int8_t bounds_log2[FEDGE_MAX_TENSORS < 64 ? FEDGE_MAX_TENSORS : 64];
    oracle_version *versions, *current; /* current: the version of the last UPLOAD */
    const oracle_version *used;         /* the version that counted in round [used_in] */
    uint32_t used_in;                   /* 0: it has counted in no round yet */
    uint64_t last_counted;              /* the task that TASK named as last accepted; 0: none */
    bool replaced;                      /* the device may have replaced what this training left */
    float *changes,
        *residual; /* change by its training, and the part that was not sent; NULL: unknown */
    struct oracle_task *next; /* next training task of its round */
} oracle_task;

typedef struct oracle_round {
    char hash[FEDGE_HASH_TEXT]; /* hash of the round's model; "": unknown */
    bool decided;
    uint64_t named, when; /* times: the hash became known; the round was decided */
    plain_model model;
    uint32_t attempt;               /* highest attempt with a task */
    oracle_task *tasks;             /* training tasks, the newest first */
    float *root_base, *root_change; /* the server's newest training; NULL: none */
    bool sure;                      /* no other set of updates makes this model */
    bool forgot;          /* a client had lost the strategy's state, so all clients reset theirs */
    uint32_t num_counted; /* clients by the round's line in rounds.jsonl; 0: not read yet */
    uint64_t num_examples;
    plain_draw draw; /* of that attempt's cohort, and how often it was missed by whom */
    uint32_t missed[ORACLE_MAX_CLIENTS];
    uint32_t cohort; /* tasks of the newest attempt; 0: not known */
    /* If the oracle needs journals: what the newest attempt's has, when last seen. */
    oracle_accepted *accepted; /* (num_accepted); room for ORACLE_MAX_ACCEPTED */
    uint32_t num_accepted;
    bool closed; /* no other updates count */
} oracle_round;

typedef struct oracle_client {
    uint32_t incarnation;   /* incarnation of its last WELCOME; 0: none */
    uint32_t round;         /* latest round of its tasks */
    bool hostile, may_lose; /* may_lose: its store is lost, or may be damaged */
} oracle_client;

typedef struct oracle_books {
    const fedge_job *job;
    bool models; /* the oracle recomputes this job's models */
    bool async;
    uint32_t num_clients;
    uint64_t now;     /* number of events so far, which serves as the time */
    bool damaged;     /* the server's disk may have lost or changed anything */
    bool torn;        /* the end of rounds.jsonl may be torn */
    uint32_t decided; /* all rounds below this one have a known model */
    char run_id[FEDGE_RUN_ID_TEXT];
    uint8_t *file; /* a model's file; only its values change from round to round */
    size_t file_head;
    uint32_t num_tasks;
    oracle_task *tasks; /* (ORACLE_MAX_TASKS) */
    oracle_round rounds[ORACLE_MAX_ROUNDS + 1];
    oracle_client clients[ORACLE_MAX_CLIENTS];
} oracle_books;

extern oracle_books oracle; /* records of the one world that runs */

/* Zeroed memory, valid until the next oracle_begin. */
void *oracle_memory(size_t size);
/* The server has begun [attempt] at [round] and given up the earlier ones. */
void oracle_begin_attempt(uint32_t round, uint32_t attempt);
/* [who] says that the model of [round] has this hash. */
void oracle_name(uint32_t round, const char *hash, const char *who);
/* Decides all rounds whose hash is known. */
void oracle_decide(void);
/* Of a journal on a damaged disk: the model that [round] begins with. */
void oracle_note_base(uint32_t round, const char *hash);
/* The task was acknowledged after its round was decided. */
void oracle_acked_late(const oracle_task *task);
/* The task with this id of the client's present incarnation; NULL: none. */
oracle_task *oracle_find_task(uint32_t client, uint64_t id);
/* Checks a result that a client announces. */
void oracle_check_offered(uint32_t client, const fedge_upload *upload);
/* Checks an update of which all bytes were sent. */
void oracle_check_encoded(oracle_task *task, oracle_version *version);
/* Decodes a version. Returns what is wrong with it; NULL: nothing. */
const char *oracle_check(const oracle_task *task, oracle_version *version);
/* Checks that an acknowledged update is in the open round's journal and synced. */
void oracle_check_durable(const oracle_task *task);
/* The attempt at [round] whose journal the server has. */
uint32_t oracle_attempt_of(uint32_t round);
/* The journal of an attempt; NULL: none. */
const uint8_t *oracle_read_journal(uint32_t round, uint32_t attempt, char name[ORACLE_JOURNAL_NAME],
                                   size_t *size);
/* Whether models follow from what only journals say. */
bool oracle_needs_journals(void);
/* Notes which updates count in the open rounds, and how many clients they ask. */
void oracle_look_at_journals(void);
/* Whether the update is in a journal of the first [num_ranks] ranks. With [named], rank 0's journal
 * has to name it and its place. */
bool oracle_is_in_journal(const oracle_task *task, uint32_t num_ranks, bool named);
/* Writes the path of a file of the run. */
void oracle_path(const char *name, char *path, size_t size);
/* Checks that the state of keep-best and early stopping continues its earlier state. */
void oracle_look_at_selection(void);
/* The content of a file of the run; NULL: there is none. */
const uint8_t *oracle_read(const char *name, size_t *size);

#endif
