/* partition.svg: every client has its columns, shares fill them, and a million clients are not
 * drawn one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/report/partition_plot.h"
#include "edge/core/os.h"
#include "tests/edge/data/partitions/partitions.h"

#define SVG "test_partition_plot.svg"
#define COUNT 60000u
#define LABELS 10u
#define SHARES_HEIGHT 260.0 /* of the upper panel, in pixels */
#define MAX_PAGE ((size_t)4 << 20)
#define MAX_WIDTH 1400

static int32_t labels[COUNT];
static uint32_t owner[COUNT];

/* What the bars of the column at a pixel cover, and the sum of their heights. */
typedef struct extent {
    double low, high, sum;
} extent;

static char *draw(const char *scheme, uint32_t num_labels, uint32_t num_parts, const char *title)
{
    const fedge_partition_spec spec = parsed_partition(scheme, 1);
    fedge_error err = {.status = FEDGE_OK};
    for (uint32_t i = 0; i < COUNT; i++)
        labels[i] = num_labels ? (int32_t)(i * 7 % num_labels) : 0;
    const fedge_partition_data data = {
        .num_examples = COUNT, .num_labels = num_labels, .labels = num_labels ? labels : NULL};
    if (fedge_partition_assign(&spec, &data, num_parts, owner, &err) ||
        fedge_partition_plot(SVG, title, &data, owner, num_parts, &err))
        fail_msg("%s", err.message);
    uint8_t *text = NULL;
    size_t size = 0;
    assert_int_equal(fedge_os_read_file(SVG, MAX_PAGE, &text, &size, &err), FEDGE_OK);
    assert_null(strstr((char *)text, "nan"));
    assert_null(strstr((char *)text, "inf"));
    assert_string_equal((char *)text + size - 7, "</svg>\n");
    return (char *)text;
}

static uint32_t occurrences(const char *text, const char *part)
{
    uint32_t count = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        count++;
    return count;
}

/* The bars of one path: "Mx yhWvHh-Wz" each. Returns how many. */
static uint32_t read_bars(const char *path, extent extents[MAX_WIDTH])
{
    uint32_t count = 0;
    const char *at = strstr(path, " d=\"") + 4;
    double x, y, w, h;
    while (sscanf(at, "M%lf %lfh%lfv%lf", &x, &y, &w, &h) == 4) {
        assert_true(x >= 0 && x < MAX_WIDTH);
        extent *to = &extents[(int)x];
        to->low = to->sum > 0 ? fmin(to->low, y) : y;
        to->high = to->sum > 0 ? fmax(to->high, y + h) : y + h;
        to->sum += h;
        count++;
        at = strchr(at, 'z') + 1;
    }
    assert_true(*at == '"');
    return count;
}

/* Of every column the shares fill the panel, one on the other. Numbers have two decimals. */
static void check_page(const char *page, uint32_t num_columns, uint32_t num_bands)
{
    static extent shares[MAX_WIDTH], sizes[MAX_WIDTH];
    assert_int_equal(occurrences(page, "<path"), num_bands + 1);
    memset(shares, 0, sizeof(shares));
    memset(sizes, 0, sizeof(sizes));
    const char *path = page;
    for (uint32_t band = 0; band < num_bands; band++) {
        path = strstr(path + 1, "<path");
        assert_true(read_bars(path, shares) <= num_columns);
    }
    uint32_t columns = 0;
    for (int x = 0; x < MAX_WIDTH; x++) {
        if (shares[x].sum > 0) {
            columns++;
            assert_true(fabs(shares[x].high - shares[x].low - SHARES_HEIGHT) < 0.02);
            assert_true(fabs(shares[x].sum - SHARES_HEIGHT) < 0.01 * num_bands);
        }
    }
    assert_int_equal(columns, num_bands > 0 ? num_columns : 0);
    assert_int_equal(read_bars(strstr(path + 1, "<path"), sizes), num_columns);
}

