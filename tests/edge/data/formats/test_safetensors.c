/* safetensors: the same bytes for the same values, files of the Python package, broken headers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"
#include "edge/data/formats/safetensors.h"
#include "tests/edge/core/codec/schemas.h"

#define GOLDEN FEDGE_SOURCE_DIR "/tests/golden/safetensors/"
#define MAX_FILE 4096

static fedge_tensor_spec storage[FEDGE_MAX_TENSORS];
static fedge_schema schema;

static void add(const char *name, fedge_dtype dtype, uint32_t rank, const uint32_t *shape)
{
    assert_int_equal(fedge_schema_add(&schema, name, dtype, rank, shape, NULL), FEDGE_OK);
}

static int set_up(void **state)
{
    (void)state;
    fedge_schema_init(&schema, storage, FEDGE_MAX_TENSORS);
    return 0;
}

/* What tests/golden/safetensors/fedge.safetensors holds. */
static const float VALUES[9] = {-2.5f, -1.5f, -0.5f, 0.5f, 1.5f, 2.5f, 0.1f, -0.0f, 3e38f};

static void make_schema(void)
{
    add("0.weight", FEDGE_F32, 2, (const uint32_t[]){2, 3});
    add("0.bias", FEDGE_F32, 1, (const uint32_t[]){2});
    add("odd \"\\\n", FEDGE_F32, 0, NULL);
}

/* A file of this header and [data_size] zero bytes. */
static size_t make_file(uint8_t out[MAX_FILE], const char *header, size_t data_size)
{
    const size_t length = strlen(header);
    assert_true(8 + length + data_size <= MAX_FILE);
    memset(out, 0, 8 + length + data_size);
    out[0] = (uint8_t)length;
    out[1] = (uint8_t)(length >> 8);
    memcpy(out + 8, header, length);
    return 8 + length + data_size;
}

static void expect_bad(const char *header, size_t data_size, fedge_status status, const char *part)
{
    static uint8_t file[MAX_FILE];
    const size_t size = make_file(file, header, data_size);
    const uint8_t *data = file;
    fedge_error err = {.status = FEDGE_OK};
    fedge_schema_init(&schema, storage, FEDGE_MAX_TENSORS);
    const fedge_status got = fedge_safetensors_read_schema(file, size, &schema, &data, &err);
    assert_null(data);
    if (got != status || !strstr(err.message, part)) {
        fail_msg("%s: %s, not %s with \"%s\": %s", header, fedge_status_text(got),
                 fedge_status_text(status), part, err.message);
    }
}

static void test_writes_the_golden_bytes(void **state)
{
    (void)state;
    make_schema();
    fedge_error err = {.status = FEDGE_OK};
    size_t size = 0, golden_size = 0;
    uint8_t *golden = NULL, file[MAX_FILE];
    assert_int_equal(fedge_safetensors_size(&schema, &size, &err), FEDGE_OK);
    assert_true(size <= sizeof(file) && size % 4 == 0);
    assert_int_equal(fedge_safetensors_write(&schema, VALUES, file, size, &err), FEDGE_OK);
    assert_int_equal((8 + file[0] + 256 * file[1]) % 8, 0);
    assert_int_equal(
        fedge_os_read_file(GOLDEN "fedge.safetensors", MAX_FILE, &golden, &golden_size, &err),
        FEDGE_OK);
    assert_int_equal(size, golden_size);
    assert_memory_equal(file, golden, size);
    free(golden);
    assert_int_equal(fedge_safetensors_write(&schema, VALUES, file, size - 1, &err),
                     FEDGE_INVALID_ARGUMENT);
    assert_int_equal(fedge_safetensors_write(&schema, VALUES, file, size + 1, &err),
                     FEDGE_INVALID_ARGUMENT);
}

static fedge_status get(void *user, uint64_t offset, uint8_t *out, size_t size, fedge_error *err)
{
    (void)err;
    assert_true(size <= FEDGE_SAFETENSORS_PART);
    memcpy(out, (const uint8_t *)user + offset, size);
    return FEDGE_OK;
}

/* A file of several parts, whose tensors begin within them: what is put is what is written, and
 * parts that cannot be had or taken end it. */
typedef struct parts {
    uint8_t *bytes;
    size_t used;
    unsigned left; /* parts until one fails */
} parts;

