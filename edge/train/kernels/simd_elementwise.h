/* Functions of one number, dropout, and steps of recurrent layers; included by simd.h.
 *
 * exp, sigmoid, tanh and GELU:
 *
 * x = n ln 2 + r with n whole and |r| ≤ ln 2 / 2, so e^x = 2^n e^r (Cody and Waite 1980: ln 2 in
 * two parts, the first of 16 bits, so that n times it is exact). e^r − 1 = r + r² P(r), with P of
 * degree 4 chosen to minimise the largest relative error of e^r on that interval, 3.1e-9. The value
 * depends on x alone, not on its position. NaN gives NaN.
 */
#define LOG2_E 1.44269504088896341f
#define LN2_HIGH 0.693145751953125f
#define LN2_LOW 1.42860682030941723e-6f
#define EXP_MIN (-104.0f) /* e^x is 0 below this, infinity above EXP_MAX */
#define EXP_MAX 89.0f
#define TANH_MAX 18.1f /* tanh is 1 where 2 |x| is larger */

/* e^r − 1 for x = n ln 2 + r; n as a float. */
INLINE vec exp_less_one(vec x, vec *n)
{
    *n = round_nearest(mul(x, splat(LOG2_E)));
    const vec r = mul_add(*n, splat(-LN2_LOW), mul_add(*n, splat(-LN2_HIGH), x));
    vec p = splat(0x1.6a5134p-10f);
    p = mul_add(p, r, splat(0x1.12397cp-7f));
    p = mul_add(p, r, splat(0x1.5558acp-5f));
    p = mul_add(p, r, splat(0x1.555492p-3f));
    p = mul_add(p, r, splat(0x1.fffffcp-2f));
    return mul_add(mul(r, r), p, r);
}

INLINE vec exp_of(vec x)
{
    vec n;
    const vec bounded = max_propagating(splat(EXP_MIN), min_propagating(splat(EXP_MAX), x));
    const vec q = exp_less_one(bounded, &n);
    return times_power_of_two(add(splat(1.0f), q), n);
}

/* 1 / (1 + e^−x) */
INLINE vec sigmoid_of(vec x)
{
    return quotient(splat(1.0f), add(splat(1.0f), exp_of(mul(splat(-1.0f), x))));
}

/* m / (m + 2) with m = e^(2|x|) − 1 and the sign of x: no cancellation where x is small. */
INLINE vec tanh_of(vec x)
{
    vec n;
    const vec twice = min_propagating(splat(TANH_MAX), magnitude(add(x, x)));
    const vec q = exp_less_one(twice, &n);
    const vec power = times_power_of_two(splat(1.0f), n);
    const vec m = mul_add(q, power, add(power, splat(-1.0f)));
    return with_sign(quotient(m, add(m, splat(2.0f))), x);
}

#define FOR_EACH(name)                                                                             \
    static void name##_each(const float *x, float *y, size_t n)                                    \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; WHOLE_VECTORS && i + LANES <= n; i += LANES) {                                      \
            store(y + i, name##_of(load(x + i)));                                                  \
        }                                                                                          \
        for (; i < n; i += LANES) {                                                                \
            const bool some = n - i < LANES;                                                       \
            store_some(y + i, name##_of(load_some(x + i, some, n - i)), some, n - i);              \
        }                                                                                          \
    }

FOR_EACH(exp)
FOR_EACH(sigmoid)
FOR_EACH(tanh)

/* ---- GELU: x Φ(x), Φ the normal distribution ----
 *
 * Φ(−|x|) = e^(−x²/2) t Q(t) with t = 1 / (1 + 0.21 |x|), the form of Hastings (1955, sheet 43); Q
 * of degree 8 chosen to minimise the largest relative error on 0 ≤ |x| ≤ 14, 1.7e-8. Above that
 * e^(−x²/2) is 0.
 */
#define TAIL_SLANT 0.21f
#define INVERSE_ROOT_TWO_PI 0.39894228040143268f

/* Φ(−size) of size ≥ 0; *power = e^(−size²/2). */
INLINE vec normal_tail(vec size, vec *power)
{
    const vec t = quotient(splat(1.0f), mul_add(size, splat(TAIL_SLANT), splat(1.0f)));
    vec q = splat(-0x1.25821ap-4f);
    q = mul_add(q, t, splat(0x1.22664ap-2f));
    q = mul_add(q, t, splat(-0x1.52309p-2f));
    q = mul_add(q, t, splat(0x1.65cc74p-2f));
    q = mul_add(q, t, splat(-0x1.80c082p-4f));
    q = mul_add(q, t, splat(0x1.ff7e76p-4f));
    q = mul_add(q, t, splat(0x1.1b683p-4f));
    q = mul_add(q, t, splat(0x1.5c7152p-4f));
    q = mul_add(q, t, splat(0x1.56e1fp-4f));
    *power = exp_of(mul(mul(size, size), splat(-0.5f)));
    return mul(mul(q, t), *power);
}

