/* Texts that may not be UTF-8, in JSON. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */

#include "aggregator/store/json_text.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_that_are_not_utf8_become_question_marks),
        cmocka_unit_test(no_byte_behind_the_text_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