static fedge_status put_part(void *user, const uint8_t *bytes, size_t size, fedge_error *err)
{
    parts *p = user;
    assert_true(size <= FEDGE_SAFETENSORS_PART);
    if (p->left-- == 0)
        return fedge_fail(err, FEDGE_NO_SPACE, "no room");
    memcpy(p->bytes + p->used, bytes, size);
    p->used += size;
    return FEDGE_OK;
}

static fedge_status get_part(void *user, uint64_t offset, uint8_t *out, size_t size,
                             fedge_error *err)
{
    parts *p = user;
    assert_true(offset + size <= p->used);
    if (p->left-- == 0)
        return fedge_fail(err, FEDGE_IO, "cannot be read");
    return get(p->bytes, offset, out, size, err);
}

static void test_in_parts(void **state)
{
    (void)state;
    enum { COUNT = 40003, PARTS = 4 }; /* a header, and 2.44 parts of values */
    fedge_tensor_spec tensors[2];
    fedge_schema two;
    fedge_error err = {.status = FEDGE_OK};
    float values[COUNT], back[COUNT];
    size_t size = 0;
    fedge_schema_init(&two, tensors, 2);
    assert_int_equal(fedge_schema_add(&two, "a", FEDGE_F32, 1, (uint32_t[]){3}, &err), FEDGE_OK);
    assert_int_equal(fedge_schema_add(&two, "b", FEDGE_F32, 1, (uint32_t[]){COUNT - 3}, &err),
                     FEDGE_OK);
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i - 0.5f;
    assert_int_equal(fedge_safetensors_size(&two, &size, &err), FEDGE_OK);
    uint8_t *whole = malloc(size);
    parts p = {.bytes = malloc(size)};
    assert_non_null(whole);
    assert_non_null(p.bytes);
    assert_int_equal(fedge_safetensors_write(&two, values, whole, size, &err), FEDGE_OK);
    for (unsigned most = 0; most <= PARTS; most++) {
        p.used = 0;
        p.left = most;
        assert_int_equal(fedge_safetensors_put(&two, values, put_part, &p, &err),
                         most < PARTS ? FEDGE_NO_SPACE : FEDGE_OK);
    }
    assert_int_equal(p.used, size);
    assert_memory_equal(p.bytes, whole, size);
    /* The size of the header, the header, a tensor of one part and one of three. */
    for (unsigned most = 0; most <= PARTS + 2; most++) {
        p.left = most;
        assert_int_equal(fedge_safetensors_get(get_part, &p, size, &two, false, back, &err),
                         most < PARTS + 2 ? FEDGE_IO : FEDGE_OK);
    }
    assert_memory_equal(back, values, sizeof(values));
    free(whole);
    free(p.bytes);
}

static void test_round_trip(void **state)
{
    (void)state;
    make_schema();
    fedge_error err = {.status = FEDGE_OK};
    size_t size = 0;
    uint8_t file[MAX_FILE];
    float values[9] = {0};
    assert_int_equal(fedge_safetensors_size(&schema, &size, &err), FEDGE_OK);
    assert_int_equal(fedge_safetensors_write(&schema, VALUES, file, size, &err), FEDGE_OK);
    assert_int_equal(fedge_safetensors_read(file, size, &schema, values, &err), FEDGE_OK);
    assert_memory_equal(values, VALUES, sizeof(values));
    for (int i = 0; i < 9; i++)
        values[i] = 3.0f;
    assert_int_equal(fedge_safetensors_get(get, file, size, &schema, true, values, &err), FEDGE_OK);
    for (int i = 0; i < 9; i++)
        assert_true(values[i] == 3.0f - VALUES[i]);

    fedge_tensor_spec read_storage[3];
    fedge_schema read;
    const uint8_t *data;
    fedge_schema_init(&read, read_storage, 3);
    assert_int_equal(fedge_safetensors_read_schema(file, size, &read, &data, &err), FEDGE_OK);
    assert_schemas_equal(&schema, &read);
    assert_ptr_equal(data, file + size - sizeof(VALUES));
    fedge_schema_init(&read, read_storage, 2);
    assert_int_equal(fedge_safetensors_read_schema(file, size, &read, &data, &err), FEDGE_TOO_BIG);
    assert_null(data);
    /* Every shorter file is refused, and a longer one. */
    for (size_t cut = 1; cut <= size; cut++) {
        assert_int_not_equal(fedge_safetensors_read(file, size - cut, &schema, values, &err),
                             FEDGE_OK);
    }
    file[size] = 0;
    assert_int_equal(fedge_safetensors_read(file, size + 1, &schema, values, &err), FEDGE_CORRUPT);
}

