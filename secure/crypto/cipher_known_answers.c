/* AES-GCM: test cases 4 and 16 of McGrew and Viega, "The Galois/Counter Mode of Operation", which
 * are among NIST's. ChaCha20-Poly1305: RFC 8439, 2.8.2. */
#include <stdlib.h>
#include <string.h>

#include "edge/core/text.h"
#include "secure/crypto/cipher_implementation.h"

enum {
    MAX_SIZE = 128, /* maximum of a text, its AAD or a key */
    NONCE = 12,
    TAG = 16,
    RECORD = 16384, /* a TLS record's maximum, and an odd remainder */
    ODD = 37
};

typedef enum algorithm { GCM, CHACHAPOLY } algorithm;

/* All in hex digits. */
typedef struct answer {
    algorithm of;
    const char *wrong; /* fault reported if an implementation gives another answer */
    const char *key, *nonce, *aad, *plain, *cipher, *tag;
} answer;

static const answer answers[] = {
    {.of = GCM,
     .wrong = "its AES-128-GCM is wrong",
     .key = "feffe9928665731c6d6a8f9467308308",
     .nonce = "cafebabefacedbaddecaf888",
     .aad = "feedfacedeadbeeffeedfacedeadbeefabaddad2",
     .plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532f"
              "cf0e2449a6b525b16aedf5aa0de657ba637b39",
     .cipher = "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d"
               "8f6a5aac84aa051ba30b396a0aac973d58e091",
     .tag = "5bc94fbc3221a5db94fae95ae7121a47"},
    {.of = GCM,
     .wrong = "its AES-256-GCM is wrong",
     .key = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
     .nonce = "cafebabefacedbaddecaf888",
     .aad = "feedfacedeadbeeffeedfacedeadbeefabaddad2",
     .plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532f"
              "cf0e2449a6b525b16aedf5aa0de657ba637b39",
     .cipher = "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7"
               "b08b1056828838c5f61e6393ba7a0abcc9f662",
     .tag = "76fc6ece0f4e1768cddf8853bb2d551b"},
    {.of = CHACHAPOLY,
     .wrong = "its ChaCha20-Poly1305 is wrong",
     .key = "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
     .nonce = "070000004041424344454647",
     .aad = "50515253c0c1c2c3c4c5c6c7",
     .plain = "4c616469657320616e642047656e746c656d656e206f662074686520636c617373206f66202739393a20"
              "4966204920636f756c64206f6666657220796f75206f6e6c79206f6e652074697020666f722074686520"
              "6675747572652c2073756e73637265656e20776f756c642062652069742e",
     .cipher = "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282"
               "fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab3"
               "24e4fad675945585808b4831d7bc3ff4def08e4b7a9de576d26586cec64b6116",
     .tag = "1ae10b594f09e26a7e902ecbd0600691"},
};

/* Buffers for one record: produced, expected and opened. */
typedef struct record {
    uint8_t plain[RECORD + ODD], made[RECORD + ODD], expected[RECORD + ODD], opened[RECORD + ODD];
} record;

static bool decode(const char *hex, uint8_t *out)
{
    return fedge_hex_decode(hex, out, strlen(hex) / 2, NULL) == FEDGE_OK;
}

/* A context of mbedTLS with a key. */
typedef struct keyed {
    algorithm of;
    mbedtls_gcm_context gcm;
    mbedtls_chachapoly_context chachapoly;
} keyed;

static bool keyed_init(keyed *k, algorithm of, const uint8_t *key, size_t size)
{
    k->of = of;
    mbedtls_gcm_init(&k->gcm);
    mbedtls_chachapoly_init(&k->chachapoly);
    return (of == GCM ? mbedtls_gcm_setkey(&k->gcm, MBEDTLS_CIPHER_ID_AES, key, (unsigned)size * 8)
                      : mbedtls_chachapoly_setkey(&k->chachapoly, key)) == 0;
}

static void keyed_fini(keyed *k)
{
    mbedtls_gcm_free(&k->gcm);
    mbedtls_chachapoly_free(&k->chachapoly);
}

/* The size of a message, and its sealing parameters besides the key. */
typedef struct message {
    const uint8_t *nonce, *aad;
    size_t aad_size, size;
} message;

static bool seal(const fedge_ciphers *by, keyed *k, const message *m, const uint8_t *in,
                 uint8_t *out, uint8_t tag[TAG])
{
    return (k->of == GCM ? by->gcm_crypt_and_tag(&k->gcm, MBEDTLS_GCM_ENCRYPT, m->size, m->nonce,
                                                 NONCE, m->aad, m->aad_size, in, out, TAG, tag)
                         : by->chachapoly_encrypt_and_tag(&k->chachapoly, m->size, m->nonce, m->aad,
                                                          m->aad_size, in, out, tag)) == 0;
}

