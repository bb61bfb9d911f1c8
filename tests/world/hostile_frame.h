/* Frames of hostile peers: well-formed messages that are damaged, and random bytes. */
#ifndef FEDGE_TESTS_WORLD_HOSTILE_FRAME_H
#define FEDGE_TESTS_WORLD_HOSTILE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "edge/core/message.h"
#include "edge/core/rng.h"
#include "tests/world/network.h"

/* Writes the right checksum into a frame that has a header at least. */
void hostile_seal(uint8_t *frame, size_t size);
/* Damages the frame, whose buffer has FEDGE_MESSAGE_MAX_SIZE bytes. Returns the new size, 1 at
 * least. The checksum is right in half of the cases, so that the receiver reads what follows it. */
size_t hostile_damage(fedge_rng *draw, uint8_t *frame, size_t size);
/* Fills the buffer with bytes that are no frame. Returns their number. */
size_t hostile_garbage(fedge_rng *draw, uint8_t *frame);

/* The parts of a message that have arrived. */
typedef struct hostile_inbox {
    size_t size;
    uint8_t bytes[FEDGE_MESSAGE_MAX_SIZE];
} hostile_inbox;

/* Collects parts until a message is whole: it is in->bytes[0, *size), and the inbox is empty again.
 * *size 0: it is a ping or a pong. False: the message is not whole, or none has begun. */
bool hostile_receive(world_connection *connection, int end, hostile_inbox *in, size_t *size);

/* Packs a message with pack(…, tx, size of tx, &size, NULL). The peer's say(self, to, size) sends
 * it.
 */
#define HOSTILE_SAY(self, to, pack, ...)                                                           \
    do {                                                                                           \
        size_t size_ = 0;                                                                          \
        if (pack(__VA_ARGS__, (self)->tx, sizeof((self)->tx), &size_, NULL) == FEDGE_OK)           \
            say(self, to, size_);                                                                  \
    } while (0)

#endif
