/* Simulations on several ranks, which are threads here. */
#include "aggregator/simulate/run/ranks.h"

#include <stdlib.h>

#define POINTS_FILE "ranks-points.csv"
#include "tests/aggregator/reduce/local_ranks.h"
#include "tests/aggregator/simulate/run/run.h"

#define ROUNDS "\"num-server-rounds\":4,\"fraction-train\":0.6"
#define CLIENTS 7u

/* A run on all ranks. */
typedef struct shared {
    run of[LOCAL_RANKS_MAX];
    fedge_status ended[LOCAL_RANKS_MAX];
    const char *states; /* NULL, or the file that what clients keep is saved in at the end */
} shared;

static void take_part(const fedge_collective *collective, void *user)
{
    shared *all = user;
    run *self = &all->of[collective->rank];
    const fedge_simulation_config config = {.job = self->job,
                                            .client_data = self->client_data,
                                            .test_set = self->client_data->dataset,
                                            .collective = collective,
                                            .num_threads = 1 + collective->rank,
                                            .evaluate_every = 1,
                                            .cancel = is_over,
                                            .on_round = on_round,
                                            .user = self};
    fedge_status status = fedge_simulation_new(&config, &self->simulation, &self->err);
    status = fedge_collective_agree(collective, status, NULL, 0, &self->err);
    if (status == FEDGE_OK && collective->rank > 0) {
        status = fedge_simulation_serve(self->simulation, &self->err);
    } else if (status == FEDGE_OK) {
        fedge_simulation_lead(self->simulation);
        status = fedge_simulation_run(self->simulation, &self->err);
        if (all->states &&
            fedge_simulation_collect_states(self->simulation, &self->err) == FEDGE_OK) {
            (void)!fedge_client_states_save(fedge_simulation_states(self->simulation), all->states,
                                            &self->err);
        }
    }
    all->ended[collective->rank] = status;
    fedge_simulation_free(self->simulation);
    self->simulation = NULL;
}

static void begin_rounds(shared *all, uint32_t num_ranks, const char *rounds, const char *more)
{
    *all = (shared){.states = NULL};
    for (uint32_t i = 0; i < num_ranks; i++) {
        fedge_job *job = all->of[i].job = make_job(rounds, more);
        all->of[i].client_data = make_client_data(job, "dirichlet:0.5", CLIENTS,
                                                  job->rounds.fraction_evaluate > 0 ? 0.2 : 0);
    }
}

static void begin_shared(shared *all, uint32_t num_ranks, const char *more)
{
    begin_rounds(all, num_ranks, ROUNDS, more);
}

static void end_shared(shared *all, uint32_t num_ranks)
{
    for (uint32_t i = 0; i < num_ranks; i++)
        end(&all->of[i]);
}

static void the_same_rounds(const run *alone, const run *together)
{
    assert_int_equal(together->num_lines, alone->num_lines);
    for (uint32_t i = 0; i < alone->num_lines; i++) {
        const fedge_round_summary *a = &alone->lines[i], *b = &together->lines[i];
        assert_string_equal(b->model, a->model);
        assert_true(b->loss == a->loss && b->accuracy == a->accuracy);
        assert_true(b->train_loss == a->train_loss);
        assert_int_equal(b->reported, a->reported);
        assert_int_equal(b->examples, a->examples);
        assert_int_equal(b->bytes_up, a->bytes_up);
    }
}

static void any_number_of_ranks_gives_the_same(void **state)
{
    (void)state;
    static const char *const STRATEGIES[] = {
        "", ",\"strategy\":{\"type\":\"SCAFFOLD\"}", ",\"strategy\":{\"type\":\"FedNova\"}",
        ",\"strategy\":{\"type\":\"FedDyn\"}", ",\"update\":{\"up\":\"topk:0.1+int8\"}"};
    for (size_t s = 0; s < sizeof(STRATEGIES) / sizeof(STRATEGIES[0]); s++) {
        run alone;
        assert_int_equal(begin(&alone, ROUNDS, STRATEGIES[s], "dirichlet:0.5", CLIENTS, 2),
                         FEDGE_OK);
        go(&alone);
        for (uint32_t ranks = 2; ranks <= LOCAL_RANKS_MAX; ranks++) {
            static shared all;
            begin_shared(&all, ranks, STRATEGIES[s]);
            local_ranks_run(ranks, take_part, &all);
            for (uint32_t i = 0; i < ranks; i++)
                assert_int_equal(all.ended[i], FEDGE_OK);
            the_same_rounds(&alone, &all.of[0]);
            end_shared(&all, ranks);
        }
        end(&alone);
    }
}

