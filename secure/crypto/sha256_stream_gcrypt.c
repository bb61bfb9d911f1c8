/* SHA-256 piece by piece, by libgcrypt where there is much to hash, else by mbedTLS. */
#include <stdlib.h>
#include <string.h>

#include <gcrypt.h>
#include <mbedtls/sha256.h>

#include "edge/core/text.h"
#include "secure/crypto/libgcrypt.h"
#include "secure/crypto/sha256.h"

#define MIN_SIZE 65536u /* as in sha256_gcrypt.c */

struct fedge_sha256_stream {
    gcry_md_hd_t fast; /* NULL: by [portable] */
    mbedtls_sha256_context portable;
};

fedge_status fedge_sha256_stream_new(uint64_t size, fedge_sha256_stream **stream, fedge_error *err)
{
    *stream = NULL;
    fedge_sha256_stream *fresh = malloc(sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to hash");
    fresh->fast = NULL;
    if (size < MIN_SIZE || fedge_libgcrypt_refusal() ||
        gcry_md_open(&fresh->fast, GCRY_MD_SHA256, 0) != 0)
        fresh->fast = NULL;
    mbedtls_sha256_init(&fresh->portable);
    (void)mbedtls_sha256_starts(&fresh->portable,
                                0); /* fails for another kind than 0 and 1 alone */
    *stream = fresh;
    return FEDGE_OK;
}

void fedge_sha256_stream_add(fedge_sha256_stream *stream, const void *data, size_t size)
{
    if (stream->fast)
        gcry_md_write(stream->fast, data, size);
    else if (mbedtls_sha256_update(&stream->portable, data, size) != 0)
        abort(); /* as in sha256_mbedtls.c */
}

void fedge_sha256_stream_text(fedge_sha256_stream *stream, char text[65])
{
    uint8_t hash[32];
    if (stream->fast)
        memcpy(hash, gcry_md_read(stream->fast, GCRY_MD_SHA256), sizeof(hash));
    else if (mbedtls_sha256_finish(&stream->portable, hash) != 0)
        abort();
    fedge_hex_encode(hash, sizeof(hash), text);
}

void fedge_sha256_stream_free(fedge_sha256_stream *stream)
{
    if (!stream)
        return;
    if (stream->fast)
        gcry_md_close(stream->fast);
    mbedtls_sha256_free(&stream->portable);
    free(stream);
}
