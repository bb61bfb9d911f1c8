/* Texts that may not be UTF-8, in JSON. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */

#include "aggregator/store/json_file.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/edge/core/cmocka_all.h"

static void expect(const char *text, const char *expected)
{
    cJSON *json = cJSON_CreateObject();
    assert_true(fedge_json_add_text(json, "key", text));
    assert_string_equal(cJSON_GetObjectItem(json, "key")->valuestring, expected);
    cJSON_Delete(json);
}

static void bytes_that_are_not_utf8_become_question_marks(void **state)
{
    (void)state;
    expect("", "");
    expect("run 1", "run 1");
    expect("\303\251\342\202\254\360\237\230\200", "\303\251\342\202\254\360\237\230\200");
    expect("a\377b\303", "a?b?");
    expect("\342\202x\300\200", "??x??");
}

/* The page behind the text cannot be read. */
static void no_byte_behind_the_text_is_read(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    for (size_t size = 1; size < 20; size++) {
        char *text = pages + page - size;
        memset(text, 'x', size - 1);
        text[size - 1] = '\0';
        expect(text, text);
    }
    assert_int_equal(munmap(pages, 2 * page), 0);
}

static void numbers_keep_their_last_digit(void **state)
{
    (void)state;
    cJSON *json = cJSON_Parse(
        "{\"loss\":0.5654386920801611,\"list\":[0.1,{\"x\":0.30000000000000004}],\"n\":7}");
    assert_non_null(json);
    assert_non_null(cJSON_AddNumberToObject(json, "unknown", (double)NAN));
    assert_true(fedge_json_keep_digits(json));
    char *text = cJSON_PrintUnformatted(json);
    assert_non_null(text);
    /* What is equal in 15 digits keeps them. A unit of the last place off is another number. */
    cJSON *again = cJSON_Parse(text);
    assert_true(cJSON_GetObjectItem(again, "loss")->valuedouble == 0.5654386920801611);
    assert_non_null(strstr(text, "[0.1,{\"x\":0.30000000000000004}],\"n\":7,\"unknown\":null"));
    cJSON_Delete(again);
    cJSON_free(text);
    cJSON_Delete(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_that_are_not_utf8_become_question_marks),
        cmocka_unit_test(numbers_keep_their_last_digit),
        cmocka_unit_test(no_byte_behind_the_text_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
