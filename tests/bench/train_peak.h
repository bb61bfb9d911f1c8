/* What one core can do at most, measured: the roof of train.sh's roofline. */
#ifndef FEDGE_TESTS_BENCH_TRAIN_PEAK_H
#define FEDGE_TESTS_BENCH_TRAIN_PEAK_H

#include <stddef.h>

/* Floating-point operations a second in fp32, fused multiply-adds on registers, with the widest
 * vectors that this file is compiled for; measured for [seconds]. */
double train_peak_flops(double seconds);

/* Bytes a second read from a block of TRAIN_PEAK_BLOCK bytes, larger than a core's share of the
 * caches; 0 when there is no memory for it. */
#define TRAIN_PEAK_BLOCK ((size_t)512 << 20)
double train_peak_read(double seconds);

#endif