static void test_an_empty_schema_is_a_file_too(void **state)
{
    (void)state;
    fedge_error err = {.status = FEDGE_OK};
    size_t size = 0;
    uint8_t file[MAX_FILE];
    assert_int_equal(fedge_safetensors_size(&schema, &size, &err), FEDGE_OK);
    assert_int_equal(size, 16);
    assert_int_equal(fedge_safetensors_write(&schema, NULL, file, size, &err), FEDGE_OK);
    assert_int_equal(fedge_safetensors_read(file, size, &schema, NULL, &err), FEDGE_OK);
}

static void test_reads_what_python_wrote(void **state)
{
    (void)state;
    fedge_error err = {.status = FEDGE_OK};
    uint8_t *file = NULL;
    size_t size = 0;
    assert_int_equal(fedge_os_read_file(GOLDEN "python.safetensors", MAX_FILE, &file, &size, &err),
                     FEDGE_OK);
    /* In another order than the file's. */
    add("half", FEDGE_F32, 2, (const uint32_t[]){2, 3});
    add("0.weight", FEDGE_F32, 2, (const uint32_t[]){2, 3});
    add("quoted \"\xC3\xA4\"", FEDGE_F32, 0, NULL);
    add("brain", FEDGE_F32, 2, (const uint32_t[]){2, 3});
    add("double", FEDGE_F32, 2, (const uint32_t[]){2, 3});
    float values[25];
    if (fedge_safetensors_read(file, size, &schema, values, &err))
        fail_msg("%s", err.message);
    static const size_t FIRST[] = {0, 6, 13, 19};
    for (size_t t = 0; t < 4; t++) {
        for (size_t i = 0; i < 6; i++)
            assert_true(values[FIRST[t] + i] == ((float)i - 3) * 0.625f);
    }
    assert_true(values[12] == 7);
    free(file);
}

static void test_refuses_to_write(void **state)
{
    (void)state;
    fedge_error err = {.status = FEDGE_OK};
    size_t size = 0;
    add("steps", FEDGE_I32, 0, NULL);
    assert_int_equal(fedge_safetensors_size(&schema, &size, &err), FEDGE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "\"steps\" is I32"));
}

static void add_of_each_type(void)
{
    add("half", FEDGE_F16, 1, (const uint32_t[]){3});
    add("float", FEDGE_F32, 1, (const uint32_t[]){2});
    add("brain", FEDGE_BF16, 1, (const uint32_t[]){2});
    add("count", FEDGE_I64, 1, (const uint32_t[]){2});
}

