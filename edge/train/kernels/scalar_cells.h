/* Plain steps of recurrent layers, the part of kernels_scalar.c that kernels_simd_cells.h has the
 * fast versions of. */

static void lstm_forward(const fedge_cell_step *step)
{
    const size_t n = step->hidden;
    float *i = step->gates, *f = i + n, *g = f + n, *o = g + n;
    sigmoid_each(i, i, 2 * n);
    tanh_each(g, g, n);
    sigmoid_each(o, o, n);
    for (size_t k = 0; k < n; k++) {
        step->c[k] = f[k] * step->c_before[k] + i[k] * g[k];
        step->h[k] = o[k] * tanhf(step->c[k]);
    }
}

static float zero_if_tiny(float gradient)
{
    return fabsf(gradient) < FEDGE_CELL_LEAST ? 0.0f : gradient;
}

static void lstm_backward(const fedge_cell_step *step)
{
    const size_t n = step->hidden;
    float *i = step->gates, *f = i + n, *g = f + n, *o = g + n;
    for (size_t k = 0; k < n; k++) {
        const float tanh_c = tanhf(step->c[k]), dh = step->dy[k] + step->dh[k];
        const float dc = step->dc[k] + dh * o[k] * (1.0f - tanh_c * tanh_c);
        const float di = dc * g[k], df = dc * step->c_before[k], dg = dc * i[k];
        step->dc[k] = zero_if_tiny(dc * f[k]);
        step->dh[k] = 0.0f;
        i[k] = zero_if_tiny(di * i[k] * (1.0f - i[k]));
        f[k] = zero_if_tiny(df * f[k] * (1.0f - f[k]));
        g[k] = zero_if_tiny(dg * (1.0f - g[k] * g[k]));
        o[k] = zero_if_tiny(dh * tanh_c * o[k] * (1.0f - o[k]));
    }
}

static void gru_forward(const fedge_cell_step *step)
{
    const size_t size = step->hidden;
    float *n = step->gates, *r = n + size, *z = r + size, *q = z + size;
    sigmoid_each(r, r, 2 * size);
    for (size_t k = 0; k < size; k++) {
        n[k] = tanhf(n[k] + r[k] * q[k]);
        step->h[k] = n[k] + z[k] * (step->h_before[k] - n[k]);
    }
}

static void gru_backward(const fedge_cell_step *step)
{
    const size_t size = step->hidden;
    float *n = step->gates, *r = n + size, *z = r + size, *q = z + size;
    for (size_t k = 0; k < size; k++) {
        const float dh = step->dy[k] + step->dh[k];
        const float dn = dh * (1.0f - z[k]) * (1.0f - n[k] * n[k]);
        const float dr = dn * q[k] * r[k] * (1.0f - r[k]);
        const float dz = dh * (step->h_before[k] - n[k]) * z[k] * (1.0f - z[k]);
        step->dh[k] = zero_if_tiny(dh * z[k]);
        n[k] = zero_if_tiny(dn);
        q[k] = zero_if_tiny(dn * r[k]);
        r[k] = zero_if_tiny(dr);
        z[k] = zero_if_tiny(dz);
    }
}
