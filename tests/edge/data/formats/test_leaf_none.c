/* A build without FEDGE_MORE_DATA knows LEAF's files, and refuses them. Linked with such a
 * data_file.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/edge/data/data_files.h"

#define FILE_NAME "test_no_leaf.json"

static void test_it_is_refused(void **state)
{
    (void)state;
    static bytes file;
    const fedge_data_spec spec = toy_spec(FEDGE_F32, 1, 1, 0, 0);
    save_text(FILE_NAME, "{\"user_data\": {\"u\": {\"x\": [[1]], \"y\": [1]}}}");
    const char *message =
        FILE_NAME ": this small build reads no JSON or safetensors data; convert it to csv or npy";
    expect_refused(&spec, FILE_NAME, "", FEDGE_UNSUPPORTED, message);
    add_bytes(&file, "\10\0\0\0\0\0\0\0{\"x\": 1}", 16);
    save_file(FILE_NAME, &file, 0);
    expect_refused(&spec, FILE_NAME, "", FEDGE_UNSUPPORTED, message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_it_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
