/* CIFAR-10's and CIFAR-100's binary files (https://www.cs.toronto.edu/~kriz/cifar.html).
 *
 * Records of a label byte, for CIFAR-100 a coarse and a fine one, and 3 · 32 · 32 bytes of pixels:
 * red, green and blue, each row by row. The job says which label of CIFAR-100 is meant: its data
 * has 20 labels for the coarse ones or 100 for the fine ones. Internal to edge/data.
 */
#ifndef FEDGE_EDGE_DATA_FORMATS_CIFAR_H
#define FEDGE_EDGE_DATA_FORMATS_CIFAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/data/formats/array_file.h"
#include "edge/plan/plan.h"

#define FEDGE_CIFAR_PIXELS 3072u
#define FEDGE_CIFAR_HEAD_SIZE 36 /* bytes that an idx header of 8 dimensions may have */

/* Is a file that begins with [head] to be read so? Then *size gets its decoded bytes, else 0. Such
 * files have no magic number. They are known by a first byte below 32, where no text begins, and a
 * size that is a whole number of records or data of the job that is u8 and [3, 32, 32] or [3072];
 * and by not being idx: there the header must not explain the size. The reader is at the beginning
 * and stays there. */
FEDGE_MUST_USE fedge_status fedge_cifar_matches(const fedge_data_spec *spec, fedge_reader *reader,
                                                const uint8_t *head, size_t head_size,
                                                uint64_t *size, fedge_error *err);

/* Says where the labels, or else the pixels, are in a file of [size] bytes, as of an array. Leaves
 * the reader where it is, at the beginning. FEDGE_TRUNCATED when the last record is not whole. */
FEDGE_MUST_USE fedge_status fedge_cifar_layout(const fedge_data_spec *spec, const char *path,
                                               uint64_t size, bool labels, fedge_array_info *info,
                                               fedge_error *err);

#endif
