/* Little-endian fields, and a growable byte buffer with a fixed limit. */
#ifndef FEDGE_EDGE_CORE_BYTES_H
#define FEDGE_EDGE_CORE_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/status.h"

/* Little-endian fields at [at], which may be unaligned. */
void fedge_put_u16(uint8_t *at, uint16_t value);
void fedge_put_u32(uint8_t *at, uint32_t value);
void fedge_put_u64(uint8_t *at, uint64_t value);
void fedge_put_f32(uint8_t *at, float value);
uint16_t fedge_get_u16(const uint8_t *at);
uint32_t fedge_get_u32(const uint8_t *at);
uint64_t fedge_get_u64(const uint8_t *at);
float fedge_get_f32(const uint8_t *at);

/* [n] floats, 4 · n bytes at [at]. NaN payloads are preserved. */
void fedge_put_f32s(uint8_t *at, const float *values, size_t n);
void fedge_get_f32s(const uint8_t *at, float *values, size_t n);

/* A growable byte buffer. [data] is valid until the next call that appends. */
typedef struct fedge_buffer {
    uint8_t *data;   /* NULL until the first byte */
    size_t size;     /* bytes in use */
    size_t capacity; /* bytes allocated; at most limit + 1 */
    size_t limit;    /* size never exceeds it */
} fedge_buffer;

/* Initializes an empty buffer of at most [limit] bytes (below SIZE_MAX). Allocates nothing yet. */
void fedge_buffer_init(fedge_buffer *buffer, size_t limit);

/* Frees the memory; the buffer is empty and keeps its limit. */
void fedge_buffer_fini(fedge_buffer *buffer);

/* Reserves [extra] more bytes and returns their start; the caller fills them and adds the used
 * bytes to [size]. FEDGE_TOO_BIG, with both numbers, if size + extra exceeds the limit;
 * FEDGE_NO_MEMORY. The buffer is unchanged on failure. */
FEDGE_MUST_USE fedge_status fedge_buffer_reserve(fedge_buffer *buffer, size_t extra,
                                                 uint8_t **space, fedge_error *err);

/* Appends bytes or formatted text. A NUL that [size] does not count follows text, so [data] can be
 * used as a string. Fails as fedge_buffer_reserve; the buffer is unchanged on failure. */
FEDGE_MUST_USE fedge_status fedge_buffer_append(fedge_buffer *buffer, const void *data, size_t size,
                                                fedge_error *err);
FEDGE_MUST_USE fedge_status fedge_buffer_printf(fedge_buffer *buffer, fedge_error *err,
                                                const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Removes the first [size] bytes and moves the others to the front. */
void fedge_buffer_consume(fedge_buffer *buffer, size_t size);

#endif
