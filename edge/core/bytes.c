#include "edge/core/bytes.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(float) == 4, "float is IEEE 754 binary32");

#define FIRST_CAPACITY 256

void fedge_put_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

void fedge_put_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

void fedge_put_u64(uint8_t *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

void fedge_put_f32(uint8_t *at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    fedge_put_u32(at, bits);
}

uint16_t fedge_get_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

uint32_t fedge_get_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint64_t fedge_get_u64(const uint8_t *at)
{
    return (uint64_t)fedge_get_u32(at) | (uint64_t)fedge_get_u32(at + 4) << 32;
}

float fedge_get_f32(const uint8_t *at)
{
    uint32_t bits = fedge_get_u32(at);
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

void fedge_put_f32s(uint8_t *at, const float *values, size_t n)
{
    if (n > 0)
        memcpy(at, values, n * sizeof(values[0]));
}

void fedge_get_f32s(const uint8_t *at, float *values, size_t n)
{
    if (n > 0)
        memcpy(values, at, n * sizeof(values[0]));
}

#else

void fedge_put_f32s(uint8_t *at, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fedge_put_f32(at + 4 * i, values[i]);
}

void fedge_get_f32s(const uint8_t *at, float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = fedge_get_f32(at + 4 * i);
}

#endif

void fedge_buffer_init(fedge_buffer *buffer, size_t limit)
{
    assert(limit < SIZE_MAX);
    *buffer = (fedge_buffer){.limit = limit};
}

void fedge_buffer_fini(fedge_buffer *buffer)
{
    free(buffer->data);
    fedge_buffer_init(buffer, buffer->limit);
}

fedge_status fedge_buffer_reserve(fedge_buffer *buffer, size_t extra, uint8_t **space,
                                  fedge_error *err)
{
    if (extra > buffer->limit - buffer->size) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "%zu bytes on top of %zu are over the buffer's limit of %zu", extra,
                          buffer->size, buffer->limit);
    }
    size_t needed = buffer->size + extra + 1; /* one for a NUL */
    if (needed > buffer->capacity) {
        size_t capacity = buffer->capacity > 0 ? buffer->capacity : FIRST_CAPACITY;
        while (capacity < needed)
            capacity = capacity > buffer->limit / 2 ? buffer->limit + 1 : capacity * 2;
        if (capacity > buffer->limit + 1)
            capacity = buffer->limit + 1;
        uint8_t *data = realloc(buffer->data, capacity);
        if (!data) {
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a buffer of %zu bytes",
                              capacity);
        }
        buffer->data = data;
        buffer->capacity = capacity;
    }
    *space = buffer->data + buffer->size;
    return FEDGE_OK;
}

fedge_status fedge_buffer_append(fedge_buffer *buffer, const void *data, size_t size,
                                 fedge_error *err)
{
    uint8_t *space;
    FEDGE_TRY(fedge_buffer_reserve(buffer, size, &space, err));
    if (size > 0)
        memcpy(space, data, size);
    space[size] = '\0';
    buffer->size += size;
    return FEDGE_OK;
}

fedge_status fedge_buffer_printf(fedge_buffer *buffer, fedge_error *err, const char *format, ...)
{
    va_list arguments;
    const size_t room = buffer->capacity - buffer->size;
    uint8_t *space = room > 0 ? buffer->data + buffer->size : NULL;
    va_start(arguments, format);
    int length = vsnprintf((char *)space, room, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < room) {
        buffer->size += (size_t)length;
        return FEDGE_OK;
    }
    /* The text is as before unless there is room for all. */
    if (space)
        *space = '\0';
    if (length < 0)
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT, "the text cannot be formatted");
    FEDGE_TRY(fedge_buffer_reserve(buffer, (size_t)length, &space, err));
    va_start(arguments, format);
    vsnprintf((char *)space, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buffer->size += (size_t)length;
    return FEDGE_OK;
}

void fedge_buffer_consume(fedge_buffer *buffer, size_t size)
{
    assert(size <= buffer->size);
    buffer->size -= size;
    if (buffer->size > 0)
        memmove(buffer->data, buffer->data + size, buffer->size);
}
