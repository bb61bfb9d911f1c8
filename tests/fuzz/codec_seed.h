/* How the codec fuzzer reads its input: the first bytes choose codec, bounds and sizes, the rest is
 * the section. For the fuzzer, and for the test of its seeds (tests/edge/core/codec/test_codec.c).
 */
#ifndef FEDGE_TESTS_FUZZ_CODEC_SEED_H
#define FEDGE_TESTS_FUZZ_CODEC_SEED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "edge/core/codec/codec.h"

#define CODEC_SEED_HEAD 5
#define CODEC_SEED_MANY 70000  /* values of a matrix of several groups (chosen.h) */
#define CODEC_SEED_NUM_WRITE 5 /* of the codecs, the first: those that write values */

typedef struct codec_seed {
    fedge_codec codec;
    unsigned name, write; /* which codec, and which one writes what it chooses */
    int8_t bounds[2];
    fedge_tensor_spec storage[2];
    fedge_schema schema; /* of [storage]: a seed stays where it is */
} codec_seed;

/* data (CODEC_SEED_HEAD). false: the table of codecs and this file do not agree. */
static inline bool codec_seed_read(codec_seed *seed, const uint8_t *data)
{
    static const char *const shares[] = {"0.01", "0.1", "0.5", "1"};
    fedge_error err;
    char text[FEDGE_CODEC_TEXT];
    seed->name = data[0] % FEDGE_CODEC_COUNT;
    seed->write = data[0] / 32 % CODEC_SEED_NUM_WRITE;
    const char *name = fedge_codec_name(seed->name);
    (void)snprintf(text, sizeof(text), "%s:%s+%s", name, shares[data[0] / 16 % 4],
                   fedge_codec_name(seed->write));
    if (fedge_codec_parse(name, &seed->codec, &err) != FEDGE_OK &&
        fedge_codec_parse(text, &seed->codec, &err) != FEDGE_OK)
        return false;
    seed->bounds[0] = (int8_t)(data[1] % 44 - 22);
    seed->bounds[1] = (int8_t)(data[2] % 44 - 22);
    const uint32_t shapes[2][2] = {{data[3] == 255 ? CODEC_SEED_MANY : 1 + data[3] * 4u, 1},
                                   {1 + data[4]}};
    fedge_schema_init(&seed->schema, seed->storage, 2);
    return fedge_schema_add(&seed->schema, "a", FEDGE_F32, 2, shapes[0], &err) == FEDGE_OK &&
           fedge_schema_add(&seed->schema, "b", FEDGE_F32, 1, shapes[1], &err) == FEDGE_OK;
}

#endif
