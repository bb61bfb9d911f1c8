/* Parts of a model that a client has: what is copied, what is fetched, what is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/parts.h"
#include "edge/core/bytes.h"
#include "edge/core/os.h"
#include "edge/core/text.h"
#include "edge/wire/protocol.h"
#include "secure/crypto/sha256.h"
#include "secure/identity/identity.h"

#define PART 20000
#define MAX_PARTS 8
#define PLAN "1111111111111111111111111111111111111111111111111111111111111111"

/* A blob of parts that are each filled by one letter, and its list. */
typedef struct model {
    uint8_t bytes[MAX_PARTS * PART];
    size_t size, list_size;
    uint8_t list[FEDGE_PART_LIST_HEAD + MAX_PARTS * FEDGE_PART_LIST_ENTRY];
    fedge_task task;
} model;

static fedge_store *store;
static fedge_error err;

static void name_model(model *m)
{
    fedge_sha256(m->bytes, m->size, m->list + 8);
    fedge_sha256_text(m->bytes, m->size, m->task.model);
    fedge_sha256_text(m->list, m->list_size, m->task.parts);
    m->task.model_size = m->size;
    m->task.parts_size = m->list_size;
}

static void make_model(model *m, const char *letters)
{
    memset(m, 0, sizeof(*m));
    memcpy(m->list, FEDGE_PART_LIST_MAGIC, 8);
    m->list_size = FEDGE_PART_LIST_HEAD;
    for (; *letters; letters++) {
        uint8_t *part = m->bytes + m->size, *entry = m->list + m->list_size;
        memset(part, *letters, PART);
        fedge_put_u32(entry, PART);
        fedge_sha256(part, PART, entry + 4);
        m->size += PART;
        m->list_size += FEDGE_PART_LIST_ENTRY;
    }
    fedge_put_u64(m->list + 40, m->size);
    name_model(m);
}

static void hold(const char *hash, const uint8_t *bytes, size_t size, size_t total)
{
    assert_int_equal(fedge_store_blob_append(store, hash, 0, bytes, size, total, &err), FEDGE_OK);
}

static void hold_list(const model *m)
{
    hold(m->task.parts, m->list, m->list_size, m->list_size);
}

static uint64_t held_of(const char *hash)
{
    uint64_t held = 0;
    assert_int_equal(fedge_store_blob_held(store, hash, UINT64_MAX, &held, &err), FEDGE_OK);
    return held;
}

/* Plays the server: appends what is asked for, and returns how many bytes that was. [runs]: of how
 * many FETCHes. */
static uint64_t download(const model *m, uint64_t held, unsigned *runs)
{
    fedge_parts *parts = NULL;
    uint64_t end = 0, fetched = 0;
    *runs = 0;
    assert_int_equal(fedge_parts_open(store, &m->task, PLAN, &parts, &err), FEDGE_OK);
    for (unsigned i = 0; held < m->size; i++) {
        assert_true(i < 100);
        assert_int_equal(fedge_parts_go_on(parts, &held, &end, &err), FEDGE_OK);
        assert_true(end >= held && end <= m->size);
        assert_int_equal(held_of(m->task.model), held);
        if (end == held)
            continue;
        assert_int_equal(fedge_store_blob_append(store, m->task.model, held, m->bytes + held,
                                                 end - held, m->size, &err),
                         FEDGE_OK);
        fetched += end - held;
        held = end;
        ++*runs;
    }
    fedge_parts_free(parts);
    assert_int_equal(fedge_store_blob_check(store, m->task.model, m->size, &err), FEDGE_OK);
    return fetched;
}

static int set_up(void **state)
{
    (void)state;
    return fedge_store_open(NULL, 1 << 20, &store, &err);
}

static int tear_down(void **state)
{
    (void)state;
    fedge_store_close(store);
    return 0;
}

static void what_another_model_has_is_copied(void **state)
{
    (void)state;
    static model old, fresh;
    unsigned runs = 0;
    make_model(&old, "abcde");
    make_model(&fresh, "xabyce"); /* elsewhere than in the old one */
    hold(old.task.model, old.bytes, old.size, old.size);
    hold_list(&old);
    hold_list(&fresh);
    assert_int_equal(download(&fresh, 0, &runs), 2 * PART);
    assert_int_equal(runs, 2);
}

