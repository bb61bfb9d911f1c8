/* Frames as hostile peers send them: damaged on the way from a well-formed message to one that
 * nobody should have sent. */
#ifndef FEDGE_TESTS_WORLD_HOSTILE_FRAME_H
#define FEDGE_TESTS_WORLD_HOSTILE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "edge/core/rng.h"

/* Writes the right checksum into a frame of at least a header. */
void hostile_seal(uint8_t *frame, size_t size);
/* Damages the frame, which has room for FEDGE_MESSAGE_MAX_SIZE bytes, and returns its new size, at
 * least 1. Its checksum is right half of the time, so that what lies behind it is read. */
size_t hostile_damage(fedge_rng *draw, uint8_t *frame, size_t size);
/* Fills it with bytes that were never a frame, and returns their number. */
size_t hostile_garbage(fedge_rng *draw, uint8_t *frame);

#endif
