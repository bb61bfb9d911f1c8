/* Client hooks: the work of a strategy on the clients, besides training.
 *
 *     begin   before training: computes the correction of every gradient from the broadcast state
 *             and the client state
 *     end     after training: fills the strategy's own section of the update
 *     move    after encoding: updates the client state from the update as the server will decode it
 *
 * Each strategy that works on clients has one table, in its own file under edge/plan/hooks, found
 * by the strategy's name. The caller stores client state between rounds: client/client_state.h on a
 * device, aggregator/simulate/cohort/client_states.h in a simulation.
 */
#ifndef FEDGE_EDGE_PLAN_CLIENT_HOOKS_H
#define FEDGE_EDGE_PLAN_CLIENT_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/plan/plan.h"

struct cJSON;
struct fedge_json;
struct fedge_json_field;

/* Fields of the arguments of client hooks, for a table of [type]. */
#define FEDGE_PERSONAL_LAYERS_FIELD(type, member)                                                  \
    {                                                                                              \
        "personal-layers", "personal_layers", FEDGE_JSON_U32, FEDGE_JSON_AT(type, member),         \
            .min = 1, .max = FEDGE_MAX_LAYERS, .fallback = 1                                       \
    }
/* Small builds, whose trainer is fedge's, do without this one. */
#define FEDGE_PERSONAL_TENSORS_FIELD(type, member)                                                 \
    {                                                                                              \
        "personal-tensors", "personal_tensors", FEDGE_JSON_LINES, FEDGE_JSON_AT(type, member),     \
            .min = 1, .max = FEDGE_MAX_TENSOR_NAME - 1                                             \
    }
#define FEDGE_HEAD_EPOCHS_FIELD(type, member)                                                      \
    {                                                                                              \
        "head-epochs", "head_epochs", FEDGE_JSON_U32, FEDGE_JSON_AT(type, member),                 \
            .min = 1, .max = FEDGE_MAX_EPOCHS, .fallback = 1                                       \
    }
#define FEDGE_LAMBDA_FIELD(type, member)                                                           \
    {                                                                                              \
        "lambda", NULL, FEDGE_JSON_F32, FEDGE_JSON_AT(type, member),                               \
            .min = 1e-9, .max = FEDGE_MAX_PROXIMAL_MU, .fallback = 0.1                             \
    }

#define FEDGE_NUM_CLUSTERS_FIELD(type, member)                                                     \
    {                                                                                              \
        "num-clusters", "num_clusters", FEDGE_JSON_U32, FEDGE_JSON_AT(type, member),               \
            .min = 2, .max = FEDGE_MAX_CLUSTERS, .fallback = 2                                     \
    }

/* Small builds omit strategies with several models, and what only trainers of one's own need. */
#ifdef FEDGE_SMALL
#define FEDGE_LARGE_HOOKS_MAP(X)
#else
#define FEDGE_LARGE_HOOKS_MAP(X)                                                                   \
    X(ifca, "strategy:IFCA")                                                                       \
    X(fednova, "strategy:FedNova")
#endif

/* X(file name under edge/plan/hooks, feature in a plan's "must"). */
#define FEDGE_CLIENT_HOOKS_MAP(X)                                                                  \
    X(scaffold, "scaffold-counted")                                                                \
    X(feddyn, "strategy:FedDyn")                                                                   \
    X(qfedavg, "strategy:QFedAvg")                                                                 \
    X(fedper, "strategy:FedPer")                                                                   \
    X(fedrep, "strategy:FedRep")                                                                   \
    X(fedbn, "strategy:FedBN")                                                                     \
    X(ditto, "strategy:Ditto")                                                                     \
    FEDGE_LARGE_HOOKS_MAP(X)

/* Metric, not 0, of an update whose client lost state that the server keeps a sum of. */
#define FEDGE_CLIENT_STATE_LOST "control-lost"

/* Metrics of updates whose hooks measure: the mean loss of the starting model on the training
 * examples, and the squared norm of the change of the trained values. */
#define FEDGE_START_LOSS "start-loss"
#define FEDGE_SQUARED_NORM "squared-norm"
/* Metric of updates of clustered strategies: index of the model that was trained, from 0. */
#define FEDGE_CLUSTER "cluster"
/* Metric of updates whose hooks count steps: the optimizer's steps, from 1. */
#define FEDGE_NUM_STEPS "num-steps"

/* Buffers of the hooks of one plan. A pointer is NULL when the hooks do not need it. */
typedef struct fedge_hooks_state {
    const fedge_plan *plan;
    size_t num_trained; /* values that are trained */
    float *broadcast;   /* (num_broadcast, num_trained): state that came with the model */
    uint32_t num_broadcast;
    size_t num_client_state; /* num_trained; with a residual one more, the round it is from; for
                                personal strategies see edge/plan/personal.h */
    float *client_state;     /* (num_client_state): of the strategy, or the residual */
    float *correction;       /* (plan->num_parameters), 0 where nothing is trained */
} fedge_hooks_state;

