#include "edge/train/layers/convolution.h"

#include <assert.h>
#include <string.h>

#define BLOCK_FLOATS                                                                               \
    ((size_t)40960)              /* floats of a layout: 160 KB, part of the second-level cache */
#define LINE ((size_t)16)        /* floats of a cache line */
#define MIN_PRODUCTS ((size_t)8) /* least products per element for which folding pays */

/* Builds for small programs omit folding. */
#ifdef FEDGE_SMALL
enum { FOLDS = 0 };
#else
enum { FOLDS = 1 };
#endif

static size_t divide_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

static size_t at_least(size_t a, size_t b)
{
    return a > b ? a : b;
}

static bool is_folded(const fedge_patches *self)
{
    return FOLDS && self->folded;
}

static fedge_patch_axis make_axis(const fedge_convolution *conv, int i)
{
    fedge_patch_axis a = {.in = conv->in[i],
                          .out = conv->out[i],
                          .taps = conv->kernel[i],
                          .stride = conv->stride[i],
                          .pad = conv->padding[i],
                          .dilation = conv->dilation[i]};
    const size_t last = (a.taps - 1) * a.dilation;
    a.max_tap_offset = last / a.stride;
    a.skip = a.pad / a.stride;
    a.end = divide_up(a.pad + a.in, a.stride);
    a.lead = a.max_tap_offset > a.skip ? a.max_tap_offset - a.skip : 0;
    a.planes = last < a.stride ? last + 1 : a.stride;
    a.shifts = 1;
    /* Space for the input, the outputs and their gradients. The last read of an output must end in
     * this row or in the padding of the next. */
    a.size = at_least(at_least(a.end, a.out), a.lead + a.out);
    const size_t last_read = a.out - 1 + a.max_tap_offset;
    if (last_read >= a.size && (last_read - a.size + 1) * a.stride > a.pad)
        a.size = last_read + 1;
    return a;
}

/* Folded: the copy of the gradients that a tap reads, counted from the one that begins
 * ceil(pad / stride) outputs into a row. */
static size_t shift_of(const fedge_patch_axis *w, size_t column)
{
    return (column + divide_up(w->pad, w->stride) * w->stride - w->pad) / w->stride;
}

/* Number of images in the layouts of one example. */
static size_t count_images(const fedge_convolution *conv, const fedge_patches *s)
{
    return conv->channels * s->h.planes * s->w.planes + conv->out_channels * s->w.shifts;
}

/* True if a whole image with all its copies fits a block, and so do the two vectors of zeros after
 * each copy. */
static bool fits(const fedge_convolution *conv, const fedge_patches *s)
{
    const size_t images = count_images(conv, s);
    return images * s->w.size <= BLOCK_FLOATS / s->h.size && images * 2 * s->lanes <= BLOCK_FLOATS;
}

static void fold(const fedge_convolution *conv, fedge_patch_pass pass, fedge_patches *s)
{
    fedge_patches folded = *s;
    fedge_patch_axis *w = &folded.w;
    const bool forward = pass == FEDGE_PATCH_FORWARD;
    const size_t rows = forward ? s->h.out : s->h.end - s->h.skip;
    const size_t width = forward ? w->out : w->end - w->skip;
    const size_t products = forward ? s->outputs : s->channels;
    if (!FOLDS || pass == FEDGE_PATCH_BOTH || rows == 1 || width % s->lanes == 0 ||
        (w->taps > 1 && products < MIN_PRODUCTS))
        return;
    folded.folded = true;
    if (forward) {
        w->planes = w->taps;
        w->size = w->out;
    } else {
        w->shifts = shift_of(w, (w->taps - 1) * w->dilation) + 1;
        w->size = divide_up(w->in, w->stride);
    }
    if (fits(conv, &folded))
        *s = folded;
}