/* Each client is evaluated where what it has for itself is. */
static void what_is_a_client_s_own_is_evaluated_where_it_is(void **state)
{
    (void)state;
    static const char rounds[] = ROUNDS ",\"fraction-evaluate\":1";
    static const char *const STRATEGIES[] = {",\"strategy\":{\"type\":\"FedRep\"}",
                                             ",\"strategy\":{\"type\":\"Ditto\",\"lambda\":0.5}"};
    for (size_t s = 0; s < sizeof(STRATEGIES) / sizeof(STRATEGIES[0]); s++) {
        static shared all;
        run alone;
        assert_int_equal(begin(&alone, rounds, STRATEGIES[s], "dirichlet:0.5", CLIENTS, 2),
                         FEDGE_OK);
        go(&alone);
        begin_rounds(&all, 3, rounds, STRATEGIES[s]);
        local_ranks_run(3, take_part, &all);
        assert_int_equal(alone.num_lines, 8);
        assert_int_equal(all.of[0].num_lines, 8);
        for (uint32_t i = 0; i < 8; i++) {
            const fedge_round_summary *a = &alone.lines[i], *b = &all.of[0].lines[i];
            assert_string_equal(b->model, a->model);
            assert_true(b->loss == a->loss && b->accuracy == a->accuracy);
            assert_memory_equal(&b->quantiles, &a->quantiles, sizeof(a->quantiles));
        }
        end_shared(&all, 3);
        end(&alone);
    }
}

static void rank_0_saves_what_all_clients_keep(void **state)
{
    (void)state;
    static const char SCAFFOLD[] = ",\"strategy\":{\"type\":\"SCAFFOLD\"}";
    static shared all;
    run alone;
    assert_int_equal(begin(&alone, ROUNDS, SCAFFOLD, "dirichlet:0.5", CLIENTS, 2), FEDGE_OK);
    go(&alone);
    assert_int_equal(fedge_client_states_save(fedge_simulation_states(alone.simulation),
                                              "ranks-alone.bin", &alone.err),
                     FEDGE_OK);
    begin_shared(&all, 3, SCAFFOLD);
    all.states = "ranks-together.bin";
    local_ranks_run(3, take_part, &all);
    uint8_t *a = NULL, *b = NULL;
    size_t a_size = 0, b_size = 0;
    assert_int_equal(fedge_os_read_file("ranks-alone.bin", 1 << 20, &a, &a_size, &alone.err),
                     FEDGE_OK);
    assert_int_equal(fedge_os_read_file("ranks-together.bin", 1 << 20, &b, &b_size, &alone.err),
                     FEDGE_OK);
    assert_int_equal(a_size, b_size);
    assert_memory_equal(a, b, a_size);
    free(a);
    free(b);
    end_shared(&all, 3);
    end(&alone);
}

/* A signal that reaches one rank ends the run as one that reaches all. */
static void a_rank_that_is_told_to_end_ends_all(void **state)
{
    (void)state;
    static shared all;
    begin_shared(&all, 3, "");
    all.of[2].stop_asked = 5;
    local_ranks_run(3, take_part, &all);
    assert_int_equal(all.ended[0], FEDGE_CANCELLED);
    assert_int_equal(all.ended[1], FEDGE_OK);
    assert_int_equal(all.ended[2], FEDGE_OK);
    assert_true(all.of[0].num_lines < 4);
    end_shared(&all, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_gives_the_same),
        cmocka_unit_test(what_is_a_client_s_own_is_evaluated_where_it_is),
        cmocka_unit_test(rank_0_saves_what_all_clients_keep),
        cmocka_unit_test(a_rank_that_is_told_to_end_ends_all),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
