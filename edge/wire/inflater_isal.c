#include <stdbool.h>
#include <stdlib.h>

#include <isa-l/igzip_lib.h>
#include <string.h>

#include "edge/wire/deflate.h"

#define HEADER_BYTES 2
#define TRAILER_BYTES 4
#define WINDOW_BYTES 32768u /* maximum distance of a match */

/* This file reads the stream's header and trailer: ISA-L's reader of trailers loses what it has
 * read ahead. It also checks the headers of blocks, since ISA-L accepts incomplete codes that zlib
 * refuses: each block is passed to ISA-L as the last of a stream, so that it stops after it. */
typedef struct isal_stream {
    struct inflate_state state; /* 90 KB */
    int code;
    uint32_t adler;
    uint8_t header[HEADER_BYTES], trailer[TRAILER_BYTES];
    uint32_t num_header, num_trailer; /* bytes read ahead */
    /* Part of a block's header at the end of a chunk. */
    uint8_t pending[FEDGE_DEFLATE_MAX_HEADER];
    uint32_t num_pending;
    bool in_block, last, in_trailer, too_many_blocks;
    bool lost_history; /* ISA-L may lack history that the next block copies from */
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
        stream->too_many_blocks = stream->lost_history = false;
    }
    return stream;
}

static uint32_t at_most(size_t size)
{
    return size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
}

static uint32_t take(fedge_inflater_range *range, uint8_t *out, uint32_t have, uint32_t want)
{
    while (have < want && range->in_size > 0) {
        out[have++] = *range->in++;
        range->in_size--;
    }
    return have;
}

/* RFC 1950: deflate, window of at most 32 KB, no preset dictionary. */
static bool is_header(const uint8_t h[HEADER_BYTES])
{
    return (h[0] & 15) == 8 && h[0] >> 4 <= 7 && (h[0] * 256 + h[1]) % 31 == 0 && !(h[1] & 32);
}

/* Bytes of the trailer, and some after it, may have been read ahead. */
static void begin_trailer(isal_stream *stream, fedge_inflater_range *range)
{
    struct inflate_state *state = &stream->state;
    uint64_t ahead = state->read_in >> (state->read_in_length % 8);
    stream->in_trailer = true;
    for (int32_t left = state->read_in_length / 8; left > 0; left--, ahead >>= 8) {
        if (stream->num_trailer < TRAILER_BYTES)
            stream->trailer[stream->num_trailer++] = (uint8_t)ahead;
        else
            range->in_size++;
    }
    for (uint32_t i = 0; i < stream->num_pending; i++) {
        if (stream->num_trailer < TRAILER_BYTES)
            stream->trailer[stream->num_trailer++] = stream->pending[i];
        else
            range->in_size++;
    }
}

static bool is_trailer(const uint8_t t[TRAILER_BYTES], uint32_t adler)
{
    return adler == ((uint32_t)t[0] << 24 | (uint32_t)t[1] << 16 | (uint32_t)t[2] << 8 | t[3]);
}

static void inflate_on(isal_stream *stream, fedge_inflater_range *range)
{
    struct inflate_state *state = &stream->state;
    const uint32_t in = at_most(range->in_size), capacity = at_most(range->out_size);
    const uint32_t processed = (uint32_t)state->tmp_out_processed;
    state->next_in = (uint8_t *)(uintptr_t)range->in; /* it writes nothing there */
    state->avail_in = in;
    state->next_out = range->out;
    state->avail_out = capacity;
    stream->code = isal_inflate(state);
    const uint32_t made = capacity - state->avail_out;
    stream->adler = isal_adler32(stream->adler, range->out, made);
    stream->lost_history |= (uint32_t)state->tmp_out_processed != processed + made;
    range->in += in - state->avail_in;
    range->in_size -= in - state->avail_in;
    range->out += made;
    range->out_size -= made;
    range->made += made;
}

/* Checks the next block's header and passes the block to ISA-L as the last. False: it is broken,
 * one too many, or incomplete. */
