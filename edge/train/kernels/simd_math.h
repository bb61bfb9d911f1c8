/* exp, sigmoid, tanh and GELU of many numbers; the fourth part of kernels_simd.h.
 *
 * x = n ln 2 + r with n whole and |r| ≤ ln 2 / 2, so e^x = 2^n e^r (Cody and Waite 1980: ln 2 in
 * two parts, the first of 16 bits, so that n times it is exact). e^r − 1 = r + r² P(r), P of degree
 * 4 with the least largest relative error of e^r on that interval, 3.1e-9. The value depends on x
 * alone, not on its place. NaN gives NaN.
 */
#define LOG2_E 1.44269504088896341f
#define LN2_HIGH 0.693145751953125f
#define LN2_LOW 1.42860682030941723e-6f
#define EXP_LEAST (-104.0f) /* 0 from here down, infinity from the other up */
#define EXP_MOST 89.0f
#define TANH_MOST 18.1f /* of 2 |x|: 1 from here on */

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
    const vec bounded = max_propagating(splat(EXP_LEAST), min_propagating(splat(EXP_MOST), x));
    const vec q = exp_less_one(bounded, &n);
    return times_power_of_two(add(splat(1.0f), q), n);
}

/* 1 / (1 + e^−x) */
INLINE vec sigmoid_of(vec x)
{
    return quotient(splat(1.0f), add(splat(1.0f), exp_of(mul(splat(-1.0f), x))));
}

/* m / (m + 2) with m = e^(2|x|) − 1, which loses nothing where x is small; x's sign. */
INLINE vec tanh_of(vec x)
{
    vec n;
    const vec twice = min_propagating(splat(TANH_MOST), magnitude(add(x, x)));
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
 * of degree 8 with the least largest relative error on 0 ≤ |x| ≤ 14, 1.7e-8. Behind that e^(−x²/2)
 * is 0.
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

/* *slope = Φ(x) + x e^(−x²/2) / √(2π); returns the value. */
INLINE vec gelu_slope_of(vec x, vec *slope)
{
    const vec size = magnitude(x);
    vec power;
    const vec minus = mul(normal_tail(size, &power), splat(-1.0f));
    const vec whole = add(splat(0.5f), with_sign(add(splat(0.5f), minus), x));
    *slope = mul_add(mul(x, power), splat(INVERSE_ROOT_TWO_PI), whole);
    return mul_add(size, minus, keep_positive(x, x));
}

FOR_EACH(gelu)

static void gelu_backward(const float *x, const float *dy, float *dx, float *y, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        const size_t left = n - i;
        const bool some = left < LANES;
        vec slope;
        const vec value = gelu_slope_of(load_some(x + i, some, left), &slope);
        store_some(dx + i, mul(load_some(dy + i, some, left), slope), some, left);
        if (y)
            store_some(y + i, value, some, left);
    }
}
