/* SHA-256's known answers, built for each implementation: libgcrypt (which gets the long ones, and
 * then all), mbedTLS, plain C. */
#include "tests/edge/core/cmocka_all.h"

#include <string.h>

#include "secure/crypto/sha256.h"

static void expect(const void *data, size_t size, const char *hex)
{
    char text[65];
    fedge_sha256_text(data, size, text);
    assert_string_equal(text, hex);
}

/* FIPS 180-4's examples, and NIST's of a million letters. */
static void nist_vectors(void **unused)
{
    (void)unused;
    static char letters[1000000];
    memset(letters, 'a', sizeof(letters));
    expect("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    expect(two, strlen(two), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect(letters, sizeof(letters),
           "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Around the lengths at which the padding takes a block more, as Python's hashlib has them: the
 * hash of the hashes of 0 to 130 bytes 0, 1, 2 … one after another. */
static void every_length(void **unused)
{
    (void)unused;
    uint8_t bytes[130], hashes[131 * 32];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    for (size_t size = 0; size <= sizeof(bytes); size++)
        fedge_sha256(bytes, size, hashes + size * 32);
    expect(hashes, sizeof(hashes),
           "e5bbbecd60c3632a3455f465bfd8b079c30ef608d2bcc34227f4e5573029020e");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length),
        cmocka_unit_test(nist_vectors),
        cmocka_unit_test(nist_vectors),
        cmocka_unit_test(every_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