fedge_patches fedge_patches_make(const fedge_convolution *conv, uint32_t batch, uint32_t lanes,
                                 fedge_patch_pass pass)
{
    fedge_patches s = {.h = make_axis(conv, 0),
                       .w = make_axis(conv, 1),
                       .channels = conv->channels / conv->groups,
                       .outputs = conv->out_channels / conv->groups,
                       .groups = conv->groups,
                       .taps = (size_t)conv->kernel[0] * conv->kernel[1],
                       .lanes = lanes};
    s.patch = s.channels * s.taps;
    fold(conv, pass, &s);
    const size_t images = count_images(conv, &s);
    const size_t line = images * s.w.size; /* floats of one row of all images */
    s.steps = at_least(s.h.out, s.h.end - s.h.skip);
    s.rows = s.steps;
    s.examples = BLOCK_FLOATS / line / s.h.size;
    if (s.examples == 0) {
        const size_t margin = at_least(s.h.max_tap_offset, s.h.lead + s.h.skip);
        const size_t fit = BLOCK_FLOATS / line;
        s.rows = fit > margin ? fit - margin : 1;
        s.rows = s.rows < s.steps ? s.rows : s.steps;
        s.h.size = s.rows < s.steps ? s.rows + margin : s.h.size;
        s.examples = 1;
    }
    s.examples = s.examples < batch ? s.examples : batch;
    s.image = s.h.size * s.w.size;
    /* The last image is followed by zeros for the last reads, of whole vectors. An odd number of
     * cache lines keeps channels from sharing cache sets. */
    const size_t tail = at_least(s.h.max_tap_offset, s.h.lead + s.h.skip) + 1;
    s.pitch = divide_up(s.examples * s.image + tail * s.w.size + 2 * lanes, LINE) | 1;
    s.pitch *= LINE;
    return s;
}

bool fedge_patches_next(const fedge_patches *self, size_t batch, fedge_patch_block *block)
{
    if (block->examples != 0) {
        block->row += self->rows;
        if (block->row >= self->steps) {
            block->row = 0;
            block->example += block->examples;
        }
    }
    if (block->example >= batch)
        return false;
    const size_t left = batch - block->example, gradients = self->h.end - self->h.skip;
    const size_t row = block->row, end = row + self->rows;
    block->examples = left < self->examples ? left : self->examples;
    block->rows = row >= self->h.out ? 0 : (end < self->h.out ? end : self->h.out) - row;
    block->gradient_rows = row >= gradients ? 0 : (end < gradients ? end : gradients) - row;
    return true;
}

size_t fedge_patches_input_size(const fedge_patches *self)
{
    return self->groups * self->channels * self->h.planes * self->w.planes * self->pitch;
}

size_t fedge_patches_output_size(const fedge_patches *self)
{
    return self->groups * self->outputs * self->w.shifts * self->pitch;
}

size_t fedge_patches_outputs(const fedge_patches *self, const fedge_patch_block *block)
{
    return block->rows == 0 ? 0
                            : (block->examples - 1) * self->image +
                                  (block->rows - 1) * self->w.size + self->w.out;
}

/* Covers [rows] rows of [width] elements from row [top] on, of every example, with vectors. Unless
 * NULL, [to] is set to their offsets without gaps, examples [stride] floats apart. */
static size_t cover_rows(const fedge_patches *self, size_t examples, size_t top, size_t rows,
                         size_t width, uint32_t *starts, size_t stride, uint32_t *to)
{
    size_t n = 0, next = 0;
    for (size_t i = 0; i < examples * rows; i++) {
        const size_t begin = i / rows * self->image + (top + i % rows) * self->w.size;
        next = at_least(next, begin);
        for (; next < begin + width; next += self->lanes) {
            if (to)
                to[n] = (uint32_t)(i / rows * stride + i % rows * width + next - begin);
            starts[n++] = (uint32_t)next;
        }
    }
    return n;
}

size_t fedge_patches_output_starts(const fedge_patches *self, const fedge_patch_block *block,
                                   uint32_t *starts, uint32_t *to)
{
    return cover_rows(self, block->examples, 0, block->rows, self->w.out, starts,
                      self->groups * self->outputs * self->h.out * self->w.out, to);
}

size_t fedge_patches_max_starts(const fedge_patches *self)
{
    const size_t width = at_least(self->w.out, self->w.end - self->w.skip);
    return self->examples * self->rows * divide_up(width, self->lanes);
}

/* True if rows of [width] elements, or folded [rows] of them together, are whole vectors. */
static bool is_whole(const fedge_patches *self, size_t rows, size_t width)
{
    return (is_folded(self) ? rows * width : width) % self->lanes == 0;
}

bool fedge_patches_outputs_whole(const fedge_patches *self)
{
    return is_whole(self, self->h.out, self->w.out);
}

