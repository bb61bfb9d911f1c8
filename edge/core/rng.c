#include "edge/core/rng.h"

#include <assert.h>
#include <math.h>

#define TWO_PI 6.28318530717958647692

void fedge_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * x0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * x2;
        x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)p1;
        x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

fedge_rng fedge_rng_stream(uint64_t seed, fedge_purpose purpose, uint32_t a, uint32_t b, uint16_t c)
{
    return (fedge_rng){
        .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
        .counter = {0, (uint32_t)purpose << 16 | c, a, b},
        .used = 4,
    };
}

uint32_t fedge_rng_u32(fedge_rng *rng)
{
    if (rng->used == 4) {
        fedge_philox4x32(rng->counter, rng->key, rng->block);
        rng->counter[0]++;
        rng->used = 0;
    }
    return rng->block[rng->used++];
}

uint64_t fedge_rng_u64(fedge_rng *rng)
{
    uint64_t low = fedge_rng_u32(rng);
    return (uint64_t)fedge_rng_u32(rng) << 32 | low;
}

uint32_t fedge_rng_below(fedge_rng *rng, uint32_t bound)
{
    assert(bound >= 1);
    uint64_t product = (uint64_t)fedge_rng_u32(rng) * bound;
    if ((uint32_t)product < bound) {
        uint32_t threshold = (0u - bound) % bound; /* 2^32 mod bound */
        while ((uint32_t)product < threshold)
            product = (uint64_t)fedge_rng_u32(rng) * bound;
    }
    return (uint32_t)(product >> 32);
}

float fedge_rng_float(fedge_rng *rng)
{
    return (float)(fedge_rng_u32(rng) >> 8) * 0x1p-24f;
}

double fedge_rng_double(fedge_rng *rng)
{
    return (double)(fedge_rng_u64(rng) >> 11) * 0x1p-53;
}

double fedge_rng_normal(fedge_rng *rng)
{
    double radius = sqrt(-2.0 * log(1.0 - fedge_rng_double(rng))); /* log of (0, 1] */
    return radius * cos(TWO_PI * fedge_rng_double(rng));
}

double fedge_rng_gamma(fedge_rng *rng, double shape)
{
    assert(shape > 0.0);
    /* Below 1: Gamma(shape) = Gamma(shape + 1) · U^(1/shape) (their section 6). */
    double boost = 1.0;
    if (shape < 1.0) {
        boost = pow(1.0 - fedge_rng_double(rng), 1.0 / shape);
        shape += 1.0;
    }
    double d = shape - 1.0 / 3.0;
    double c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        double x = fedge_rng_normal(rng);
        double t = 1.0 + c * x;
        double u = 1.0 - fedge_rng_double(rng);
        if (t <= 0.0)
            continue;
        double v = t * t * t;
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return boost * d * v;
    }
}

void fedge_rng_shuffle(fedge_rng *rng, uint32_t *items, size_t n)
{
    assert(n <= UINT32_MAX);
    for (size_t i = n; i > 1; i--) {
        size_t j = fedge_rng_below(rng, (uint32_t)i);
        uint32_t item = items[i - 1];
        items[i - 1] = items[j];
        items[j] = item;
    }
}
