#include "tests/edge/core/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/rounds/strategy.h"
#include "aggregator/simulate/generate/generate.h"
#include "aggregator/simulate/generate/npy_writer.h"
#include "edge/core/os.h"
#include "edge/data/dataset.h"
#include "edge/site/site.h"
#include "tests/aggregator/command_line.h"

#define DIR "generated"

static void remove_folder(const char *path)
{
    fedge_error err;
    assert_int_equal(fedge_os_remove_tree(path, &err), FEDGE_OK);
}

static fedge_status parse(const char *line, fedge_generate_options *options, fedge_error *err)
{
    int argc = 0;
    char **argv = command_line("generate", line, &argc);
    return fedge_generate_options_parse(argc, argv, options, err);
}

static void generate(const char *line, fedge_generate_settings *settings,
                     fedge_generate_report *report)
{
    fedge_generate_options options;
    fedge_error err;
    if (parse(line, &options, &err) != FEDGE_OK ||
        fedge_generate(&options.settings, report, &err) != FEDGE_OK)
        fail_msg("%s: %s", line, err.message);
    *settings = options.settings;
}

/* What the job makes of a stored value: its "normalisation" for bytes and series, else nothing. */
static float normalised(const fedge_synthetic_spec *data, const void *values, size_t at)
{
    if (data->kind == FEDGE_SYNTHETIC_SERIES)
        return (((const float *)values)[at] - 50.0F) / 14.0F;
    return data->dtype == FEDGE_U8 ? ((float)((const uint8_t *)values)[at] / 255.0F - 0.5F) / 0.25F
                                   : ((const float *)values)[at];
}

/* Example [slot] of [dataset] must be example [index] of [client]. */
static void assert_example(const fedge_dataset *dataset, uint32_t slot, fedge_synthetic *synthetic,
                           const fedge_synthetic_spec *data, uint32_t client, uint32_t index)
{
    enum { MOST = 4096 };
    static float stored[MOST], x[MOST];
    fedge_error err;
    int32_t label = 0, wanted = 0;
    const fedge_view view = {dataset, NULL, fedge_dataset_size(dataset)};
    const fedge_examples examples = fedge_view_examples(&view);
    const size_t count = fedge_synthetic_example_values(data);
    assert_true(count <= MOST);
    assert_int_equal(examples.read(examples.user, &slot, 1, 0, x, &label, &err), FEDGE_OK);
    (void)fedge_synthetic_example(synthetic, client, index, stored, &wanted);
    assert_int_equal(label, wanted);
    for (size_t i = 0; i < count; i++)
        assert_true(x[i] == normalised(data, stored, i));
    assert_int_equal(examples.targets.count, data->num_targets);
    if (data->num_targets > 0)
        examples.targets.read(examples.targets.user, &slot, 1, x);
    for (uint32_t i = 0; i < data->num_targets; i++)
        assert_true(x[i] == normalised(data, stored, count + i));
}

