/* A small model, its examples and an optimizer, drawn from a seed, trained by a silo on emulated
 * GPUs and by the CPU's trainer. One at a time. */
#ifndef FEDGE_TESTS_CUDA_SILO_DRAWN_H
#define FEDGE_TESTS_CUDA_SILO_DRAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"
#include "edge/train/cuda/silo.h"
#include "edge/train/model.h"
#include "edge/train/trainer.h"

enum { EXAMPLES = 27, SIDE = 6, CHANNELS = 2, VALUES = CHANNELS * SIDE * SIDE, CLASSES = 3 };
enum { MAX_VALUES = 2048, BATCH = 16 };

#define SILO_BOUND 2e-5 /* of parameters beside the CPU's, whose largest are about 1 */

/* What the test chooses before it draws. */
extern bool silo_bf16;            /* the optimizer's states */
extern uint32_t silo_micro_batch; /* of the CPU's, which it draws for one after another */

/* What is drawn: seed 0 has momentum, 1 Adam and augmentation, 2 AdamW and layers made again, 3
 * factors of low rank, FedProx and SCAFFOLD, 4 a frozen layer. */
extern fedge_model_spec silo_spec;
extern fedge_model_options silo_options;
extern fedge_trainer_config silo_training;
extern uint32_t silo_places[EXAMPLES];
extern size_t silo_num_values;
extern float silo_start[MAX_VALUES];

/* What came of it: on the CPU, and on GPUs the last time and the time that was kept. */
extern float silo_expected[MAX_VALUES], silo_trained[MAX_VALUES], silo_first[MAX_VALUES];
extern fedge_trainer_result silo_of_cpu, silo_result;

void silo_draw(uint64_t seed);
fedge_examples silo_examples(void);
/* Takes a block that lives until the next call. */
fedge_model *silo_model(void);
void silo_train_on_cpu(void);

fedge_silo_config silo_config_of(uint32_t part);
fedge_cohort_task silo_task_of(void);
/* A silo of its own, whose end has to leave nothing behind. */
fedge_status silo_try(const fedge_silo_config *config, fedge_silo_facts *facts, fedge_error *err);
/* On an emulated machine; memory in bytes of a GPU, 0: plenty. Where there are no such GPUs it
 * gives what was kept. */
fedge_silo_facts silo_train_on(uint32_t gpus, uint32_t part, size_t memory);

void silo_keep_first(void);
void silo_compare_with_first(void); /* bit for bit */
void silo_compare_with_cpu(void);   /* within SILO_BOUND */

#endif
