/* The small models of test_trainer_cuda.c: layers of a job, for pictures of 4 × 4 of three labels.
 */
#ifndef FEDGE_TESTS_CUDA_TRAINER_MODELS_H
#define FEDGE_TESTS_CUDA_TRAINER_MODELS_H

#define MLP                                                                                        \
    "{\"type\":\"Flatten\"},{\"type\":\"Linear\",\"in_features\":16,\"out_features\":8},"          \
    "{\"type\":\"ReLU\"},{\"type\":\"Linear\",\"in_features\":8,\"out_features\":3}"
#define CNN                                                                                        \
    "{\"type\":\"Conv2d\",\"in_channels\":1,\"out_channels\":4,\"kernel_size\":3,\"padding\":1},"  \
    "{\"type\":\"ReLU\"},{\"type\":\"MaxPool2d\",\"kernel_size\":2},{\"type\":\"Flatten\"},"       \
    "{\"type\":\"Linear\",\"in_features\":16,\"out_features\":3}"
#define NORMED(more)                                                                               \
    "{\"type\":\"Conv2d\",\"in_channels\":1,\"out_channels\":3,\"kernel_size\":3},"                \
    "{\"type\":\"BatchNorm2d\",\"num_features\":3" more "},{\"type\":\"ReLU\"},"                   \
    "{\"type\":\"Dropout\",\"p\":0.25},{\"type\":\"Flatten\"},"                                    \
    "{\"type\":\"Linear\",\"in_features\":12,\"out_features\":3}"
#define ADAPTED                                                                                    \
    "{\"type\":\"Flatten\"},{\"type\":\"Linear\",\"in_features\":16,\"out_features\":8,"           \
    "\"r\":1,\"lora_alpha\":2},{\"type\":\"ReLU\"},"                                               \
    "{\"type\":\"Linear\",\"in_features\":8,\"out_features\":3}"
#define FROZEN                                                                                     \
    "{\"type\":\"Flatten\"},{\"type\":\"Linear\",\"in_features\":16,\"out_features\":8,"           \
    "\"train\":\"none\"},{\"type\":\"ReLU\"},"                                                     \
    "{\"type\":\"Linear\",\"in_features\":8,\"out_features\":3}"

/* A further member of a job's data. */
#define AUGMENTATION ",\"augmentation\":{\"horizontal-flip\":0.5,\"crop\":{\"padding\":1}}"

#endif
