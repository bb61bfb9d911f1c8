/* What the tests of edge/train share: short ways to write specs, models in checked blocks, and an
 * independent network in double precision, written from the definitions alone. */
#ifndef FEDGE_TESTS_EDGE_TRAIN_SUPPORT_H
#define FEDGE_TESTS_EDGE_TRAIN_SUPPORT_H

#include "edge/core/rng.h"
#include "edge/core/tensor.h"
#include "edge/train/model.h"

/* ---- specs ---- */

void spec_input(fedge_model_spec *spec, uint32_t rank, uint32_t a, uint32_t b, uint32_t c);
/* A layer of [type] with all arguments 0. */
fedge_layer_spec *spec_add(fedge_model_spec *spec, fedge_layer_type type);
fedge_layer_spec *spec_conv(fedge_model_spec *spec, uint32_t in, uint32_t out, uint32_t kernel,
                            uint32_t stride, uint32_t padding);
fedge_layer_spec *spec_pool(fedge_model_spec *spec, uint32_t kernel, uint32_t stride,
                            uint32_t padding);
fedge_layer_spec *spec_linear(fedge_model_spec *spec, uint32_t in, uint32_t out);
void spec_relu(fedge_model_spec *spec);
void spec_flatten(fedge_model_spec *spec);

/* A random valid network of up to a few layers: odd sizes, strides, padding, channels that no
 * vector width divides. Different numbers, different networks. */
void spec_random(fedge_model_spec *spec, fedge_rng *rng);

/* ---- models ---- */

/* A model in a block of exactly the planned size, with a canary behind it. */
typedef struct test_model {
    fedge_model *model;
    fedge_model_memory memory;
    fedge_schema schema;
    fedge_tensor_spec tensors[64];
    unsigned char *block;
} test_model;

/* [shift]: bytes before the block, a multiple of 64. Fails the test on any error. */
void model_open(test_model *self, const fedge_model_spec *spec, const fedge_model_options *options,
                uint64_t seed, size_t shift);
/* Checks the canary and frees. */
void model_close(test_model *self);

/* Normal inputs and uniform labels. */
void fill_batch(fedge_rng *rng, float *x, size_t n, int32_t *labels, uint32_t batch,
                uint32_t classes);

/* ---- the reference ---- */

/* The loss sum of a batch in double precision. values: parameters in schema order. */
double reference_loss(const fedge_model_spec *spec, const double *values, const double *x,
                      const int32_t *labels, uint32_t batch);

/* Gradients of the mean loss as the model sees them, (num_values): (before − after) / rate of one
 * plain step. The values are put back. */
void model_gradient(test_model *self, const float *x, const int32_t *labels, uint32_t batch,
                    double *gradient, double *loss_sum);

/* Central differences of the mean loss, for [samples] parameters spread over each trained tensor,
 * against the model's gradient on every kernel level, fused and general. */
void check_spec(const fedge_model_spec *spec, uint32_t batch, size_t samples);

/* From malloc; to_double copies, new_doubles are zeros. */
double *to_double(const float *v, size_t n);
double *new_doubles(size_t n);

/* The kernels that this machine has, as values for disabled_cpu_features; returns how many. */
#define MAX_LEVELS 3
unsigned kernel_levels(unsigned disabled[MAX_LEVELS]);

#endif
