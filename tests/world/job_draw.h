/* Random jobs of every kind that a server runs, mostly small and plain.
 *
 * A job is a JSON text that the product's reader accepts. Half of all jobs use FedAvg, so that most
 * worlds are fast. The other half covers every strategy of the server's table, every codec and
 * every sampler. Models have at most WORLD_JOB_MAX_PARAMETERS values. */
#ifndef FEDGE_TESTS_WORLD_JOB_DRAW_H
#define FEDGE_TESTS_WORLD_JOB_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/rng.h"

enum {
    WORLD_JOB_TEXT = 4096,
    WORLD_JOB_MAX_CLIENTS = 8,
    WORLD_JOB_MAX_ROUNDS = 5,
    WORLD_JOB_MAX_PARAMETERS = 31926, /* few have over 1000 */
    WORLD_JOB_EXAMPLES_TEXT = 1 << 18
};

/* The file on the server's disk for a job with [needs_examples], as world_job_examples makes it. */
#define WORLD_JOB_EXAMPLES "/disk/examples.csv"

/* A job and its properties. Plain data. */
typedef struct world_job {
    char text[WORLD_JOB_TEXT]; /* JSON, NUL-terminated */
    uint32_t num_clients;      /* honest clients, 2 … WORLD_JOB_MAX_CLIENTS */
    uint32_t num_rounds;
    uint32_t num_parameters; /* parameters of the model, including those that are not trained */
    uint32_t num_inputs, num_labels; /* values of one example; 0: an external model */
    const char *strategy;            /* name of the strategy, static */
    char up[64], down[64];           /* the codecs, with "+deflate"; down "": models go whole */
    uint64_t deadline_ms;            /* deadline of a round */
    uint32_t min_available_nodes;    /* clients without which no round starts, ≤ num_clients */
    uint32_t buffer_size;            /* asynchronous: updates that close a round */
    bool evaluates;                  /* clients evaluate */
    bool asynchronous;
    bool collects;       /* the strategy needs single updates, not only their sum */
    bool personal;       /* some values stay on the client */
    bool clustered;      /* there are several models */
    bool corrects;       /* clients keep a state, of which the server has the sum */
    bool external;       /* only the trainer knows the model's layers */
    bool stops_early;    /* the run may end before num_rounds */
    bool needs_examples; /* the server reads WORLD_JOB_EXAMPLES */
} world_job;

/* Draws a job. Equal streams give equal jobs. */
void world_job_draw(fedge_rng *draw, world_job *out);

/* Writes a csv file with a few examples for a job with [needs_examples]. Returns its size, below
 * WORLD_JOB_EXAMPLES_TEXT. */
size_t world_job_examples(const world_job *job, char csv[WORLD_JOB_EXAMPLES_TEXT]);

#endif
