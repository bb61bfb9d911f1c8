#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "edge/core/os.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/registry.h"

#define DIR "test_registry.tmp"

static fedge_error err;

static int set_up(void **state)
{
    (void)state;
    return fedge_os_make_dirs(DIR, NULL) == FEDGE_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return fedge_os_remove_tree(DIR, NULL) == FEDGE_OK ? 0 : -1;
}

static void expect(fedge_status status, fedge_status wanted, const char *words)
{
    if (status != wanted) {
        fail_msg("status %s, wanted %s: %s", fedge_status_text(status), fedge_status_text(wanted),
                 status == FEDGE_OK ? "" : err.message);
    }
    if (words && !strstr(err.message, words))
        fail_msg("'%s' is not in: %s", words, err.message);
}

/* Certificate [serial] of device [number]. */
static fedge_certificate_info certificate(unsigned number, unsigned serial, fedge_role role)
{
    fedge_certificate_info info = {.role = role, .not_after_ms = 1000 + serial};
    unsigned char seed[8];
    snprintf(info.device_id, sizeof(info.device_id), "00000000-0000-4000-8000-%012x", number);
    memcpy(seed, &number, 4);
    memcpy(seed + 4, &serial, 4);
    fedge_sha256(seed, sizeof(seed), info.fingerprint);
    return info;
}

static fedge_status add(fedge_registry *registry, unsigned number, unsigned serial, bool renewal)
{
    fedge_registry_match match;
    char name[32];
    snprintf(name, sizeof(name), "n%u", number);
    fedge_certificate_info info = certificate(number, serial, FEDGE_ROLE_DEVICE);
    return fedge_registry_add(registry, &info, name, FEDGE_CERTIFICATE_ACTIVE, renewal, &match,
                              &err);
}

static fedge_status find(const fedge_registry *registry, unsigned number, unsigned serial,
                         fedge_registry_match *match)
{
    fedge_certificate_info info = certificate(number, serial, FEDGE_ROLE_DEVICE);
    return fedge_registry_find(registry, info.fingerprint, match, &err);
}

static void test_many(void **state)
{
    (void)state;
    enum { DEVICES = 5000 };
    fedge_registry *registry = NULL;
    fedge_registry_match match;
    expect(fedge_os_remove_tree(DIR "/many", &err), FEDGE_OK, NULL);
    expect(fedge_registry_load(DIR "/many", &registry, &err), FEDGE_NOT_FOUND, "fedge-keys");
    expect(fedge_registry_open(DIR "/many", &registry, &err), FEDGE_OK, NULL);
    for (unsigned i = 0; i < DEVICES; i++)
        expect(add(registry, i, 0, false), FEDGE_OK, NULL);
    for (unsigned i = 0; i < DEVICES; i += 3)
        expect(add(registry, i, 1, true), FEDGE_OK, NULL);
    int lock;
    expect(fedge_registry_lock(DIR "/many", &lock, &err), FEDGE_OK, NULL);
    expect(fedge_registry_save(registry, DIR "/many", &err), FEDGE_OK, NULL);
    fedge_os_unlock(lock);
    fedge_registry_free(registry);
    expect(fedge_registry_load(DIR "/many", &registry, &err), FEDGE_OK, NULL);
    assert_int_equal(fedge_registry_num_devices(registry), DEVICES);
    for (unsigned i = 0; i < DEVICES; i++) {
        char name[32];
        snprintf(name, sizeof(name), "n%u", i);
        expect(find(registry, i, 0, &match), FEDGE_OK, NULL);
        assert_int_equal(match.index, i);
        assert_string_equal(match.name, name);
        expect(find(registry, i, 1, &match), i % 3 == 0 ? FEDGE_OK : FEDGE_NOT_FOUND, NULL);
    }
    fedge_registry_free(registry);
}

static fedge_status set_revoked(void *user, fedge_registry_row *row, fedge_error *failure)
{
    (void)user, (void)failure;
    row->match.state = FEDGE_CERTIFICATE_REVOKED;
    return FEDGE_OK;
}

static void expect_counts(const fedge_registry *registry, uint32_t active, uint32_t pending,
                          uint32_t revoked)
{
    const fedge_registry_counts counts = fedge_registry_count(registry);
    assert_int_equal(counts.active, active);
    assert_int_equal(counts.pending, pending);
    assert_int_equal(counts.revoked, revoked);
    assert_int_equal(active + pending + revoked, fedge_registry_num_devices(registry));
}

