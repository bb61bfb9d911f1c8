/* Deflates with memory that is taken for this once. Include cmocka.h first. */
#ifndef FEDGE_TESTS_EDGE_WIRE_DEFLATE_ONCE_H
#define FEDGE_TESTS_EDGE_WIRE_DEFLATE_ONCE_H

#include "edge/wire/deflate.h"

/* False when it does not fit. */
static inline bool deflate_once(const uint8_t *in, size_t in_size, uint8_t *out, size_t out_size,
                                size_t *size)
{
    fedge_deflater *deflater;
    fedge_error err;
    assert_int_equal(fedge_deflater_new(&deflater, &err), FEDGE_OK);
    const bool fits = fedge_deflater_run(deflater, in, in_size, out, out_size, size);
    fedge_deflater_free(deflater);
    return fits;
}

#endif