/* Reads the folder back as a simulation does. */
static void assert_folder(const fedge_generate_settings *settings,
                          const fedge_generate_report *report)
{
    fedge_job *job = NULL;
    fedge_site *site = NULL;
    fedge_dataset *train = NULL, *test = NULL;
    fedge_synthetic *synthetic = NULL;
    uint32_t *owner = NULL, clients = 0, index = 0, from_clients = 0;
    fedge_error err = {0};
    fedge_status status = fedge_job_load(DIR "/job.json", &job, &err);
    if (status == FEDGE_OK)
        status = fedge_site_load(DIR "/client.json", &site, &err);
    assert_string_equal(err.message, "");
    assert_int_equal(job->plan.seed, settings->seed);
    assert_string_equal(job->plan.name, settings->text);
    const fedge_site_data *data = fedge_site_find(site, job->plan.data.name);
    assert_non_null(data);
    assert_int_equal(fedge_partition_num_parts(&data->partition, data->values, &clients, &err),
                     FEDGE_OK);
    assert_int_equal(clients, settings->num_clients);
    assert_int_equal(fedge_dataset_load_divided(&job->plan.data, data->values, data->labels,
                                                &(fedge_division){&data->partition, clients, 0},
                                                &train, &owner, &err),
                     FEDGE_OK);
    assert_int_equal(fedge_dataset_load(&job->plan.data, job->test_set.images, job->test_set.labels,
                                        &test, &err),
                     FEDGE_OK);
    assert_int_equal(fedge_dataset_size(train), report->num_train);
    assert_int_equal(fedge_dataset_size(test), report->num_test);
    assert_int_equal(fedge_synthetic_new(&settings->data, settings->seed, &synthetic, &err),
                     FEDGE_OK);
    for (uint32_t i = 0; i < report->num_train; i++) {
        const bool first = i == 0 || owner[i] != owner[i - 1];
        assert_int_equal(owner[i], i == 0 ? 0 : owner[i - 1] + first);
        if (first && i > 0 && settings->data.kind == FEDGE_SYNTHETIC_FEDPROX) {
            assert_example(test, from_clients, synthetic, &settings->data, owner[i - 1], index);
            const uint32_t all = settings->num_examples > 0
                                     ? settings->num_examples
                                     : fedge_synthetic_draw_count(settings->seed, owner[i - 1]);
            assert_int_equal(all - index, (all + 9) / 10);
            from_clients += all - index;
        }
        index = first ? 0 : index;
        assert_example(train, i, synthetic, &settings->data, owner[i], index++);
    }
    for (uint32_t i = 0; i < settings->num_test; i++)
        assert_example(test, i, synthetic, &settings->data, FEDGE_SYNTHETIC_TEST, i);
    fedge_synthetic_free(synthetic);
    fedge_dataset_free(train);
    fedge_dataset_free(test);
    free(owner);
    fedge_site_free(site);
    fedge_job_free(job);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    static const char *const LINES[] = {
        "logistic:5,3 --out " DIR " --clients 7 --examples 30 --test 40 --seed 5",
        "fedprox:0.5,2 --out " DIR " --clients 6",
        "fedprox:iid --out " DIR " --clients 3 --examples 25 --seed 9007199254740991",
        "images:3,9,11,4 --out " DIR " --clients 4 --examples 11 --test 9",
        "images:1,1024,8,2 --out " DIR " --clients 1 --examples 1 --test 1",
        "series:5,3 --out " DIR " --clients 4 --examples 11 --test 9"};
    for (size_t i = 0; i < sizeof(LINES) / sizeof(LINES[0]); i++) {
        fedge_generate_settings settings;
        fedge_generate_report report;
        remove_folder(DIR);
        generate(LINES[i], &settings, &report);
        if (settings.data.rank == 3 && settings.data.shape[1] == 1024) {
            assert_int_equal(report.num_train + report.num_test, 2);
            continue; /* the job is what is tested */
        }
        assert_folder(&settings, &report);
        assert_int_equal(isnan(report.best_accuracy),
                         settings.data.kind != FEDGE_SYNTHETIC_LOGISTIC);
        assert_true(report.min_train <= report.max_train);
    }
}

/* The largest of each kind: their jobs are right. */
static void jobs_fit(void **state)
{
    (void)state;
    static const char *const LINES[] = {
        "logistic:65536,256 --out d", "logistic:1,1000 --out d", "images:16,8,8,1000 --out d",
        "images:16,1024,512,2 --out d", "fedprox --out d --clients 16777216"};
    for (size_t i = 0; i < sizeof(LINES) / sizeof(LINES[0]); i++) {
        fedge_generate_options options;
        fedge_buffer text;
        fedge_job *job = NULL;
        fedge_error err;
        fedge_buffer_init(&text, 1 << 16);
        if (parse(LINES[i], &options, &err) != FEDGE_OK ||
            fedge_generate_job(&options.settings, &text, &err) != FEDGE_OK ||
            fedge_strategy_job_parse((const char *)text.data, text.size, "job.json", &job, &err) !=
                FEDGE_OK)
            fail_msg("%s: %s", LINES[i], err.message);
        assert_int_equal(job->rounds.min_train_nodes, 10);
        fedge_job_free(job);
        fedge_buffer_fini(&text);
    }
}

static uint64_t size_of(const char *path)
{
    uint64_t size = 0;
    fedge_os_file file;
    fedge_error err;
    assert_int_equal(fedge_os_open(&file, path, FEDGE_OS_READ, &err), FEDGE_OK);
    assert_int_equal(fedge_os_file_size(&file, &size, &err), FEDGE_OK);
    fedge_os_close(&file);
    return size;
}

static fedge_status try_generate(const char *line, fedge_error *err)
{
    fedge_generate_options options;
    fedge_generate_report report;
    assert_int_equal(parse(line, &options, err), FEDGE_OK);
    return fedge_generate(&options.settings, &report, err);
}

