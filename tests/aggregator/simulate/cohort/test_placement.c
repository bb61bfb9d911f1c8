/* Who has which client's file, and who does what; ranks are threads. */
#include "aggregator/simulate/cohort/placement.h"

#include <stdio.h>
#include <string.h>

#include "edge/core/os.h"
#include "tests/aggregator/reduce/local_ranks.h"
#include "tests/edge/core/cmocka_all.h"

#define FOLDER "placement-%u"

/* ---- dealing --------------------------------------------------------------------------------- */

#define ANYONE FEDGE_PLACEMENT_ANYONE

static void deal(const fedge_placement *placement, uint32_t num_ranks,
                 const fedge_placement_work *work, uint32_t num_work, const char *wanted)
{
    uint64_t loads[8];
    uint32_t rank_of[16];
    char got[17] = "";
    assert_true(num_ranks <= 8 && num_work <= 16);
    fedge_placement_deal(placement, num_ranks, work, num_work, loads, rank_of);
    for (uint32_t i = 0; i < num_work; i++)
        got[i] = (char)('0' + rank_of[i]);
    assert_string_equal(got, wanted);
}

static void work_goes_to_who_has_least(void **state)
{
    (void)state;
    const fedge_placement everywhere = {0};
    const fedge_placement_work alike[] = {{.client = 0, .size = 5},
                                          {.client = 1, .size = 5},
                                          {.client = 2, .size = 5},
                                          {.client = 3, .size = 5},
                                          {.client = 4, .size = 5}};
    const fedge_placement_work larger_first[] = {{.client = 0, .size = 9},
                                                 {.client = 1, .size = 5},
                                                 {.client = 2, .size = 4},
                                                 {.client = 3, .size = 2},
                                                 {.client = ANYONE, .size = 1}};
    deal(&everywhere, 3, alike, 5, "01201");
    deal(&everywhere, 2, larger_first, 5, "01101");
}

static void work_goes_where_its_data_are(void **state)
{
    (void)state;
    /* Client 0 is on ranks 0 and 1, client 1 on 0, client 2 on 2. */
    uint8_t holders[] = {3, 1, 4}, tests[] = {1, 0, 1};
    uint32_t homes[] = {1, 0, 2};
    const fedge_placement placement = {
        .num_ranks = 3, .num_clients = 3, .holders = holders, .tests = tests, .homes = homes};
    const fedge_placement_work train[] = {{.client = 0, .size = 3},
                                          {.client = 1, .size = 9},
                                          {.client = 2, .size = 1},
                                          {.client = ANYONE, .size = 1}};
    const fedge_placement_work at_home[] = {{.client = 0, .is_at_home = true},
                                            {.client = 1, .is_at_home = true},
                                            {.client = 2, .is_at_home = true}};
    const fedge_placement_work test[] = {{.client = ANYONE, .tests = true, .size = 1},
                                         {.client = ANYONE, .tests = true, .size = 1},
                                         {.client = ANYONE, .tests = true, .size = 1}};
    deal(&placement, 3, train, 4, "1022"); /* client 0 by rank 1, since rank 0 has to do client 1 */
    deal(&placement, 3, at_home, 3, "102");
    deal(&placement, 3, test, 3, "020");
    assert_int_equal(fedge_placement_first(&placement, 2), 2);
}

static void a_home_is_named_by_the_client_where_all_have_all(void **state)
{
    (void)state;
    const fedge_placement everywhere = {0};
    for (uint32_t client = 0; client < 9; client++)
        assert_int_equal(fedge_placement_home(&everywhere, 4, client), client % 4);
}

/* ---- finding --------------------------------------------------------------------------------- */

/* What each rank has in its folder, and what all find. */
typedef struct finding {
    const char *files[LOCAL_RANKS_MAX]; /* names, each before a space */
    const char *lines;                  /* of the values; %u is the rank */
    const char *labels;                 /* likewise, or NULL */
    uint32_t wanted;
    fedge_placement placement[LOCAL_RANKS_MAX];
    fedge_status status[LOCAL_RANKS_MAX];
    fedge_error err[LOCAL_RANKS_MAX];
} finding;

static void make_files(const finding *self, uint32_t num_ranks)
{
    for (uint32_t rank = 0; rank < num_ranks; rank++) {
        char folder[64], path[128], name[32];
        fedge_error err;
        (void)snprintf(folder, sizeof(folder), FOLDER, rank);
        if (fedge_os_exists(folder))
            assert_int_equal(fedge_os_remove_tree(folder, &err), FEDGE_OK);
        assert_int_equal(fedge_os_make_dirs(folder, &err), FEDGE_OK);
        int used = 0;
        for (const char *at = self->files[rank]; sscanf(at, "%31s%n", name, &used) == 1;
             at += used) {
            (void)snprintf(path, sizeof(path), FOLDER "/%s", rank, name);
            assert_int_equal(fedge_os_write_file(path, "1\n", 2, 0644, &err), FEDGE_OK);
        }
    }
}

/* [text] with the rank for every %u. */
static void fill_in(char *to, size_t size, const char *text, uint32_t rank)
{
    size_t length = 0;
    for (; *text && length + 2 < size; text++) {
        const bool is_rank = strncmp(text, "%u", 2) == 0;
        to[length++] = is_rank ? (char)('0' + rank) : *text;
        text += is_rank;
    }
    to[length] = '\0';
}

