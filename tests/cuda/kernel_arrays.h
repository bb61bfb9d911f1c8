/* Arrays for tests of single kernels, and comparisons. One launch at a time. */
#ifndef FEDGE_TESTS_CUDA_KERNEL_ARRAYS_H
#define FEDGE_TESTS_CUDA_KERNEL_ARRAYS_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/rng.h"
#include "edge/train/cuda/kernels/kernels.h"

enum { SLOTS = 3, SEEDS = 24, MOST = 1 << 15 };

/* An array (SLOTS, values) on the host and the GPU. Both copies are equal until a kernel or the
 * test writes one of them. */
typedef struct kernel_array {
    float *pinned, *gpu;
    size_t values;
} kernel_array;

extern fedge_rng kernel_rng;
extern fedge_cohort_shape kernel_shape;
extern const fedge_cohort_slot_step *kernel_slot_steps; /* (SLOTS) */
extern uint32_t kernel_counts[SLOTS];                   /* examples of each slot; some have none */

/* Starts an emulated machine for the seed, with a random shape and slot steps. The end checks that
 * nothing leaked or failed. */
void kernel_begin(uint64_t seed);
void kernel_end(void);

void kernel_must(cudaError_t error);
void *kernel_pin(size_t size);
void *kernel_allocate(size_t size);
void kernel_send(void *to, const void *from, size_t size);
uint32_t kernel_below(uint32_t n); /* a random number of 0 to n − 1 */
float kernel_whole(void);          /* a random whole number of −4 to 4 */

kernel_array kernel_fill(size_t of_slot);           /* random whole numbers of −4 to 4 */
kernel_array kernel_fill_fractions(size_t of_slot); /* random fractions of −1 to 1 */
void kernel_send_again(const kernel_array *at);
void kernel_fetch(kernel_array *at); /* waits */
void kernel_drop(kernel_array *at);

/* The arrays of a product, forward and backward. */
typedef struct kernel_product {
    kernel_array x, dx, y, dy, values, gradients; /* values, gradients: weights, then biases */
} kernel_product;

/* Makes arrays of [in] and [out] values for each example, and sets [t] to them. */
kernel_product kernel_fill_product(fedge_cohort_linear *t, size_t in, size_t out, size_t weights,
                                   kernel_array (*fill)(size_t of_slot));
void kernel_fetch_product(kernel_product *at); /* fetches y, dx and gradients; waits */
void kernel_drop_product(kernel_product *at);

/* Compares the first [n] values of a slot, bit for bit except for the sign of 0. */
void kernel_same(const kernel_array *at, uint32_t slot, const float *expected, size_t n,
                 const char *what);
/* Compares them within [allowed] of each. */
void kernel_near(const kernel_array *at, uint32_t slot, const double *expected,
                 const double *allowed, size_t n, const char *what);

#endif
