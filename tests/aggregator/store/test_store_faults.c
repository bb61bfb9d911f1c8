/* Every system call that writes to the disk fails once, with ENOSPC and with EIO, at every place of
 * a round's life: nothing acknowledged may be lost, nothing half made may count. */
#include "tests/aggregator/store/store_fixture.h"

#include <errno.h>
#include <sys/types.h>

#include "aggregator/store/recovery.h"

/* The call with this number (from 1) fails; 0: none does. */
static unsigned fail_at, num_calls;
static int fail_errno;

static int fails(void)
{
    num_calls++;
    if (num_calls != fail_at)
        return 0;
    errno = fail_errno;
    return 1;
}

ssize_t __real_pwrite(int fd, const void *data, size_t size, off_t offset);
ssize_t __real_pwrite64(int fd, const void *data, size_t size, off_t offset);
int __real_fdatasync(int fd);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __real_posix_fallocate(int fd, off_t offset, off_t size);
int __real_posix_fallocate64(int fd, off_t offset, off_t size);
ssize_t __wrap_pwrite(int fd, const void *data, size_t size, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t offset);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_posix_fallocate(int fd, off_t offset, off_t size);
int __wrap_posix_fallocate64(int fd, off_t offset, off_t size);

ssize_t __wrap_pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return fails() ? -1 : __real_pwrite(fd, data, size, offset);
}

ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t offset)
{
    return fails() ? -1 : __real_pwrite64(fd, data, size, offset);
}

int __wrap_fdatasync(int fd)
{
    return fails() ? -1 : __real_fdatasync(fd);
}

int __wrap_fsync(int fd)
{
    return fails() ? -1 : __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
    return fails() ? -1 : __real_rename(from, to);
}

int __wrap_posix_fallocate(int fd, off_t offset, off_t size)
{
    return fails() ? fail_errno : __real_posix_fallocate(fd, offset, size);
}

int __wrap_posix_fallocate64(int fd, off_t offset, off_t size)
{
    return fails() ? fail_errno : __real_posix_fallocate64(fd, offset, size);
}

static void arm(unsigned at, int errnum)
{
    fail_at = at;
    fail_errno = errnum;
    num_calls = 0;
}

/* What the world has been told of a round. */
typedef struct told_world {
    bool created, closed;
    uint32_t num_acked;
} told_world;

/* The life of a round's journal, ended by the first error as the aggregator would. */
static fedge_status live(const char *dir, told_world *told, fedge_journal **journal,
                         fedge_error *err)
{
    fedge_journal_phase phase = test_phase(1, 0);
    fedge_status status = test_create(dir, &phase, journal, err);
    if (status != FEDGE_OK)
        return status;
    told->created = true;
    for (uint32_t slot = 0; slot < TEST_SLOTS; slot++) {
        status = test_accept(*journal, slot, slot + 1, err);
        if (status == FEDGE_OK)
            status = fedge_journal_sync(*journal, err);
        if (status != FEDGE_OK)
            return status;
        told->num_acked++;
    }
    status = fedge_journal_close(*journal, err);
    told->closed = status == FEDGE_OK;
    return status;
}

/* After the error: the journal stays broken, and a new process finds all that was acknowledged. */
static void check_after(const char *dir, const told_world *told, fedge_journal *journal, int errnum,
                        fedge_status status)
{
    char path[FEDGE_MAX_PATH];
    fedge_error err;
    OK(fedge_journal_make_path(dir, 1, 0, path, NULL));
    if (!told->created) {
        assert_int_equal(status, errnum == ENOSPC ? FEDGE_NO_SPACE : FEDGE_IO);
        assert_false(fedge_os_exists(path));
        /* The same can be tried again. */
        fedge_journal_phase phase = test_phase(1, 0);
        OK(test_create(dir, &phase, &journal, NULL));
        fedge_journal_free(journal);
        return;
    }
    assert_int_equal(status, FEDGE_IO);
    assert_int_equal(fedge_journal_sync(journal, &err), FEDGE_IO);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(fedge_journal_close(journal, NULL), FEDGE_IO);
    assert_int_equal(fedge_journal_write(journal, 3, 4, 0, "x", 1, NULL), FEDGE_IO);
    fedge_journal_free(journal);
    OK(fedge_journal_recover(path, &journal, NULL));
    assert_true(fedge_journal_num_accepted(journal) >= told->num_acked);
    for (uint32_t slot = 0; slot < told->num_acked; slot++)
        assert_true(fedge_journal_get_slot(journal, slot).accepted);
    fedge_journal_free(journal);
}

