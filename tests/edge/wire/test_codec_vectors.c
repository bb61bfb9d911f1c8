/* Codecs against tests/golden/codec/vectors.json, which a second implementation has made: the same
 * bytes, and the same integers of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "edge/core/bytes.h"
#include "edge/core/codec/codec.h"
#include "edge/core/os.h"
#include "tests/edge/core/codec/codecs.h"

#define MAX_VALUES 4096
#define MAX_TENSORS 8

static float values[MAX_VALUES];
static float residual[MAX_VALUES];
static uint8_t raw[4 * MAX_VALUES], golden[4 * MAX_VALUES], out[4 * MAX_VALUES];
static int32_t v[MAX_VALUES];

static const cJSON *get(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    assert_non_null(item);
    return item;
}

static size_t from_hex(const char *hex, uint8_t *bytes, size_t room)
{
    const size_t size = strlen(hex) / 2;
    assert_in_range(size, 0, room);
    for (size_t i = 0; i < size; i++) {
        const char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return size;
}

static void read_tensors(const cJSON *list, fedge_schema *schema, int8_t *bounds)
{
    const cJSON *tensor = NULL;
    cJSON_ArrayForEach(tensor, list)
    {
        const cJSON *side = NULL;
        uint32_t shape[FEDGE_MAX_RANK] = {0}, rank = 0;
        char name[16];
        cJSON_ArrayForEach(side, get(tensor, "shape"))
        {
            shape[rank++] = (uint32_t)side->valueint;
        }
        (void)snprintf(name, sizeof(name), "t%u", (unsigned)schema->num_tensors);
        bounds[schema->num_tensors] = (int8_t)get(tensor, "bound-log2")->valueint;
        assert_int_equal(fedge_schema_add(schema, name, FEDGE_F32, rank, shape, NULL), FEDGE_OK);
    }
}

static void check_vector(const cJSON *vector)
{
    fedge_tensor_spec tensors[MAX_TENSORS];
    fedge_schema schema;
    int8_t bounds[MAX_TENSORS];
    fedge_codec_stats stats;
    fedge_error err;
    const fedge_codec codec = codec_named(get(vector, "codec")->valuestring);
    fedge_schema_init(&schema, tensors, MAX_TENSORS);
    read_tensors(get(vector, "tensors"), &schema, bounds);
    assert_in_range(schema.num_elements, 1, MAX_VALUES);
    assert_int_equal(from_hex(get(vector, "values")->valuestring, raw, sizeof(raw)),
                     schema.num_elements * sizeof(float));
    fedge_get_f32s(raw, values, schema.num_elements);
    const size_t golden_size = from_hex(get(vector, "bytes")->valuestring, golden, sizeof(golden));
    size_t size = 0;
    memset(residual, 0, sizeof(residual));
    assert_int_equal(codec_encode(&codec, &schema, bounds, values, residual, out, sizeof(out),
                                  &size, &stats, &err),
                     FEDGE_OK);
    assert_int_equal(size, golden_size);
    assert_memory_equal(out, golden, size);
    if (fedge_codec_decode(&codec, &schema, bounds, golden, size, v, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    const cJSON *expected = NULL;
    size_t i = 0;
    cJSON_ArrayForEach(expected, get(vector, "v"))
    {
        assert_int_equal(v[i++], (int)expected->valuedouble);
    }
    assert_int_equal(i, schema.num_elements);
}

static void vectors_match(void **state)
{
    (void)state;
    uint8_t *text = NULL;
    size_t size = 0;
    fedge_error err;
    if (fedge_os_read_file(FEDGE_SOURCE_DIR "/tests/golden/codec/vectors.json", 1 << 20, &text,
                           &size, &err) != FEDGE_OK)
        fail_msg("%s", err.message);
    cJSON *vectors = cJSON_ParseWithLength((const char *)text, size);
    free(text);
    assert_non_null(vectors);
    for (unsigned i = 0; i < FEDGE_CODEC_COUNT; i++) { /* each codec has one */
        bool found = false;
        const cJSON *vector = NULL;
        cJSON_ArrayForEach(vector, vectors)
        {
            const fedge_codec codec = codec_named(get(vector, "codec")->valuestring);
            found = found || fedge_codec_has(&codec, fedge_codec_name(i));
        }
        if (!found)
            fail_msg("no vector of %s", fedge_codec_name(i));
    }
    const cJSON *vector = NULL;
    cJSON_ArrayForEach(vector, vectors)
    {
        check_vector(vector);
    }
    cJSON_Delete(vectors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(vectors_match)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
