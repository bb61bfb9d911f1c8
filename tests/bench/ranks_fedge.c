/* The close of a round over ranks, for ranks.sh: medians of seconds on rank 0, each pass in turn.
 *
 *     shards     the sums come to the ranks' shards, each takes its step, and rank 0 gathers
 *                (fedge_distributed_lead): a served round
 *     rank 0     the sums of all ranks come to rank 0 (fedge_distributed_join), and its step: a
 *                simulated one
 *     step       the step alone, of all parameters
 *     allreduce  MPI_Allreduce of as many int64
 *
 * Arguments: parameters, passes, accumulator, and what joins the sums (--join's). With "cuda" a
 * rank has the GPU of its number on its machine. Writes one line: ranks, parameters, and the four
 * medians; what joined is on standard error.
 */
#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

#include "aggregator/reduce/distributed_accumulator.h"
#include "edge/core/fixed.h"
#include "edge/core/os.h"

#define MAX_PASSES 101
enum { SHARDS, RANK_0, STEP, ALLREDUCE, NUM_KINDS };

typedef struct bench {
    size_t count;
    int64_t *sums, *others;
    float *values;
    bool stepped;
    fedge_accumulator accumulator;
    fedge_collective collective;
} bench;

static void must(fedge_status status, const fedge_error *err)
{
    if (status != FEDGE_OK) {
        fprintf(stderr, "ranks_fedge: %s\n", err->message);
        exit(1);
    }
}

static fedge_status lead(void *user, fedge_accumulator *accumulator, fedge_error *err)
{
    (void)user;
    return fedge_distributed_lead(accumulator, err);
}

static void write_log(void *user, const char *line, size_t size)
{
    (void)user;
    (void)fwrite(line, 1, size, stderr);
}

static void open_sums(bench *b, const char *accumulator, const char *join)
{
    static const fedge_log log = {.level = FEDGE_LOG_INFO, .write = write_log};
    const char *place = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    static fedge_tensor_spec tensor = {.name = "w"};
    static fedge_schema schema = {.tensors = &tensor, .num_tensors = 1};
    fedge_error err;
    tensor.count = b->count;
    schema.num_elements = b->count;
    static const fedge_codec none = {.values = &fedge_codec_none};
    const fedge_update_layout layout = {.num_sections = 1,
                                        .sections = {{.codec = none, .schema = &schema}},
                                        .num_elements = b->count,
                                        .size = b->count * sizeof(float)};
    const fedge_accumulator_config config = {.layout = &layout,
                                             .num_lanes = 1,
                                             .num_gpus = 1,
                                             .gpus = {place ? (uint32_t)atoi(place) : 0},
                                             .join = join,
                                             .log = &log};
    must(fedge_accumulator_open(accumulator, &config, &b->accumulator, &err), &err);
    must(fedge_distributed_wrap(&b->accumulator, &b->collective, b->count, &config, &err), &err);
    fedge_distributed_on_shards(&b->accumulator, lead, NULL);
}

static void add_update(bench *b)
{
    fedge_error err;
    int32_t *v = malloc(b->count * sizeof(*v));
    for (size_t i = 0; v && i < b->count; i++)
        v[i] = (int32_t)(i * 2654435761u) >> 3;
    must(fedge_accumulator_reset(&b->accumulator, &err), &err);
    must(fedge_accumulator_begin(&b->accumulator, 1, &err), &err);
    must(fedge_accumulator_add_values(&b->accumulator, 0, v, 0, b->count, 1, &err), &err);
    free(v);
}

static void run(bench *b, int kind)
{
    fedge_error err;
    const fedge_step_part all = {.count = b->count,
                                 .bound_log2 = 2,
                                 .rate = 1.0,
                                 .values = b->values,
                                 .unchanged = kind == SHARDS && b->stepped};
    const bool leads = b->collective.rank == 0;
    switch (kind) {
    case SHARDS:
        must(leads ? fedge_distributed_lead(&b->accumulator, &err)
                   : fedge_distributed_follow(&b->accumulator, FEDGE_OK, &err),
             &err);
        must(leads ? fedge_accumulator_step(&b->accumulator, &all, 1, &err)
                   : fedge_distributed_follow(&b->accumulator, FEDGE_OK, &err),
             &err);
        b->stepped = true;
        break;
    case RANK_0:
        must(fedge_distributed_join(&b->accumulator, FEDGE_OK, &err), &err);
        if (leads)
            must(fedge_accumulator_step(&b->accumulator, &all, 1, &err), &err);
        break;
    case STEP:
        fedge_fixed_step(b->values, b->sums, b->count, 1, 2, 1.0);
        break;
    case ALLREDUCE:
        MPI_Allreduce(b->sums, b->others, (int)b->count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        break;
    }
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static double seconds[NUM_KINDS][MAX_PASSES];
    bench b = {0};
    fedge_error err;
    const int passes = argc > 2 ? atoi(argv[2]) : 0;
    must(fedge_collective_open(&b.collective, &err), &err);
    if (argc != 5 || passes < 1 || passes > MAX_PASSES ||
        fedge_collective_is_alone(&b.collective)) {
        fprintf(stderr,
                "usage: mpirun -n 2 ranks_fedge PARAMETERS PASSES (1 to %d) ACCUMULATOR JOIN\n",
                MAX_PASSES);
        return 2;
    }
    const size_t num_ranks = b.collective.num_ranks;
    b.count = strtoul(argv[1], NULL, 10);
    b.sums = calloc(b.count, sizeof(*b.sums));
    b.others = calloc(b.count, sizeof(*b.others));
    b.values = calloc(b.count, sizeof(*b.values));
    if (!b.sums || !b.others || !b.values)
        exit(1);
    open_sums(&b, argv[3], argv[4]);
    for (int pass = -1; pass < passes; pass++) { /* the first is not counted */
        for (int kind = 0; kind < NUM_KINDS; kind++) {
            if (kind == SHARDS || kind == RANK_0)
                add_update(&b);
            MPI_Barrier(MPI_COMM_WORLD);
            const uint64_t from_ns = fedge_os_monotonic_ns();
            run(&b, kind);
            if (pass >= 0)
                seconds[kind][pass] = (double)(fedge_os_monotonic_ns() - from_ns) * 1e-9;
        }
    }
    for (int kind = 0; kind < NUM_KINDS; kind++)
        qsort(seconds[kind], (size_t)passes, sizeof(double), by_size);
    if (b.collective.rank == 0) {
        printf("%zu %zu", num_ranks, b.count);
        for (int kind = 0; kind < NUM_KINDS; kind++)
            printf(" %.6f", seconds[kind][passes / 2]);
        printf("\n");
    }
    fedge_accumulator_close(&b.accumulator);
    fedge_collective_close(&b.collective);
    free(b.sums);
    free(b.others);
    free(b.values);
    return 0;
}
