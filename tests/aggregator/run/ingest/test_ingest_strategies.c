/* Whatever the strategy, and in whichever section: a value that is none or over its bound, and an
 * update of another shape, are refused before anything of them is summed or in the journal. */
#include "tests/aggregator/store/store_fixture.h"

#include <math.h>

#include "aggregator/rounds/global_model.h"
#include "aggregator/run/ingest/ingest.h"
#include "edge/plan/client_hooks.h"
#include "edge/plan/update.h"
#include "tests/aggregator/rounds/strategy_jobs.h"

enum { MAX_CASES = 64, BOUND_LOG2 = 2 };

static const job_parts PLAIN = {.more = ", \"update\": {\"codec\": \"none\", \"deflate\": false}"};

/* One value of a section in place of a good one. */
static const struct {
    const char *name;
    float value;
} VALUES[] = {{"NaN", NAN},
              {"infinity", INFINITY},
              {"minus infinity", -INFINITY},
              {"over the bound", 4.0000005f},
              {"under minus the bound", -4.0000005f},
              {"far over the bound", 3e38f}};

static void drop_section(fedge_upload *upload)
{
    upload->num_sections--;
}

static void add_section(fedge_upload *upload)
{
    upload->sections[upload->num_sections] = upload->sections[0];
    upload->num_sections++;
}

static void rename_section(fedge_upload *upload)
{
    memcpy(upload->sections[0].name, "other", sizeof("other"));
}

static void shorten(fedge_upload *upload)
{
    upload->sections[0].size -= sizeof(float);
    upload->sections[0].raw_size -= sizeof(float);
    upload->size -= sizeof(float);
}

static void other_codec(fedge_upload *upload)
{
    upload->sections[0].codec = fedge_codec_default();
}

static void (*const SHAPES[])(fedge_upload *upload) = {drop_section, add_section, rename_section,
                                                       shorten, other_codec};

#define NUM(list) (sizeof(list) / sizeof((list)[0]))

typedef struct fixture {
    fedge_job *job;
    fedge_accumulator accumulator;
    fedge_mailbox *mailbox;
    fedge_ingest *ingest;
    fedge_journal *journal;
    int8_t bounds[FEDGE_MAX_TENSORS];
    uint8_t *good; /* an update's bytes */
    fedge_upload upload;
    const char *names[MAX_CASES]; /* of what is wrong in each slot; NULL: nothing */
    uint32_t num_cases;
} fixture;

static void begin(fixture *f, const fedge_strategy_reader *reader, const char *dir)
{
    fedge_error err;
    *f = (fixture){.job = least_job(reader, &PLAIN)};
    const fedge_plan *plan = &f->job->plan;
    const fedge_update_layout layout = fedge_plan_update_layout(plan);
    const fedge_accumulator_config config = {.layout = &layout, .num_lanes = 2};
    OK(fedge_accumulator_open("cpu", &config, &f->accumulator, &err));
    OK(fedge_mailbox_new(&f->mailbox, NULL, NULL, &err));
    OK(fedge_ingest_new(&f->ingest, plan, &f->accumulator, f->mailbox, 2, &err));
    memset(f->bounds, BOUND_LOG2, sizeof(f->bounds));
    float *changes = calloc(plan->sent.schema.num_elements, sizeof(*changes));
    const fedge_update update = {.plan = plan, .bounds_log2 = f->bounds, .changes = changes};
    OK(fedge_update_encode(&update, &f->upload, &f->good, &err));
    free(changes);
    if (fedge_plan_is_clustered(plan))
        f->upload.metrics[f->upload.num_metrics++] = (fedge_metric){.name = FEDGE_CLUSTER};
    f->num_cases = 1 + (uint32_t)NUM(VALUES) * plan->sent.num_sections + (uint32_t)NUM(SHAPES);
    assert_in_range(f->num_cases, 1, MAX_CASES);
    fedge_journal_phase phase = test_phase(1, 0);
    phase.slot_size = f->upload.size;
    phase.num_tasks = f->num_cases;
    phase.wanted = f->num_cases;
    memcpy(phase.bounds_log2, f->bounds, sizeof(phase.bounds_log2));
    fedge_journal_task tasks[MAX_CASES];
    for (uint32_t i = 0; i < f->num_cases; i++)
        tasks[i] = test_task(i + 1);
    OK(fedge_journal_create(dir, &phase, tasks, 0, &f->journal, &err));
}