/* Files have larger elements first; halves are rounded and finite, integers are exact. */
static void test_types(void **state)
{
    (void)state;
    static const int64_t COUNTS[2] = {INT64_MIN + 1, 0x7ff0000000000001};
    static const char HEADER[] =
        "{\"count\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]},"
        "\"float\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[16,24]},"
        "\"half\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[24,30]},"
        "\"brain\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[30,34]}}";
    fedge_error err = {.status = FEDGE_OK};
    float values[11] = {1.0f / 3, -1e30f, 2049, 0.1f, 0.2f, 1.0f / 3, 3.4e38f}, back[11];
    uint8_t file[MAX_FILE], put[MAX_FILE];
    size_t size = 0;
    add_of_each_type();
    assert_int_equal(schema.num_elements, 11);
    memcpy(values + 7, COUNTS, sizeof(COUNTS));
    assert_int_equal(fedge_safetensors_size(&schema, &size, &err), FEDGE_OK);
    assert_int_equal(fedge_safetensors_write(&schema, values, file, size, &err), FEDGE_OK);
    assert_memory_equal(file + 8, HEADER, sizeof(HEADER) - 1);
    assert_memory_equal(file + size - 34, COUNTS, sizeof(COUNTS));
    parts p = {.bytes = put, .left = 2};
    assert_int_equal(fedge_safetensors_put(&schema, values, put_part, &p, &err), FEDGE_OK);
    assert_int_equal(p.used, size);
    assert_memory_equal(put, file, size);
    assert_int_equal(fedge_safetensors_read(file, size, &schema, back, &err), FEDGE_OK);
    static const float ROUNDED[7] = {0.333251953125f, -65504,     2048, 0.1f, 0.2f,
                                     0.333984375f,    0x1.fep127f};
    assert_memory_equal(back, ROUNDED, sizeof(ROUNDED));
    assert_memory_equal(back + 7, COUNTS, sizeof(COUNTS));
    assert_int_equal(fedge_safetensors_get(get, file, size, &schema, true, back, &err), FEDGE_OK);
    for (int i = 0; i < 7; i++)
        assert_true(back[i] == 0);
    assert_memory_equal(back + 7, COUNTS, sizeof(COUNTS));
    /* Of floats in a file, halves are rounded; integers are not made of them. */
    fedge_tensor_spec others[2];
    fedge_schema floats;
    fedge_schema_init(&floats, others, 2);
    assert_int_equal(fedge_schema_add(&floats, "half", FEDGE_F32, 1, (uint32_t[]){3}, &err), 0);
    assert_int_equal(fedge_safetensors_size(&floats, &size, &err), FEDGE_OK);
    assert_int_equal(fedge_safetensors_write(&floats, values, file, size, &err), FEDGE_OK);
    schema.num_tensors = 1;
    assert_int_equal(fedge_safetensors_read(file, size, &schema, back, &err), FEDGE_OK);
    assert_memory_equal(back, ROUNDED, 3 * sizeof(float));
    others[0].dtype = FEDGE_F32;
    schema.tensors[0].dtype = FEDGE_I64;
    assert_int_equal(fedge_safetensors_read(file, size, &schema, back, &err), FEDGE_MISMATCH);
    assert_non_null(strstr(err.message, "holds F32, but the model needs I64"));
}

/* A tensor's JSON. */
#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end   \
    "]}"

static void test_broken_headers(void **state)
{
    (void)state;
    expect_bad("", 0, FEDGE_CORRUPT, "safetensors header");
    expect_bad("[]", 0, FEDGE_CORRUPT, "safetensors header");
    expect_bad("{", 0, FEDGE_CORRUPT, "safetensors header");
    expect_bad("{} x", 0, FEDGE_CORRUPT, "safetensors header");
    expect_bad("{\"a\":1}", 0, FEDGE_CORRUPT, "a");
    expect_bad("{\"a\":{}}", 0, FEDGE_CORRUPT, "dtype");
    expect_bad("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
               FEDGE_CORRUPT, "x");
    expect_bad("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, FEDGE_CORRUPT,
               "data_offsets");
    expect_bad("{" T("a", "F32", "[[1]]", "0", "4") "}", 4, FEDGE_CORRUPT, "safetensors header");
    expect_bad("{" T("a", "F32", "[1]", "0", "4") "," T("a", "F32", "[1]", "4", "8") "}", 8,
               FEDGE_CORRUPT, "a");
    expect_bad("{" T("a", "F8_E4M3", "[1]", "0", "1") "}", 1, FEDGE_UNSUPPORTED, "F8_E4M3");
    expect_bad("{" T("a", "f32", "[1]", "0", "4") "}", 4, FEDGE_UNSUPPORTED, "f32");
    expect_bad("{" T("", "F32", "[1]", "0", "4") "}", 4, FEDGE_INVALID_ARGUMENT, "name");
    expect_bad("{\"__metadata__\":{\"a\":1}}", 0, FEDGE_CORRUPT, "must be a text");
    expect_bad("{\"__metadata__\":[]}", 0, FEDGE_CORRUPT, "object of texts");
    expect_bad("{\"__metadata__\":{\"a\":\"b\"}}", 1, FEDGE_CORRUPT, "there are 1");
}