static void find_on(const fedge_collective *collective, void *user)
{
    finding *self = user;
    const uint32_t rank = collective->rank;
    fedge_site_data data = {.has_partition = true};
    fill_in(data.values, sizeof(data.values), self->lines, rank);
    fill_in(data.labels, sizeof(data.labels), self->labels ? self->labels : "", rank);
    self->status[rank] = fedge_placement_find(&self->placement[rank], collective, &data,
                                              self->wanted, &self->err[rank]);
}

static void find(finding *self, uint32_t num_ranks)
{
    make_files(self, num_ranks);
    local_ranks_run(num_ranks, find_on, self);
    for (uint32_t rank = 1; rank < num_ranks; rank++) {
        assert_int_equal(self->status[rank], self->status[0]);
        if (self->status[0] != FEDGE_OK)
            assert_string_equal(self->err[rank].message, self->err[0].message);
    }
}

static void forget(finding *self, uint32_t num_ranks)
{
    for (uint32_t rank = 0; rank < num_ranks; rank++)
        fedge_placement_fini(&self->placement[rank]);
}

static void fails(finding *self, uint32_t num_ranks, fedge_status status, const char *words)
{
    find(self, num_ranks);
    assert_int_equal(self->status[0], status);
    if (!strstr(self->err[0].message, words))
        fail_msg("no '%s' in: %s", words, self->err[0].message);
    forget(self, num_ranks);
}

static void files_are_found_by_their_names(void **state)
{
    (void)state;
    finding self = {.files = {"2.csv 10.csv ", "1.csv 10.csv ", ""}, .lines = "placement-%u/*.csv"};
    find(&self, 3);
    assert_int_equal(self.status[0], FEDGE_OK);
    for (uint32_t rank = 0; rank < 3; rank++) {
        const fedge_placement *placement = &self.placement[rank];
        assert_int_equal(placement->num_clients, 3); /* 1, 2 and 10 */
        assert_int_equal(placement->holders[0], 2);
        assert_int_equal(placement->holders[1], 1);
        assert_int_equal(placement->holders[2], 3);
        assert_int_equal(placement->homes[0], 1);
        assert_int_equal(placement->homes[1], 0);
        assert_int_equal(placement->homes[2], 0);
    }
    assert_int_equal(self.placement[0].num_local, 2);
    assert_int_equal(self.placement[0].local[0], 1);
    assert_int_equal(self.placement[0].local[1], 2);
    assert_string_equal(self.placement[0].values, "placement-0/2.csv\nplacement-0/10.csv\n");
    assert_int_equal(self.placement[2].num_local, 0);
    assert_string_equal(self.placement[2].values, "");
    forget(&self, 3);
}

static void nothing_is_placed_where_all_have_all(void **state)
{
    (void)state;
    finding self = {.files = {"a b ", "a b "}, .lines = "placement-%u/a\nplacement-%u/b"};
    find(&self, 2);
    assert_int_equal(self.status[0], FEDGE_OK);
    assert_null(self.placement[0].holders);
    assert_null(self.placement[1].holders);
    forget(&self, 2);
}

static void labels_come_with_their_values(void **state)
{
    (void)state;
    finding self = {.files = {"a la ", "b lb "},
                    .lines = "placement-%u/a\nplacement-%u/b",
                    .labels = "placement-%u/la\nplacement-%u/lb"};
    find(&self, 2);
    assert_int_equal(self.status[0], FEDGE_OK);
    assert_string_equal(self.placement[1].values, "placement-1/b\n");
    assert_string_equal(self.placement[1].labels, "placement-1/lb\n");
    forget(&self, 2);
    self.files[1] = "b la ";
    fails(&self, 2, FEDGE_MISMATCH, "placement-1/a: 0 files of values, but 1 of labels");
    self.labels = "placement-%u/la";
    fails(&self, 2, FEDGE_MISMATCH, "2 entries of values, but 1 of labels");
}

static void a_client_without_data_is_named(void **state)
{
    (void)state;
    finding self = {.files = {"a ", "d "},
                    .lines = "placement-%u/a\nplacement-%u/c\nplacement-%u/d"};
    fails(&self, 2, FEDGE_NOT_FOUND,
          "client 1: no rank has its file placement-0/c (rank 0 on here has 1, rank 1 on here has "
          "1 files)");
    self = (finding){.files = {"a ", "b "}, .lines = "placement-%u/*", .wanted = 3};
    fails(&self, 2, FEDGE_MISMATCH,
          "all ranks together (rank 0 on here has 1, rank 1 on here has 1): partition per-file: "
          "there are 2 files of values, but there are to be 3 clients");
}

static void a_line_means_the_same_client_everywhere(void **state)
{
    (void)state;
    finding self = {.files = {"x0 ", "x1 y "}, .lines = "placement-%u/x%u\nplacement-%u/y"};
    fails(&self, 2, FEDGE_MISMATCH, "file 0 of the values is x0 on rank 0, and x1 on rank 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_goes_to_who_has_least),
        cmocka_unit_test(work_goes_where_its_data_are),
        cmocka_unit_test(a_home_is_named_by_the_client_where_all_have_all),
        cmocka_unit_test(files_are_found_by_their_names),
        cmocka_unit_test(nothing_is_placed_where_all_have_all),
        cmocka_unit_test(labels_come_with_their_values),
        cmocka_unit_test(a_client_without_data_is_named),
        cmocka_unit_test(a_line_means_the_same_client_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