/* Seals [in] and compares text and tag with the expected ones. */
static bool seals_as(const fedge_ciphers *by, keyed *k, const message *m, const uint8_t *in,
                     uint8_t *out, const uint8_t *expected, const uint8_t expected_tag[TAG])
{
    uint8_t tag[TAG];
    return seal(by, k, m, in, out, tag) && memcmp(out, expected, m->size) == 0 &&
           memcmp(tag, expected_tag, TAG) == 0;
}

/* Returns the result of mbedTLS's function. */
static int unseal(const fedge_ciphers *by, keyed *k, const message *m, const uint8_t *in,
                  uint8_t *out, const uint8_t tag[TAG])
{
    return k->of == GCM ? by->gcm_auth_decrypt(&k->gcm, m->size, m->nonce, NONCE, m->aad,
                                               m->aad_size, tag, TAG, in, out)
                        : by->chachapoly_auth_decrypt(&k->chachapoly, m->size, m->nonce, m->aad,
                                                      m->aad_size, tag, in, out);
}

/* Opens a sealed message in place, and checks that a changed bit in its text or tag is refused. */
static bool opens_only_the_same(const fedge_ciphers *by, keyed *k, const message *m,
                                const uint8_t *plain, uint8_t *sealed, uint8_t tag[TAG],
                                uint8_t *copy)
{
    const int refusal =
        k->of == GCM ? MBEDTLS_ERR_GCM_AUTH_FAILED : MBEDTLS_ERR_CHACHAPOLY_AUTH_FAILED;
    tag[TAG - 1] ^= 1;
    const bool took_tag = unseal(by, k, m, sealed, copy, tag) != refusal;
    tag[TAG - 1] ^= 1;
    sealed[m->size - 1] ^= 0x80;
    const bool took_text = unseal(by, k, m, sealed, copy, tag) != refusal;
    sealed[m->size - 1] ^= 0x80;
    const bool opened =
        unseal(by, k, m, sealed, sealed, tag) == 0 && memcmp(sealed, plain, m->size) == 0;
    return opened && !took_tag && !took_text;
}

static bool gives(const fedge_ciphers *by, const answer *is)
{
    uint8_t key[MAX_SIZE], nonce[NONCE], aad[MAX_SIZE], plain[MAX_SIZE], cipher[MAX_SIZE], tag[TAG],
        made[MAX_SIZE], opened[MAX_SIZE];
    const message m = {nonce, aad, strlen(is->aad) / 2, strlen(is->plain) / 2};
    keyed k;
    bool right = decode(is->key, key) && decode(is->nonce, nonce) && decode(is->aad, aad) &&
                 decode(is->plain, plain) && decode(is->cipher, cipher) && decode(is->tag, tag);
    right = keyed_init(&k, is->of, key, strlen(is->key) / 2) && right;
    right = right && seals_as(by, &k, &m, plain, made, cipher, tag);
    memcpy(made, plain, m.size); /* in place, as TLS does */
    right = right && seals_as(by, &k, &m, made, made, cipher, tag) &&
            opens_only_the_same(by, &k, &m, plain, made, tag, opened);
    keyed_fini(&k);
    return right;
}

/* Compares a whole record, under the key of [is], with the reference's bytes and tag. */
static bool agrees(const fedge_ciphers *by, const fedge_ciphers *reference, const answer *is,
                   record *r)
{
    static const uint8_t aad[5] = {23, 3, 3, 64, 0}, nonce[NONCE] = {1, 2, 3};
    const message m = {nonce, aad, sizeof(aad), sizeof(r->plain)};
    uint8_t key[MAX_SIZE], tag[TAG];
    keyed k;
    for (size_t i = 0; i < m.size; i++)
        r->plain[i] = r->made[i] = (uint8_t)(i * 31 + (i >> 8));
    bool right = decode(is->key, key);
    right = keyed_init(&k, is->of, key, strlen(is->key) / 2) && right;
    right = right && seal(reference, &k, &m, r->plain, r->expected, tag) &&
            seals_as(by, &k, &m, r->made, r->made, r->expected, tag) &&
            opens_only_the_same(by, &k, &m, r->plain, r->made, tag, r->opened);
    keyed_fini(&k);
    return right;
}

const char *fedge_known_answers(const fedge_ciphers *ciphers, const fedge_ciphers *reference)
{
    record *r = malloc(sizeof(*r));
    if (!r)
        return "there was no memory to test it";
    const char *wrong = NULL;
    for (size_t i = 0; i < sizeof(answers) / sizeof(*answers) && !wrong; i++) {
        if (!gives(ciphers, &answers[i]) || !agrees(ciphers, reference, &answers[i], r))
            wrong = answers[i].wrong;
    }
    free(r);
    return wrong;
}