static void test_broken_offsets(void **state)
{
    (void)state;
    expect_bad("{" T("a", "F32", "[2]", "0", "4") "}", 4, FEDGE_CORRUPT, "take 8 bytes");
    expect_bad("{" T("a", "F32", "[1]", "4", "0") "}", 4, FEDGE_CORRUPT, "take 4 bytes");
    expect_bad("{" T("a", "F32", "[1]", "0", "4") "}", 3, FEDGE_TRUNCATED, "ends at byte 4");
    expect_bad("{" T("a", "F32", "[1]", "0", "4") "}", 8, FEDGE_CORRUPT, "there are 8");
    expect_bad("{" T("a", "F32", "[1]", "4", "8") "}", 8, FEDGE_CORRUPT, "(gap)");
    expect_bad("{" T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[1]", "4", "8") "}", 8,
               FEDGE_CORRUPT, "(overlap)");
    expect_bad("{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "8", "12") "}", 12,
               FEDGE_CORRUPT, "tensor \"b\" begins at byte 8");
    expect_bad("{" T("a", "F32", "[1]", "-4", "0") "}", 4, FEDGE_CORRUPT, "data_offsets");
    expect_bad("{" T("a", "F32", "[1]", "0", "4.5") "}", 4, FEDGE_CORRUPT, "data_offsets");
    expect_bad("{" T("a", "F32", "[1]", "0", "1e300") "}", 4, FEDGE_CORRUPT, "data_offsets");
    expect_bad("{" T("a", "U8", "[0]", "0", "0") "}", 0, FEDGE_CORRUPT, "shape");
    expect_bad("{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, FEDGE_CORRUPT, "shape");
    /* Products that would overflow 64 bits and come out as 0 or 4. */
    expect_bad("{" T("a", "F32", "[4294967295,4294967295,4294967295]", "0", "4") "}", 4,
               FEDGE_TOO_BIG, "limit");
    expect_bad("{" T("a", "U8", "[2147483648,2147483648,4]", "0", "0") "}", 0, FEDGE_TOO_BIG,
               "limit");
}

static void test_sizes_of_the_header(void **state)
{
    (void)state;
    const uint8_t *data;
    fedge_error err = {.status = FEDGE_OK};
    uint8_t file[16] = {0};
    for (size_t size = 0; size < 8; size++) {
        assert_int_equal(fedge_safetensors_read_schema(file, size, &schema, &data, &err),
                         FEDGE_TRUNCATED);
    }
    file[0] = 9;
    assert_int_equal(fedge_safetensors_read_schema(file, 16, &schema, &data, &err),
                     FEDGE_TRUNCATED);
    assert_non_null(strstr(err.message, "9 bytes, but only 8"));
    file[3] = 1;
    assert_int_equal(fedge_safetensors_read_schema(file, 16, &schema, &data, &err), FEDGE_TOO_BIG);
    memset(file, 0xFF, 8);
    assert_int_equal(fedge_safetensors_read_schema(file, 16, &schema, &data, &err), FEDGE_TOO_BIG);
}

static void test_more_tensors_than_the_limit(void **state)
{
    (void)state;
    static uint8_t file[1 << 19];
    size_t at = 8;
    for (unsigned i = 0; i <= FEDGE_MAX_TENSORS; i++) {
        at += (size_t)snprintf((char *)file + at, sizeof(file) - at,
                               "%c" T("%u", "U8", "[1]", "%u", "%u"), i ? ',' : '{', i, i, i + 1);
    }
    file[at++] = '}';
    for (size_t i = 0; i < 8; i++)
        file[i] = (uint8_t)((at - 8) >> (8 * i));
    const uint8_t *data;
    fedge_error err = {.status = FEDGE_OK};
    assert_int_equal(
        fedge_safetensors_read_schema(file, at + FEDGE_MAX_TENSORS + 1, &schema, &data, &err),
        FEDGE_TOO_BIG);
    assert_non_null(strstr(err.message, "4096 tensors"));
}

static void expect_mismatch(const uint8_t *file, size_t size, fedge_status status, const char *part)
{
    float values[16];
    fedge_error err = {.status = FEDGE_OK};
    assert_int_equal(fedge_safetensors_read(file, size, &schema, values, &err), status);
    if (!strstr(err.message, part))
        fail_msg("no \"%s\" in: %s", part, err.message);
}

