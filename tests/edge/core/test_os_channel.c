#include <string.h>

#include "edge/core/os.h"
#include "tests/edge/core/cmocka_all.h"

static void memory_goes_with_bytes(void **state)
{
    (void)state;
    fedge_error err;
    int ends[2], memory = -1, received = -1, none = 0;
    char text[8];
    void *ours = NULL, *theirs = NULL;
    assert_int_equal(fedge_os_channel_new(ends, &err), FEDGE_OK);
    assert_int_equal(fedge_os_shared_new(10000, &memory, &err), FEDGE_OK);
    assert_false(fedge_os_channel_wait(ends[1], 0));
    assert_int_equal(fedge_os_channel_send(ends[0], "model", 6, memory, &err), FEDGE_OK);
    assert_int_equal(fedge_os_channel_send(ends[0], "alone", 6, -1, &err), FEDGE_OK);
    assert_true(fedge_os_channel_wait(ends[1], 1000));
    assert_int_equal(fedge_os_channel_receive(ends[1], text, 6, &received, &err), FEDGE_OK);
    assert_string_equal(text, "model");
    assert_int_equal(fedge_os_channel_receive(ends[1], text, 6, &none, &err), FEDGE_OK);
    assert_string_equal(text, "alone");
    assert_int_equal(none, -1);
    assert_int_equal(fedge_os_shared_map(memory, 10000, &ours, &err), FEDGE_OK);
    assert_int_equal(fedge_os_shared_map(received, 10000, &theirs, &err), FEDGE_OK);
    assert_int_equal(((char *)theirs)[9999], 0);
    ((char *)ours)[9999] = 7;
    assert_int_equal(((char *)theirs)[9999], 7);
    fedge_os_shared_unmap(ours, 10000);
    fedge_os_shared_unmap(theirs, 10000);
    assert_int_equal(fedge_os_shared_map(received, 10001, &theirs, &err), FEDGE_TRUNCATED);
    assert_null(theirs);
    fedge_os_channel_close(memory);
    fedge_os_channel_close(received);
    fedge_os_channel_close(ends[0]);
    fedge_os_channel_close(ends[1]);
}

static void an_end_is_seen(void **state)
{
    (void)state;
    fedge_error err;
    int ends[2];
    char byte;
    assert_int_equal(fedge_os_channel_new(ends, &err), FEDGE_OK);
    assert_false(fedge_os_channel_ended(ends[1]));
    assert_int_equal(fedge_os_channel_send(ends[0], "x", 1, -1, &err), FEDGE_OK);
    fedge_os_channel_end(ends[0], false);
    assert_true(fedge_os_channel_ended(ends[1]));
    assert_int_equal(fedge_os_channel_receive(ends[1], &byte, 1, NULL, &err), FEDGE_OK);
    assert_int_equal(fedge_os_channel_receive(ends[1], &byte, 1, NULL, &err), FEDGE_CLOSED);
    /* The other direction is still open. */
    assert_int_equal(fedge_os_channel_send(ends[1], "y", 1, -1, &err), FEDGE_OK);
    assert_int_equal(fedge_os_channel_receive(ends[0], &byte, 1, NULL, &err), FEDGE_OK);
    fedge_os_channel_close(ends[1]);
    assert_int_equal(fedge_os_channel_send(ends[0], "z", 1, -1, &err), FEDGE_CLOSED);
    fedge_os_channel_close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_goes_with_bytes),
                                       cmocka_unit_test(an_end_is_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
