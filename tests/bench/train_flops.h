/* How many floating-point operations training takes, for the roofline of train.sh. */
#ifndef FEDGE_TESTS_BENCH_TRAIN_FLOPS_H
#define FEDGE_TESTS_BENCH_TRAIN_FLOPS_H

#include "edge/train/model.h"

/* Of one example, forward and backward: the multiplications and additions of matrix products and
 * convolutions, as dense ones. A product costs 2 · m · n · k forward and the same for each of its
 * two gradients; the gradient of the model's own input is not made. Attention counts the steps that
 * a causal mask lets through. Elementwise work is not counted. 0 when the spec is wrong. */
double train_flops(const fedge_model_spec *spec);

#endif
