#include <limits.h>
#include <stdlib.h>

#include "edge/wire/deflate.h"

#define ZLIB_CONST /* makes next_in a pointer to const */
#include <zlib.h>

typedef struct zlib_stream {
    z_stream z;
} zlib_stream;

static void *begin(void)
{
    zlib_stream *stream = calloc(1, sizeof(*stream));
    if (stream && inflateInit(&stream->z) != Z_OK) {
        free(stream);
        stream = NULL;
    }
    return stream;
}

static uInt at_most(size_t size)
{
    return size < UINT_MAX ? (uInt)size : UINT_MAX;
}

/* Bits of zlib's data_type after Z_BLOCK. */
#define BETWEEN_BLOCKS 128
#define LAST_BLOCK 64

static int inflate_on(z_stream *z, fedge_inflater_range *range)
{
    const uInt in = at_most(range->in_size), capacity = at_most(range->out_size);
    z->next_in = range->in;
    z->avail_in = in;
    z->next_out = range->out;
    z->avail_out = capacity;
    const int code = inflate(z, Z_BLOCK);
    range->in += in - z->avail_in;
    range->in_size -= in - z->avail_in;
    range->out += capacity - z->avail_out;
    range->out_size -= capacity - z->avail_out;
    return code;
}

static fedge_inflater_state step(void *user, fedge_inflater_range *range)
{
    z_stream *z = &((zlib_stream *)user)->z;
    int code;
    do {
        code = inflate_on(z, range);
        if (code == Z_OK && (z->data_type & (BETWEEN_BLOCKS | LAST_BLOCK)) == BETWEEN_BLOCKS &&
            range->blocks_left-- == 0)
            return FEDGE_INFLATER_TOO_MANY_BLOCKS;
    } while (code == Z_OK && z->data_type & BETWEEN_BLOCKS);
    return code == Z_OK || code == Z_BUF_ERROR ? FEDGE_INFLATER_GOES_ON
           : code == Z_STREAM_END              ? FEDGE_INFLATER_ENDED
           : code == Z_MEM_ERROR               ? FEDGE_INFLATER_NO_MEMORY
                                               : FEDGE_INFLATER_BROKEN;
}

static const char *why(const void *user)
{
    const char *text = ((const zlib_stream *)user)->z.msg;
    return text ? text : "not a zlib stream";
}

static void end(void *user)
{
    (void)inflateEnd(&((zlib_stream *)user)->z);
    free(user);
}

const fedge_inflater fedge_inflater_zlib = {.name = "zlib",
                                            .chunk_bytes = 16384,
                                            .max_size = UINT64_MAX,
                                            .begin = begin,
                                            .step = step,
                                            .why = why,
                                            .end = end};
