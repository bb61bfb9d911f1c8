/* Random jobs: all that a server runs, mostly small and plain.
 *
 * A job is written as its file would be, and its reader accepts it. Half of all jobs are FedAvg's,
 * so that most worlds are fast; every strategy of the server's table, codec and sampler has its
 * share. Models have at most WORLD_JOB_MAX_PARAMETERS values.
 */
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

/* What the server's disk has for a job with [needs_examples], as world_job_examples makes it. */
#define WORLD_JOB_EXAMPLES "/disk/examples.csv"

/* A job and what a world has to know of it. Plain data. */
typedef struct world_job {
    char text[WORLD_JOB_TEXT]; /* JSON, NUL-terminated */
    uint32_t num_clients;      /* of the federation, 2 … WORLD_JOB_MAX_CLIENTS */
    uint32_t num_rounds;
    uint32_t num_parameters;         /* of the model, also those that are not trained */
    uint32_t num_inputs, num_labels; /* of an example; 0 for an external model */
    const char *strategy;            /* static: "FedAvg" */
    char up[64], down[64];           /* the codecs, with "+deflate"; down "": models go whole */
    uint64_t deadline_ms;            /* of a round */
    uint32_t min_available_nodes;    /* clients without which no round starts, ≤ num_clients */
    uint32_t buffer_size;            /* asynchronous: updates that close a round */
    bool evaluates;                  /* clients evaluate */
    bool asynchronous;
    bool collects;       /* its rule reads single updates */
    bool personal;       /* values stay on the client */
    bool clustered;      /* several models */
    bool corrects;       /* clients keep a state that the server has the sum of */
    bool external;       /* the model is the trainer's */
    bool stops_early;    /* the run may end before num_rounds */
    bool needs_examples; /* the server reads WORLD_JOB_EXAMPLES */
} world_job;

/* Draws a job. Equal streams give equal jobs. */
void world_job_draw(fedge_rng *draw, world_job *out);

/* Writes a csv file of a few examples for a job with [needs_examples]; returns its size, below
 * WORLD_JOB_EXAMPLES_TEXT. */
size_t world_job_examples(const world_job *job, char csv[WORLD_JOB_EXAMPLES_TEXT]);

#endif
