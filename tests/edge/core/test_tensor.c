#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "edge/core/tensor.h"

static void dtypes_have_names_and_sizes(void **state)
{
    (void)state;
    static const struct {
        fedge_dtype dtype;
        const char *name;
        size_t size;
    } cases[] = {
        {FEDGE_F32, "F32", 4}, {FEDGE_F16, "F16", 2}, {FEDGE_BF16, "BF16", 2},
        {FEDGE_F64, "F64", 8}, {FEDGE_I8, "I8", 1},   {FEDGE_U8, "U8", 1},
        {FEDGE_I16, "I16", 2}, {FEDGE_I32, "I32", 4}, {FEDGE_I64, "I64", 8},
    };
    assert_int_equal(sizeof(cases) / sizeof(cases[0]), FEDGE_DTYPE_COUNT);
    for (size_t i = 0; i < FEDGE_DTYPE_COUNT; i++) {
        assert_string_equal(fedge_dtype_name(cases[i].dtype), cases[i].name);
        assert_int_equal(fedge_dtype_size(cases[i].dtype), cases[i].size);
    }
    assert_null(fedge_dtype_name(FEDGE_DTYPE_COUNT));
    assert_int_equal(fedge_dtype_size(FEDGE_DTYPE_COUNT), 0);
}

static void tensors_lie_one_after_another(void **state)
{
    (void)state;
    fedge_tensor_spec storage[3];
    fedge_schema schema;
    fedge_schema_init(&schema, storage, 3);
    const uint32_t weight[] = {16, 3, 5};
    const uint32_t bias[] = {16};
    assert_int_equal(fedge_schema_add(&schema, "0.weight", FEDGE_F32, 3, weight, NULL), FEDGE_OK);
    assert_int_equal(fedge_schema_add(&schema, "0.bias", FEDGE_F32, 1, bias, NULL), FEDGE_OK);
    assert_int_equal(fedge_schema_add(&schema, "scalar", FEDGE_I64, 0, NULL, NULL), FEDGE_OK);
    assert_int_equal(schema.num_tensors, 3);
    assert_int_equal(schema.num_elements, 16 * 15 + 16 + 2); /* floats: an integer has two */
    assert_int_equal(storage[0].offset, 0);
    assert_int_equal(storage[1].offset, 240);
    assert_int_equal(storage[2].offset, 256);
    assert_int_equal(storage[2].count, 1);
    assert_ptr_equal(fedge_schema_find(&schema, "0.bias"), &storage[1]);
    assert_null(fedge_schema_find(&schema, "0.bia"));
}

static void expect_refused(fedge_schema *schema, fedge_status expected, const char *name,
                           fedge_dtype dtype, uint32_t rank, const uint32_t *shape,
                           const char *said)
{
    fedge_schema before = *schema;
    fedge_error err;
    assert_int_equal(fedge_schema_add(schema, name, dtype, rank, shape, &err), expected);
    if (!strstr(err.message, said))
        fail_msg("message \"%s\" does not say \"%s\"", err.message, said);
    assert_memory_equal(schema, &before, sizeof(before));
}

