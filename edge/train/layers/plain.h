/* A linear layer and a convolution by their definitions, forward and backward: for readers, and for
 * tests that compare the fast kernels with them. linear.c and convolution.c train models.
 *
 * Arrays are dense and row-major. Functions overwrite their outputs.
 */
#ifndef FEDGE_EDGE_TRAIN_LAYERS_PLAIN_H
#define FEDGE_EDGE_TRAIN_LAYERS_PLAIN_H

#include <stddef.h>

typedef struct fedge_plain_linear {
    size_t batch, in, out;
} fedge_plain_linear;

/* y = x · wᵀ + b.  x: (batch, in); w: (out, in); b: (out), NULL for none; y: (batch, out) */
void fedge_plain_linear_forward(const fedge_plain_linear *shape, const double *x, const double *w,
                                const double *b, double *y);

/* dx = dy · w;  dw = dyᵀ · x;  db = Σ over the batch of dy. Each may be NULL. */
void fedge_plain_linear_backward(const fedge_plain_linear *shape, const double *x, const double *w,
                                 const double *dy, double *dx, double *dw, double *db);

/* A convolution of images, as PyTorch's Conv2d (a cross-correlation). Index 0 is height, 1 is
 * width. */
typedef struct fedge_plain_conv2d {
    size_t batch, in_channels, out_channels, groups; /* groups divides both numbers of channels */
    size_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
} fedge_plain_conv2d;

/* y[n,o,r,c] = b[o] + Σ over i, j, k of w[o,i,j,k] · x[n, i of o's group, r·stride + j·dilation −
 * padding, c·stride + k·dilation − padding], where x is 0 outside the image. x: (batch,
 * in_channels, in); w: (out_channels, in_channels / groups, kernel); b: (out_channels), NULL for
 * none; y: (batch, out_channels, out) */
void fedge_plain_conv2d_forward(const fedge_plain_conv2d *shape, const double *x, const double *w,
                                const double *b, double *y);

/* Gradients of the same products: dx[…] = Σ w · dy, dw[…] = Σ x · dy,
 * db[o] = Σ dy[:,o,:,:]. Each may be NULL. */
void fedge_plain_conv2d_backward(const fedge_plain_conv2d *shape, const double *x, const double *w,
                                 const double *dy, double *dx, double *dw, double *db);

#endif
