/* fedge's half of reduce.sh: how many updates a second an accumulator adds.
 *
 *     reduce_fedge read SECONDS                                  bytes a second that one core reads
 *     reduce_fedge add ACCUMULATOR CODEC PARAMETERS BATCH THREADS SECONDS   updates a second
 *     reduce_fedge validate ACCUMULATOR CODEC PARAMETERS SECONDS   updates a second of one thread
 *     reduce_fedge memory ACCUMULATOR CODEC PARAMETERS UPDATES   bytes resident at most
 *
 * Updates lie in memory, so many that no cache holds them, and are taken in turn. The rate is the
 * median of several stretches. Seconds are of the clock, but a CPU that one thread keeps busy is
 * timed as "read" is: by the time that it had, which other programs do not stretch. */
#define _GNU_SOURCE /* nanosleep, clock_gettime */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aggregator/reduce/accumulator.h"
#include "edge/core/os.h"
#include "edge/core/rng.h"
#include "tests/bench/train_peak.h"
#include "tests/edge/core/codec/encode.h"

#define MAX_THREADS 64
#define STRETCHES 7
#define POOL_BYTES ((size_t)768 << 20) /* of all updates together, where memory allows */
#define POOL_MAX 64u
#define MAX_TENSORS 8

/* The CNN of McMahan et al. 2017, the tensors as PyTorch has them; others: eight alike. */
static const size_t CNN[MAX_TENSORS] = {800, 32, 51200, 64, 1605632, 512, 5120, 10};
#define CNN_PARAMETERS 1663370u

static fedge_tensor_spec tensors[MAX_TENSORS];
static fedge_schema schema = {.tensors = tensors, .num_tensors = MAX_TENSORS};
static fedge_update_layout layout;
static int8_t bounds_log2[MAX_TENSORS];
static uint8_t *pool[POOL_MAX];
static uint64_t pool_sizes[POOL_MAX]; /* of the bytes of each */
static uint32_t pool_size;

static _Noreturn void fail(const char *what, const fedge_error *err)
{
    fprintf(stderr, "reduce_fedge: %s%s%s\n", what, err ? ": " : "", err ? err->message : "");
    exit(1);
}

static void make_layout(size_t parameters, fedge_codec codec)
{
    size_t offset = 0;
    for (uint32_t t = 0; t < MAX_TENSORS; t++) {
        const size_t share = parameters / MAX_TENSORS;
        const size_t last = parameters - share * (MAX_TENSORS - 1);
        const bool is_cnn = parameters == CNN_PARAMETERS;
        tensors[t] = (fedge_tensor_spec){.offset = offset,
                                         .rank = is_cnn && t % 2 == 1 ? 1 : 2, /* biases: 1 */
                                         .count = is_cnn                 ? CNN[t]
                                                  : t + 1 == MAX_TENSORS ? last
                                                                         : share};
        snprintf(tensors[t].name, sizeof(tensors[t].name), "%u", (unsigned)t);
        offset += tensors[t].count;
        bounds_log2[t] = FEDGE_FIXED_DEFAULT_BOUND_LOG2;
    }
    schema.num_elements = offset;
    layout = (fedge_update_layout){.num_sections = 1,
                                   .sections = {{.codec = codec, .schema = &schema}},
                                   .num_elements = offset,
                                   .size = fedge_codec_size(&codec, &schema)};
}

/* Updates as training makes them: small changes, none the same. *sent: of their bytes. */
static uint8_t *make_update(uint32_t index, uint64_t *sent)
{
    const fedge_codec *codec = &layout.sections[0].codec;
    const bool plain = fedge_codec_is_plain(codec);
    float *values = malloc(layout.num_elements * sizeof(*values));
    float *residual = plain ? NULL : calloc(layout.num_elements, sizeof(*residual));
    uint8_t *bytes = malloc(layout.size);
    size_t size = 0;
    fedge_error err;
    if (!values || !bytes || (!plain && !residual))
        fail("no memory for updates", NULL);
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, index, 0, 0);
    for (size_t i = 0; i < layout.num_elements; i++)
        values[i] = ((float)fedge_rng_u32(&rng) * 0x1p-32f - 0.5f) * 0.02f;
    if (codec_encode(codec, &schema, bounds_log2, values, residual, bytes, layout.size, &size, NULL,
                     &err) != FEDGE_OK)
        fail("encoding", &err);
    free(values);
    free(residual);
    *sent = size;
    return bytes;
}