bool fedge_patches_gradients_whole(const fedge_patches *self)
{
    return self->h.stride == 1 && self->w.stride == 1 && is_whole(self, self->h.in, self->w.in);
}

void fedge_patches_offsets(const fedge_patches *self, uint32_t *offsets)
{
    const fedge_patch_axis *h = &self->h, *w = &self->w;
    const size_t planes = h->planes * w->planes;
    for (size_t tap = 0; tap < self->taps; tap++) {
        const size_t row = tap / w->taps * h->dilation, number = tap % w->taps;
        const size_t column = number * w->dilation;
        const size_t plane = is_folded(self) ? number : column % w->stride;
        const size_t offset = (row % h->stride * w->planes + plane) * self->pitch +
                              row / h->stride * w->size +
                              (is_folded(self) ? 0 : column / w->stride);
        for (size_t c = 0; c < self->channels; c++)
            offsets[c * self->taps + tap] = (uint32_t)(c * planes * self->pitch + offset);
    }
}

size_t fedge_patches_gradient_taps(const fedge_patches *self, size_t phase_h, size_t phase_w)
{
    const fedge_patch_axis *h = &self->h, *w = &self->w;
    size_t rows = 0, columns = 0;
    for (size_t i = 0; i < h->taps; i++)
        rows += i * h->dilation % h->stride == phase_h;
    for (size_t i = 0; i < w->taps; i++)
        columns += i * w->dilation % w->stride == phase_w;
    return self->outputs * rows * columns;
}

void fedge_patches_gradient_offsets(const fedge_patches *self, size_t phase_h, size_t phase_w,
                                    uint32_t *offsets, uint32_t *weights)
{
    const fedge_patch_axis *h = &self->h, *w = &self->w;
    size_t n = 0;
    for (size_t tap = 0; tap < self->taps; tap++) {
        const size_t row = tap / w->taps * h->dilation;
        const size_t column = tap % w->taps * w->dilation;
        if (row % h->stride != phase_h || column % w->stride != phase_w)
            continue;
        const size_t offset = (h->lead + h->skip - row / h->stride) * w->size +
                              (is_folded(self) ? shift_of(w, column) * self->pitch
                                               : w->lead + w->skip - column / w->stride);
        for (size_t o = 0; o < self->outputs; o++) {
            offsets[n] = (uint32_t)(o * w->shifts * self->pitch + offset);
            weights[n++] = (uint32_t)(o * self->patch + tap);
        }
    }
}

/* Of [n] indices from [from] on, the part [first, last) inside the image; returns the image's
 * coordinate of the first, or 0 if there is none. Index i is coordinate (i · stride + phase) − pad.
 */
static size_t inside(size_t from, size_t n, size_t stride, size_t phase, size_t pad, size_t in,
                     size_t *first, size_t *last)
{
    const size_t begin = pad > phase ? divide_up(pad - phase, stride) : 0;
    const size_t end = pad + in > phase ? divide_up(pad + in - phase, stride) : 0;
    *first = begin > from ? begin - from : 0;
    *last = end > from ? end - from : 0;
    *last = *last < n ? *last : n;
    *first = *first < *last ? *first : *last;
    return *first < *last ? (from + *first) * stride + phase - pad : 0;
}

/* The rows of a block with some of the input's gradient, of one phase; returns the image's row of
 * the first. */
static size_t gradient_rows(const fedge_patches *self, const fedge_patch_block *block,
                            size_t phase_h, size_t *top, size_t *bottom)
{
    const fedge_patch_axis *h = &self->h;
    return inside(h->skip + block->row, block->gradient_rows, h->stride, phase_h, h->pad, h->in,
                  top, bottom);
}

size_t fedge_patches_gradient_starts(const fedge_patches *self, const fedge_patch_block *block,
                                     size_t phase_h, uint32_t *starts, uint32_t *to)
{
    const fedge_patch_axis *w = &self->w;
    const size_t width = is_folded(self) ? w->size : w->end - w->skip;
    size_t top, bottom;
    (void)gradient_rows(self, block, phase_h, &top, &bottom);
    return cover_rows(self, block->examples, top, bottom - top, width, starts,
                      self->groups * self->channels * self->h.in * w->in, to);
}