static void test_another_model(void **state)
{
    (void)state;
    uint8_t file[MAX_FILE];
    const size_t size = make_file(
        file, "{" T("a", "F32", "[2]", "0", "8") "," T("b", "I64", "[1]", "8", "16") "}", 16);
    add("a", FEDGE_F32, 1, (const uint32_t[]){2});
    expect_mismatch(file, size, FEDGE_MISMATCH, "\"b\" of the file is not in the model");
    add("b", FEDGE_F32, 1, (const uint32_t[]){1});
    expect_mismatch(file, size, FEDGE_MISMATCH, "\"b\" holds I64");
    set_up(NULL);
    add("a", FEDGE_F32, 2, (const uint32_t[]){1, 2});
    expect_mismatch(file, size, FEDGE_MISMATCH, "shape [2], but the model's is [1, 2]");
    set_up(NULL);
    add("c", FEDGE_F32, 1, (const uint32_t[]){2});
    expect_mismatch(file, size, FEDGE_MISMATCH, "\"c\" is not in the file");
}

static void test_pytorchs_counter_is_skipped(void **state)
{
    (void)state;
    uint8_t file[MAX_FILE];
    float values[2];
    fedge_error err = {0};
    size_t size = make_file(file,
                            "{" T("a", "F32", "[2]", "0", "8") "," T("1.num_batches_tracked", "I64",
                                                                     "[]", "8", "16") "}",
                            16);
    add("a", FEDGE_F32, 1, (const uint32_t[]){2});
    memset(file + size - 16, 0, 16);
    assert_int_equal(fedge_safetensors_read(file, size, &schema, values, &err), FEDGE_OK);
    size = make_file(file,
                     "{" T("a", "F32", "[2]", "0", "8") "," T("1.num_batches_tracked", "F32", "[2]",
                                                              "8", "16") "}",
                     16);
    expect_mismatch(file, size, FEDGE_MISMATCH, "of the file is not in the model");
}

static void test_half_floats_and_what_is_not_finite(void **state)
{
    (void)state;
    static const struct {
        uint16_t bits;
        float value;
    } HALVES[] = {{0x0000, 0},        {0x0001, 0x1p-24f}, {0x03FF, 0x3FFp-24f},
                  {0x0400, 0x1p-14f}, {0x3C00, 1},        {0x3555, 0.33325195f},
                  {0x7BFF, 65504},    {0xFBFF, -65504},   {0x8001, -0x1p-24f},
                  {0x7C00, INFINITY}, {0xFE00, NAN}};
    uint8_t file[MAX_FILE];
    const size_t size = make_file(file, "{" T("a", "F16", "[1]", "0", "2") "}", 2);
    add("a", FEDGE_F32, 1, (const uint32_t[]){1});
    for (size_t i = 0; i < sizeof(HALVES) / sizeof(HALVES[0]); i++) {
        fedge_error err = {.status = FEDGE_OK};
        float value = -1;
        file[size - 2] = (uint8_t)HALVES[i].bits;
        file[size - 1] = (uint8_t)(HALVES[i].bits >> 8);
        const fedge_status status = fedge_safetensors_read(file, size, &schema, &value, &err);
        if (isfinite(HALVES[i].value)) {
            assert_int_equal(status, FEDGE_OK);
            assert_true(value == HALVES[i].value);
        } else {
            assert_int_equal(status, FEDGE_NOT_FINITE);
            assert_non_null(strstr(err.message, "element 0 of tensor \"a\""));
        }
    }
    const size_t wide = make_file(file, "{" T("a", "F64", "[1]", "0", "8") "}", 8);
    memcpy(file + wide - 8, &(double){1e300}, 8); /* finite, but not as a float */
    expect_mismatch(file, wide, FEDGE_NOT_FINITE, "element 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_writes_the_golden_bytes, set_up),
        cmocka_unit_test_setup(test_round_trip, set_up),
        cmocka_unit_test(test_in_parts),
        cmocka_unit_test_setup(test_an_empty_schema_is_a_file_too, set_up),
        cmocka_unit_test_setup(test_reads_what_python_wrote, set_up),
        cmocka_unit_test_setup(test_refuses_to_write, set_up),
        cmocka_unit_test_setup(test_types, set_up),
        cmocka_unit_test_setup(test_broken_headers, set_up),
        cmocka_unit_test_setup(test_broken_offsets, set_up),
        cmocka_unit_test_setup(test_sizes_of_the_header, set_up),
        cmocka_unit_test_setup(test_more_tensors_than_the_limit, set_up),
        cmocka_unit_test_setup(test_another_model, set_up),
        cmocka_unit_test_setup(test_pytorchs_counter_is_skipped, set_up),
        cmocka_unit_test_setup(test_half_floats_and_what_is_not_finite, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
