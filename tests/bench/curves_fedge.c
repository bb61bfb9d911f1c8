/* fedge's half of curves.py: curves_fedge JOB VALUES LABELS STEPS BATCH prints the batch's mean
 * loss before each step, one a line, from the start and in the order of tests/edge/train/zoo.h. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/edge/train/zoo.h"

static fedge_status run(char **argv, double *losses, uint32_t steps, uint32_t batch,
                        fedge_error *err)
{
    fedge_job *job = NULL;
    fedge_dataset *dataset = NULL;
    fedge_model *model;
    fedge_model_memory memory;
    void *block = NULL;
    fedge_status status = fedge_job_load(argv[1], &job, err);
    if (status == FEDGE_OK)
        status = fedge_dataset_load(&job->plan.data, argv[2], argv[3], &dataset, err);
    if (status == FEDGE_OK) {
        fedge_model_options options = fedge_plan_model_options(&job->plan);
        options.max_batch = batch;
        status = fedge_model_size(&job->plan.model, &options, &memory, err);
        block = status == FEDGE_OK ? aligned_alloc(64, memory.total) : NULL;
        if (block)
            status = fedge_model_new(&model, &job->plan.model, &options, block, memory.total, err);
    }
    if (status == FEDGE_OK && block)
        status = zoo_train(model, &job->plan, dataset, 0, steps, batch, losses, err);
    free(block);
    fedge_dataset_free(dataset);
    fedge_job_free(job);
    return status;
}

int main(int argc, char **argv)
{
    fedge_error err = {0};
    const unsigned long steps = argc == 6 ? strtoul(argv[4], NULL, 10) : 0;
    const unsigned long batch = argc == 6 ? strtoul(argv[5], NULL, 10) : 0;
    if (steps == 0 || steps > 1000000 || batch == 0 || batch > FEDGE_MAX_BATCH) {
        fprintf(stderr, "usage: curves_fedge JOB VALUES LABELS STEPS BATCH\n");
        return 2;
    }
    double *losses = calloc(steps, sizeof(*losses));
    if (!losses || run(argv, losses, (uint32_t)steps, (uint32_t)batch, &err) != FEDGE_OK) {
        fprintf(stderr, "curves_fedge: %s\n", err.message);
        free(losses);
        return 1;
    }
    for (unsigned long i = 0; i < steps; i++)
        printf("%.9g\n", losses[i]);
    free(losses);
    return 0;
}
