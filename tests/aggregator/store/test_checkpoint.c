#include "tests/aggregator/store/store_fixture.h"

#include <math.h>

#include "aggregator/store/checkpoint.h"

static const uint8_t model_bytes[] = "a model's bytes", momenta[] = "momenta", tasks[] = "tasks";
static const fedge_checkpoint_files files = {.model = model_bytes,
                                             .model_size = sizeof(model_bytes),
                                             .strategy_state = momenta,
                                             .strategy_state_size = sizeof(momenta),
                                             .last_accepted = tasks,
                                             .last_accepted_size = sizeof(tasks)};

static fedge_checkpoint facts(uint32_t round)
{
    return (fedge_checkpoint){
        .round = round,
        .run_id = TEST_RUN_ID,
        .incarnation = 3,
        .strategy = "FedAvg",
        .next_task_id = ((uint64_t)1 << 53) - 1,
        .loss = NAN,
        .accuracy = 1.0 / 3.0,
        .bytes_up = 12345678901,
        .bytes_down = 7,
        .elapsed_ms = 99,
    };
}

static void save(const char *dir, uint32_t round)
{
    fedge_checkpoint checkpoint = facts(round);
    OK(fedge_checkpoint_save(dir, &checkpoint, &files, NULL));
}

static void write_text(const char *dir, const char *name, const char *text, size_t size)
{
    char path[FEDGE_MAX_PATH + 64];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    OK(fedge_os_write_file(path, text, size, 0600, NULL));
}

static void a_checkpoint_comes_back(void **state)
{
    fedge_checkpoint_data data;
    char note[256];
    save(*state, 12);
    save(*state, 9);
    OK(fedge_checkpoint_load_newest(*state, &data, note, sizeof(note), NULL));
    assert_string_equal(note, "");
    fedge_checkpoint expected = facts(12);
    const fedge_checkpoint *found = &data.checkpoint;
    assert_int_equal(found->round, 12);
    assert_string_equal(found->run_id, expected.run_id);
    assert_int_equal(found->incarnation, 3);
    assert_string_equal(found->strategy, "FedAvg");
    assert_int_equal(found->next_task_id, expected.next_task_id);
    assert_int_equal(found->bytes_up, expected.bytes_up);
    assert_int_equal(found->bytes_down, 7);
    assert_int_equal(found->elapsed_ms, 99);
    assert_true(isnan(found->loss));
    assert_true(found->accuracy == 1.0 / 3.0);
    assert_int_equal(data.model_size, sizeof(model_bytes));
    assert_memory_equal(data.model, model_bytes, sizeof(model_bytes));
    assert_int_equal(data.strategy_state_size, sizeof(momenta));
    assert_memory_equal(data.strategy_state, momenta, sizeof(momenta));
    assert_int_equal(data.last_accepted_size, sizeof(tasks));
    assert_memory_equal(data.last_accepted, tasks, sizeof(tasks));
    fedge_checkpoint_data_fini(&data);
    fedge_checkpoint_data_fini(&data);
}

/* The facts of a round go on as those of the next, whose files may be fewer. */
static void a_file_that_is_no_more_is_not_named(void **state)
{
    fedge_checkpoint_data data;
    fedge_checkpoint checkpoint = facts(1);
    OK(fedge_checkpoint_save(*state, &checkpoint, &files, NULL));
    assert_int_not_equal(checkpoint.strategy_state[0], '\0');
    const fedge_checkpoint_files fewer = {.model = files.model, .model_size = files.model_size};
    checkpoint.round = 2;
    OK(fedge_checkpoint_save(*state, &checkpoint, &fewer, NULL));
    char note[256];
    OK(fedge_checkpoint_load_newest(*state, &data, note, sizeof(note), NULL));
    assert_int_equal(data.checkpoint.round, 2);
    assert_string_equal(data.checkpoint.strategy_state, "");
    assert_string_equal(data.checkpoint.last_accepted, "");
    assert_null(data.strategy_state);
    fedge_checkpoint_data_fini(&data);
}

