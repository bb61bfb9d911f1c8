/* Arrays of a launch on both sides, filled with small whole numbers, and what the tests of single
 * kernels compare. One launch at a time. */
#ifndef FEDGE_TESTS_CUDA_KERNEL_ARRAYS_H
#define FEDGE_TESTS_CUDA_KERNEL_ARRAYS_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/rng.h"
#include "edge/train/cuda/kernels/kernels.h"

enum { SLOTS = 3, SEEDS = 24, MOST = 1 << 15 };

/* Of all slots; the same values on both sides until a kernel or the test writes one of them. */
typedef struct kernel_array {
    float *pinned, *gpu;
    size_t values; /* of a slot */
} kernel_array;

extern fedge_rng kernel_rng;
extern fedge_cohort_shape kernel_shape;
extern const fedge_cohort_slot_step *kernel_slot_steps; /* (SLOTS) */
extern uint32_t kernel_counts[SLOTS];                   /* examples of each slot; some have none */

/* An emulated machine for the seed, a shape and turns; and that nothing is left or went wrong. */
void kernel_begin(uint64_t seed);
void kernel_end(void);

void kernel_must(cudaError_t error);
void *kernel_pin(size_t size);
void *kernel_allocate(size_t size);
void kernel_send(void *to, const void *from, size_t size);
uint32_t kernel_below(uint32_t n); /* a random number of 0 to n − 1 */
float kernel_whole(void);          /* of −4 to 4 */

kernel_array kernel_fill(size_t of_slot);           /* with whole numbers */
kernel_array kernel_fill_fractions(size_t of_slot); /* of −1 to 1 */
void kernel_send_again(const kernel_array *at);
void kernel_fetch(kernel_array *at); /* waits */
void kernel_drop(kernel_array *at);

/* What a product reads and makes, going forward and back. */
typedef struct kernel_product {
    kernel_array x, dx, y, dy, values, gradients; /* of weights, and of a bias behind them */
} kernel_product;

/* Of [in] and [out] values for each example; [t] leads to them. [fill] as kernel_fill. */
kernel_product kernel_fill_product(fedge_cohort_linear *t, size_t in, size_t out, size_t weights,
                                   kernel_array (*fill)(size_t of_slot));
void kernel_fetch_product(kernel_product *at); /* what a product makes; waits */
void kernel_drop_product(kernel_product *at);

/* The first [n] values of a slot, bit for bit but for the sign of 0. */
void kernel_same(const kernel_array *at, uint32_t slot, const float *expected, size_t n,
                 const char *what);
/* Likewise, each as near as it is [allowed]: 0 where it has to be exact. */
void kernel_near(const kernel_array *at, uint32_t slot, const double *expected,
                 const double *allowed, size_t n, const char *what);

#endif
