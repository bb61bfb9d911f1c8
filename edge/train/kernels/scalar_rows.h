/* Plain kernels over rows, the part of kernels_scalar.c that kernels_simd_rows.h has the fast
 * versions of. */

static void small_gemm(const fedge_gemm *args)
{
    gemm(args, NULL);
}

static void softmax(const fedge_softmax *args)
{
    for (size_t r = 0; r < args->rows; r++) {
        float *s = args->s + r * args->stride, *kept = args->kept + 2 * r;
        const size_t n = args->seen == 0 ? args->width : args->seen + r;
        float most = s[0], sum = 0.0f;
        for (size_t j = 1; j < n; j++)
            most = s[j] > most ? s[j] : most;
        kept[0] = args->recompute ? kept[0] : -args->scale * most;
        for (size_t j = 0; j < n; j++) {
            s[j] = expf(s[j] * args->scale + kept[0]);
            sum += s[j];
        }
        kept[1] = args->recompute ? kept[1] : 1.0f / sum;
        for (size_t j = 0; j < args->width; j++)
            s[j] = j < n ? s[j] * kept[1] : 0.0f;
    }
}

static void softmax_backward(const fedge_softmax *args, const float *dp)
{
    for (size_t r = 0; r < args->rows; r++, dp += args->stride) {
        float *p = args->s + r * args->stride, sum = 0.0f;
        for (size_t j = 0; j < args->width; j++)
            sum += p[j] * dp[j];
        for (size_t j = 0; j < args->width; j++)
            p[j] *= (dp[j] - sum) * args->scale;
    }
}

static void norm_rows(const fedge_norm_rows *args, const float *x, float *y)
{
    const size_t n = args->width;
    for (size_t r = 0; r < args->rows; r++, x += n, y += n) {
        double sum = 0.0, squares = 0.0;
        for (size_t i = 0; !args->recompute && i < n; i++)
            sum += (double)x[i];
        const double center = sum / (double)n;
        for (size_t i = 0; !args->recompute && i < n; i++)
            squares += ((double)x[i] - center) * ((double)x[i] - center);
        const double variance = squares / (double)n + (double)args->eps;
        const float mean = args->recompute ? args->moments[2 * r] : (float)center;
        const float inverse =
            args->recompute ? args->moments[2 * r + 1] : (float)(1.0 / sqrt(variance));
        for (size_t i = 0; i < n; i++) {
            y[i] = (x[i] - mean) * (inverse * (!args->weight ? 1.0f : args->weight[i])) +
                   (!args->bias ? 0.0f : args->bias[i]);
        }
        if (args->moments) {
            args->moments[2 * r] = mean;
            args->moments[2 * r + 1] = inverse;
        }
    }
}

static void norm_rows_backward(const fedge_norm_rows *args, const float *x, const float *dy,
                               float *dx)
{
    const size_t n = args->width;
    for (size_t r = 0; r < args->rows; r++, x += n, dy += n) {
        const float mean = args->moments[2 * r], inverse = args->moments[2 * r + 1];
        double sum = 0.0, product = 0.0;
        for (size_t i = 0; i < n; i++) {
            const float normal = (x[i] - mean) * inverse;
            const float g = dy[i] * (!args->weight ? 1.0f : args->weight[i]);
            sum += (double)g;
            product += (double)(g * normal);
            if (args->weight_gradient)
                args->weight_gradient[i] += dy[i] * normal;
            if (args->bias_gradient)
                args->bias_gradient[i] += dy[i];
        }
        const float g_mean = (float)(sum / (double)n), g_product = (float)(product / (double)n);
        for (size_t i = 0; dx && i < n; i++) {
            const float g = dy[i] * (!args->weight ? 1.0f : args->weight[i]);
            dx[r * n + i] = (g - g_mean - (x[i] - mean) * inverse * g_product) * inverse;
        }
    }
}

static float drop_scale(float p)
{
    return p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
}

static void drop_draw(fedge_rng *rng, float p, size_t n, const float *x, float *y, uint8_t *kept)
{
    const float scale = drop_scale(p);
    for (size_t i = 0; i < n; i++) {
        const bool keep = fedge_rng_float(rng) >= p;
        y[i] = keep ? x[i] * scale : 0.0f;
        if (kept) {
            const unsigned before = i % 8 == 0 ? 0 : kept[i / 8];
            kept[i / 8] = (uint8_t)(before | (unsigned)keep << i % 8);
        }
    }
}

static void drop_apply(float p, size_t n, const uint8_t *kept, const float *dy, float *dx)
{
    const float scale = drop_scale(p);
    for (size_t i = 0; i < n; i++)
        dx[i] = kept[i / 8] >> i % 8 & 1 ? dy[i] * scale : 0.0f;
}