static void make_pool(uint32_t least)
{
    const size_t most = POOL_BYTES / layout.size;
    pool_size = most < least ? least : most > POOL_MAX ? POOL_MAX : (uint32_t)most;
    for (uint32_t i = 0; i < pool_size; i++)
        pool[i] = make_update(i, &pool_sizes[i]);
}

static fedge_accumulator open_accumulator(const char *name)
{
    const fedge_accumulator_config config = {.layout = &layout, .num_lanes = 1};
    fedge_accumulator accumulator;
    fedge_error err;
    if (fedge_accumulator_open(name, &config, &accumulator, &err) != FEDGE_OK)
        fail(name, &err);
    return accumulator;
}

typedef struct adder {
    fedge_accumulator *accumulator;
    uint32_t batch, first;
    const atomic_bool *stop;
    uint64_t added;
    double cpu_seconds;
} adder;

static double thread_cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *add_until_stopped(void *argument)
{
    adder *self = argument;
    fedge_encoded encoded[FEDGE_ACCUMULATOR_MAX_BATCH], *batch[FEDGE_ACCUMULATOR_MAX_BATCH];
    fedge_error err;
    uint64_t ticket = 0;
    const double start = thread_cpu_seconds();
    for (uint32_t at = self->first; !atomic_load(self->stop); at += self->batch) {
        for (uint32_t i = 0; i < self->batch; i++) {
            encoded[i] = (fedge_encoded){.bytes = pool[(at + i) % pool_size],
                                         .sizes = &pool_sizes[(at + i) % pool_size],
                                         .bounds_log2 = bounds_log2,
                                         .weight = 1 + (at + i) % 600};
            batch[i] = &encoded[i];
        }
        if (fedge_accumulator_add(self->accumulator, batch, self->batch, &ticket, &err) != FEDGE_OK)
            fail("adding", &err);
        self->added += self->batch;
    }
    if (fedge_accumulator_wait(self->accumulator, ticket, &err) != FEDGE_OK)
        fail("waiting", &err);
    self->cpu_seconds = thread_cpu_seconds() - start;
    return NULL;
}