static void every_write_of_the_journal_fails_once(void **state)
{
    static const int errnums[] = {ENOSPC, EIO};
    for (size_t e = 0; e < 2; e++) {
        bool whole = false;
        unsigned at = 1;
        for (; !whole; at++) {
            told_world told = {0};
            fedge_journal *journal = NULL;
            fedge_error err;
            OK(fedge_os_remove_tree(*state, NULL));
            OK(fedge_os_make_dirs(*state, NULL));
            arm(at, errnums[e]);
            fedge_status status = live(*state, &told, &journal, &err);
            whole = num_calls < at;
            arm(0, 0);
            if (whole) {
                assert_int_equal(status, FEDGE_OK);
                assert_true(told.closed);
                fedge_journal_free(journal);
            } else {
                check_after(*state, &told, journal, errnums[e], status);
            }
        }
        assert_true(at > 15); /* it did go through them */
    }
}

static fedge_status save(const char *dir, uint32_t round, const char *model, fedge_error *err)
{
    fedge_checkpoint checkpoint = {
        .round = round, .run_id = TEST_RUN_ID, .incarnation = 1, .strategy = "FedAvg"};
    const fedge_checkpoint_files files = {.model = (const uint8_t *)model,
                                          .model_size = strlen(model),
                                          .strategy_state = (const uint8_t *)"state",
                                          .strategy_state_size = 5,
                                          .last_accepted = (const uint8_t *)"12345678",
                                          .last_accepted_size = 8};
    return fedge_checkpoint_save(dir, &checkpoint, &files, err);
}

/* The newest whole checkpoint is the one before, or the new one if only its announcement failed. */
static void every_write_of_a_checkpoint_fails_once(void **state)
{
    static const int errnums[] = {ENOSPC, EIO};
    for (unsigned at = 1, whole = 0; whole < 2; at++) {
        fedge_checkpoint_data data;
        fedge_error err;
        char note[256];
        int errnum = errnums[whole];
        OK(fedge_os_remove_tree(*state, NULL));
        OK(fedge_os_make_dirs(*state, NULL));
        OK(save(*state, 1, "first", NULL));
        arm(at, errnum);
        fedge_status status = save(*state, 2, "second", &err);
        bool done = num_calls < at;
        arm(0, 0);
        if (done)
            assert_int_equal(status, FEDGE_OK);
        else
            assert_int_equal(status, errnum == ENOSPC ? FEDGE_NO_SPACE : FEDGE_IO);
        OK(fedge_checkpoint_load_newest(*state, &data, note, sizeof(note), NULL));
        assert_string_equal(note, "");
        assert_true(data.checkpoint.round == 2 || !done);
        assert_string_equal((const char *)data.model,
                            data.checkpoint.round == 2 ? "second" : "first");
        fedge_checkpoint_data_fini(&data);
        OK(save(*state, 2, "second", NULL));
        if (done) {
            assert_true(at > 8);
            at = 0;
            whole++;
        }
    }
}

/* A damaged checkpoint that is being replaced is there or replaced, never gone for good. */
static void replacing_a_checkpoint_fails_safely(void **state)
{
    for (unsigned at = 1; at < 30; at++) {
        uint32_t round;
        OK(save(*state, 5, "old", NULL));
        arm(at, EIO);
        fedge_status status = save(*state, 5, "new", NULL);
        arm(0, 0);
        OK(fedge_checkpoint_find(*state, UINT32_MAX, &round, NULL));
        assert_int_equal(round, 5);
        if (at == 29)
            assert_int_equal(status, FEDGE_OK);
    }
}

/* Recovery itself writes (it cuts torn ends): an error there ends it, and the next one succeeds. */
static void recovery_fails_and_succeeds_later(void **state)
{
    fedge_journal *journal;
    fedge_journal_phase phase = test_phase(1, 0);
    fedge_os_file file;
    fedge_error err;
    char path[FEDGE_MAX_PATH];
    OK(test_create(*state, &phase, &journal, NULL));
    OK(test_accept(journal, 0, 1, NULL));
    OK(fedge_journal_sync(journal, NULL));
    fedge_journal_free(journal);
    OK(fedge_journal_make_path(*state, 1, 0, path, NULL));
    OK(fedge_os_open(&file, path, FEDGE_OS_READ_WRITE, NULL));
    OK(fedge_os_write_at(&file, 8192, "torn", 4, NULL));
    fedge_os_close(&file);
    for (unsigned at = 1; at <= 2; at++) {
        arm(at, EIO);
        assert_int_equal(fedge_journal_recover(path, &journal, &err), FEDGE_IO);
        arm(0, 0);
    }
    OK(fedge_journal_recover(path, &journal, NULL));
    assert_int_equal(fedge_journal_num_accepted(journal), 1);
    fedge_journal_free(journal);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_write_of_the_journal_fails_once),
        TEST(every_write_of_a_checkpoint_fails_once),
        TEST(replacing_a_checkpoint_fails_safely),
        TEST(recovery_fails_and_succeeds_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
