/* SHA-256 piece by piece, by mbedTLS alone: without libgcrypt (FEDGE_FAST_CRYPTO). */
#include <stdlib.h>

#include <mbedtls/sha256.h>

#include "edge/core/text.h"
#include "secure/crypto/sha256.h"

struct fedge_sha256_stream {
    mbedtls_sha256_context context;
};

fedge_status fedge_sha256_stream_new(uint64_t size, fedge_sha256_stream **stream, fedge_error *err)
{
    *stream = NULL;
    (void)size;
    fedge_sha256_stream *fresh = malloc(sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to hash");
    mbedtls_sha256_init(&fresh->context);
    (void)mbedtls_sha256_starts(&fresh->context, 0); /* fails for another kind than 0 and 1 alone */
    *stream = fresh;
    return FEDGE_OK;
}

void fedge_sha256_stream_add(fedge_sha256_stream *stream, const void *data, size_t size)
{
    if (mbedtls_sha256_update(&stream->context, data, size) != 0)
        abort(); /* as in sha256_mbedtls.c */
}

void fedge_sha256_stream_text(fedge_sha256_stream *stream, char text[65])
{
    uint8_t hash[32];
    if (mbedtls_sha256_finish(&stream->context, hash) != 0)
        abort();
    fedge_hex_encode(hash, sizeof(hash), text);
}

void fedge_sha256_stream_free(fedge_sha256_stream *stream)
{
    if (stream)
        mbedtls_sha256_free(&stream->context);
    free(stream);
}
