/* Fuzzing of data files: the bytes become a file in memory, which is loaded as a data set. */
#ifndef FEDGE_TESTS_FUZZ_DATA_FILE_H
#define FEDGE_TESTS_FUZZ_DATA_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "edge/data/dataset.h"

#define FUZZ_MAX_PATH 32

/* Puts the bytes into file 0 or 1, each of which lies in memory but has a path. */
void fuzz_save_file(int which, const void *data, size_t size, char path[FUZZ_MAX_PATH]);

/* Loads the bytes as values with three labels, as values with labels within, and as labels. Aborts
 * when what is accepted cannot be read, or has a label or a value that should have been refused. */
void fuzz_data_file(const fedge_data_spec *spec, const uint8_t *data, size_t size);

/* fuzz_data_file as bytes and as floats: [rank] dimensions of 2, ten labels. */
void fuzz_both_types(uint32_t rank, const uint8_t *data, size_t size);

#endif