static void test_few_clients_have_numbers(void **state)
{
    (void)state;
    char *page = draw("dirichlet:0.3", LABELS, 10, "a < b & c");
    check_page(page, 10, LABELS);
    assert_non_null(strstr(page, ">a &lt; b &amp; c<"));
    assert_non_null(strstr(page, "10 clients, 60,000 examples; a client has "));
    for (int i = 0; i < 10; i++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "middle\">%d</text>", i);
        assert_non_null(strstr(page, text));
    }
    assert_non_null(strstr(page, "middle\">client<"));
    free(page);
    page = draw("iid", LABELS, 1, "one");
    check_page(page, 1, LABELS);
    /* Labels stand on each other in their order. */
    const char *path = page;
    double x, y, last = INFINITY;
    for (uint32_t band = 0; band < LABELS; band++) {
        path = strstr(strstr(path + 1, "<path"), " d=\"");
        assert_int_equal(sscanf(path, " d=\"M%lf %lfh", &x, &y), 2);
        assert_true(y < last);
        last = y;
    }
    free(page);
}

static void test_many_clients_are_sorted(void **state)
{
    (void)state;
    char *page = draw("shards:2", LABELS, 1000, "many");
    check_page(page, 1000, LABELS);
    assert_non_null(strstr(page, "1,000 clients, 60,000 examples; each has 60"));
    assert_non_null(strstr(page, ">clients, sorted by their most frequent label<"));
    /* Who has most of label 0 comes first. */
    const char *path = strstr(strstr(page, "<path"), " d=\"");
    double x, y, w, h;
    assert_int_equal(sscanf(path, " d=\"M%lf %lfh%lfv%lf", &x, &y, &w, &h), 4);
    assert_true(x == 70 && w == 1 && h == SHARES_HEIGHT);
    free(page);
}

static void test_of_very_many_some_are_drawn(void **state)
{
    (void)state;
    char *page = draw("iid", LABELS, 30000, "very many");
    check_page(page, FEDGE_PARTITION_PLOT_MAX_CLIENTS, LABELS);
    assert_non_null(strstr(page, ">1000 of 30,000 clients, evenly chosen, sorted by"));
    free(page);
}

static void test_labels_may_be_many_or_none(void **state)
{
    (void)state;
    char *page = draw("iid", 62, 40, "62 labels");
    check_page(page, 40, 31);
    assert_non_null(strstr(page, ">60–61<"));
    free(page);
    page = draw("iid", 1000, 100, "1000 labels");
    check_page(page, 100, 32);
    assert_non_null(strstr(page, ">992–999<"));
    free(page);
    page = draw("quantity:2", 0, 100, "no labels");
    check_page(page, 100, 0);
    assert_null(strstr(page, "share of each label"));
    free(page);
}

/* The wheel's colours, as hsl(HUE,60%,44% or 68%) is defined. SVG 1.1 knows no hsl(). */
static void test_colours_are_those_of_svg(void **state)
{
    (void)state;
    static const struct {
        uint32_t band;
        const char *colour;
    } of_twelve[] = {{0, "#b42d2d"}, {1, "#dead7c"}, {2, "#b4b42d"}, {4, "#2db42d"},
                     {6, "#2db4b4"}, {8, "#2d2db4"}, {11, "#de7cad"}};
    char *page = draw("iid", 12, 40, "12 labels");
    assert_null(strstr(page, "hsl"));
    assert_int_equal(occurrences(page, "<path fill=\"#"), 13);
    for (size_t i = 0; i < sizeof(of_twelve) / sizeof(of_twelve[0]); i++) {
        const char *path = page;
        for (uint32_t band = 0; band <= of_twelve[i].band; band++)
            path = strstr(path + 1, "<path fill=\"");
        assert_memory_equal(path + 12, of_twelve[i].colour, 7);
        assert_int_equal(occurrences(page, of_twelve[i].colour), 2); /* the legend's too */
    }
    free(page);
}

static void test_what_cannot_be_drawn(void **state)
{
    (void)state;
    const fedge_partition_data data = {.num_examples = COUNT};
    fedge_error err = {.status = FEDGE_OK};
    memset(owner, 0, sizeof(owner));
    assert_int_equal(fedge_partition_plot(SVG, "", &data, owner, 0, &err), FEDGE_INVALID_ARGUMENT);
    assert_int_equal(fedge_partition_plot("no-such-dir/x.svg", "", &data, owner, 1, &err),
                     FEDGE_NOT_FOUND);
    assert_non_null(strstr(err.message, "no-such-dir"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_clients_have_numbers),
        cmocka_unit_test(test_many_clients_are_sorted),
        cmocka_unit_test(test_of_very_many_some_are_drawn),
        cmocka_unit_test(test_labels_may_be_many_or_none),
        cmocka_unit_test(test_colours_are_those_of_svg),
        cmocka_unit_test(test_what_cannot_be_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
