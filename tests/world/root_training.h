/* Observes the server's own training (aggregator/rounds/root_trainer.h). The link replaces
 * fedge_trainer_run, which trains as ever. */
#ifndef FEDGE_TESTS_WORLD_ROOT_TRAINING_H
#define FEDGE_TESTS_WORLD_ROOT_TRAINING_H

#include <stdint.h>

/* The program implements it: the server's training in [round] has changed the model from [before]
 * to [after], (plan->schema.num_elements) each. Called on the thread that has trained. */
void world_root_trained(uint32_t round, const float *before, const float *after);

#endif