static void bad_tensors_are_refused(void **state)
{
    (void)state;
    fedge_tensor_spec storage[2];
    fedge_schema schema;
    fedge_schema_init(&schema, storage, 2);
    const uint32_t one[FEDGE_MAX_RANK + 1] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    char name[FEDGE_MAX_TENSOR_NAME + 1];
    memset(name, 'n', sizeof(name));

    name[FEDGE_MAX_TENSOR_NAME - 1] = '\0';
    assert_int_equal(fedge_schema_add(&schema, name, FEDGE_F32, FEDGE_MAX_RANK, one, NULL),
                     FEDGE_OK);
    expect_refused(&schema, FEDGE_INVALID_ARGUMENT, name, FEDGE_F32, 1, one, "used twice");
    name[FEDGE_MAX_TENSOR_NAME - 1] = 'n';
    name[FEDGE_MAX_TENSOR_NAME] = '\0';
    expect_refused(&schema, FEDGE_INVALID_ARGUMENT, name, FEDGE_F32, 1, one, "96 bytes");
    expect_refused(&schema, FEDGE_INVALID_ARGUMENT, "", FEDGE_F32, 1, one, "no name");
    expect_refused(&schema, FEDGE_INVALID_ARGUMENT, "x", FEDGE_F32, FEDGE_MAX_RANK + 1, one,
                   "9 dimensions");
    expect_refused(&schema, FEDGE_INVALID_ARGUMENT, "x", FEDGE_DTYPE_COUNT, 1, one, "type");
    const uint32_t zero[] = {4, 0, 4};
    expect_refused(&schema, FEDGE_INVALID_ARGUMENT, "x", FEDGE_F32, 3, zero, "dimension 1 is 0");
    assert_int_equal(fedge_schema_add(&schema, "last", FEDGE_F32, 0, NULL, NULL), FEDGE_OK);
    expect_refused(&schema, FEDGE_TOO_BIG, "x", FEDGE_F32, 1, one, "at most 2");
}

static void sizes_do_not_overflow(void **state)
{
    (void)state;
    fedge_tensor_spec storage[3];
    fedge_schema schema;
    fedge_schema_init(&schema, storage, 3);
    const uint32_t most = UINT32_MAX;
    const uint32_t huge[] = {most, most, most, most, most, most, most, most};
    expect_refused(&schema, FEDGE_TOO_BIG, "x", FEDGE_F32, FEDGE_MAX_RANK, huge, "4294967295");
    const uint32_t wraps[] = {1u << 31, 1u << 31, 4}; /* 2^64 */
    expect_refused(&schema, FEDGE_TOO_BIG, "x", FEDGE_F32, 3, wraps, "limit");
    const uint32_t half[] = {2, FEDGE_MAX_ELEMENTS / 4};
    assert_int_equal(fedge_schema_add(&schema, "a", FEDGE_F32, 2, half, NULL), FEDGE_OK);
    assert_int_equal(fedge_schema_add(&schema, "b", FEDGE_F32, 2, half, NULL), FEDGE_OK);
    assert_true(schema.num_elements == FEDGE_MAX_ELEMENTS);
    expect_refused(&schema, FEDGE_TOO_BIG, "c", FEDGE_F32, 0, NULL, "limit");
}

static void too_many_tensors_are_refused(void **state)
{
    (void)state;
    static fedge_tensor_spec storage[FEDGE_MAX_TENSORS + 1];
    fedge_schema schema;
    fedge_schema_init(&schema, storage, FEDGE_MAX_TENSORS + 1);
    for (int i = 0; i < FEDGE_MAX_TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        assert_int_equal(fedge_schema_add(&schema, name, FEDGE_F32, 0, NULL, NULL), FEDGE_OK);
    }
    expect_refused(&schema, FEDGE_TOO_BIG, "x", FEDGE_F32, 0, NULL, "at most 4096");
}

static void shapes_are_written(void **state)
{
    (void)state;
    char text[FEDGE_SHAPE_TEXT_SIZE];
    const uint32_t small[] = {16, 3, 3, 3};
    assert_string_equal(fedge_shape_text(4, small, text), "[16, 3, 3, 3]");
    assert_string_equal(fedge_shape_text(0, NULL, text), "[]");
    const uint32_t most = UINT32_MAX;
    const uint32_t large[] = {most, most, most, most, most, most, most, most, most};
    assert_int_equal(strlen(fedge_shape_text(8, large, text)), 8 * 10 + 7 * 2 + 2);
    assert_int_equal(strlen(fedge_shape_text(9, large, text)), 8 * 10 + 7 * 2 + 2 + 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtypes_have_names_and_sizes),
        cmocka_unit_test(tensors_lie_one_after_another),
        cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test(sizes_do_not_overflow),
        cmocka_unit_test(too_many_tensors_are_refused),
        cmocka_unit_test(shapes_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
