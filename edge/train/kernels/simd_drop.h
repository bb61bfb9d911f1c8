/* Dropout; the last part of kernels_simd.h.
 *
 * The words of a stream are made in blocks of Philox side by side, one block in each 64-bit lane;
 * they are the same words, in the same order, as fedge_rng_u32 draws. The lower half of a lane
 * holds a word, the upper half anything. Pairs of words are stored as these machines store
 * integers, the lower half first.
 */
#define DROP_LANES (sizeof(vec) / sizeof(uint64_t))
#define DROP_VECTORS 4 /* side by side, since each product takes some time */
#define DROP_BLOCKS (DROP_LANES * DROP_VECTORS)
#define DROP_WORDS ((size_t)256) /* drawn at a time */

typedef uint64_t lanes __attribute__((vector_size(sizeof(vec))));

/* The stream's next DROP_BLOCKS blocks. */
static void philox_blocks(const fedge_rng *rng, uint32_t *words)
{
    lanes c0[DROP_VECTORS], c1[DROP_VECTORS], c2[DROP_VECTORS], c3[DROP_VECTORS];
    const lanes zero = {0}, m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
    uint32_t key0 = rng->key[0], key1 = rng->key[1];
    lanes places = {0};
    for (size_t l = 0; l < DROP_LANES; l++)
        places[l] = l;
    UNROLL
    for (size_t v = 0; v < DROP_VECTORS; v++) {
        c0[v] = places + (rng->counter[0] + v * DROP_LANES);
        c1[v] = zero + rng->counter[1];
        c2[v] = zero + rng->counter[2];
        c3[v] = zero + rng->counter[3];
    }
    for (int round = 0; round < 10; round++) {
        UNROLL
        for (size_t v = 0; v < DROP_VECTORS; v++) {
            const lanes first = product_of_words(m0, c0[v]), second = product_of_words(m1, c2[v]);
            c0[v] = (second >> 32) ^ c1[v] ^ (zero + key0);
            c1[v] = second;
            c2[v] = (first >> 32) ^ c3[v] ^ (zero + key1);
            c3[v] = first;
        }
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    for (size_t v = 0; v < DROP_VECTORS; v++) {
        const lanes front = (c0[v] & 0xffffffffu) | c1[v] << 32;
        const lanes back = (c2[v] & 0xffffffffu) | c3[v] << 32;
        for (size_t l = 0; l < DROP_LANES; l++, words += 4) {
            const uint64_t block[2] = {front[l], back[l]};
            memcpy(words, block, sizeof(block));
        }
    }
}

/* The stream's next [n] words. */
static void draw_words(fedge_rng *rng, uint32_t *words, size_t n)
{
    uint32_t made[DROP_BLOCKS * 4];
    while (n > 0 && rng->used < 4) {
        *words++ = rng->block[rng->used++];
        n--;
    }
    while (n > 0) {
        const size_t taken = n < DROP_BLOCKS * 4 ? n : DROP_BLOCKS * 4, blocks = (taken + 3) / 4;
        philox_blocks(rng, made);
        memcpy(words, made, taken * sizeof(*words));
        memcpy(rng->block, made + 4 * (blocks - 1), sizeof(rng->block));
        rng->counter[0] += (uint32_t)blocks;
        rng->used = (uint32_t)(taken - 4 * (blocks - 1));
        words += taken;
        n -= taken;
    }
}

/* fedge_rng_float is the upper 24 bits of a word · 2^-24, so it is at least p when the word is at
 * least this, which is 2^32 for p = 1. */
static uint64_t least_kept(float p)
{
    return (uint64_t)ceil((double)p * 0x1p24) << 8;
}

static void drop_draw(fedge_rng *rng, float p, size_t n, const float *x, float *y, uint8_t *kept)
{
    const uint64_t limit = least_kept(p);
    const uint32_t least = limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit;
    const float scale = p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
    uint32_t words[DROP_WORDS];
    for (size_t count; n > 0; n -= count, x += count, y += count) {
        count = n < DROP_WORDS ? n : DROP_WORDS;
        draw_words(rng, words, count);
        for (size_t i = 0; limit > UINT32_MAX && i < count; i++)
            words[i] = 0;
        for (size_t i = 0; i < count; i++) {
            const float scaled = x[i] * scale;
            y[i] = words[i] >= least ? scaled : 0.0f;
        }
        for (size_t i = 0; kept && i < count; i += 8) {
            const size_t left = count - i < 8 ? count - i : 8;
            unsigned bits = 0;
            for (size_t l = 0; l < left; l++)
                bits |= (unsigned)(words[i + l] >= least) << l;
            *kept++ = (uint8_t)bits;
        }
    }
}

static void drop_apply(float p, size_t n, const uint8_t *kept, const float *dy, float *dx)
{
    const float scale = p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint32_t bits = kept[i / 8];
        for (uint32_t l = 0; l < 8; l++) {
            const float scaled = dy[i + l] * scale;
            dx[i + l] = (bits & 1u << l) != 0 ? scaled : 0.0f;
        }
    }
    for (; i < n; i++)
        dx[i] = kept[i / 8] >> i % 8 & 1 ? dy[i] * scale : 0.0f;
}