static void test_rules(void **state)
{
    (void)state;
    fedge_registry *registry = NULL;
    fedge_registry_match match;
    expect(fedge_registry_open(DIR "/rules", &registry, &err), FEDGE_OK, NULL);
    expect(add(registry, 1, 0, true), FEDGE_NOT_FOUND, "nothing to renew");
    expect(add(registry, 1, 0, false), FEDGE_OK, NULL);
    expect(add(registry, 1, 1, false), FEDGE_EXISTS, "registered already");
    expect(add(registry, 1, 0, true), FEDGE_DUPLICATE, NULL);
    fedge_certificate_info info = certificate(1, 9, FEDGE_ROLE_OPERATOR);
    expect(fedge_registry_add(registry, &info, "x", FEDGE_CERTIFICATE_ACTIVE, true, &match, &err),
           FEDGE_DENIED, "renewal cannot make it operator");
    info = certificate(2, 0, FEDGE_ROLE_OPERATOR);
    expect(fedge_registry_add(registry, &info, "\"", FEDGE_CERTIFICATE_ACTIVE, false, &match, &err),
           FEDGE_INVALID_ARGUMENT, "name");
    expect(
        fedge_registry_add(registry, &info, "op", FEDGE_CERTIFICATE_PENDING, false, &match, &err),
        FEDGE_OK, NULL);
    assert_int_equal(match.index, 0); /* indices count within a role */
    assert_int_equal(match.state, FEDGE_CERTIFICATE_PENDING);
    assert_int_equal(fedge_registry_num_devices(registry), 1);
    expect_counts(registry, 1, 0, 0); /* the operator is no device */
    expect(add(registry, 3, 0, false), FEDGE_OK, NULL);
    expect(find(registry, 3, 0, &match), FEDGE_OK, NULL);
    assert_int_equal(match.index, 1);
    /* The ninth certificate takes the place of the one that expires first. */
    for (unsigned serial = 1; serial < FEDGE_REGISTRY_MAX_CERTIFICATES; serial++)
        expect(add(registry, 1, serial, true), FEDGE_OK, NULL);
    expect(add(registry, 1, FEDGE_REGISTRY_MAX_CERTIFICATES, true), FEDGE_OK, NULL);
    expect(find(registry, 1, 0, &match), FEDGE_NOT_FOUND, NULL);
    for (unsigned serial = 1; serial <= FEDGE_REGISTRY_MAX_CERTIFICATES; serial++)
        expect(find(registry, 1, serial, &match), FEDGE_OK, NULL);
    /* Who is revoked cannot renew. */
    expect(fedge_registry_visit(registry, set_revoked, NULL, &err), FEDGE_OK, NULL);
    expect(find(registry, 1, 2, &match), FEDGE_OK, NULL);
    assert_int_equal(match.state, FEDGE_CERTIFICATE_REVOKED);
    expect(add(registry, 1, 20, true), FEDGE_REVOKED, "activate");
    /* One active certificate is enough; a pending one without it is not. */
    expect_counts(registry, 0, 0, 2);
    info = certificate(4, 0, FEDGE_ROLE_DEVICE);
    expect(fedge_registry_add(registry, &info, "4", FEDGE_CERTIFICATE_PENDING, false, &match, &err),
           FEDGE_OK, NULL);
    expect_counts(registry, 0, 1, 2);
    expect(add(registry, 4, 1, true), FEDGE_OK, NULL);
    expect_counts(registry, 1, 0, 2);
    fedge_registry_free(registry);
}

static void test_lock(void **state)
{
    (void)state;
    int first;
    int second;
    expect(fedge_registry_lock(DIR "/locked", &first, &err), FEDGE_OK, NULL);
    expect(fedge_registry_lock(DIR "/locked", &second, &err), FEDGE_BUSY, NULL);
    fedge_os_unlock(first);
    expect(fedge_registry_lock(DIR "/locked", &second, &err), FEDGE_OK, NULL);
    fedge_os_unlock(second);
}

#define ID1 "00000000-0000-4000-8000-000000000001"
#define ID2 "00000000-0000-4000-8000-000000000002"
#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde"
#define CERT(last) "{\"sha256\":\"" HEX last "\",\"state\":\"active\",\"not_after_ms\":5}"
#define DEVICE(id, index, certificates)                                                            \
    "{\"device_id\":\"" id "\",\"role\":\"device\",\"index\":" index                               \
    ",\"name\":\"a\",\"certificates\":[" certificates "]}"
#define FILE_OF(devices) "{\"format\":1,\"devices\":[" devices "]}\n"

