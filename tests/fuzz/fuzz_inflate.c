/* Deflated bytes, read piece by piece: every inflater takes the same streams, and none reads or
 * writes a byte too many. The first two bytes are the size that is expected, from 32768 on in
 * steps of 8, so that what comes out may be several windows; the rest is the stream. */
#include <stdlib.h>
#include <string.h>

#include "edge/wire/deflate.h"

#define WINDOW 32768u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct stream {
    const uint8_t *bytes;
    size_t left;
} stream;

static fedge_status take(void *user, uint8_t *bytes, size_t size, fedge_error *err)
{
    stream *from = user;
    (void)err;
    if (size > from->left)
        abort();
    memcpy(bytes, from->bytes, size);
    from->bytes += size;
    from->left -= size;
    return FEDGE_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t wanted = (size_t)data[0] << 8 | data[1];
    wanted += wanted > WINDOW ? 7 * (wanted - WINDOW) : 0;
    const size_t room = wanted > 0 ? wanted : 1;
    uint8_t *expected = malloc(room), *out = malloc(room);
    fedge_error err;
    if (!expected || !out)
        abort();
    const fedge_status status = fedge_inflate(data + 2, size - 2, expected, wanted, &err);
    for (const fedge_inflater *const *at = fedge_inflaters(); *at; at++) {
        stream from = {data + 2, size - 2};
        const fedge_status now =
            fedge_inflate_read_by(*at, take, &from, size - 2, out, wanted, &err);
        if ((now == FEDGE_OK) != (status == FEDGE_OK) || from.left > 0 ||
            (now == FEDGE_OK && memcmp(out, expected, wanted) != 0))
            abort();
    }
    free(expected);
    free(out);
    return 0;
}