static bool begin_block(isal_stream *stream, fedge_inflater_range *range)
{
    struct inflate_state *state = &stream->state;
    if (range->in_size > 0 && state->read_in_length == 0 && stream->num_pending == 0) {
        state->read_in = *range->in++; /* the bit of the last block is set in it */
        state->read_in_length = 8;
        range->in_size--;
    }
    const fedge_deflate_bits bits = {.ahead = state->read_in,
                                     .num_ahead = (uint32_t)state->read_in_length,
                                     .first = stream->pending,
                                     .num_first = stream->num_pending,
                                     .then = range->in,
                                     .num_then = range->in_size};
    switch (fedge_deflate_header(bits, &stream->last)) {
    case FEDGE_INFLATER_BROKEN:
        stream->code = ISAL_INVALID_BLOCK;
        return false;
    case FEDGE_INFLATER_GOES_ON: /* all input, and less than a header may have */
        stream->num_pending =
            take(range, stream->pending, stream->num_pending, sizeof(stream->pending));
        return false;
    default:
        break;
    }
    stream->too_many_blocks = range->blocks_left-- == 0;
    if (stream->too_many_blocks)
        return false;
    state->read_in |= 1;
    state->block_state = ISAL_BLOCK_NEW_HDR;
    state->bfinal = 0;
    /* With more than a window in its buffer, ISA-L would continue elsewhere without enough history.
     * Between blocks of one stream it handles that itself. */
    if (stream->lost_history || (uint32_t)state->tmp_out_valid > WINDOW_BYTES) {
        const size_t size = range->made < WINDOW_BYTES ? range->made : WINDOW_BYTES;
        state->tmp_out_valid = state->tmp_out_processed = 0;
        stream->code = isal_inflate_set_dict(
            state, (uint8_t *)(uintptr_t)range->begin + (range->made - size), (uint32_t)size);
        if (stream->code != ISAL_DECOMP_OK)
            return false;
    }
    stream->lost_history = false;
    stream->in_block = true;
    return true;
}

/* Bytes read ahead precede the chunk. */
static void inflate_pending(isal_stream *stream, fedge_inflater_range *range)
{
    fedge_inflater_range first = *range;
    first.in = stream->pending;
    first.in_size = stream->num_pending;
    inflate_on(stream, &first);
    range->out = first.out;
    range->out_size = first.out_size;
    range->made = first.made;
    stream->num_pending = take(&first, stream->pending, 0, sizeof(stream->pending));
}

static bool is_broken(const isal_stream *stream)
{
    return stream->code < 0 || stream->code == ISAL_NEED_DICT;
}

/* False: the input or the output buffer is used up, or the stream is broken. */
static bool inflate_block(isal_stream *stream, fedge_inflater_range *range)
{
    if (!stream->in_block && (!begin_block(stream, range) || is_broken(stream)))
        return false;
    if (stream->num_pending > 0)
        inflate_pending(stream, range);
    if (!is_broken(stream) && stream->num_pending == 0 &&
        stream->state.block_state != ISAL_BLOCK_FINISH)
        inflate_on(stream, range);
    if (is_broken(stream) || stream->state.block_state != ISAL_BLOCK_FINISH)
        return false;
    stream->in_block = false;
    return true;
}