/* Updates a second of all threads, in one stretch. */
static double stretch(fedge_accumulator *accumulator, uint32_t batch, uint32_t num_threads,
                      double seconds, bool by_cpu_time)
{
    pthread_t threads[MAX_THREADS];
    adder adders[MAX_THREADS];
    atomic_bool stop;
    atomic_init(&stop, false);
    const uint64_t start_ns = fedge_os_monotonic_ns();
    for (uint32_t i = 0; i < num_threads; i++) {
        adders[i] = (adder){accumulator, batch, i * pool_size / num_threads, &stop, 0, 0};
        if (pthread_create(&threads[i], NULL, add_until_stopped, &adders[i]))
            fail("no thread", NULL);
    }
    const struct timespec pause = {.tv_sec = (time_t)seconds,
                                   .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
    nanosleep(&pause, NULL);
    atomic_store(&stop, true);
    uint64_t added = 0;
    for (uint32_t i = 0; i < num_threads; i++) {
        pthread_join(threads[i], NULL);
        added += adders[i].added;
    }
    const double took =
        by_cpu_time ? adders[0].cpu_seconds : (double)(fedge_os_monotonic_ns() - start_ns) * 1e-9;
    fedge_error err;
    if (fedge_accumulator_reset(accumulator, &err) != FEDGE_OK)
        fail("reset", &err);
    return (double)added / took;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int add(const char *name, uint32_t batch, uint32_t num_threads, double seconds)
{
    double rates[STRETCHES];
    const bool by_cpu_time = num_threads == 1 && strcmp(name, "cpu") == 0;
    make_pool(batch * num_threads);
    fedge_accumulator accumulator = open_accumulator(name);
    (void)stretch(&accumulator, batch, num_threads, seconds / 4,
                  by_cpu_time); /* pages, caches, clock */
    for (int i = 0; i < STRETCHES; i++)
        rates[i] = stretch(&accumulator, batch, num_threads, seconds / STRETCHES, by_cpu_time);
    qsort(rates, STRETCHES, sizeof(rates[0]), compare);
    printf("%.1f %llu\n", rates[STRETCHES / 2], (unsigned long long)pool_sizes[0]);
    fedge_accumulator_close(&accumulator);
    return 0;
}

static int validate(const char *name, double seconds)
{
    make_pool(1);
    fedge_accumulator accumulator = open_accumulator(name);
    fedge_error err;
    uint64_t checked = 0;
    const double start = thread_cpu_seconds();
    do {
        fedge_encoded update = {.bytes = pool[checked % pool_size],
                                .sizes = &pool_sizes[checked % pool_size],
                                .bounds_log2 = bounds_log2,
                                .weight = 1};
        if (fedge_accumulator_validate(&accumulator, &update, &err) != FEDGE_OK)
            fail("validating", &err);
        fedge_accumulator_drop(&accumulator, &update);
        checked++;
    } while (thread_cpu_seconds() - start < seconds);
    printf("%.1f %llu\n", (double)checked / (thread_cpu_seconds() - start),
           (unsigned long long)pool_sizes[0]);
    fedge_accumulator_close(&accumulator);
    return 0;
}

/* One encoded update, again and again, pulled as from a journal. */
static fedge_status pull(void *user, uint64_t offset, uint8_t *bytes, size_t size, fedge_error *err)
{
    (void)offset, (void)err;
    memcpy(bytes, user, size);
    return FEDGE_OK;
}

/* The most that was resident since the program began. */
static long resident_at_most(void)
{
    char line[256];
    long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "VmHWM:", 6) == 0)
            kilobytes = strtol(line + 6, NULL, 10);
    }
    if (file)
        fclose(file);
    return kilobytes * 1024;
}

static int memory(const char *name, uint32_t num_updates)
{
    static uint8_t zeros[1 << 20];
    fedge_accumulator accumulator = open_accumulator(name);
    fedge_error err;
    for (uint32_t i = 0; i < num_updates; i++) {
        fedge_encoded update = {
            .read = pull, .user = zeros, .bounds_log2 = bounds_log2, .weight = 1};
        uint64_t ticket = 0;
        if (fedge_accumulator_validate(&accumulator, &update, &err) != FEDGE_OK ||
            fedge_accumulator_add(&accumulator, &(fedge_encoded *){&update}, 1, &ticket, &err) !=
                FEDGE_OK ||
            fedge_accumulator_wait(&accumulator, ticket, &err) != FEDGE_OK)
            fail("adding", &err);
    }
    printf("%ld\n", resident_at_most());
    fedge_accumulator_close(&accumulator);
    return 0;
}

int main(int argc, char **argv)
{
    fedge_codec codec;
    fedge_error err;
    if (argc == 3 && strcmp(argv[1], "read") == 0) {
        printf("%.0f\n", train_peak_read(strtod(argv[2], NULL)));
        return 0;
    }
    if (argc < 6) {
        fprintf(stderr, "usage: see the head of tests/bench/reduce_fedge.c\n");
        return 2;
    }
    if (fedge_codec_parse(argv[3], &codec, &err) != FEDGE_OK)
        fail("codec", &err);
    make_layout(strtoul(argv[4], NULL, 10), codec);
    if (strcmp(argv[1], "validate") == 0)
        return validate(argv[2], strtod(argv[5], NULL));
    const uint32_t count = (uint32_t)strtoul(argv[5], NULL, 10);
    if (strcmp(argv[1], "memory") == 0)
        return memory(argv[2], count);
    const uint32_t threads = argc == 8 ? (uint32_t)strtoul(argv[6], NULL, 10) : 0;
    if (strcmp(argv[1], "add") != 0 || count == 0 || count > FEDGE_ACCUMULATOR_MAX_BATCH ||
        threads == 0 || threads > MAX_THREADS) {
        fprintf(stderr, "usage: see the head of tests/bench/reduce_fedge.c\n");
        return 2;
    }
    return add(argv[2], count, threads, strtod(argv[7], NULL));
}
