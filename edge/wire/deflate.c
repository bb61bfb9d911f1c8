#include "edge/wire/deflate.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>

#define ZLIB_CONST /* makes next_in a pointer to const */
#include <zlib.h>

/* Runs of one byte are the only repeated strings of an update. Searching no others takes less than
 * half the time of level 1 and saves 1 to 3 %, since accidental matches lengthen all codes. All
 * levels but 0 are equal then. */
#define LEVEL 1
#define MEMORY_LEVEL 8 /* zlib's default */

/* zlib's sizes are unsigned int; larger buffers are passed in chunks. */
static uInt chunk_size(size_t left)
{
    return left < UINT_MAX ? (uInt)left : UINT_MAX;
}

static bool begin(z_stream *stream)
{
    return deflateInit2(stream, LEVEL, Z_DEFLATED, MAX_WBITS, MEMORY_LEVEL, Z_RLE) == Z_OK;
}

struct fedge_deflater {
    z_stream stream;
};

fedge_status fedge_deflater_new(fedge_deflater **deflater, fedge_error *err)
{
    *deflater = NULL;
    fedge_deflater *fresh = calloc(1, sizeof(*fresh));
    if (!fresh || !begin(&fresh->stream)) {
        free(fresh);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to deflate updates");
    }
    *deflater = fresh;
    return FEDGE_OK;
}

void fedge_deflater_free(fedge_deflater *deflater)
{
    if (!deflater)
        return;
    (void)deflateEnd(&deflater->stream);
    free(deflater);
}

bool fedge_deflater_run(fedge_deflater *deflater, const uint8_t *in, size_t in_size, uint8_t *out,
                        size_t out_size, size_t *size)
{
    z_stream *stream = &deflater->stream;
    size_t used = 0;
    int code = Z_OK;
    *size = 0;
    /* Created once and reset, to save allocating 256 KiB for each section. */
    (void)deflateReset(stream);
    while (code == Z_OK && *size < out_size) {
        const uInt left = chunk_size(in_size - used), capacity = chunk_size(out_size - *size);
        stream->next_in = in + used;
        stream->avail_in = left;
        stream->next_out = out + *size;
        stream->avail_out = capacity;
        code = deflate(stream, left == in_size - used ? Z_FINISH : Z_NO_FLUSH);
        used += left - stream->avail_in;
        *size += capacity - stream->avail_out;
    }
    return code == Z_STREAM_END;
}

/* ---- inflating ------------------------------------------------------------------------------- */

const fedge_inflater *const *fedge_inflaters(void)
{
    static const fedge_inflater *const ALL[] = {
#if FEDGE_WITH_ISAL
        &fedge_inflater_isal,
#endif
        &fedge_inflater_zlib,
        NULL
    };
    return ALL;
}

typedef struct inflation {
    const fedge_inflater *by;
    void *stream;
    uint8_t *out;
    size_t size, made; /* output: expected size, bytes so far */
    uint64_t used;     /* input bytes so far */
    uint64_t blocks_left;
    bool over; /* the output is too long */
    fedge_inflater_state state;
} inflation;

static inflation inflation_by(const fedge_inflater *by, uint8_t *out, size_t out_size)
{
    return (inflation){.by = by,
                       .stream = by->begin(),
                       .out = out,
                       .size = out_size,
                       .blocks_left = FEDGE_INFLATE_MAX_BLOCKS(out_size)};
}

/* One extra byte of space distinguishes the end from an overflow. */
static void take_chunk(inflation *self, const uint8_t *chunk_in, size_t size)
{
    fedge_inflater_range range = {
        .in = chunk_in, .in_size = size, .begin = self->out, .blocks_left = self->blocks_left};
    bool moved;
    do {
        uint8_t extra;
        const bool full = self->made == self->size;
        const size_t capacity = full ? 1 : self->size - self->made, left = range.in_size;
        range.out = full ? &extra : self->out + self->made;
        range.out_size = capacity;
        range.made = self->made;
        self->state = self->by->step(self->stream, &range);
        const size_t gave = capacity - range.out_size;
        self->over = self->over || (full && gave > 0);
        self->made += full ? 0 : gave;
        moved = gave > 0 || range.in_size < left;
    } while (self->state == FEDGE_INFLATER_GOES_ON && !self->over && moved &&
             (range.in_size > 0 || range.out_size == 0));
    self->used += size - range.in_size;
    self->blocks_left = range.blocks_left;
}

