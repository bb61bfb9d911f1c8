#include "edge/io/deflate.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>

#include "edge/io/inflater.h"

#define ZLIB_CONST /* next_in points to const */
#include <zlib.h>

/* Runs of one byte are the only strings that an update has more than once. To look for no others
 * takes less than half the time of level 1 and leaves 1 to 3 % fewer bytes, since chance matches
 * make the codes of all bytes longer. Any level but 0 does the same then. */
#define LEVEL 1
#define MEMORY_LEVEL 8 /* zlib's default */

/* zlib counts in unsigned int; larger buffers go through it piece by piece. */
static uInt piece(size_t left)
{
    return left < UINT_MAX ? (uInt)left : UINT_MAX;
}

/* Runs [step] (deflate or inflate) until the stream ends, the input and [out] are used up, or it
 * fails; *used and *made count bytes. Returns zlib's last code. */
static int run(z_stream *stream, int (*step)(z_stream *, int), const uint8_t *in, size_t in_size,
               uint8_t *out, size_t out_size, size_t *used, size_t *made)
{
    int code = Z_OK;
    *used = *made = 0;
    while (code == Z_OK) {
        stream->next_in = in + *used;
        stream->avail_in = piece(in_size - *used);
        stream->next_out = out + *made;
        stream->avail_out = piece(out_size - *made);
        uInt in_before = stream->avail_in, out_before = stream->avail_out;
        bool last = in_size - *used == in_before;
        code = step(stream, last ? Z_FINISH : Z_NO_FLUSH);
        uInt took = in_before - stream->avail_in, gave = out_before - stream->avail_out;
        *used += took;
        *made += gave;
        /* zlib waits for bytes or room that there are not: without this the loop would not end. */
        if (code == Z_OK && took == 0 && gave == 0)
            code = Z_BUF_ERROR;
    }
    return code;
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
    size_t used = 0;
    /* Made once and reset: its memory, of some 256 KiB, would otherwise be taken for each section.
     */
    (void)deflateReset(&deflater->stream);
    return run(&deflater->stream, deflate, in, in_size, out, out_size, &used, size) == Z_STREAM_END;
}

/* Does the stream end where it should? One byte of room more tells an end from an overflow. */
static fedge_status check_end(z_stream *stream, int code, const uint8_t *in, size_t in_size,
                              size_t used, size_t out_size, fedge_error *err)
{
    uint8_t extra;
    size_t more = 0, made = 0;
    if (code == Z_OK || code == Z_BUF_ERROR) {
        code = run(stream, inflate, in + used, in_size - used, &extra, sizeof(extra), &more, &made);
        used += more;
        if (made > 0) {
            return fedge_fail(err, FEDGE_TOO_BIG,
                              "deflated data is more than the %zu bytes expected", out_size);
        }
    }
    if (code == Z_MEM_ERROR)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to inflate %zu bytes", out_size);
    if (code == Z_OK || code == Z_BUF_ERROR) {
        return fedge_fail(err, FEDGE_TRUNCATED, "deflated data ends early, after %zu bytes",
                          in_size);
    }
    if (code != Z_STREAM_END) {
        return fedge_fail(err, FEDGE_CORRUPT, "deflated data is broken at byte %zu of %zu: %s",
                          used, in_size, stream->msg ? stream->msg : "not a zlib stream");
    }
    if (used < in_size) {
        return fedge_fail(err, FEDGE_CORRUPT, "%zu bytes behind the end of the deflated data",
                          in_size - used);
    }
    return FEDGE_OK;
}

fedge_status fedge_inflate(const uint8_t *in, size_t in_size, uint8_t *out, size_t out_size,
                           fedge_error *err)
{
    z_stream stream = {0};
    size_t used = 0, made = 0;
    if (inflateInit(&stream) != Z_OK)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to inflate %zu bytes", out_size);
    int code = run(&stream, inflate, in, in_size, out, out_size, &used, &made);
    fedge_status st = check_end(&stream, code, in, in_size, used, out_size, err);
    (void)inflateEnd(&stream);
    if (st == FEDGE_OK && made < out_size) {
        st = fedge_fail(err, FEDGE_TRUNCATED, "deflated data has %zu bytes, %zu are expected", made,
                        out_size);
    }
    return st;
}

/* ---- piece by piece -------------------------------------------------------------------------- */

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
    size_t size, made; /* of out: bytes expected, bytes that are there */
    uint64_t used;     /* of the input */
    bool over;         /* there were more than expected */
    fedge_inflater_state state;
} inflation;

/* One byte of room more tells an end from an overflow. */
static void take_piece(inflation *self, const uint8_t *piece_in, size_t size)
{
    fedge_inflater_span span = {.in = piece_in, .in_size = size, .begin = self->out};
    bool moved;
    do {
        uint8_t extra;
        const bool full = self->made == self->size;
        const size_t room = full ? 1 : self->size - self->made, left = span.in_size;
        span.out = full ? &extra : self->out + self->made;
        span.out_size = room;
        span.made = self->made;
        self->state = self->by->step(self->stream, &span);
        const size_t gave = room - span.out_size;
        self->over = self->over || (full && gave > 0);
        self->made += full ? 0 : gave;
        moved = gave > 0 || span.in_size < left;
    } while (self->state == FEDGE_INFLATER_GOES_ON && !self->over && moved &&
             (span.in_size > 0 || span.out_size == 0));
    self->used += size - span.in_size;
}

static fedge_status judge(const inflation *self, uint64_t in_size, fedge_error *err)
{
    if (self->over) {
        return fedge_fail(err, FEDGE_TOO_BIG, "deflated data is more than the %zu bytes expected",
                          self->size);
    }
    if (self->state == FEDGE_INFLATER_NO_MEMORY)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to inflate %zu bytes", self->size);
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

fedge_status fedge_inflate_read_by(const fedge_inflater *inflater, fedge_read_fn read, void *user,
                                   uint64_t in_size, uint8_t *out, size_t out_size,
                                   fedge_error *err)
{
    inflation self = {.by = inflater, .out = out, .size = out_size};
    uint8_t *bytes = malloc(inflater->piece_bytes);
    self.stream = bytes ? inflater->begin() : NULL;
    if (!self.stream) {
        free(bytes);
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to inflate %zu bytes", out_size);
    }
    fedge_status status = FEDGE_OK;
    for (uint64_t left = in_size; left > 0 && status == FEDGE_OK;) {
        const size_t size = left < inflater->piece_bytes ? (size_t)left : inflater->piece_bytes;
        status = read(user, bytes, size, err);
        if (status == FEDGE_OK && self.state == FEDGE_INFLATER_GOES_ON && !self.over)
            take_piece(&self, bytes, size);
        left -= size;
    }
    if (status == FEDGE_OK)
        status = judge(&self, in_size, err);
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
