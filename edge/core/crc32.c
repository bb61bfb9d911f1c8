#include "edge/core/message.h"
#include "edge/core/os.h"

/* CRC-32 of IEEE 802.3 (reflected polynomial 0xEDB88320), eight bytes a step: Kounavis and Berry,
 * "Novel table lookup-based algorithms for high-performance CRC generation", 2008.
 *
 * tables[k][i] is the remainder of byte i followed by k zero bytes. A remainder is linear over xor,
 * so a table is given by its entries for the eight single bits and the preprocessor makes the
 * other 248. A small build (FEDGE_SMALL) has the first table only and goes byte by byte. x86
 * processors with carry-less products do whole blocks first, and the tables the remainder. */
#if (defined(__x86_64__) || defined(__i386__)) && !defined(FEDGE_SMALL)
#include <immintrin.h>
#define X86
#endif

#define ENTRY(i, b0, b1, b2, b3, b4, b5, b6, b7)                                                   \
    (((i)&1 ? b0 : 0u) ^ ((i)&2 ? b1 : 0u) ^ ((i)&4 ? b2 : 0u) ^ ((i)&8 ? b3 : 0u) ^               \
     ((i)&16 ? b4 : 0u) ^ ((i)&32 ? b5 : 0u) ^ ((i)&64 ? b6 : 0u) ^ ((i)&128 ? b7 : 0u))
#define ENTRIES_4(i, ...)                                                                          \
    ENTRY(i, __VA_ARGS__), ENTRY(i + 1, __VA_ARGS__), ENTRY(i + 2, __VA_ARGS__),                   \
        ENTRY(i + 3, __VA_ARGS__)
#define ENTRIES_16(i, ...)                                                                         \
    ENTRIES_4(i, __VA_ARGS__), ENTRIES_4(i + 4, __VA_ARGS__), ENTRIES_4(i + 8, __VA_ARGS__),       \
        ENTRIES_4(i + 12, __VA_ARGS__)
#define ENTRIES_64(i, ...)                                                                         \
    ENTRIES_16(i, __VA_ARGS__), ENTRIES_16(i + 16, __VA_ARGS__), ENTRIES_16(i + 32, __VA_ARGS__),  \
        ENTRIES_16(i + 48, __VA_ARGS__)
#define TABLE(...)                                                                                 \
    {                                                                                              \
        ENTRIES_64(0, __VA_ARGS__), ENTRIES_64(64, __VA_ARGS__), ENTRIES_64(128, __VA_ARGS__),     \
            ENTRIES_64(192, __VA_ARGS__)                                                           \
    }

/* clang-format off */
static const uint32_t tables[][256] = {
    TABLE(0x77073096, 0xEE0E612C, 0x076DC419, 0x0EDB8832, 0x1DB71064, 0x3B6E20C8, 0x76DC4190, 0xEDB88320),
#ifndef FEDGE_SMALL
    TABLE(0x191B3141, 0x32366282, 0x646CC504, 0xC8D98A08, 0x4AC21251, 0x958424A2, 0xF0794F05, 0x3B83984B),
    TABLE(0x01C26A37, 0x0384D46E, 0x0709A8DC, 0x0E1351B8, 0x1C26A370, 0x384D46E0, 0x709A8DC0, 0xE1351B80),
    TABLE(0xB8BC6765, 0xAA09C88B, 0x8F629757, 0xC5B428EF, 0x5019579F, 0xA032AF3E, 0x9B14583D, 0xED59B63B),
    TABLE(0x3D6029B0, 0x7AC05360, 0xF580A6C0, 0x30704BC1, 0x60E09782, 0xC1C12F04, 0x58F35849, 0xB1E6B092),
    TABLE(0xCB5CD3A5, 0x4DC8A10B, 0x9B914216, 0xEC53826D, 0x03D6029B, 0x07AC0536, 0x0F580A6C, 0x1EB014D8),
    TABLE(0xA6770BB4, 0x979F1129, 0xF44F2413, 0x33EF4E67, 0x67DE9CCE, 0xCFBD399C, 0x440B7579, 0x8816EAF2),
    TABLE(0xCCAA009E, 0x4225077D, 0x844A0EFA, 0xD3E51BB5, 0x7CBB312B, 0xF9766256, 0x299DC2ED, 0x533B85DA),
#endif
};
/* clang-format on */

#ifdef X86

/* Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel,
 * 2009: four blocks of 128 bits are folded side by side, each by the remainder that its distance
 * leaves, then into one another; Barrett's reduction makes 32 bits of the last. The constants are
 * those of the reflected polynomial, x^n mod P for the distances of 512 ± 32, 128 ± 32 and 64 bits,
 * and P with its quotient. */
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

/* Processes whole blocks of 16 bytes, at least 64 bytes, and returns the number of bytes done; the
 * tables, with the same result, process the others. [crc]: the remainder so far, not inverted. */
CARRYLESS static size_t crc_x86(uint32_t *crc, const uint8_t *data, size_t size)
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

#endif

#define FEW 64 /* below this the tables are as fast */

uint32_t fedge_crc32(uint32_t crc, const void *data, size_t size)
{
    const uint8_t *p = data;
    crc = ~crc;
#ifdef X86
    if (size >= FEW && (fedge_os_cpu_features() & FEDGE_CPU_AES) != 0) {
        const size_t done = crc_x86(&crc, p, size);
        p += done;
        size -= done;
    }
#endif
#ifndef FEDGE_SMALL
    for (; size >= 8; p += 8, size -= 8) {
        crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        crc = tables[7][crc & 0xFF] ^ tables[6][crc >> 8 & 0xFF] ^ tables[5][crc >> 16 & 0xFF] ^
              tables[4][crc >> 24] ^ tables[3][p[4]] ^ tables[2][p[5]] ^ tables[1][p[6]] ^
              tables[0][p[7]];
    }
#endif
    for (; size > 0; p++, size--)
        crc = tables[0][(crc ^ *p) & 0xFF] ^ crc >> 8;
    return ~crc;
}
