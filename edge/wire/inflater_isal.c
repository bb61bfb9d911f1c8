#include <stdbool.h>
#include <stdlib.h>

#include <isa-l/igzip_lib.h>

#include "edge/wire/deflate_header.h"
#include "edge/wire/inflater.h"

#define HEADER_BYTES 2
#define TRAILER_BYTES 4
#define WINDOW_BYTES 32768u /* how far back a match reaches */

/* Header and trailer are read here: ISA-L's own reader of trailers loses what it has read ahead. So
 * are the headers of blocks, since it takes incomplete codes that zlib refuses: each block is given
 * to it as the last of a stream, so that it stops behind it, and its header is judged before. */
typedef struct isal_stream {
    struct inflate_state state; /* 90 KB */
    int code;
    uint32_t adler;
    uint8_t header[HEADER_BYTES], trailer[TRAILER_BYTES];
    uint32_t num_header, num_trailer; /* bytes that have come */
    /* Bytes of a block's header that ended with a piece. */
    uint8_t pending[FEDGE_DEFLATE_MAX_HEADER];
    uint32_t num_pending;
    bool in_block, last, in_trailer, many_blocks;
    bool lost_history; /* ISA-L may not have kept all that the next block may copy */
} isal_stream;

static void *begin(void)
{
    isal_stream *stream = malloc(sizeof(*stream));
    if (stream) {
        isal_inflate_init(&stream->state);
        stream->state.crc_flag = ISAL_DEFLATE;
        stream->code = ISAL_DECOMP_OK;
        stream->adler = 1;
        stream->num_header = stream->num_trailer = stream->num_pending = 0;
        stream->in_block = stream->last = stream->in_trailer = false;
        stream->many_blocks = stream->lost_history = false;
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
    for (uint32_t i = 0; i < stream->num_pending; i++) {
        if (stream->num_trailer < TRAILER_BYTES)
            stream->trailer[stream->num_trailer++] = stream->pending[i];
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
    const uint32_t processed = (uint32_t)state->tmp_out_processed;
    state->next_in = (uint8_t *)(uintptr_t)span->in; /* it writes nothing there */
    state->avail_in = in;
    state->next_out = span->out;
    state->avail_out = room;
    stream->code = isal_inflate(state);
    const uint32_t made = room - state->avail_out;
    stream->adler = isal_adler32(stream->adler, span->out, made);
    stream->lost_history |= (uint32_t)state->tmp_out_processed != processed + made;
    span->in += in - state->avail_in;
    span->in_size -= in - state->avail_in;
    span->out += made;
    span->out_size -= made;
    span->made += made;
}

/* Judges the next block's header and gives the block to ISA-L as the last. False: it is broken,
 * one too many, or more of it has to come. */
static bool begin_block(isal_stream *stream, fedge_inflater_span *span)
{
    struct inflate_state *state = &stream->state;
    if (span->in_size > 0 && state->read_in_length == 0 && stream->num_pending == 0) {
        state->read_in = *span->in++; /* for the bit that says whether it is the last */
        state->read_in_length = 8;
        span->in_size--;
    }
    const fedge_deflate_bits bits = {.ahead = state->read_in,
                                     .num_ahead = (uint32_t)state->read_in_length,
                                     .first = stream->pending,
                                     .num_first = stream->num_pending,
                                     .then = span->in,
                                     .num_then = span->in_size};
    switch (fedge_deflate_header(bits, &stream->last)) {
    case FEDGE_INFLATER_BROKEN:
        stream->code = ISAL_INVALID_BLOCK;
        return false;
    case FEDGE_INFLATER_GOES_ON: /* all that there is, and less than a header can have */
        stream->num_pending =
            take(span, stream->pending, stream->num_pending, sizeof(stream->pending));
        return false;
    default:
        break;
    }
    stream->many_blocks = span->blocks_left-- == 0;
    if (stream->many_blocks)
        return false;
    state->read_in |= 1;
    state->block_state = ISAL_BLOCK_NEW_HDR;
    state->bfinal = 0;
    /* With more than a window in its buffer ISA-L would go on elsewhere before there is one behind
     * it. Between the blocks of one stream it sees to that itself. */
    if (stream->lost_history || (uint32_t)state->tmp_out_valid > WINDOW_BYTES) {
        const size_t size = span->made < WINDOW_BYTES ? span->made : WINDOW_BYTES;
        state->tmp_out_valid = state->tmp_out_processed = 0;
        stream->code = isal_inflate_set_dict(
            state, (uint8_t *)(uintptr_t)span->begin + (span->made - size), (uint32_t)size);
        if (stream->code != ISAL_DECOMP_OK)
            return false;
    }
    stream->lost_history = false;
    stream->in_block = true;
    return true;
}

/* What waits comes before the piece. */
static void inflate_pending(isal_stream *stream, fedge_inflater_span *span)
{
    fedge_inflater_span first = *span;
    first.in = stream->pending;
    first.in_size = stream->num_pending;
    inflate_on(stream, &first);
    span->out = first.out;
    span->out_size = first.out_size;
    span->made = first.made;
    stream->num_pending = take(&first, stream->pending, 0, sizeof(stream->pending));
}

static bool is_broken(const isal_stream *stream)
{
    return stream->code < 0 || stream->code == ISAL_NEED_DICT;
}

/* False: input or room are used up, or it is broken. */
static bool inflate_block(isal_stream *stream, fedge_inflater_span *span)
{
    if (!stream->in_block && (!begin_block(stream, span) || is_broken(stream)))
        return false;
    if (stream->num_pending > 0)
        inflate_pending(stream, span);
    if (!is_broken(stream) && stream->num_pending == 0 &&
        stream->state.block_state != ISAL_BLOCK_FINISH)
        inflate_on(stream, span);
    if (is_broken(stream) || stream->state.block_state != ISAL_BLOCK_FINISH)
        return false;
    stream->in_block = false;
    return true;
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
    while (!stream->in_trailer) {
        if (!inflate_block(stream, span)) {
            return is_broken(stream)     ? FEDGE_INFLATER_BROKEN
                   : stream->many_blocks ? FEDGE_INFLATER_MANY_BLOCKS
                                         : FEDGE_INFLATER_GOES_ON;
        }
        if (stream->last) {
            begin_trailer(stream, span);
        } else if (span->out_size == 0) {
            /* What came last may lie elsewhere: it is no history. */
            return FEDGE_INFLATER_GOES_ON;
        }
    }
    stream->num_trailer = take(span, stream->trailer, stream->num_trailer, TRAILER_BYTES);
    if (stream->num_trailer < TRAILER_BYTES)
        return FEDGE_INFLATER_GOES_ON;
    if (is_trailer(stream->trailer, stream->adler))
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
