/* The struct of the client, shared by client.c (link, worker, life cycle) and download.c (plan and
 * models). */
#ifndef FEDGE_CLIENT_CLIENT_PRIVATE_H
#define FEDGE_CLIENT_CLIENT_PRIVATE_H

#include <stdatomic.h>

#include "client/fedge_client.h"
#include "client/link.h"
#include "client/parts.h"
#include "client/session.h"
#include "client/simulated.h"
#include "client/store.h"
#include "client/worker.h"
#include "secure/identity/clock.h"

/* Stored with a plan that is fetched, itself included: where there are more, all others go. */
#define FEDGE_CLIENT_MAX_BLOBS 3

struct fedge_client {
    fedge_client_config config;
    fedge_client_callbacks callbacks;
    const char *server; /* the address of the next or present connection; the link's */
    uint32_t server_index, num_servers; /* the server of address server_index mod num_servers */
    fedge_hello hello;
    fedge_store_state state;
    fedge_session *session;
    fedge_store *store;
    fedge_worker *worker;
    fedge_parts *parts; /* parts of a model that is being fetched; NULL: none */
    fedge_link *link;
    fedge_simulated *simulated; /* instead of all these in a simulation */
    fedge_identity *identity;
    fedge_clock clock; /* certificate time: not before the last server time */
    atomic_bool stop_asked;
    bool draining, stopped;
    bool has_other_run; /* state.json names an earlier run, of which the store may have values */
    bool seed_compared; /* --seed-blob was compared with the run's first model */
    bool new_run;       /* the last WELCOME was the first of its run */
    uint64_t look_at;   /* next check of the site's conditions while there is a task */
    fedge_exit exit_code;
    char exit_text[FEDGE_MAX_TEXT];
    char plan_hash[FEDGE_HASH_TEXT],
        initial_model[FEDGE_HASH_TEXT]; /* fields of the last WELCOME */
    uint32_t client_index;
    fedge_worker_result result; /* large, so not on the stack */
    uint8_t part[FEDGE_MESSAGE_MAX_PAYLOAD];
};

/* Carries out FEDGE_SESSION_LOOKUP_BLOB: reports how much of the blob is stored, and how to fetch
 * the remainder. Failures are the store's. */
FEDGE_MUST_USE fedge_status fedge_client_look_up(fedge_client *c,
                                                 const fedge_session_action *action,
                                                 fedge_error *err);
/* Carries out FEDGE_SESSION_STORE_CHUNK. Failures are the store's. */
FEDGE_MUST_USE fedge_status fedge_client_store_chunk(fedge_client *c,
                                                     const fedge_session_action *action,
                                                     fedge_error *err);

#endif
