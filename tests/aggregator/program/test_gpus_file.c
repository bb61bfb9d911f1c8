#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "aggregator/program/options.h"
#include "edge/core/os.h"

static const char PATH[] = "test_gpus_file.txt";

static fedge_status read_text(const char *text, fedge_accumulator_config *config, fedge_error *err)
{
    assert_int_equal(fedge_os_write_file(PATH, text, strlen(text), 0644, err), FEDGE_OK);
    return fedge_gpus_file_read(PATH, config, err);
}

static void lists(void **state)
{
    (void)state;
    fedge_error err;
    fedge_accumulator_config config = {.num_gpus = 1, .gpus = {7}, .shard = FEDGE_SHARD_CLIENTS};
    assert_int_equal(read_text("2,0\n", &config, &err), FEDGE_OK);
    assert_int_equal(config.num_gpus, 2);
    assert_int_equal(config.gpus[0], 2);
    assert_int_equal(config.gpus[1], 0);
    assert_int_equal(config.shard, FEDGE_SHARD_CLIENTS);
    assert_int_equal(read_text("all \r\n", &config, &err), FEDGE_OK);
    assert_int_equal(config.num_gpus, 0);
    assert_int_equal(read_text("3", &config, &err), FEDGE_OK);
    assert_int_equal(config.num_gpus, 1);
    (void)remove(PATH);
}

/* What is wrong is told, and changes nothing. */
static void mistakes(void **state)
{
    (void)state;
    static char long_list[FEDGE_GPUS_FILE_MAX_SIZE + 2];
    const struct {
        const char *text, *said;
        fedge_status status;
    } cases[] = {{"", "numbers", FEDGE_INVALID_ARGUMENT},
                 {"\n", "numbers", FEDGE_INVALID_ARGUMENT},
                 {"0\n1\n", "numbers", FEDGE_INVALID_ARGUMENT},
                 {"0,1,0", "GPU 0 is named twice", FEDGE_INVALID_ARGUMENT},
                 {long_list, "1024", FEDGE_TOO_BIG}};
    memset(long_list, '1', sizeof(long_list) - 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fedge_error err = {0};
        fedge_accumulator_config config = {.num_gpus = 1, .gpus = {7}};
        assert_int_equal(read_text(cases[i].text, &config, &err), cases[i].status);
        assert_int_equal(config.num_gpus, 1);
        assert_int_equal(config.gpus[0], 7);
        if (!strstr(err.message, cases[i].said) || !strstr(err.message, PATH))
            fail_msg("'%s' is said of '%.20s'", err.message, cases[i].text);
    }
    (void)remove(PATH);
    fedge_error err = {0};
    fedge_accumulator_config config = {0};
    assert_int_equal(fedge_gpus_file_read(PATH, &config, &err), FEDGE_NOT_FOUND);
    assert_non_null(strstr(err.message, PATH));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists), cmocka_unit_test(mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