static void end(fixture *f)
{
    fedge_ingest_free(f->ingest);
    fedge_mailbox_free(f->mailbox);
    fedge_journal_free(f->journal);
    fedge_accumulator_close(&f->accumulator);
    fedge_job_free(f->job);
    free(f->good);
}

/* Queues an update in the slot, whose task is slot + 1, and its end. */
static void send(fixture *f, uint32_t slot, const char *name, const fedge_upload *upload,
                 const uint8_t *bytes)
{
    bool full = false;
    fedge_error err;
    fedge_ingest_upload *made = calloc(1, sizeof(*made));
    f->names[slot] = name;
    made->upload = *upload;
    made->upload.task_id = slot + 1;
    made->upload.crc32 = fedge_crc32(0, bytes, upload->size);
    made->weight = 1;
    made->meta_size = (uint32_t)snprintf(made->meta, sizeof(made->meta), "{}");
    const fedge_ingest_part part = {
        .task_id = slot + 1, .data = bytes, .size = (uint32_t)upload->size};
    OK(fedge_ingest_write(f->ingest, f->journal, slot, &part, NULL, &full, &err));
    OK(fedge_ingest_finish(f->ingest, f->journal, slot, made, &err));
}

static void send_values(fixture *f, uint32_t slot)
{
    const fedge_sent *sent = &f->job->plan.sent;
    uint8_t *bytes = malloc(f->upload.size);
    size_t at = 0;
    for (uint32_t s = 0; s < sent->num_sections; s++) {
        at += sent->sections[s].schema.num_elements; /* its last value */
        for (size_t i = 0; i < NUM(VALUES); i++) {
            memcpy(bytes, f->good, f->upload.size);
            fedge_put_f32s(bytes + (at - 1) * sizeof(float), &VALUES[i].value, 1);
            send(f, slot++, VALUES[i].name, &f->upload, bytes);
        }
    }
    for (size_t i = 0; i < NUM(SHAPES); i++) {
        fedge_upload upload = f->upload;
        SHAPES[i](&upload);
        send(f, slot++, "another shape", &upload, f->good);
    }
    assert_int_equal(slot, f->num_cases);
    free(bytes);
}

static void assert_answers(fixture *f)
{
    uint32_t count = 0;
    for (fedge_mailbox_item *item = fedge_mailbox_take(f->mailbox), *next; item; item = next) {
        fedge_completion *completion = (fedge_completion *)item;
        next = item->next;
        assert_int_equal(completion->type, FEDGE_COMPLETION_VALIDATED);
        const uint32_t slot = (uint32_t)completion->task_id - 1;
        const char *name = f->names[slot];
        if ((completion->status == FEDGE_OK) != !name) {
            fail_msg("%s: %s: %d %s", f->job->strategy, name ? name : "a good update",
                     (int)completion->status, completion->message);
        }
        if (name && strlen(completion->message) <= 10)
            fail_msg("%s: %s is refused without a word", f->job->strategy, name);
        const fedge_journal_slot facts = fedge_journal_get_slot(f->journal, slot);
        assert_int_equal(facts.accepted, !name);
        free(completion);
        count++;
    }
    assert_int_equal(count, f->num_cases);
}

static void nothing_of_a_bad_update_counts(void **state)
{
    for (size_t i = 0; fedge_strategy_readers[i]; i++) {
        fixture f;
        fedge_error err;
        begin(&f, fedge_strategy_readers[i], *state);
        send(&f, 0, NULL, &f.upload, f.good);
        send_values(&f, 1);
        OK(fedge_ingest_flush(f.ingest, &err));
        assert_answers(&f);
        const size_t num = f.job->plan.sent.schema.num_elements;
        int64_t *sums = calloc(num, sizeof(*sums));
        OK(fedge_accumulator_read(&f.accumulator, 0, num, sums, &err));
        for (size_t k = 0; k < num; k++)
            assert_int_equal(sums[k], 0); /* as the good one's */
        assert_int_equal(fedge_accumulator_get_totals(&f.accumulator).num_updates, 1);
        free(sums);
        end(&f);
        OK(fedge_os_remove_tree(*state, &err));
        OK(fedge_os_make_dirs(*state, &err));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_of_a_bad_update_counts, test_dir_setup,
                                        test_dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