INLINE vec gelu_of(vec x)
{
    const vec size = magnitude(x);
    vec power;
    return mul_add(mul(size, splat(-1.0f)), normal_tail(size, &power), keep_positive(x, x));
}

/* *derivative = Φ(x) + x e^(−x²/2) / √(2π); returns the value. */
INLINE vec gelu_and_derivative(vec x, vec *derivative)
{
    const vec size = magnitude(x);
    vec power;
    const vec minus = mul(normal_tail(size, &power), splat(-1.0f));
    const vec whole = add(splat(0.5f), with_sign(add(splat(0.5f), minus), x));
    *derivative = mul_add(mul(x, power), splat(INVERSE_ROOT_TWO_PI), whole);
    return mul_add(size, minus, keep_positive(x, x));
}

FOR_EACH(gelu)

static void gelu_backward(const float *x, const float *dy, float *dx, float *y, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        const size_t left = n - i;
        const bool some = left < LANES;
        vec derivative;
        const vec value = gelu_and_derivative(load_some(x + i, some, left), &derivative);
        store_some(dx + i, mul(load_some(dy + i, some, left), derivative), some, left);
        if (y)
            store_some(y + i, value, some, left);
    }
}

/* ---- dropout ----
 *
 * Blocks of Philox are computed side by side, one in each 64-bit lane. The words and their order
 * are those of fedge_rng_u32. The lower half of a lane holds a word, the upper half is undefined.
 * Pairs of words are stored little-endian.
 */

#define DROP_LANES (sizeof(vec) / sizeof(uint64_t))
#define DROP_VECTORS 4 /* independent vectors, to hide the latency of products */
#define DROP_BLOCKS (DROP_LANES * DROP_VECTORS)
#define DROP_WORDS ((size_t)256) /* drawn at a time */

typedef uint64_t lanes __attribute__((vector_size(sizeof(vec))));