/* Rows [top, bottom) and columns [left, right) of an image, outside of which are zeros. */
typedef struct frame {
    size_t top, bottom, left, right;
    size_t row_stride, column_stride; /* strides of the source */
} frame;

static void copy_image(const fedge_patches *self, const fedge_kernels *kernels, const frame *at,
                       const float *from, float *to)
{
    const size_t width = self->w.size, columns = at->right - at->left;
    if (self->rows < self->steps) {
        memset(to, 0, at->top * width * sizeof(*to));
        memset(to + at->bottom * width, 0, (self->h.size - at->bottom) * width * sizeof(*to));
    }
    float *row = to + at->top * width + at->left;
    if (at->column_stride == 1) {
        kernels->copy_rows(at->bottom - at->top, columns, from, at->row_stride, 0.0f, row, width);
        return;
    }
    if (at->column_stride == 2) {
        kernels->pick_rows(at->bottom - at->top, columns, from, at->row_stride, row, width);
        return;
    }
    for (size_t r = at->top; r < at->bottom; r++, row += width, from += at->row_stride) {
        for (size_t q = 0; q < columns; q++)
            row[q] = from[q * at->column_stride];
    }
}

void fedge_patches_copy_input(const fedge_patches *self, const fedge_kernels *kernels,
                              const fedge_patch_block *block, bool clear, const float *x, float *to)
{
    const fedge_patch_axis *h = &self->h, *w = &self->w;
    const size_t channels = self->groups * self->channels, image = h->in * w->in;
    if (clear)
        memset(to, 0, fedge_patches_input_size(self) * sizeof(*to));
    for (size_t i = 0; i < channels * h->planes * w->planes; i++, to += self->pitch) {
        const size_t channel = i / w->planes / h->planes;
        const size_t phase_h = i / w->planes % h->planes;
        const size_t first = i % w->planes * (is_folded(self) ? w->dilation : 1);
        frame at = {.row_stride = h->stride * w->in, .column_stride = w->stride};
        const size_t row =
            inside(block->row, h->size, h->stride, phase_h, h->pad, h->in, &at.top, &at.bottom);
        const size_t column =
            inside(0, w->size, w->stride, first, w->pad, w->in, &at.left, &at.right);
        for (size_t e = 0; e < block->examples; e++) {
            copy_image(self, kernels, &at,
                       x + ((block->example + e) * channels + channel) * image + row * w->in +
                           column,
                       to + e * self->image);
        }
    }
}

void fedge_patches_copy_gradient(const fedge_patches *self, const fedge_kernels *kernels,
                                 const fedge_patch_block *block, bool clear, const float *dy,
                                 float *to)
{
    const fedge_patch_axis *h = &self->h, *w = &self->w;
    const size_t outputs = self->groups * self->outputs, image = h->out * w->out;
    frame at = {.row_stride = w->out, .column_stride = 1};
    const size_t row = inside(block->row, h->size, 1, 0, h->lead, h->out, &at.top, &at.bottom);
    if (clear)
        memset(to, 0, fedge_patches_output_size(self) * sizeof(*to));
    for (size_t i = 0; i < outputs * w->shifts; i++, to += self->pitch) {
        const size_t o = i / w->shifts, shift = i % w->shifts;
        const size_t from = is_folded(self) ? divide_up(w->pad, w->stride) : 0;
        const size_t column = inside(from, w->size, 1, 0, is_folded(self) ? shift : w->lead, w->out,
                                     &at.left, &at.right);
        for (size_t e = 0; e < block->examples; e++) {
            copy_image(self, kernels, &at,
                       dy + ((block->example + e) * outputs + o) * image + row * w->out + column,
                       to + e * self->image);
        }
    }
}

void fedge_patches_store_outputs(const fedge_patches *self, const fedge_kernels *kernels,
                                 const fedge_patch_block *block, const float *from, float *y)
{
    const size_t outputs = self->groups * self->outputs, width = self->w.out;
    for (size_t e = 0; e < block->examples; e++) {
        for (size_t o = 0; o < outputs; o++) {
            const size_t image = (block->example + e) * outputs + o;
            kernels->copy_rows(block->rows, width, from + o * self->pitch + e * self->image,
                               self->w.size, 0.0f, y + (image * self->h.out + block->row) * width,
                               width);
        }
    }
}

