/* CRC-32 by products without carries, behind fedge_crc32; internal to edge/core and its tests.
 *
 * It takes whole blocks of 16 bytes, 64 at the least, and returns how many bytes it took: the
 * caller finishes with the tables, whose bits these match. 0 where the machine's architecture has
 * no such product, and in small builds (FEDGE_SMALL). Call it only when fedge_os_cpu_features() has
 * FEDGE_CPU_AES, which comes with the product.
 */
#ifndef FEDGE_EDGE_CORE_CRC32_X86_H
#define FEDGE_EDGE_CORE_CRC32_X86_H

#include <stddef.h>
#include <stdint.h>

/* [crc]: the remainder so far, as the tables have it (not inverted at the ends); in and out. */
size_t fedge_crc32_x86(uint32_t *crc, const uint8_t *data, size_t size);

#endif
