/* Steps of recurrent layers, everything of a unit in registers at once; the last part of
 * kernels_simd.h. */

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
    put(p, zero_below(v, splat(FEDGE_CELL_LEAST)), n);
}

/* a − b; 1 − a; a · (1 − a); 1 − a² */
INLINE vec less(vec a, vec b)
{
    return mul_add(splat(-1.0f), b, a);
}

INLINE vec rest(vec a)
{
    return less(splat(1.0f), a);
}

INLINE vec sigmoid_slope(vec a)
{
    return mul(a, rest(a));
}

INLINE vec tanh_slope(vec a)
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
    const vec c = mul_add(i, g, mul(f, get(step->c_before + k, n)));
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
    const vec dc = mul_add(mul(dh, o), tanh_slope(tanh_c), get(step->dc + k, n));
    put_gradient(at, mul(mul(dc, g), sigmoid_slope(i)), n);
    put_gradient(at + size, mul(mul(dc, get(step->c_before + k, n)), sigmoid_slope(f)), n);
    put_gradient(at + 2 * size, mul(mul(dc, i), tanh_slope(g)), n);
    put_gradient(at + 3 * size, mul(mul(dh, tanh_c), sigmoid_slope(o)), n);
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
    put(step->h + k, mul_add(z, less(get(step->h_before + k, units), n), n), units);
}

INLINE void gru_backward_lanes(const fedge_cell_step *step, size_t k, size_t units)
{
    float *at = step->gates + k;
    const size_t size = step->hidden;
    const vec n = get(at, units), r = get(at + size, units), z = get(at + 2 * size, units);
    const vec q = get(at + 3 * size, units), h_before = get(step->h_before + k, units);
    const vec dh = add(get(step->dy + k, units), get(step->dh + k, units));
    const vec dn = mul(mul(dh, rest(z)), tanh_slope(n));
    put_gradient(at, dn, units);
    put_gradient(at + size, mul(mul(dn, q), sigmoid_slope(r)), units);
    put_gradient(at + 2 * size, mul(mul(dh, less(h_before, n)), sigmoid_slope(z)), units);
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
