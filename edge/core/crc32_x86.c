/* Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel,
 * 2009: four blocks of 128 bits are folded side by side, each by the remainder that its distance
 * leaves, then into one another; Barrett's reduction makes 32 bits of the last. The constants are
 * those of the reflected polynomial, x^n mod P for the distances of 512 ± 32, 128 ± 32 and 64 bits,
 * and P with its quotient. */
#include "edge/core/crc32_x86.h"

#if (defined(__x86_64__) || defined(__i386__)) && !defined(FEDGE_SMALL)

#include <immintrin.h>

#define CARRYLESS __attribute__((target("pclmul,sse4.1")))

enum { BLOCK = 16, LANES = 4 };

CARRYLESS static inline __m128i fold(__m128i high, __m128i by, __m128i low)
{
    return _mm_xor_si128(low, _mm_xor_si128(_mm_clmulepi64_si128(high, by, 0x00),
                                            _mm_clmulepi64_si128(high, by, 0x11)));
}

CARRYLESS static inline __m128i load(const uint8_t *data)
{
    return _mm_loadu_si128((const __m128i *)(const void *)data);
}

CARRYLESS static uint32_t reduce(__m128i x)
{
    const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_32 = _mm_setr_epi32(-1, 0, -1, 0);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, by_128, 0x10));
    x = _mm_xor_si128(_mm_srli_si128(x, 4),
                      _mm_clmulepi64_si128(_mm_and_si128(x, low_32), by_64, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(x, low_32), polynomial, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_32), polynomial, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, quotient), 1);
}

CARRYLESS size_t fedge_crc32_x86(uint32_t *crc, const uint8_t *data, size_t size)
{
    const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    __m128i lanes[LANES];
    size_t at = LANES * BLOCK;
    if (size < at)
        return 0;
    for (size_t i = 0; i < LANES; i++)
        lanes[i] = load(data + i * BLOCK);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)*crc));
    for (; size - at >= LANES * BLOCK; at += LANES * BLOCK) {
        for (size_t i = 0; i < LANES; i++)
            lanes[i] = fold(lanes[i], by_512, load(data + at + i * BLOCK));
    }
    __m128i x = lanes[0];
    for (size_t i = 1; i < LANES; i++)
        x = fold(x, by_128, lanes[i]);
    for (; size - at >= BLOCK; at += BLOCK)
        x = fold(x, by_128, load(data + at));
    *crc = reduce(x);
    return at;
}

#else

size_t fedge_crc32_x86(uint32_t *crc, const uint8_t *data, size_t size)
{
    (void)crc, (void)data, (void)size;
    return 0;
}

#endif