/* To the bit, and when it is written anew without the files. */
static void what_is_chosen_comes_back(void **state)
{
    fedge_checkpoint_data data;
    fedge_checkpoint checkpoint = facts(7);
    fedge_selection_state *chosen = &checkpoint.selection;
    *chosen = (fedge_selection_state){
        .keep = {.best_round = 4, .best = 0.1 + 0.2, .waited = 3, .seen = 7},
        .stop = {.best_round = 0, .best = 0.0, .waited = 2, .seen = 6},
        .best = {.round = 4,
                 .model = TEST_MODEL,
                 .loss = 1.0 / 3.0,
                 .accuracy = NAN,
                 .validation_loss = 2.0 / 3.0,
                 .validation_accuracy = 1.0}};
    OK(fedge_checkpoint_save(*state, &checkpoint, &files, NULL));
    for (int times = 0; times < 2; times++) {
        OK(fedge_checkpoint_load(*state, 7, &data, NULL));
        const fedge_selection_state *found = &data.checkpoint.selection;
        assert_memory_equal(&found->keep, &chosen->keep, sizeof(found->keep));
        assert_memory_equal(&found->stop, &chosen->stop, sizeof(found->stop));
        assert_int_equal(found->best.round, 4);
        assert_string_equal(found->best.model, TEST_MODEL);
        assert_true(found->best.loss == 1.0 / 3.0 && isnan(found->best.accuracy));
        assert_true(found->best.validation_loss == 2.0 / 3.0);
        assert_int_equal(data.model_size, sizeof(model_bytes));
        fedge_checkpoint_data_fini(&data);
        chosen->keep.waited = 4;
        OK(fedge_checkpoint_update(*state, &checkpoint, NULL));
    }
}

/* Of a run that chooses nothing, and of an older release. */
static void nothing_chosen_is_nothing(void **state)
{
    fedge_checkpoint_data data;
    const fedge_selection_state none = {.keep = {.seen = 0}};
    save(*state, 3);
    OK(fedge_checkpoint_load(*state, 3, &data, NULL));
    assert_memory_equal(&data.checkpoint.selection, &none, sizeof(none));
    fedge_checkpoint_data_fini(&data);
}

static void what_is_empty_is_no_file(void **state)
{
    fedge_checkpoint_data data;
    fedge_checkpoint checkpoint = facts(0);
    const fedge_checkpoint_files model = {.model = model_bytes, .model_size = sizeof(model_bytes)};
    OK(fedge_checkpoint_save(*state, &checkpoint, &model, NULL));
    assert_int_equal(strlen(checkpoint.model), 64);
    OK(fedge_checkpoint_load(*state, 0, &data, NULL));
    assert_null(data.strategy_state);
    assert_null(data.last_accepted);
    assert_string_equal(data.checkpoint.model, checkpoint.model);
    fedge_checkpoint_data_fini(&data);
}

/* As releases wrote it that told clients nothing. */
static void the_first_format_is_read(void **state)
{
    fedge_checkpoint_data data;
    fedge_checkpoint checkpoint = facts(3);
    char text[1024], path[FEDGE_MAX_PATH + 64];
    save(*state, 3);
    OK(fedge_checkpoint_load(*state, 3, &data, NULL));
    const int size =
        snprintf(text, sizeof(text),
                 "{\"format\":1,\"round\":3,\"run_id\":\"%s\",\"incarnation\":3,\"model\":\"%s\","
                 "\"strategy\":\"FedAvg\",\"strategy_state\":\"%s\",\"next_task_id\":5,"
                 "\"bytes_up\":1,\"bytes_down\":2,\"elapsed_ms\":3}",
                 checkpoint.run_id, data.checkpoint.model, data.checkpoint.strategy_state);
    fedge_checkpoint_data_fini(&data);
    write_text(*state, "round-000003/state.json", text, (size_t)size);
    snprintf(path, sizeof(path), "%s/round-000003/last-accepted.bin", (const char *)*state);
    OK(fedge_os_remove(path, NULL));
    OK(fedge_checkpoint_load(*state, 3, &data, NULL));
    assert_int_equal(data.checkpoint.next_task_id, 5);
    assert_int_equal(data.strategy_state_size, sizeof(momenta));
    assert_null(data.last_accepted);
    fedge_checkpoint_data_fini(&data);
}

