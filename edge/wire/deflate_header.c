#include "edge/wire/deflate_header.h"

#include <string.h>

#define MAX_BITS 15      /* of a word of a code */
#define MAX_LENGTHS 286u /* symbols for bytes, the end and lengths */
#define MAX_DISTANCES 30u
#define NUM_ORDER 19 /* symbols of the code of the lengths of words */
#define END_OF_BLOCK 256

typedef struct reader {
    fedge_deflate_bits bits;
    uint64_t held;
    uint32_t num_held;
    bool ended; /* bits were asked for that have not come */
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

/* Words that a code leaves without a meaning, in units of the longest; negative: it has too many.
 */
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

/* For the 7 bits that come: the symbol, and the length of its word above it. */
static void make_table(const uint8_t *lengths, uint8_t table[128])
{
    uint32_t word = 0; /* its bits come in reverse */
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

/* Reads [count] lengths of words. */
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

/* False: zlib refuses it, unless it has not ended. */
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
