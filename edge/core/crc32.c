#include "edge/core/crc32_x86.h"
#include "edge/core/message.h"
#include "edge/core/os.h"

/* CRC-32 of IEEE 802.3 (reflected polynomial 0xEDB88320), eight bytes a step: Kounavis and Berry,
 * "Novel table lookup-based algorithms for high-performance CRC generation", 2008.
 *
 * tables[k][i] is the remainder of byte i followed by k zero bytes. A remainder is linear over xor,
 * so a table is given by its entries for the eight single bits and the preprocessor makes the
 * other 248. A small build (FEDGE_SMALL) has the first table only and goes byte by byte. Whatever a
 * CPU's own instructions leave (crc32_x86.h) is done by the tables. */
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

#define FEW 64 /* bytes that the tables are as quick with */

uint32_t fedge_crc32(uint32_t crc, const void *data, size_t size)
{
    const uint8_t *p = data;
    crc = ~crc;
#ifndef FEDGE_SMALL
    if (size >= FEW && (fedge_os_cpu_features() & FEDGE_CPU_AES) != 0) {
        const size_t done = fedge_crc32_x86(&crc, p, size);
        p += done;
        size -= done;
    }
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