/* As releases wrote it that called the last accepted updates "counted". */
static void the_second_format_is_read(void **state)
{
    fedge_checkpoint_data data;
    fedge_checkpoint checkpoint = facts(3);
    char text[1024], from[FEDGE_MAX_PATH + 64], to[FEDGE_MAX_PATH + 64];
    save(*state, 3);
    OK(fedge_checkpoint_load(*state, 3, &data, NULL));
    const int size =
        snprintf(text, sizeof(text),
                 "{\"format\":2,\"round\":3,\"run_id\":\"%s\",\"incarnation\":3,\"model\":\"%s\","
                 "\"strategy\":\"FedAvg\",\"strategy_state\":\"%s\",\"counted\":\"%s\","
                 "\"next_task_id\":5,\"bytes_up\":1,\"bytes_down\":2,\"elapsed_ms\":3}",
                 checkpoint.run_id, data.checkpoint.model, data.checkpoint.strategy_state,
                 data.checkpoint.last_accepted);
    fedge_checkpoint_data_fini(&data);
    write_text(*state, "round-000003/state.json", text, (size_t)size);
    snprintf(from, sizeof(from), "%s/round-000003/last-accepted.bin", (const char *)*state);
    snprintf(to, sizeof(to), "%s/round-000003/counted.bin", (const char *)*state);
    OK(fedge_os_rename(from, to, NULL));
    OK(fedge_checkpoint_load(*state, 3, &data, NULL));
    assert_int_equal(data.last_accepted_size, sizeof(tasks));
    assert_memory_equal(data.last_accepted, tasks, sizeof(tasks));
    fedge_checkpoint_data_fini(&data);
}

static void a_checkpoint_can_be_replaced(void **state)
{
    fedge_checkpoint_data data;
    save(*state, 4);
    write_text(*state, "round-000004/model.safetensors", "x", 1);
    assert_int_equal(fedge_checkpoint_load(*state, 4, &data, NULL), FEDGE_CORRUPT);
    save(*state, 4);
    OK(fedge_checkpoint_load(*state, 4, &data, NULL));
    fedge_checkpoint_data_fini(&data);
    char path[FEDGE_MAX_PATH + 64];
    snprintf(path, sizeof(path), "%s/round-000004.old", (const char *)*state);
    assert_false(fedge_os_exists(path));
}

/* What a crash left of one that was being built is no part of the next. */
static void a_leftover_is_not_built_upon(void **state)
{
    fedge_checkpoint_data data;
    char path[FEDGE_MAX_PATH + 64];
    snprintf(path, sizeof(path), "%s/round-000006.new", (const char *)*state);
    OK(fedge_os_make_dirs(path, NULL));
    write_text(*state, "round-000006.new/strategy.bin", "old momenta", 11);
    write_text(*state, "round-000006.new/half-a-file.tmp", "x", 1);
    save(*state, 6);
    assert_false(fedge_os_exists(path));
    snprintf(path, sizeof(path), "%s/round-000006/half-a-file.tmp", (const char *)*state);
    assert_false(fedge_os_exists(path));
    OK(fedge_checkpoint_load(*state, 6, &data, NULL));
    assert_int_equal(data.strategy_state_size, sizeof(momenta));
    fedge_checkpoint_data_fini(&data);
}

static void nothing_is_not_found(void **state)
{
    fedge_checkpoint_data data;
    fedge_error err;
    uint32_t round;
    char note[64], path[FEDGE_MAX_PATH + 64];
    snprintf(path, sizeof(path), "%s/round-000001.new", (const char *)*state);
    OK(fedge_os_make_dirs(path, NULL));
    snprintf(path, sizeof(path), "%s/round-1", (const char *)*state);
    OK(fedge_os_make_dirs(path, NULL));
    assert_int_equal(fedge_checkpoint_load_newest(*state, &data, note, sizeof(note), &err),
                     FEDGE_NOT_FOUND);
    save(*state, 1000000);
    OK(fedge_checkpoint_find(*state, UINT32_MAX, &round, NULL));
    assert_int_equal(round, 1000000);
    assert_int_equal(fedge_checkpoint_find(*state, 999999, &round, NULL), FEDGE_NOT_FOUND);
}