/* The stream's next DROP_BLOCKS blocks. */
static void philox_blocks(const fedge_rng *rng, uint32_t *words)
{
    lanes c0[DROP_VECTORS], c1[DROP_VECTORS], c2[DROP_VECTORS], c3[DROP_VECTORS];
    const lanes zero = {0}, m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
    uint32_t key0 = rng->key[0], key1 = rng->key[1];
    lanes lane_indices = {0};
    for (size_t l = 0; l < DROP_LANES; l++)
        lane_indices[l] = l;
    UNROLL
    for (size_t v = 0; v < DROP_VECTORS; v++) {
        c0[v] = lane_indices + (rng->counter[0] + v * DROP_LANES);
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

/* The least word that is kept: fedge_rng_float is the upper 24 bits of a word · 2^-24. 2^32 for
 * p = 1. */
static uint64_t keep_threshold(float p)
{
    return (uint64_t)ceil((double)p * 0x1p24) << 8;
}

static void drop_draw(fedge_rng *rng, float p, size_t n, const float *x, float *y, uint8_t *mask)
{
    const uint64_t limit = keep_threshold(p);
    const uint32_t threshold = limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit;
    const float scale = p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
    uint32_t words[DROP_WORDS];
    for (size_t count; n > 0; n -= count, x += count, y += count) {
        count = n < DROP_WORDS ? n : DROP_WORDS;
        draw_words(rng, words, count);
        for (size_t i = 0; limit > UINT32_MAX && i < count; i++)
            words[i] = 0;
        for (size_t i = 0; i < count; i++) {
            const float scaled = x[i] * scale;
            y[i] = words[i] >= threshold ? scaled : 0.0f;
        }
        for (size_t i = 0; mask && i < count; i += 8) {
            const size_t left = count - i < 8 ? count - i : 8;
            unsigned bits = 0;
            for (size_t l = 0; l < left; l++)
                bits |= (unsigned)(words[i + l] >= threshold) << l;
            *mask++ = (uint8_t)bits;
        }
    }
}

static void drop_apply(float p, size_t n, const uint8_t *mask, const float *dy, float *dx)
{
    const float scale = p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint32_t bits = mask[i / 8];
        for (uint32_t l = 0; l < 8; l++) {
            const float scaled = dy[i + l] * scale;
            dx[i + l] = (bits & 1u << l) != 0 ? scaled : 0.0f;
        }
    }
    for (; i < n; i++)
        dx[i] = mask[i / 8] >> i % 8 & 1 ? dy[i] * scale : 0.0f;
}

/* ---- steps of recurrent layers: all values of a unit stay in registers ---- */

INLINE vec get(const float *p, size_t n)
{
    return n == LANES ? load(p) : load_first(p, n);
}

INLINE void put(float *p, vec v, size_t n)
{
    if (n == LANES)
        store(p, v);
    else
        store_first(p, v, n);
}

INLINE void put_gradient(float *p, vec v, size_t n)
{
    put(p, zero_below(v, splat(FEDGE_MIN_CELL_GRADIENT)), n);
}

/* a − b */
INLINE vec less(vec a, vec b)
{
    return mul_add(splat(-1.0f), b, a);
}

/* 1 − a */
INLINE vec complement(vec a)
{
    return less(splat(1.0f), a);
}

/* a · (1 − a), from the sigmoid's value */
INLINE vec sigmoid_derivative(vec a)
{
    return mul(a, complement(a));
}

/* 1 − a², from the value of tanh */
INLINE vec tanh_derivative(vec a)
{
    return mul_add(mul(splat(-1.0f), a), a, splat(1.0f));
}

/* Units k to k + n of a step. */
INLINE void lstm_forward_lanes(const fedge_cell_step *step, size_t k, size_t n)
{
    float *at = step->gates + k;
    const size_t size = step->hidden;
    const vec i = sigmoid_of(get(at, n)), f = sigmoid_of(get(at + size, n));
    const vec g = tanh_of(get(at + 2 * size, n)), o = sigmoid_of(get(at + 3 * size, n));
    const vec c = mul_add(i, g, mul(f, get(step->c_prev + k, n)));
    put(at, i, n);
    put(at + size, f, n);
    put(at + 2 * size, g, n);
    put(at + 3 * size, o, n);
    put(step->c + k, c, n);
    put(step->h + k, mul(o, tanh_of(c)), n);
}

INLINE void lstm_backward_lanes(const fedge_cell_step *step, size_t k, size_t n)
{
    float *at = step->gates + k;
    const size_t size = step->hidden;
    const vec i = get(at, n), f = get(at + size, n), g = get(at + 2 * size, n);
    const vec o = get(at + 3 * size, n), tanh_c = tanh_of(get(step->c + k, n));
    const vec dh = add(get(step->dy + k, n), get(step->dh + k, n));
    const vec dc = mul_add(mul(dh, o), tanh_derivative(tanh_c), get(step->dc + k, n));
    put_gradient(at, mul(mul(dc, g), sigmoid_derivative(i)), n);
    put_gradient(at + size, mul(mul(dc, get(step->c_prev + k, n)), sigmoid_derivative(f)), n);
    put_gradient(at + 2 * size, mul(mul(dc, i), tanh_derivative(g)), n);
    put_gradient(at + 3 * size, mul(mul(dh, tanh_c), sigmoid_derivative(o)), n);
    put_gradient(step->dc + k, mul(dc, f), n);
    put(step->dh + k, splat(0.0f), n);
}

INLINE void gru_forward_lanes(const fedge_cell_step *step, size_t k, size_t units)
{
    float *at = step->gates + k;
    const size_t size = step->hidden;
    const vec r = sigmoid_of(get(at + size, units)), z = sigmoid_of(get(at + 2 * size, units));
    const vec n = tanh_of(mul_add(r, get(at + 3 * size, units), get(at, units)));
    put(at, n, units);
    put(at + size, r, units);
    put(at + 2 * size, z, units);
    put(step->h + k, mul_add(z, less(get(step->h_prev + k, units), n), n), units);
}

INLINE void gru_backward_lanes(const fedge_cell_step *step, size_t k, size_t units)
{
    float *at = step->gates + k;
    const size_t size = step->hidden;
    const vec n = get(at, units), r = get(at + size, units), z = get(at + 2 * size, units);
    const vec q = get(at + 3 * size, units), h_prev = get(step->h_prev + k, units);
    const vec dh = add(get(step->dy + k, units), get(step->dh + k, units));
    const vec dn = mul(mul(dh, complement(z)), tanh_derivative(n));
    put_gradient(at, dn, units);
    put_gradient(at + size, mul(mul(dn, q), sigmoid_derivative(r)), units);
    put_gradient(at + 2 * size, mul(mul(dh, less(h_prev, n)), sigmoid_derivative(z)), units);
    put_gradient(at + 3 * size, mul(dn, r), units);
    put_gradient(step->dh + k, mul(dh, z), units);
}

#define ALL_UNITS(name)                                                                            \
    static void name(const fedge_cell_step *step)                                                  \
    {                                                                                              \
        const size_t size = step->hidden;                                                          \
        size_t k = 0;                                                                              \
        for (; WHOLE_VECTORS && k + LANES <= size; k += LANES) {                                   \
            name##_lanes(step, k, LANES);                                                          \
        }                                                                                          \
        for (; k < size; k += LANES) {                                                             \
            name##_lanes(step, k, size - k < LANES ? size - k : LANES);                            \
        }                                                                                          \
    }

ALL_UNITS(lstm_forward)
ALL_UNITS(lstm_backward)
ALL_UNITS(gru_forward)
ALL_UNITS(gru_backward)