static void test_broken_files(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        fedge_status status;
        const char *words;
    } cases[] = {
        {FILE_OF(DEVICE(ID1, "0", CERT("0"))), FEDGE_OK, NULL},
        {FILE_OF(DEVICE(ID1, "0", CERT("0")) "," DEVICE(ID2, "1", CERT("1"))), FEDGE_OK, NULL},
        {FILE_OF(""), FEDGE_OK, NULL},
        {"", FEDGE_CORRUPT, "line 1 is not JSON"},
        {"{\"format\":1,\n\"devices\":[}", FEDGE_CORRUPT, "line 2 is not JSON"},
        {FILE_OF("") "x", FEDGE_CORRUPT, "follows"},
        {"[]", FEDGE_CORRUPT, "object"},
        {"{\"format\":2,\"things\":[]}", FEDGE_UNSUPPORTED, "format 2"},
        {"{\"format\":1}", FEDGE_CORRUPT, "'devices' is missing"},
        {"{\"format\":1,\"devices\":{}}", FEDGE_CORRUPT, "array"},
        {"{\"format\":1,\"devices\":[],\"more\":1}", FEDGE_CORRUPT, "unknown key 'more'"},
        {"{\"format\":1,\"devices\":[],\"devices\":[]}", FEDGE_CORRUPT, "twice"},
        {FILE_OF("7"), FEDGE_CORRUPT, "device 0: it must be an object"},
        {FILE_OF(DEVICE(ID1, "1", "")), FEDGE_CORRUPT, "index 1"},
        {FILE_OF(DEVICE(ID1, "-1", "")), FEDGE_CORRUPT, "integer"},
        {FILE_OF(DEVICE(ID1, "0.5", "")), FEDGE_CORRUPT, "integer"},
        {FILE_OF(DEVICE(ID1, "1e300", "")), FEDGE_CORRUPT, "integer"},
        {FILE_OF(DEVICE(ID1, "\"0\"", "")), FEDGE_CORRUPT, "integer"},
        {FILE_OF(DEVICE("x", "0", "")), FEDGE_CORRUPT, "device 0"},
        {FILE_OF(DEVICE(ID1, "0", "") "," DEVICE(ID2, "0", "")), FEDGE_CORRUPT, "device 1"},
        {FILE_OF(DEVICE(ID1, "0", "") "," DEVICE(ID1, "1", "")), FEDGE_CORRUPT, "twice"},
        {FILE_OF(DEVICE(ID1, "0", CERT("0") "," CERT("0"))), FEDGE_CORRUPT, "twice"},
        {FILE_OF(DEVICE(ID1, "0", CERT("0")) "," DEVICE(ID2, "1", CERT("0"))), FEDGE_CORRUPT,
         "device 1: certificate 0"},
        {FILE_OF(DEVICE(ID1, "0", CERT(""))), FEDGE_CORRUPT, "64"},
        {FILE_OF(DEVICE(ID1, "0", CERT("00"))), FEDGE_CORRUPT, "64"},
        {FILE_OF(DEVICE(ID1, "0", "{\"sha256\":\"" HEX "0\",\"state\":\"on\",\"not_after_ms\":5}")),
         FEDGE_CORRUPT, "state 'on'"},
        {FILE_OF("{\"device_id\":\"" ID1 "\",\"role\":\"king\",\"index\":0,\"name\":\"a\","
                 "\"certificates\":[]}"),
         FEDGE_CORRUPT, "role"},
        {FILE_OF("{\"device_id\":\"" ID1 "\",\"role\":\"device\",\"index\":0,\"name\":\"\\n\","
                 "\"certificates\":[]}"),
         FEDGE_CORRUPT, "name"},
        {FILE_OF("{\"device_id\":\"" ID1 "\",\"role\":\"device\",\"index\":0,"
                 "\"certificates\":[]}"),
         FEDGE_CORRUPT, "'name' is missing"},
        {FILE_OF(DEVICE(ID1, "0",
                        CERT("0") "," CERT("1") "," CERT("2") "," CERT("3") "," CERT("4") "," CERT(
                            "5") "," CERT("6") "," CERT("7") "," CERT("8"))),
         FEDGE_CORRUPT, "more than 8"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        fedge_registry *registry = NULL;
        expect(fedge_os_write_file(DIR "/registry.json", cases[i].text, strlen(cases[i].text), 0600,
                                   &err),
               FEDGE_OK, NULL);
        expect(fedge_registry_load(DIR, &registry, &err), cases[i].status, cases[i].words);
        fedge_registry_free(registry);
    }
    fedge_registry *registry = NULL;
    static const char nul[] = FILE_OF("") "\0";
    expect(fedge_os_write_file(DIR "/registry.json", nul, sizeof(nul), 0600, &err), FEDGE_OK, NULL);
    expect(fedge_registry_load(DIR, &registry, &err), FEDGE_CORRUPT, "NUL");
}

static void test_state_names(void **state)
{
    (void)state;
    assert_string_equal(fedge_certificate_state_name(FEDGE_CERTIFICATE_REVOKED), "revoked");
    for (int unknown = FEDGE_CERTIFICATE_REVOKED + 1; unknown < 100; unknown++)
        assert_null(fedge_certificate_state_name((fedge_certificate_state)unknown));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),         cmocka_unit_test(test_state_names),
        cmocka_unit_test(test_rules),        cmocka_unit_test(test_lock),
        cmocka_unit_test(test_broken_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