bool fedge_patches_weaves(const fedge_patches *self)
{
    return self->w.stride == 2 && self->w.taps > 1 && self->w.dilation % 2 == 1;
}

void fedge_patches_store_woven(const fedge_patches *self, const fedge_kernels *kernels,
                               const fedge_patch_block *block, size_t phase_h,
                               const float *const from[2], float *dx)
{
    const fedge_patch_axis *h = &self->h, *w = &self->w;
    const size_t channels = self->groups * self->channels, odd = w->pad % 2;
    const size_t ahead = is_folded(self) ? 0 : odd; /* offset of the other phase's first column */
    size_t top, bottom;
    const size_t row = gradient_rows(self, block, phase_h, &top, &bottom);
    for (size_t i = 0; i < channels * block->examples; i++) {
        const size_t c = i % channels, e = i / channels;
        const size_t source = c * self->pitch + e * self->image + top * w->size;
        float *to = dx + (((block->example + e) * channels + c) * h->in + row) * w->in;
        kernels->weave_rows(bottom - top, w->in, from[odd] + source, from[1 - odd] + source + ahead,
                            w->size, to, h->stride * w->in);
    }
}

void fedge_patches_store_gradient(const fedge_patches *self, const fedge_kernels *kernels,
                                  const fedge_patch_block *block, size_t phase_h, size_t phase_w,
                                  const float *from, float *dx)
{
    const fedge_patch_axis *h = &self->h, *w = &self->w;
    const size_t channels = self->groups * self->channels;
    size_t top, bottom, left, right;
    const size_t row = gradient_rows(self, block, phase_h, &top, &bottom);
    const size_t first = is_folded(self) && w->pad % w->stride > phase_w;
    const size_t column = inside(w->skip + first, w->end - w->skip - first, w->stride, phase_w,
                                 w->pad, w->in, &left, &right);
    from += top * w->size + left;
    for (size_t i = 0; i < channels * block->examples; i++) {
        const size_t c = i % channels, e = i / channels;
        const float *source = from + c * self->pitch + e * self->image;
        float *to = dx + (((block->example + e) * channels + c) * h->in + row) * w->in;
        to += column;
        if (w->stride == 1) {
            kernels->copy_rows(bottom - top, right - left, source, w->size, 0.0f, to,
                               h->stride * w->in);
            continue;
        }
        for (size_t r = top; r < bottom; r++) {
            for (size_t q = 0; q < right - left; q++)
                to[q * w->stride] = source[q];
            source += w->size;
            to += h->stride * w->in;
        }
    }
}

/* ---- the gradient of the weights, with taps in the lanes ---- */

#define MIN_OUTPUTS 4u /* outputs of a group: fewer leave rows of the product's tiles idle */
#define BAND_FLOATS                                                                                \
    ((size_t)20480) /* floats of channels-last input at a time, unless one row is larger           \
                     */
#define SUM_PIXELS ((size_t)256) /* least pixels in one sum, of several examples if needed */
/* Most floats of input, and of outputs, in one sum: tables have 32 bits. */
#define SUM_FLOATS ((size_t)1 << 31)

/* The layout of a group's input, and the part of it that is processed at a time. */
typedef struct band {
    size_t channels, outputs; /* channels and outputs of a group */
    size_t examples;          /* examples at a time; 1 if images are processed in bands */
    size_t rows;              /* rows of outputs at a time */
    size_t lines, width;      /* shape of the padded input under these rows */
    size_t image;             /* floats of an example's band */
    size_t segments, length;  /* groups of contiguous taps, floats of each */
    size_t vectors;           /* vectors of a segment */
    size_t sums;              /* floats of an output channel's sums */
} band;