static void what_comes_again_is_fetched_once(void **state)
{
    (void)state;
    static model m;
    unsigned runs = 0;
    make_model(&m, "abaabb");
    hold_list(&m);
    assert_int_equal(download(&m, 0, &runs), 2 * PART);
    assert_int_equal(runs, 1);
}

static void a_model_without_a_list_has_parts(void **state)
{
    (void)state;
    static model old, fresh;
    unsigned runs = 0;
    make_model(&old, "abcd");
    make_model(&fresh, "abxd");
    hold(old.task.model, old.bytes, old.size, old.size);
    hold_list(&fresh);
    assert_int_equal(download(&fresh, 0, &runs), PART);
    assert_int_equal(runs, 1);
}

static void half_a_model_has_parts_and_is_gone_on_with(void **state)
{
    (void)state;
    static model old, fresh;
    unsigned runs = 0;
    make_model(&old, "abcd");
    make_model(&fresh, "dxab");
    hold(old.task.model, old.bytes, 3 * PART - 1, old.size); /* d is not there, c in part */
    hold_list(&old);
    hold(fresh.task.model, fresh.bytes, PART / 2, fresh.size);
    hold_list(&fresh);
    assert_int_equal(download(&fresh, PART / 2, &runs), PART / 2 + PART);
}

static void what_shares_nothing_is_removed(void **state)
{
    (void)state;
    static model old, other, fresh;
    unsigned runs = 0;
    make_model(&old, "abcd");
    make_model(&other, "efgh");
    make_model(&fresh, "aaxx");
    hold(PLAN, fresh.bytes, 10, 10);
    hold(old.task.model, old.bytes, old.size, old.size);
    hold_list(&old);
    hold(other.task.model, other.bytes, other.size, other.size);
    hold_list(&other);
    hold_list(&fresh);
    assert_int_equal(download(&fresh, 0, &runs), PART);
    assert_int_equal(held_of(PLAN), 10);
    assert_int_equal(held_of(old.task.model), old.size);
    assert_int_equal(held_of(old.task.parts), old.list_size);
    assert_int_equal(held_of(other.task.model), 0);
    assert_int_equal(held_of(other.task.parts), 0);
}

static void a_list_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    static model m, other;
    fedge_parts *parts = NULL;
    for (unsigned fault = 0; fault < 6; fault++) {
        fedge_store_close(store);
        assert_int_equal(set_up(NULL), 0);
        make_model(&m, "abc");
        make_model(&other, "abd");
        m.list_size -= fault == 0;
        if (fault == 1)
            m.list[0] ^= 1;
        else if (fault == 2)
            fedge_put_u64(m.list + 40, m.size + 1);
        else if (fault == 3)
            fedge_put_u32(m.list + FEDGE_PART_LIST_HEAD, 0);
        else if (fault == 4)
            fedge_put_u32(m.list + FEDGE_PART_LIST_HEAD, FEDGE_PART_MAX_BYTES + 1);
        fedge_sha256_text(m.list, m.list_size, m.task.parts);
        m.task.parts_size = m.list_size;
        if (fault == 5)
            memcpy(m.task.model, other.task.model, sizeof(m.task.model));
        hold_list(&m);
        assert_int_equal(fedge_parts_open(store, &m.task, PLAN, &parts, &err), FEDGE_MISMATCH);
        assert_null(parts);
    }
    fedge_store_close(store);
    assert_int_equal(set_up(NULL), 0);
    make_model(&m, "abc");
    m.list[FEDGE_PART_LIST_HEAD + 10] ^= 1; /* in the store, with the list's name */
    hold_list(&m);
    assert_int_equal(fedge_parts_open(store, &m.task, PLAN, &parts, &err), FEDGE_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_another_model_has_is_copied, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_comes_again_is_fetched_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_model_without_a_list_has_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(half_a_model_has_parts_and_is_gone_on_with, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_shares_nothing_is_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_list_that_does_not_fit_is_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