/* Each kind of damage to the newest: the one before is taken, and the note says why. */
static void damage_falls_back(void **state)
{
    static const struct {
        const char *name, *text;
    } damages[] = {
        {"model.safetensors", "a model's bytez"},
        {"model.safetensors", ""},
        {"strategy.bin", "momentum"},
        {"last-accepted.bin", "task"},
        {"state.json", ""},
        {"state.json", "{\"format\":1,\"round\":5"},
        {"state.json", "{\"format\":1,\"round\":5}"},
        {"state.json", "{\"format\":1,\"round\":4}"},
    };
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        fedge_checkpoint_data data;
        char note[256], name[64];
        save(*state, 4);
        save(*state, 5);
        snprintf(name, sizeof(name), "round-000005/%s", damages[i].name);
        write_text(*state, name, damages[i].text, strlen(damages[i].text));
        OK(fedge_checkpoint_load_newest(*state, &data, note, sizeof(note), NULL));
        assert_int_equal(data.checkpoint.round, 4);
        assert_non_null(strstr(note, "round 5"));
        fedge_checkpoint_data_fini(&data);
        char path[FEDGE_MAX_PATH + 64];
        snprintf(path, sizeof(path), "%s/%s", (const char *)*state, name);
        OK(fedge_os_remove(path, NULL));
        OK(fedge_checkpoint_load_newest(*state, &data, note, 8, NULL)); /* the note is cut */
        assert_int_equal(data.checkpoint.round, 4);
        assert_int_equal(strlen(note), 7);
        fedge_checkpoint_data_fini(&data);
    }
}

/* Room for one note and a half, where three are to be told. */
static void notes_end_where_their_room_does(void **state)
{
    fedge_checkpoint_data data;
    char note[1024], path[64];
    for (uint32_t round = 0; round < 4; round++) {
        save(*state, round);
        snprintf(path, sizeof(path), "round-%06u/model.safetensors", (unsigned)round);
        if (round > 0)
            write_text(*state, path, "x", 1);
    }
    OK(fedge_checkpoint_load_newest(*state, &data, note, sizeof(note), NULL));
    fedge_checkpoint_data_fini(&data);
    assert_non_null(strstr(note, "round 1 passed over"));
    const size_t room = strlen(note) / 2;
    memset(note, '#', sizeof(note));
    OK(fedge_checkpoint_load_newest(*state, &data, note, room, NULL));
    fedge_checkpoint_data_fini(&data);
    assert_int_equal(strlen(note), room - 1);
    assert_non_null(strstr(note, "round 2 passed"));
    for (size_t i = room; i < sizeof(note); i++)
        assert_int_equal(note[i], '#');
}

static void no_usable_one_is_an_error(void **state)
{
    fedge_checkpoint_data data;
    fedge_error err;
    char note[512];
    save(*state, 0);
    save(*state, 1);
    write_text(*state, "round-000000/model.safetensors", "x", 1);
    write_text(*state, "round-000001/state.json", "x", 1);
    assert_int_equal(fedge_checkpoint_load_newest(*state, &data, note, sizeof(note), &err),
                     FEDGE_CORRUPT);
    assert_non_null(strstr(err.message, "backup"));
    /* Nor is there nothing, where that of round 0 was removed long ago. */
    char first[FEDGE_MAX_PATH + 64];
    snprintf(first, sizeof(first), "%s/round-000000", (const char *)*state);
    OK(fedge_os_remove_tree(first, NULL));
    assert_int_equal(fedge_checkpoint_load_newest(*state, &data, note, sizeof(note), &err),
                     FEDGE_CORRUPT);
    assert_non_null(strstr(note, "round 1 passed over"));
    /* A newer release's is not damage: no silent way back. */
    write_text(*state, "round-000001/state.json", "{\"format\":4}", 12);
    assert_int_equal(fedge_checkpoint_load_newest(*state, &data, note, sizeof(note), &err),
                     FEDGE_UNSUPPORTED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_checkpoint_comes_back),
        TEST(a_file_that_is_no_more_is_not_named),
        TEST(what_is_chosen_comes_back),
        TEST(nothing_chosen_is_nothing),
        TEST(what_is_empty_is_no_file),
        TEST(the_first_format_is_read),
        TEST(the_second_format_is_read),
        TEST(a_checkpoint_can_be_replaced),
        TEST(nothing_is_not_found),
        TEST(damage_falls_back),
        TEST(a_leftover_is_not_built_upon),
        TEST(no_usable_one_is_an_error),
        TEST(notes_end_where_their_room_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
