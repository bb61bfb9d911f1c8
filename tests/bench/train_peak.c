#include "tests/bench/train_peak.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define LANES (VECTOR_BYTES / (int)sizeof(float))
#define CHAINS 12 /* independent sums: enough for two units of a latency of five or six */

typedef float vector __attribute__((vector_size(VECTOR_BYTES)));

/* Of CPU time, which other programs on the core do not stretch. */
static double seconds_since(clock_t start)
{
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* What the compiler can neither know nor leave out. */
static volatile float source = 1.0f, sink;

static void multiply_add(vector sums[CHAINS], uint64_t count)
{
    vector s[CHAINS];
    const vector factor = sums[0] * 0.0f + source * 0.999f, more = factor * 0.001f;
    memcpy(s, sums, sizeof(s));
    for (uint64_t i = 0; i < count; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++)
            s[c] = s[c] * factor + more; /* contracted: this file is compiled to do so */
    }
    memcpy(sums, s, sizeof(s));
}

double train_peak_flops(double seconds)
{
    vector sums[CHAINS];
    const uint64_t count = (uint64_t)1 << 22;
    const clock_t start = clock();
    double best = 0;
    for (int c = 0; c < CHAINS; c++)
        sums[c] = (vector){0} + source * (float)c;
    do {
        const clock_t turn = clock();
        multiply_add(sums, count);
        const double rate = (double)count * CHAINS * LANES * 2 / seconds_since(turn);
        best = rate > best ? rate : best;
    } while (seconds_since(start) < seconds);
    for (int c = 0; c < CHAINS; c++)
        sink = sums[c][0];
    return best;
}

double train_peak_read(double seconds)
{
    float *block = aligned_alloc(64, TRAIN_PEAK_BLOCK);
    double best = 0;
    if (!block)
        return 0;
    memset(block, 0, TRAIN_PEAK_BLOCK);
    const clock_t start = clock();
    do {
        vector s[4] = {{0}};
        const clock_t turn = clock();
        for (size_t i = 0; i < TRAIN_PEAK_BLOCK / sizeof(*block); i += (size_t)4 * LANES) {
            for (int c = 0; c < 4; c++)
                s[c] += *(const vector *)(const void *)(block + i + (size_t)c * LANES);
        }
        const double rate = (double)TRAIN_PEAK_BLOCK / seconds_since(turn);
        best = rate > best ? rate : best;
        sink = (s[0] + s[1] + s[2] + s[3])[0];
    } while (seconds_since(start) < seconds);
    free(block);
    return best;
}
