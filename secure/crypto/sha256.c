/* SHA-256 by the libraries of this build: FEDGE_WITH_MBEDTLS, FEDGE_WITH_LIBGCRYPT, both or none.
 */
#include "secure/crypto/sha256.h"

#include <stdlib.h>
#include <string.h>

#include "edge/core/text.h"

#ifdef FEDGE_WITH_MBEDTLS
#include <mbedtls/sha256.h>
#endif
#ifdef FEDGE_WITH_LIBGCRYPT
#include <gcrypt.h>

#include "secure/crypto/libgcrypt.h"
#endif

/* Starting libgcrypt takes a millisecond and a megabyte. That does not pay for programs that hash
 * nothing but certificates. */
#define LIBGCRYPT_MIN_SIZE 65536u

#ifdef FEDGE_WITH_MBEDTLS
void fedge_sha256_portable(const void *data, size_t size, uint8_t hash[32])
{
    /* Fails only where a hardware driver does, which fedge does not configure. */
    if (mbedtls_sha256(data, size, hash, 0) != 0)
        abort();
}
#endif

void fedge_sha256(const void *data, size_t size, uint8_t hash[32])
{
#ifdef FEDGE_WITH_LIBGCRYPT
    if (size >= LIBGCRYPT_MIN_SIZE && !fedge_libgcrypt_refusal()) {
        gcry_md_hash_buffer(GCRY_MD_SHA256, hash, data, size);
        return;
    }
#endif
    fedge_sha256_portable(data, size, hash);
}

void fedge_sha256_text(const void *data, size_t size, char text[65])
{
    uint8_t hash[32];
    fedge_sha256(data, size, hash);
    fedge_hex_encode(hash, sizeof(hash), text);
}

#ifdef FEDGE_WITH_MBEDTLS
struct fedge_sha256_stream {
#ifdef FEDGE_WITH_LIBGCRYPT
    gcry_md_hd_t fast; /* NULL: [portable] hashes */
#endif
    mbedtls_sha256_context portable;
};

fedge_status fedge_sha256_stream_new(uint64_t size, fedge_sha256_stream **stream, fedge_error *err)
{
    *stream = NULL;
    fedge_sha256_stream *fresh = malloc(sizeof(*fresh));
    if (!fresh)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to hash");
#ifdef FEDGE_WITH_LIBGCRYPT
    if (size < LIBGCRYPT_MIN_SIZE || fedge_libgcrypt_refusal() ||
        gcry_md_open(&fresh->fast, GCRY_MD_SHA256, 0) != 0)
        fresh->fast = NULL;
#else
    (void)size;
#endif
    mbedtls_sha256_init(&fresh->portable);
    (void)mbedtls_sha256_starts(&fresh->portable,
                                0); /* fails for another kind than 0 and 1 alone */
    *stream = fresh;
    return FEDGE_OK;
}

void fedge_sha256_stream_add(fedge_sha256_stream *stream, const void *data, size_t size)
{
#ifdef FEDGE_WITH_LIBGCRYPT
    if (stream->fast) {
        gcry_md_write(stream->fast, data, size);
        return;
    }
#endif
    if (mbedtls_sha256_update(&stream->portable, data, size) != 0)
        abort();
}

void fedge_sha256_stream_text(fedge_sha256_stream *stream, char text[65])
{
    uint8_t hash[32];
#ifdef FEDGE_WITH_LIBGCRYPT
    if (stream->fast) {
        memcpy(hash, gcry_md_read(stream->fast, GCRY_MD_SHA256), sizeof(hash));
        fedge_hex_encode(hash, sizeof(hash), text);
        return;
    }
#endif
    if (mbedtls_sha256_finish(&stream->portable, hash) != 0)
        abort();
    fedge_hex_encode(hash, sizeof(hash), text);
}

void fedge_sha256_stream_free(fedge_sha256_stream *stream)
{
    if (!stream)
        return;
#ifdef FEDGE_WITH_LIBGCRYPT
    if (stream->fast)
        gcry_md_close(stream->fast);
#endif
    mbedtls_sha256_free(&stream->portable);
    free(stream);
}
#endif