typedef struct fedge_client_hooks {
    const char *name;     /* strategy's name in jobs */
    const char *plan_key; /* key, true in a plan, that selects these hooks; NULL: "strategy" does */
    const char *section;  /* name of its section, with one value for each of the delta; or NULL */
    const char *state_name; /* the client state in messages: "control variate"; NULL: none */
    bool broadcasts;        /* each model comes with num_trained values of the server's state */
    bool clustered;     /* broadcast state is further models; FEDGE_CLUSTER reports which one was
                           trained */
    bool corrects;      /* begin fills a correction */
    bool measures;      /* updates have FEDGE_START_LOSS and FEDGE_SQUARED_NORM */
    bool counts_steps;  /* updates have FEDGE_NUM_STEPS */
    bool only_external; /* plans of built-in models do without these hooks */
    bool local_state;   /* losing the client state does no harm: the server keeps no sum of it */
    const struct fedge_json_field *arguments; /* fields of a fedge_hooks_arguments; NULL: none */

    /* True for layers whose values stay on the client (edge/plan/personal.h). NULL: all layers are
     * shared. */
    bool (*personal)(const fedge_plan *plan, uint32_t layer);
    bool trains_both;    /* personal values are trained beside the server's; otherwise they replace
                            them */
    bool personal_first; /* personal values are trained before the shared ones */

    /* Fails with the key of a plan that this strategy does not support. NULL: it supports all. */
    fedge_status (*check)(const struct fedge_json *json, const fedge_plan *plan, fedge_error *err);
    void (*begin)(fedge_hooks_state *state); /* NULL: nothing to do */
    /* Fills the strategy's section in [sent], which has the delta, after [num_steps] of training
     * with [learning_rate]. NULL: it has no section. */
    fedge_status (*end)(const fedge_hooks_state *state, uint64_t num_steps, double learning_rate,
                        float *sent, fedge_error *err);
    /* Updates the client state from v, all sections as the server decodes them. NULL: it does not
     * depend on the update. */
    void (*move)(const fedge_plan *plan, const int8_t *bounds_log2, const int32_t *v,
                 float *client_state);
} fedge_client_hooks;

/* NULL: the strategy has no client hooks. */
const fedge_client_hooks *fedge_client_hooks_find(const char *strategy);
/* Likewise, in a job whose model is external or not. */
const fedge_client_hooks *fedge_client_hooks_of_job(const char *strategy, bool external);
/* Enumerates the hooks from index 0; NULL after the last. */
const fedge_client_hooks *fedge_client_hooks_at(size_t index);
/* The hooks with this feature in "must"; NULL: none. */
const fedge_client_hooks *fedge_client_hooks_of_feature(const char *feature);

/* True when clients store state between rounds: the strategy's or a residual, never both
 * (fedge_plan_derive). */
bool fedge_plan_has_client_state(const fedge_plan *plan);
bool fedge_plan_makes_residual(const fedge_plan *plan); /* encoding leaves a residual */
/* Whether clients store the residual (error feedback). */
bool fedge_plan_retains_residual(const fedge_plan *plan);
/* Number of values of the client state. */
size_t fedge_plan_num_client_state(const fedge_plan *plan);
/* For messages: "control variate" or "residual", and its cause: "SCAFFOLD" or "error feedback". */
const char *fedge_plan_client_state_name(const fedge_plan *plan);
const char *fedge_plan_client_state_owner(const fedge_plan *plan);
/* True when the update changes the client state (fedge_client_hooks.move). */
bool fedge_plan_moves_client_state(const fedge_plan *plan);

/* True when a codec of the updates sends only some of the values. */
bool fedge_plan_sparsifies(const fedge_plan *plan);

/* Whether the server sends state with each model; its size as a multiple of num_trained. */
bool fedge_plan_broadcasts(const fedge_plan *plan);
uint32_t fedge_plan_num_broadcast(const fedge_plan *plan);
/* True when there are several models and each client trains the best for it. */
bool fedge_plan_is_clustered(const fedge_plan *plan);
bool fedge_plan_measures(const fedge_plan *plan);
bool fedge_plan_counts_steps(const fedge_plan *plan);
/* True when a trainer that is not fedge's stays near a model or trains one in parts, which takes a
 * copy (client/own_trainer.h). */
bool fedge_plan_keeps_anchor(const fedge_plan *plan);

/* Reads the arguments of the plan's hooks from the "strategy" of a job or plan; ignores other keys.
 * node NULL: sets the defaults. */
FEDGE_MUST_USE fedge_status fedge_hooks_read_arguments(const struct fedge_json *json,
                                                       const struct cJSON *node, fedge_plan *plan,
                                                       fedge_error *err);

/* Squared norm of the delta in [sent], summed in order. */
double fedge_squared_norm(const fedge_plan *plan, const float *sent);

/* Allocates the buffers of a plan with hooks or residuals, all 0. Borrows the plan. */
FEDGE_MUST_USE fedge_status fedge_hooks_state_init(fedge_hooks_state *state, const fedge_plan *plan,
                                                   fedge_error *err);
void fedge_hooks_state_fini(fedge_hooks_state *state); /* a struct of zeros is fine */
/* Bytes that init allocates; 0 for a plan without hooks and residuals. */
uint64_t fedge_hooks_state_size(const fedge_plan *plan);

/* Call the functions of the plan's hooks, if it has them. */
void fedge_hooks_begin(fedge_hooks_state *state);
FEDGE_MUST_USE fedge_status fedge_hooks_end(const fedge_hooks_state *state, uint64_t num_steps,
                                            double learning_rate, float *sent, fedge_error *err);
void fedge_hooks_move(const fedge_plan *plan, const int8_t *bounds_log2, const int32_t *v,
                      float *client_state);

#endif
