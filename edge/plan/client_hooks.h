/* Client hooks: what a strategy has clients do besides training.
 *
 *     begin   before training: what is added to every gradient, from what the server tells and what
 *             the client keeps
 *     end     after training: the strategy's own section of the update
 *     move    after encoding: what the client keeps, by what the server will decode of the update
 *
 * One table for each strategy that needs clients, one file for each table under edge/plan/hooks,
 * found by the strategy's name. The caller keeps the values from round to round:
 * client/client_state.h on a device, aggregator/simulate/cohort/client_states.h in a simulation.
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

/* Arguments that strategies have for their client hooks, in a table of [type]. */
#define FEDGE_PERSONAL_LAYERS_FIELD(type, member)                                                  \
    {                                                                                              \
        "personal-layers", "personal_layers", FEDGE_JSON_U32, FEDGE_JSON_AT(type, member),         \
            .min = 1, .max = FEDGE_MAX_LAYERS, .fallback = 1                                       \
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

/* Small programs do without those that are given several models. */
#ifdef FEDGE_SMALL
#define FEDGE_CLUSTERED_HOOKS_MAP(X)
#else
#define FEDGE_CLUSTERED_HOOKS_MAP(X) X(ifca, "strategy:IFCA")
#endif

/* Each has a line here, NAME of edge/plan/hooks/NAME.c and the word of it in "must", and is found
 * by the name in its table. */
#define FEDGE_CLIENT_HOOKS_MAP(X)                                                                  \
    X(scaffold, "scaffold-counted")                                                                \
    X(feddyn, "strategy:FedDyn")                                                                   \
    X(qfedavg, "strategy:QFedAvg")                                                                 \
    X(fedper, "strategy:FedPer")                                                                   \
    X(fedrep, "strategy:FedRep")                                                                   \
    X(fedbn, "strategy:FedBN")                                                                     \
    X(ditto, "strategy:Ditto")                                                                     \
    FEDGE_CLUSTERED_HOOKS_MAP(X)

/* The metric, not 0, of an update whose client lost what it kept, of which the server has a part.
 */
#define FEDGE_CLIENT_STATE_LOST "control-lost"

/* The metrics of an update whose plan's hooks measure: the mean loss of the model that training
 * starts from on the examples to train, and the squared norm of what is trained's change. */
#define FEDGE_START_LOSS "start-loss"
#define FEDGE_SQUARED_NORM "squared-norm"
/* The metric of an update whose plan's hooks choose: which model was trained, from 0. */
#define FEDGE_CLUSTER "cluster"

/* Of one plan. Values of what is trained: num_trained each, NULL where the hooks need none. */
typedef struct fedge_hooks_state {
    const fedge_plan *plan;
    size_t num_trained;
    float *told; /* by the server: num_told times num_trained */
    uint32_t num_told;
    size_t num_kept;   /* num_trained; of a residual one more, the round that it is of; or what is
                          the client's own (edge/plan/personal.h) */
    float *own;        /* (num_kept) what this client keeps, for the strategy or as residual */
    float *correction; /* of every parameter (plan->num_parameters), 0 where nothing is trained */
} fedge_hooks_state;

typedef struct fedge_client_hooks {
    const char *name;     /* of the strategy, as in a job */
    const char *plan_key; /* true in the plans that have these hooks; NULL: "strategy" names them */
    const char *section;  /* name of its section, with a value for each of the delta; NULL: none */
    const char *keeps;    /* what a client keeps, for people: "control variate"; NULL: nothing */
    bool tells;           /* the server tells num_trained values with each model, or, if it */
    bool chooses;         /* further models: one of all is trained, and FEDGE_CLUSTER says which */
    bool corrects;        /* begin fills a correction */
    bool measures;        /* updates have FEDGE_START_LOSS and FEDGE_SQUARED_NORM */
    bool alone; /* a client that loses its state starts anew; the others are not affected */
    const struct fedge_json_field *arguments; /* of a fedge_hooks_arguments; NULL: none */

    /* Are the layer's values a client's own (edge/plan/personal.h)? They are what it keeps. NULL:
     * the server's are everybody's. */
    bool (*personal)(const fedge_plan *plan, uint32_t layer);
    bool beside;  /* they are trained beside the server's, which are sent; else they replace them */
    bool in_turn; /* they are trained first, and then the others */

    /* Fails with the key of the plan that does not go with this strategy. NULL: all go. */
    fedge_status (*check)(const struct fedge_json *json, const fedge_plan *plan, fedge_error *err);
    void (*begin)(fedge_hooks_state *state); /* NULL: nothing is done */
    /* Fills the section in [sent], whose delta is there already. [num_steps] and [learning_rate]
     * are the training's. NULL: there is no section. */
    fedge_status (*end)(const fedge_hooks_state *state, uint64_t num_steps, double learning_rate,
                        float *sent, fedge_error *err);
    /* Moves [own] by the update as the server decodes it: v has all that is sent. NULL: nothing is
     * kept. */
    void (*move)(const fedge_plan *plan, const int8_t *bounds_log2, const int32_t *v, float *own);
} fedge_client_hooks;

/* NULL: the strategy asks nothing of clients. */
const fedge_client_hooks *fedge_client_hooks_find(const char *strategy);
/* One by one from index 0; NULL behind the last. */
const fedge_client_hooks *fedge_client_hooks_at(size_t index);
/* The hooks whose word in "must" this is; NULL: none. */
const fedge_client_hooks *fedge_client_hooks_of_feature(const char *feature);

/* Do clients of this plan keep something from round to round: for the strategy, or a residual?
 * There is one of the two at most (fedge_plan_derive). Does encoding make a residual, kept or not?
 * Are clients told something? */
bool fedge_plan_keeps(const fedge_plan *plan);
bool fedge_plan_keeps_residual(const fedge_plan *plan);
bool fedge_plan_makes_residual(const fedge_plan *plan);
bool fedge_plan_tells(const fedge_plan *plan);
/* Values that a client keeps, where it keeps any. */
size_t fedge_plan_num_kept(const fedge_plan *plan);
/* What is kept, for people: "control variate", "residual"; and by whose wish: "SCAFFOLD",
 * "error feedback". */
const char *fedge_plan_kept_name(const fedge_plan *plan);
const char *fedge_plan_keeper_name(const fedge_plan *plan);

/* Does one of the codecs of its updates choose which values travel? */
bool fedge_plan_chooses_values(const fedge_plan *plan);

/* How often it is num_trained values that are told; 0: nothing is. */
uint32_t fedge_plan_num_told(const fedge_plan *plan);
/* Are there several models, of which a client chooses? */
bool fedge_plan_chooses(const fedge_plan *plan);

bool fedge_plan_measures(const fedge_plan *plan);
/* Does what is kept move by what the server decodes? */
bool fedge_plan_moves(const fedge_plan *plan);

/* Reads the arguments of the plan's hooks from a job's or plan's "strategy", whose other keys are
 * passed over; NULL: there is none, and they have their defaults. */
FEDGE_MUST_USE fedge_status fedge_hooks_read_arguments(const struct fedge_json *json,
                                                       const struct cJSON *node, fedge_plan *plan,
                                                       fedge_error *err);

/* Of the delta in what is sent, summed in order. */
double fedge_squared_norm(const fedge_plan *plan, const float *sent);

/* Takes the memory, all 0, for a plan with hooks or residuals; it outlives the state. */
FEDGE_MUST_USE fedge_status fedge_hooks_state_init(fedge_hooks_state *state, const fedge_plan *plan,
                                                   fedge_error *err);
void fedge_hooks_state_fini(fedge_hooks_state *state); /* one that is all 0 is fine */
/* The bytes that init takes; 0 for a plan with neither. */
uint64_t fedge_hooks_state_size(const fedge_plan *plan);

/* The functions of the plan's table; nothing is done where it has none. */
void fedge_hooks_begin(fedge_hooks_state *state);
FEDGE_MUST_USE fedge_status fedge_hooks_end(const fedge_hooks_state *state, uint64_t num_steps,
                                            double learning_rate, float *sent, fedge_error *err);
void fedge_hooks_move(const fedge_plan *plan, const int8_t *bounds_log2, const int32_t *v,
                      float *own);

#endif