static band make_band(const fedge_convolution *conv, size_t batch, size_t lanes)
{
    band b = {.channels = conv->channels / conv->groups,
              .outputs = conv->out_channels / conv->groups,
              .examples = 1,
              .rows = conv->out[0]};
    const size_t window = (size_t)(conv->kernel[0] - 1) * conv->dilation[0] + 1;
    b.width = (size_t)(conv->out[1] - 1) * conv->stride[1] +
              (size_t)(conv->kernel[1] - 1) * conv->dilation[1] + 1;
    b.lines = (b.rows - 1) * conv->stride[0] + window;
    const size_t line = b.width * b.channels, fit = BAND_FLOATS / line;
    if (b.lines > fit) {
        b.rows = fit > window ? (fit - window) / conv->stride[0] + 1 : 1;
        b.lines = (b.rows - 1) * conv->stride[0] + window;
    }
    b.image = b.lines * line;
    if (b.rows == conv->out[0]) {
        const size_t pixels = b.rows * conv->out[1], outputs = conv->out_channels * pixels;
        const size_t max_examples = SUM_FLOATS / (b.image > outputs ? b.image : outputs);
        b.examples = pixels < SUM_PIXELS ? SUM_PIXELS / pixels : 1;
        b.examples = b.examples < max_examples ? b.examples : max_examples;
        b.examples = b.examples < batch ? b.examples : batch;
        b.examples = b.examples > 0 ? b.examples : 1;
    }
    const bool contiguous = conv->dilation[1] == 1;
    b.segments = (size_t)conv->kernel[0] * (contiguous ? 1 : conv->kernel[1]);
    b.length = contiguous ? conv->kernel[1] * b.channels : b.channels;
    b.vectors = divide_up(b.length, lanes);
    b.sums = b.segments * b.vectors * lanes;
    return b;
}

/* The parts of the working memory. */
typedef struct workspace {
    float *x, *sums;
    uint32_t *x_offsets, *dy_offsets; /* offset of each pixel */
    uint32_t *starts, *c_starts;      /* offset of each vector */
    uint64_t bytes;
} workspace;

static workspace lay_out(const fedge_convolution *conv, const band *b, size_t lanes, void *scratch)
{
    const size_t x = divide_up(b->examples * b->image + lanes, 16) * 16;
    const size_t sums = b->outputs * b->sums;
    const size_t pixels = b->examples * b->rows * conv->out[1];
    const size_t vectors = b->segments * b->vectors;
    workspace at = {.bytes = ((uint64_t)x + sums) * sizeof(float) +
                             2 * ((uint64_t)pixels + vectors) * sizeof(uint32_t)};
    if (scratch) {
        at.x = scratch;
        at.sums = at.x + x;
        at.x_offsets = (uint32_t *)(void *)(at.sums + sums);
        at.dy_offsets = at.x_offsets + pixels;
        at.starts = at.dy_offsets + pixels;
        at.c_starts = at.starts + vectors;
    }
    return at;
}

bool fedge_convolution_weights_fit(const fedge_convolution *conv, const fedge_kernels *kernels)
{
    const size_t channels = conv->channels / conv->groups;
    return kernels->lanes > 1 && conv->out_channels / conv->groups >= MIN_OUTPUTS &&
           2 * channels * (conv->dilation[1] == 1 ? conv->kernel[1] : 1) >= kernels->lanes;
}

uint64_t fedge_convolution_weights_scratch(const fedge_convolution *conv, uint32_t batch,
                                           const fedge_kernels *kernels)
{
    const band b = make_band(conv, batch, kernels->lanes);
    return lay_out(conv, &b, kernels->lanes, NULL).bytes;
}

static void fill_tables(const fedge_convolution *conv, const band *b, size_t lanes,
                        const workspace *at)
{
    const size_t line = b->width * b->channels, out = (size_t)conv->out[0] * conv->out[1];
    size_t n = 0;
    for (size_t e = 0; e < b->examples; e++) {
        for (size_t i = 0; i < b->rows; i++) {
            for (size_t j = 0; j < conv->out[1]; j++) {
                at->x_offsets[n] = (uint32_t)(e * b->image + i * conv->stride[0] * line +
                                              j * conv->stride[1] * b->channels);
                at->dy_offsets[n++] =
                    (uint32_t)(e * conv->out_channels * out + i * conv->out[1] + j);
            }
        }
    }
    const size_t segments_w = b->segments / conv->kernel[0];
    for (size_t v = 0; v < b->segments * b->vectors; v++) {
        const size_t s = v / b->vectors;
        at->starts[v] =
            (uint32_t)(s / segments_w * conv->dilation[0] * line +
                       s % segments_w * conv->dilation[1] * b->channels + v % b->vectors * lanes);
        at->c_starts[v] = (uint32_t)(v * lanes);
    }
}

