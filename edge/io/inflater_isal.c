#include <stdbool.h>
#include <stdlib.h>

#include <isa-l/igzip_lib.h>

#include "edge/io/inflater.h"

#define HEADER_BYTES 2
#define TRAILER_BYTES 4

/* Header and trailer are read here: ISA-L's own reader of trailers loses what it has read ahead. */
typedef struct isal_stream {
    struct inflate_state state; /* 90 KB */
    int code;
    uint8_t header[HEADER_BYTES], trailer[TRAILER_BYTES];
    uint32_t num_header, num_trailer; /* bytes that have come */
    bool in_trailer;
} isal_stream;

static void *begin(void)
{
    isal_stream *stream = malloc(sizeof(*stream));
    if (stream) {
        isal_inflate_init(&stream->state);
        stream->state.crc_flag = ISAL_ZLIB_NO_HDR; /* Adler-32 is computed */
        stream->code = ISAL_DECOMP_OK;
        stream->num_header = stream->num_trailer = 0;
        stream->in_trailer = false;
    }
    return stream;
}

static uint32_t at_most(size_t size)
{
    return size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
}

static uint32_t take(fedge_inflater_span *span, uint8_t *out, uint32_t have, uint32_t want)
{
    while (have < want && span->in_size > 0) {
        out[have++] = *span->in++;
        span->in_size--;
    }
    return have;
}

/* RFC 1950: deflate, a window of 32 KB at most, no preset dictionary. */
static bool is_header(const uint8_t h[HEADER_BYTES])
{
    return (h[0] & 15) == 8 && h[0] >> 4 <= 7 && (h[0] * 256 + h[1]) % 31 == 0 && !(h[1] & 32);
}

/* The first bytes of the trailer may have been read ahead, with some that are behind it. */
static void begin_trailer(isal_stream *stream, fedge_inflater_span *span)
{
    struct inflate_state *state = &stream->state;
    uint64_t ahead = state->read_in >> (state->read_in_length % 8);
    stream->in_trailer = true;
    for (int32_t left = state->read_in_length / 8; left > 0; left--, ahead >>= 8) {
        if (stream->num_trailer < TRAILER_BYTES)
            stream->trailer[stream->num_trailer++] = (uint8_t)ahead;
        else
            span->in_size++;
    }
}

static bool is_trailer(const uint8_t t[TRAILER_BYTES], uint32_t adler)
{
    return adler == ((uint32_t)t[0] << 24 | (uint32_t)t[1] << 16 | (uint32_t)t[2] << 8 | t[3]);
}

static void inflate_on(isal_stream *stream, fedge_inflater_span *span)
{
    struct inflate_state *state = &stream->state;
    const uint32_t in = at_most(span->in_size), room = at_most(span->out_size);
    state->next_in = (uint8_t *)(uintptr_t)span->in; /* it writes nothing there */
    state->avail_in = in;
    state->next_out = span->out;
    state->avail_out = room;
    stream->code = isal_inflate(state);
    span->in += in - state->avail_in;
    span->in_size -= in - state->avail_in;
    span->out += room - state->avail_out;
    span->out_size -= room - state->avail_out;
}

static fedge_inflater_state step(void *user, fedge_inflater_span *span)
{
    isal_stream *stream = user;
    stream->num_header = take(span, stream->header, stream->num_header, HEADER_BYTES);
    if (stream->num_header < HEADER_BYTES)
        return FEDGE_INFLATER_GOES_ON;
    if (!is_header(stream->header)) {
        stream->code = ISAL_INVALID_WRAPPER;
        return FEDGE_INFLATER_BROKEN;
    }
    if (!stream->in_trailer) {
        inflate_on(stream, span);
        if (stream->code < 0 || stream->code == ISAL_NEED_DICT)
            return FEDGE_INFLATER_BROKEN;
        if (stream->state.block_state != ISAL_BLOCK_FINISH)
            return FEDGE_INFLATER_GOES_ON;
        begin_trailer(stream, span);
    }
    stream->num_trailer = take(span, stream->trailer, stream->num_trailer, TRAILER_BYTES);
    if (stream->num_trailer < TRAILER_BYTES)
        return FEDGE_INFLATER_GOES_ON;
    if (is_trailer(stream->trailer, stream->state.crc))
        return FEDGE_INFLATER_ENDED;
    stream->code = ISAL_INCORRECT_CHECKSUM;
    return FEDGE_INFLATER_BROKEN;
}

static const char *why(const void *user)
{
    switch (((const isal_stream *)user)->code) {
    case ISAL_INVALID_BLOCK:
        return "invalid block";
    case ISAL_INVALID_SYMBOL:
        return "invalid code";
    case ISAL_INVALID_LOOKBACK:
        return "invalid distance too far back";
    case ISAL_INCORRECT_CHECKSUM:
        return "incorrect data check";
    default:
        return "not a zlib stream";
    }
}

/* It counts what comes out in 32 bits. */
const fedge_inflater fedge_inflater_isal = {.name = "ISA-L",
                                            .piece_bytes = 131072,
                                            .max_size = UINT32_MAX,
                                            .begin = begin,
                                            .step = step,
                                            .why = why,
                                            .end = free};
