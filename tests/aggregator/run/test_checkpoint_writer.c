#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/run/checkpoint_writer.h"
#include "aggregator/threads/mailbox.h"
#include "edge/core/os.h"
#include "secure/crypto/sha256.h"

static fedge_run run;
static fedge_mailbox *mailbox;
static fedge_checkpoint_writer *writer;
static const fedge_log log_nowhere = {.level = FEDGE_LOG_ERROR};

static int set_up(void **state)
{
    (void)state;
    fedge_error err;
    run = (fedge_run){.dir = "writer-test"};
    return fedge_os_remove_tree(run.dir, &err) == FEDGE_OK &&
                   fedge_os_make_dirs("writer-test/checkpoints", &err) == FEDGE_OK &&
                   fedge_os_make_dirs("writer-test/journal", &err) == FEDGE_OK &&
                   fedge_mailbox_new(&mailbox, NULL, NULL, &err) == FEDGE_OK &&
                   fedge_checkpoint_writer_new(&writer, mailbox, &log_nowhere, &err) == FEDGE_OK
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fedge_checkpoint_writer_free(writer);
    fedge_mailbox_free(mailbox);
    return fedge_os_remove_tree(run.dir, NULL) == FEDGE_OK ? 0 : -1;
}

static fedge_save *save_of(uint32_t round)
{
    fedge_error err;
    fedge_save *save = calloc(1, sizeof(*save));
    uint8_t *bytes = malloc(8);
    assert_non_null(save);
    assert_non_null(bytes);
    memcpy(bytes, "modelxyz", 8); /* "xyz" is not of the file */
    assert_int_equal(fedge_blob_new(bytes, 8, &save->model, &err), FEDGE_OK);
    save->model_size = 5;
    fedge_sha256_text(bytes, 5, save->model_hash);
    save->run = &run;
    save->keep_checkpoints = 1;
    save->checkpoint = (fedge_checkpoint){.round = round, .next_task_id = 7 + round};
    (void)snprintf(save->checkpoint.strategy, sizeof(save->checkpoint.strategy), "FedAvg");
    return save;
}

static void a_checkpoint_is_written_and_old_ones_go(void **state)
{
    (void)state;
    fedge_error err;
    fedge_save *save = NULL;
    assert_int_equal(fedge_checkpoint_writer_wait(writer, &save, &err), FEDGE_OK);
    assert_null(save);
    for (uint32_t round = 1; round <= 2; round++) {
        fedge_checkpoint_writer_start(writer, save_of(round));
        assert_int_equal(fedge_checkpoint_writer_wait(writer, &save, &err), FEDGE_OK);
        fedge_checkpoint_data data;
        assert_int_equal(fedge_checkpoint_load("writer-test/checkpoints", round, &data, &err),
                         FEDGE_OK);
        assert_int_equal(data.model_size, 5);
        assert_memory_equal(data.model, "model", 5);
        assert_int_equal(data.checkpoint.next_task_id, 7 + round);
        assert_string_equal(data.checkpoint.model, save->checkpoint.model); /* it is told */
        fedge_checkpoint_data_fini(&data);
        fedge_save_free(save);
    }
    fedge_checkpoint_data gone;
    assert_int_equal(fedge_checkpoint_load("writer-test/checkpoints", 1, &gone, &err),
                     FEDGE_NOT_FOUND);
    assert_null(fedge_mailbox_take(mailbox));
}

static void a_failure_is_told_and_stays(void **state)
{
    (void)state;
    fedge_error err = {0};
    fedge_save *save = NULL;
    assert_int_equal(fedge_os_remove_tree("writer-test/checkpoints", &err), FEDGE_OK);
    assert_int_equal(fedge_os_write_file("writer-test/checkpoints", "x", 1, 0600, &err), FEDGE_OK);
    fedge_checkpoint_writer_start(writer, save_of(1));
    assert_int_equal(fedge_checkpoint_writer_wait(writer, &save, &err), FEDGE_IO);
    fedge_save_free(save);
    fedge_completion *completion = (fedge_completion *)fedge_mailbox_take(mailbox);
    assert_non_null(completion);
    assert_int_equal(completion->type, FEDGE_COMPLETION_FATAL);
    assert_int_equal(completion->status, FEDGE_IO);
    assert_string_equal(completion->message, err.message);
    free(completion);
    assert_int_equal(fedge_checkpoint_writer_wait(writer, &save, &err), FEDGE_IO);
    assert_null(save);
}

/* What was started is written when the writer goes. */
static void the_end_waits(void **state)
{
    (void)state;
    fedge_error err;
    fedge_checkpoint_data data;
    fedge_checkpoint_writer_start(writer, save_of(3));
    fedge_checkpoint_writer_free(writer);
    writer = NULL;
    assert_int_equal(fedge_checkpoint_load("writer-test/checkpoints", 3, &data, &err), FEDGE_OK);
    fedge_checkpoint_data_fini(&data);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_checkpoint_is_written_and_old_ones_go),
        TEST(a_failure_is_told_and_stays),
        TEST(the_end_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