/* Copies one example's band, for outputs from row [row] on. The padding beside the image is zero
 * already, and so is that above and below if the band is the whole image. x: the group's channels.
 */
static void copy_band(const fedge_convolution *conv, const band *b, const fedge_kernels *kernels,
                      size_t row, const float *x, float *to)
{
    const size_t in = (size_t)conv->in[0] * conv->in[1], left = conv->padding[1];
    const size_t right = left + conv->in[1] < b->width ? left + conv->in[1] : b->width;
    const size_t line = b->width * b->channels;
    const size_t window = (size_t)(conv->kernel[0] - 1) * conv->dilation[0] + 1;
    for (size_t i = 0; i < b->lines; i++, to += line) {
        const size_t y = row * conv->stride[0] + i; /* counted from −padding */
        if (i % conv->stride[0] >= window)
            continue; /* the kernel does not read this row */
        if (y < conv->padding[0] || y >= conv->padding[0] + (size_t)conv->in[0]) {
            if (b->rows < conv->out[0])
                memset(to, 0, line * sizeof(*to));
        } else if (left < right) {
            kernels->transpose(b->channels, right - left, x + (y - conv->padding[0]) * conv->in[1],
                               in, to + left * b->channels, b->channels);
        }
    }
}

/* gradient[o][c][tap] += sums[o][tap][c]. */
static void add_sums(const band *b, size_t lanes, const float *sums, float *gradient)
{
    const size_t pitch = b->vectors * lanes,
                 taps = b->length / b->channels; /* layout of a segment */
    for (size_t o = 0; o < b->outputs; o++, sums += b->sums) {
        for (size_t c = 0; c < b->channels; c++) {
            for (size_t s = 0; s < b->segments; s++) {
                for (size_t tap = 0; tap < taps; tap++)
                    *gradient++ += sums[s * pitch + tap * b->channels + c];
            }
        }
    }
}

static void add_group(const fedge_layer_run *run, const fedge_convolution *conv, const band *b,
                      const workspace *at, size_t group)
{
    const size_t in = (size_t)conv->in[0] * conv->in[1], out = (size_t)conv->out[0] * conv->out[1];
    const float *x = run->x[0] + group * b->channels * in;
    const float *dy = run->dy + group * b->outputs * out;
    memset(at->sums, 0, b->outputs * b->sums * sizeof(*at->sums));
    for (size_t e = 0, n; e < run->batch; e += n) {
        n = run->batch - e < b->examples ? run->batch - e : b->examples;
        for (size_t row = 0; row < conv->out[0]; row += b->rows) {
            const size_t rows = conv->out[0] - row < b->rows ? conv->out[0] - row : b->rows;
            for (size_t i = 0; i < n; i++) {
                copy_band(conv, b, run->kernels, row, x + (e + i) * conv->channels * in,
                          at->x + i * b->image);
            }
            run->kernels->gemm(
                &(fedge_gemm){.m = b->outputs,
                              .n = b->sums,
                              .k = n * rows * conv->out[1],
                              .a = dy + e * conv->out_channels * out + row * conv->out[1],
                              .a_row = out,
                              .a_offsets = at->dy_offsets,
                              .b = at->x,
                              .b_column = 1,
                              .b_offsets = at->x_offsets,
                              .starts = at->starts,
                              .c_starts = at->c_starts,
                              .group = run->kernels->lanes,
                              .c = at->sums,
                              .c_row = b->sums,
                              .accumulate = true},
                run->gemm_pack);
        }
    }
}

void fedge_convolution_weights_add(const fedge_layer_run *run, const fedge_convolution *conv,
                                   float *gradient)
{
    const size_t lanes = run->kernels->lanes;
    const band b = make_band(conv, run->batch, lanes);
    assert(run->scratch); /* reserved by fedge_convolution_weights_scratch */
    const workspace at = lay_out(conv, &b, lanes, run->scratch);
    fill_tables(conv, &b, lanes, &at);
    memset(at.x, 0, (b.examples * b.image + lanes) * sizeof(*at.x));
    for (size_t g = 0; g < conv->groups; g++) {
        add_group(run, conv, &b, &at, g);
        add_sums(&b, lanes, at.sums,
                 gradient + g * b.outputs * b.channels * conv->kernel[0] * conv->kernel[1]);
    }
}
