/* The list of a model's parts: where they begin, and when it is offered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aggregator/run/server_run.h"
#include "edge/core/bytes.h"
#include "edge/core/text.h"
#include "edge/wire/protocol.h"
#include "secure/crypto/sha256.h"

#define HEADER 100
#define LARGE (300000u * 4) /* bytes of the tensors: more than one part, */
#define EQUAL (20000u * 4)  /* the same twice, */
#define SMALL (10u * 4)     /* and two too small for parts of their own */
#define FILE_SIZE (HEADER + LARGE + 2 * EQUAL + 2 * SMALL)

static fedge_error err;
static fedge_tensor_spec specs[8];
static fedge_schema schema;
static fedge_blob *last;

static int set_up(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t count;
    } TENSORS[] = {{"large", LARGE / 4},
                   {"small1", SMALL / 4},
                   {"small2", SMALL / 4},
                   {"equal1", EQUAL / 4},
                   {"equal2", EQUAL / 4}};
    last = NULL;
    fedge_schema_init(&schema, specs, 8);
    for (size_t i = 0; i < 5; i++) {
        if (fedge_schema_add(&schema, TENSORS[i].name, FEDGE_F32, 1, &TENSORS[i].count, &err))
            return -1;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fedge_blob_release(last);
    return 0;
}

/* A model whose bytes come from [seed], the two equal tensors apart when they have [no_equal];
 * behind it are [more] bytes. */
static fedge_blob *make_model(uint32_t seed, bool no_equal, size_t more)
{
    fedge_blob *blob = NULL;
    const size_t size = FILE_SIZE + more;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
    if (!no_equal)
        memcpy(bytes + FILE_SIZE - EQUAL, bytes + FILE_SIZE - 2 * EQUAL, EQUAL);
    assert_int_equal(fedge_blob_new(bytes, size, &blob, &err), FEDGE_OK);
    assert_int_equal(fedge_model_parts_add(blob, &schema, FILE_SIZE, &last, &err), FEDGE_OK);
    return blob;
}

static void parts_begin_with_tensors(void **state)
{
    (void)state;
    static const uint32_t SIZES[] = {
        HEADER, FEDGE_PART_MAX_BYTES, LARGE - FEDGE_PART_MAX_BYTES, 2 * SMALL, EQUAL, EQUAL, 7};
    enum { COUNT = sizeof(SIZES) / sizeof(SIZES[0]) };
    uint8_t hash[32];
    char text[65];
    fedge_blob *model = make_model(1, false, 7);
    assert_non_null(model->parts);
    assert_ptr_equal(model->parts, last);
    const uint8_t *list = last->bytes;
    assert_int_equal(last->size, FEDGE_PART_LIST_HEAD + COUNT * FEDGE_PART_LIST_ENTRY);
    assert_memory_equal(list, FEDGE_PART_LIST_MAGIC, 8);
    assert_string_equal(fedge_hex_encode(list + 8, 32, text), model->hash);
    assert_int_equal(fedge_get_u64(list + 40), model->size);
    size_t offset = 0;
    for (size_t i = 0; i < COUNT; i++) {
        const uint8_t *entry = list + FEDGE_PART_LIST_HEAD + i * FEDGE_PART_LIST_ENTRY;
        assert_int_equal(fedge_get_u32(entry), SIZES[i]);
        fedge_sha256(model->bytes + offset, SIZES[i], hash);
        assert_memory_equal(entry + 4, hash, 32);
        offset += SIZES[i];
    }
    fedge_blob_release(model);
}

static void files_behind_the_model_have_tensors_too(void **state)
{
    (void)state;
    fedge_blob *model = make_model(1, false, FILE_SIZE);
    const uint8_t *entry = last->bytes + FEDGE_PART_LIST_HEAD + 7 * FEDGE_PART_LIST_ENTRY;
    assert_int_equal(fedge_get_u32(entry), FEDGE_PART_MAX_BYTES);
    assert_int_equal(last->size, FEDGE_PART_LIST_HEAD + 12 * FEDGE_PART_LIST_ENTRY);
    fedge_blob_release(model);
}

static void a_list_is_offered_where_it_pays(void **state)
{
    (void)state;
    static const struct {
        uint32_t seed;
        bool no_equal, offered;
    } MODELS[] = {
        {1, true, true},                                     /* nothing is known of clients */
        {2, true, false}, {3, true, false}, {3, true, true}, /* as before */
        {4, true, false}, {5, true, false},
    };
    for (size_t i = 0; i < sizeof(MODELS) / sizeof(MODELS[0]); i++) {
        fedge_blob *model = make_model(MODELS[i].seed, MODELS[i].no_equal, 0);
        assert_int_equal(model->parts != NULL, MODELS[i].offered);
        fedge_blob_release(model);
    }
    /* Of 1,360 KB 80 come twice: less than a sixteenth, and more with the files of two models. */
    fedge_blob *model = make_model(6, false, 0);
    assert_null(model->parts);
    fedge_blob_release(model);
}

static void small_models_come_whole(void **state)
{
    (void)state;
    fedge_blob *blob = NULL;
    const uint32_t count = 10;
    fedge_schema_init(&schema, specs, 8);
    assert_int_equal(fedge_schema_add(&schema, "small", FEDGE_F32, 1, &count, &err), FEDGE_OK);
    assert_int_equal(fedge_blob_new(calloc(1, 140), 140, &blob, &err), FEDGE_OK);
    assert_int_equal(fedge_model_parts_add(blob, &schema, 140, &last, &err), FEDGE_OK);
    assert_null(blob->parts);
    assert_null(last);
    fedge_blob_release(blob);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parts_begin_with_tensors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_behind_the_model_have_tensors_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_list_is_offered_where_it_pays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(small_models_come_whole, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