static fedge_inflater_state step(void *user, fedge_inflater_range *range)
{
    isal_stream *stream = user;
    stream->num_header = take(range, stream->header, stream->num_header, HEADER_BYTES);
    if (stream->num_header < HEADER_BYTES)
        return FEDGE_INFLATER_GOES_ON;
    if (!is_header(stream->header)) {
        stream->code = ISAL_INVALID_WRAPPER;
        return FEDGE_INFLATER_BROKEN;
    }
    while (!stream->in_trailer) {
        if (!inflate_block(stream, range)) {
            return is_broken(stream)         ? FEDGE_INFLATER_BROKEN
                   : stream->too_many_blocks ? FEDGE_INFLATER_TOO_MANY_BLOCKS
                                             : FEDGE_INFLATER_GOES_ON;
        }
        if (stream->last) {
            begin_trailer(stream, range);
        } else if (range->out_size == 0) {
            /* The previous output is not contiguous, so it is no history. */
            return FEDGE_INFLATER_GOES_ON;
        }
    }
    stream->num_trailer = take(range, stream->trailer, stream->num_trailer, TRAILER_BYTES);
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

/* It counts the output in 32 bits. */
const fedge_inflater fedge_inflater_isal = {.name = "ISA-L",
                                            .chunk_bytes = 131072,
                                            .max_size = UINT32_MAX,
                                            .begin = begin,
                                            .step = step,
                                            .why = why,
                                            .end = free};

/* ---- block headers --------------------------------------------------------------------------- */

#define MAX_BITS 15      /* maximum bits of a code */
#define MAX_LENGTHS 286u /* literals, end of block and lengths */
#define MAX_DISTANCES 30u
#define NUM_ORDER 19 /* symbols of the code-length code */
#define END_OF_BLOCK 256

typedef struct reader {
    fedge_deflate_bits bits;
    uint64_t held;
    uint32_t num_held;
    bool ended; /* more bits were requested than available */
} reader;

static void fill(reader *r)
{
    fedge_deflate_bits *b = &r->bits;
    while (r->num_held <= 32) {
        uint64_t more;
        uint32_t n = 8;
        if (b->num_ahead > 0) {
            n = b->num_ahead < 8 ? b->num_ahead : 8;
            more = b->ahead & ((1u << n) - 1);
            b->ahead >>= n;
            b->num_ahead -= n;
        } else if (b->num_first > 0) {
            more = *b->first++;
            b->num_first--;
        } else if (b->num_then > 0) {
            more = *b->then++;
            b->num_then--;
        } else {
            return;
        }
        r->held |= more << r->num_held;
        r->num_held += n;
    }
}

static void drop(reader *r, uint32_t n)
{
    if (n > r->num_held) {
        r->ended = true;
        n = r->num_held;
    }
    r->held >>= n;
    r->num_held -= n;
}

static uint32_t get(reader *r, uint32_t n)
{
    fill(r);
    const uint32_t value = (uint32_t)r->held & ((1u << n) - 1);
    drop(r, n);
    return value;
}

/* Unused code space, in units of the longest code; negative: oversubscribed. */
static int32_t words_left(const uint8_t *lengths, uint32_t count, uint32_t *longest)
{
    int32_t left = 1 << MAX_BITS;
    *longest = 0;
    for (uint32_t i = 0; i < count; i++) {
        left -= lengths[i] ? (1 << MAX_BITS) >> lengths[i] : 0;
        *longest = lengths[i] > *longest ? lengths[i] : *longest;
    }
    return left;
}

static bool is_code(const uint8_t *lengths, uint32_t count)
{
    uint32_t longest;
    const int32_t left = words_left(lengths, count, &longest);
    return left == 0 || (left > 0 && longest <= 1);
}

/* For 7 input bits: the symbol, and above it the length of its code. */
static void make_table(const uint8_t *lengths, uint8_t table[128])
{
    uint32_t word = 0; /* codes are stored with reversed bits */
    for (uint32_t length = 1; length <= 7; length++, word <<= 1) {
        for (uint32_t symbol = 0; symbol < NUM_ORDER; symbol++) {
            if (lengths[symbol] != length)
                continue;
            uint32_t reversed = 0;
            for (uint32_t i = 0; i < length; i++)
                reversed |= (word >> i & 1) << (length - 1 - i);
            for (uint32_t at = reversed; at < 128; at += 1u << length)
                table[at] = (uint8_t)(symbol | length << 5);
            word++;
        }
    }
}

/* Reads [count] code lengths. */
static bool read_lengths(reader *r, const uint8_t table[128], uint8_t *lengths, uint32_t count)
{
    static const struct {
        uint8_t bits, base;
    } REPEAT[] = {{2, 3}, {3, 3}, {7, 11}};
    for (uint32_t have = 0; have < count && !r->ended;) {
        fill(r);
        const uint32_t found = table[r->held & 127], symbol = found & 31;
        drop(r, found >> 5);
        if (symbol < 16) {
            lengths[have++] = (uint8_t)symbol;
            continue;
        }
        const uint32_t times = REPEAT[symbol - 16].base + get(r, REPEAT[symbol - 16].bits);
        if (!r->ended && ((symbol == 16 && have == 0) || times > count - have))
            return false;
        for (uint32_t i = 0; i < times && have < count; i++, have++)
            lengths[have] = symbol == 16 ? lengths[have - 1] : 0;
    }
    return true;
}

/* False if zlib refuses the header, unless it is incomplete. */
static bool read_codes(reader *r)
{
    static const uint8_t ORDER[NUM_ORDER] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                             11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t of_lengths[NUM_ORDER] = {0}, table[128] = {0};
    uint8_t lengths[MAX_LENGTHS + MAX_DISTANCES] = {0};
    uint32_t longest;
    const uint32_t num_lengths = get(r, 5) + 257, num_distances = get(r, 5) + 1;
    const uint32_t num_order = get(r, 4) + 4;
    if (num_lengths > MAX_LENGTHS || num_distances > MAX_DISTANCES)
        return false;
    for (uint32_t i = 0; i < num_order; i++)
        of_lengths[ORDER[i]] = (uint8_t)get(r, 3);
    if (words_left(of_lengths, NUM_ORDER, &longest) != 0)
        return false;
    make_table(of_lengths, table);
    return read_lengths(r, table, lengths, num_lengths + num_distances) && !r->ended &&
           lengths[END_OF_BLOCK] != 0 && is_code(lengths, num_lengths) &&
           is_code(lengths + num_lengths, num_distances);
}

fedge_inflater_state fedge_deflate_header(fedge_deflate_bits bits, bool *last)
{
    reader r = {.bits = bits};
    *last = get(&r, 1);
    const uint32_t type = get(&r, 2);
    const bool right = type < 2 || (type == 2 && read_codes(&r));
    return r.ended ? FEDGE_INFLATER_GOES_ON : right ? FEDGE_INFLATER_ENDED : FEDGE_INFLATER_BROKEN;
}