static fedge_status no_memory(size_t out_size, fedge_error *err)
{
    return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to inflate %zu bytes", out_size);
}

static fedge_status judge(const inflation *self, uint64_t in_size, fedge_error *err)
{
    if (self->over) {
        return fedge_fail(err, FEDGE_TOO_BIG, "deflated data is more than the %zu bytes expected",
                          self->size);
    }
    if (self->state == FEDGE_INFLATER_TOO_MANY_BLOCKS) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "deflated data has over %" PRIu64 " blocks for %zu bytes",
                          FEDGE_INFLATE_MAX_BLOCKS(self->size), self->size);
    }
    if (self->state == FEDGE_INFLATER_NO_MEMORY)
        return no_memory(self->size, err);
    if (self->state == FEDGE_INFLATER_GOES_ON) {
        return fedge_fail(err, FEDGE_TRUNCATED, "deflated data ends early, after %" PRIu64 " bytes",
                          in_size);
    }
    if (self->state == FEDGE_INFLATER_BROKEN) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "deflated data is broken at byte %" PRIu64 " of %" PRIu64 ": %s",
                          self->used, in_size, self->by->why(self->stream));
    }
    if (self->used < in_size) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%" PRIu64 " bytes behind the end of the deflated data",
                          in_size - self->used);
    }
    if (self->made < self->size) {
        return fedge_fail(err, FEDGE_TRUNCATED, "deflated data has %zu bytes, %zu are expected",
                          self->made, self->size);
    }
    return FEDGE_OK;
}

fedge_status fedge_inflate(const uint8_t *in, size_t in_size, uint8_t *out, size_t out_size,
                           fedge_error *err)
{
    inflation self = inflation_by(&fedge_inflater_zlib, out, out_size);
    if (!self.stream)
        return no_memory(out_size, err);
    take_chunk(&self, in, in_size);
    const fedge_status status = judge(&self, in_size, err);
    self.by->end(self.stream);
    return status;
}

fedge_status fedge_inflate_read_by(const fedge_inflater *inflater, fedge_read_fn read, void *user,
                                   uint64_t in_size, uint8_t *out, size_t out_size,
                                   fedge_error *err)
{
    inflation self = inflation_by(inflater, out, out_size);
    uint8_t *bytes = malloc(inflater->chunk_bytes);
    fedge_status status = FEDGE_OK;
    if (!self.stream || !bytes)
        FEDGE_TRY_OR(no_memory(out_size, err), done);
    for (uint64_t left = in_size; left > 0;) {
        const size_t size = left < inflater->chunk_bytes ? (size_t)left : inflater->chunk_bytes;
        FEDGE_TRY_OR(read(user, bytes, size, err), done);
        if (self.state == FEDGE_INFLATER_GOES_ON && !self.over)
            take_chunk(&self, bytes, size);
        left -= size;
    }
    status = judge(&self, in_size, err);
done:
    if (self.stream)
        inflater->end(self.stream);
    free(bytes);
    return status;
}

fedge_status fedge_inflate_read(fedge_read_fn read, void *user, uint64_t in_size, uint8_t *out,
                                size_t out_size, fedge_error *err)
{
    const fedge_inflater *const *inflater = fedge_inflaters();
    while (inflater[1] && out_size > (*inflater)->max_size)
        inflater++; /* zlib, the last, has no limit */
    return fedge_inflate_read_by(*inflater, read, user, in_size, out, out_size, err);
}
