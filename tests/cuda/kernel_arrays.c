#include "tests/cuda/kernel_arrays.h"

#include <math.h>
#include <string.h>

#include "tests/cuda/emulator/emulator.h"
#include "tests/edge/core/cmocka_all.h"

fedge_rng kernel_rng;
fedge_cohort_shape kernel_shape;
uint32_t kernel_counts[SLOTS];
const fedge_cohort_slot_step *kernel_slot_steps;
static fedge_cohort_slot_step *slot_steps; /* pinned */

void kernel_must(cudaError_t error)
{
    assert_int_equal(error, cudaSuccess);
}

void *kernel_pin(size_t size)
{
    void *memory = NULL;
    kernel_must(cudaHostAlloc(&memory, size, cudaHostAllocPortable));
    return memory;
}

void *kernel_allocate(size_t size)
{
    void *memory = NULL;
    kernel_must(cudaMalloc(&memory, size));
    return memory;
}

uint32_t kernel_below(uint32_t n)
{
    return fedge_rng_below(&kernel_rng, n);
}

float kernel_whole(void)
{
    return (float)kernel_below(9) - 4.0f;
}

void kernel_send(void *to, const void *from, size_t size)
{
    kernel_must(cudaMemcpyAsync(to, from, size, cudaMemcpyHostToDevice, kernel_shape.stream));
}

kernel_array kernel_fill(size_t of_slot)
{
    kernel_array made = {NULL, NULL, of_slot};
    const size_t n = of_slot * SLOTS;
    made.pinned = kernel_pin(n * sizeof(float));
    made.gpu = kernel_allocate(n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        made.pinned[i] = kernel_whole();
    kernel_send_again(&made);
    return made;
}

kernel_array kernel_fill_fractions(size_t of_slot)
{
    kernel_array made = kernel_fill(of_slot);
    for (size_t i = 0; i < of_slot * SLOTS; i++)
        made.pinned[i] = ldexpf((float)kernel_below(1u << 24), -23) - 1.0f;
    kernel_send_again(&made);
    return made;
}

void kernel_send_again(const kernel_array *at)
{
    kernel_send(at->gpu, at->pinned, at->values * SLOTS * sizeof(float));
}

void kernel_fetch(kernel_array *at)
{
    kernel_must(cudaMemcpyAsync(at->pinned, at->gpu, at->values * SLOTS * sizeof(float),
                                cudaMemcpyDeviceToHost, kernel_shape.stream));
    kernel_must(cudaStreamSynchronize(kernel_shape.stream));
}

void kernel_drop(kernel_array *at)
{
    kernel_must(cudaFree(at->gpu));
    kernel_must(cudaFreeHost(at->pinned));
}

kernel_product kernel_fill_product(fedge_cohort_linear *t, size_t in, size_t out, size_t weights,
                                   kernel_array (*fill)(size_t of_slot))
{
    kernel_product made;
    made.x = fill(kernel_shape.batch * in);
    made.dx = fill(kernel_shape.batch * in);
    made.y = fill(kernel_shape.batch * out);
    made.dy = fill(kernel_shape.batch * out);
    made.values = fill(weights + t->out);
    made.gradients = fill(weights + t->out);
    t->weight = (fedge_cohort_weights){made.values.gpu, made.values.values};
    t->bias = (fedge_cohort_weights){made.values.gpu + weights, made.values.values};
    t->x = made.x.gpu;
    t->y = made.y.gpu;
    t->dy = made.dy.gpu;
    t->dx = made.dx.gpu;
    t->dweight = made.gradients.gpu;
    t->dbias = made.gradients.gpu + weights;
    t->gradient_stride = made.gradients.values;
    return made;
}

void kernel_fetch_product(kernel_product *at)
{
    kernel_fetch(&at->y);
    kernel_fetch(&at->dx);
    kernel_fetch(&at->gradients);
}

void kernel_drop_product(kernel_product *at)
{
    kernel_drop(&at->x);
    kernel_drop(&at->dx);
    kernel_drop(&at->y);
    kernel_drop(&at->dy);
    kernel_drop(&at->values);
    kernel_drop(&at->gradients);
}

void kernel_begin(uint64_t seed)
{
    kernel_rng = fedge_rng_stream(seed, FEDGE_PURPOSE_TEST, 8, 0, 0);
    emulator_start(
        &(emulator_config){.num_gpus = 1, .seed = seed, .order = (emulator_order)(seed % 3)});
    kernel_must(cudaSetDevice(0));
    kernel_must(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    kernel_must(cudaStreamCreateWithFlags(&kernel_shape.stream, cudaStreamNonBlocking));
    kernel_shape.slots = SLOTS;
    kernel_shape.batch = 1 + kernel_below(seed % 2 ? 6 : 20);
    slot_steps = kernel_pin(SLOTS * sizeof(*slot_steps));
    for (uint32_t s = 0; s < SLOTS; s++) { /* one is idle, now and then */
        kernel_counts[s] = kernel_below(kernel_shape.batch + 1);
        slot_steps[s] = (fedge_cohort_slot_step){.count = kernel_counts[s],
                                                 .step = 1,
                                                 .rate = 0.5f,
                                                 .keep = 1.0f,
                                                 .key = {(uint32_t)seed, 7},
                                                 .stream = {0x50002u + s, 3, s}};
    }
    kernel_slot_steps = slot_steps;
    void *there = kernel_allocate(SLOTS * sizeof(*slot_steps));
    kernel_send(there, slot_steps, SLOTS * sizeof(*slot_steps));
    kernel_shape.slot_steps = there;
}

void kernel_end(void)
{
    const void *there = kernel_shape.slot_steps;
    void *pointer;
    memcpy(&pointer, &there, sizeof(pointer));
    kernel_must(cudaFree(pointer));
    kernel_must(cudaFreeHost(slot_steps));
    kernel_must(cudaStreamDestroy(kernel_shape.stream));
    if (emulator_fault())
        fail_msg("%s", emulator_fault());
    assert_int_equal(emulator_leaks(), 0);
}

void kernel_same(const kernel_array *at, uint32_t slot, const float *expected, size_t n,
                 const char *what)
{
    for (size_t i = 0; i < n; i++) {
        if (at->pinned[slot * at->values + i] != expected[i]) {
            fail_msg("%s: slot %u, value %zu: %g, not %g", what, slot, i,
                     (double)at->pinned[slot * at->values + i], (double)expected[i]);
        }
    }
}

void kernel_near(const kernel_array *at, uint32_t slot, const double *expected,
                 const double *allowed, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        const double value = (double)at->pinned[slot * at->values + i];
        if (!(fabs(value - expected[i]) <= allowed[i])) {
            fail_msg("%s: slot %u, value %zu: %.9g, not %.9g within %g", what, slot, i, value,
                     expected[i], allowed[i]);
        }
    }
}