static void files_are_replaced_only_when_asked(void **state)
{
    (void)state;
    fedge_generate_settings settings;
    fedge_generate_report report;
    fedge_error err;
    remove_folder(DIR);
    generate("logistic:2,2 --out " DIR " --clients 3 --examples 50 --test 5", &settings, &report);
    const uint64_t before = size_of(DIR "/train-labels.npy");
    const char *smaller = "logistic:2,2 --out " DIR " --clients 2 --examples 5 --test 5";
    assert_int_equal(try_generate(smaller, &err), FEDGE_EXISTS);
    assert_non_null(strstr(err.message, DIR "/train-values.npy exists: use --force"));
    assert_int_equal(size_of(DIR "/train-labels.npy"), before);
    generate("logistic:2,2 --out " DIR " --clients 2 --examples 5 --test 5 --force", &settings,
             &report);
    assert_folder(&settings, &report);
    assert_int_equal(size_of(DIR "/train-labels.npy"), before - 4 * (150 - 10));
}

static void a_failure_leaves_nothing(void **state)
{
    (void)state;
    fedge_error err;
    remove_folder(DIR);
    assert_int_equal(fedge_os_make_dirs(DIR "/owners.csv.part/in-the-way", &err), FEDGE_OK);
    assert_int_not_equal(try_generate("logistic --out " DIR " --clients 2 --examples 5", &err),
                         FEDGE_OK);
    assert_false(fedge_os_exists(DIR "/train-values.npy"));
    assert_false(fedge_os_exists(DIR "/test-labels.npy"));
    remove_folder(DIR);
    assert_int_equal(
        try_generate("logistic:9,2 --out " DIR " --clients 16777216 --examples 1000", &err),
        FEDGE_TOO_BIG);
    assert_non_null(strstr(err.message, "fewer --clients, --examples or --test"));
    assert_false(fedge_os_exists(DIR));
}

static void options(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } bad[] = {{"", "needs one KIND of data, not 0"},
               {"logistic images", "needs one KIND of data, not 2"},
               {"logistic", "--out is missing"},
               {"logistik --out d", "'logistik' is not"},
               {"logistic --out", "a value is missing for '--out'"},
               {"logistic --out d --job j", "unknown option '--job'"},
               {"logistic --out d --clients 0", "--clients must be a number from 1 to 16777216"},
               {"logistic --out d --examples 1048577", "--examples must be a number from 1 to"},
               {"logistic --out d --seed 9007199254740992", "--seed must be a number from 0 to"},
               {"fedprox --out d --test 5", "--test is not for fedprox"},
               {"fedprox --out d --examples 1", "--examples must be at least 2 for fedprox"}};
    fedge_generate_options parsed;
    fedge_error err;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(parse(bad[i].line, &parsed, &err), FEDGE_INVALID_ARGUMENT);
        if (!strstr(err.message, bad[i].message))
            fail_msg("'%s': \"%s\" has no \"%s\"", bad[i].line, err.message, bad[i].message);
    }
    assert_int_equal(parse("images --out d", &parsed, &err), FEDGE_OK);
    assert_true(parsed.settings.num_clients == 100 && parsed.settings.num_examples == 50 &&
                parsed.settings.num_test == 2000 && !parsed.settings.force);
    assert_int_equal(parse("fedprox --force --out d", &parsed, &err), FEDGE_OK);
    assert_true(parsed.settings.num_clients == 30 && parsed.settings.num_examples == 0 &&
                parsed.settings.num_test == 0 && parsed.settings.force);
    assert_int_equal(parse("--help --nonsense", &parsed, &err), FEDGE_OK);
    assert_true(parsed.help);
    int lines = 0, column = 0;
    char help[FEDGE_HELP_SIZE];
    for (const char *at = fedge_generate_options_help(help); *at; at++) {
        column = *at == '\n' ? 0 : column + 1;
        lines += *at == '\n';
        assert_true(column <= 80);
    }
    assert_true(lines <= 32);
}

static int clean_up(void **state)
{
    (void)state;
    remove_folder(DIR);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(jobs_fit),
        cmocka_unit_test(files_are_replaced_only_when_asked),
        cmocka_unit_test(a_failure_leaves_nothing),
        cmocka_unit_test(options),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
