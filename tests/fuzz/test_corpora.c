/* The corpora, once through the function of each fuzzer, by the compiler of everything else and
 * with its sanitizers: what a fuzzer has found stays mended in builds that run no fuzzer. Each file
 * of a corpus is named before its turn, since a fuzzer's function ends the program when it finds
 * something. */
#include "tests/edge/core/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/os.h"

#define MAX_BYTES (1u << 20)

/* clang-format off */
#define FUZZERS(X) \
    X(cifar) X(codec) X(csv) X(idx) X(inflate) X(job) X(leaf) X(message) X(model_delta) X(net) X(npy) X(partition) \
    X(plan) X(protocol) X(safetensors) X(tensor_data) X(ws_frame)
/* clang-format on */

#define DECLARE(name) int fuzz_##name(const uint8_t *data, size_t size);
FUZZERS(DECLARE)

typedef int take_input(const uint8_t *data, size_t size);

#define NAMED(name) {#name, fuzz_##name},
static const struct {
    const char *name;
    take_input *take;
} fuzzers[] = {FUZZERS(NAMED)};

typedef struct corpus {
    const char *folder;
    take_input *take;
    unsigned num_files;
} corpus;

/* In a block of the input's size, so that the address sanitizer sees a byte too many. */
static void replay(take_input *take, const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, data, size);
    assert_int_equal(take(copy, size), 0);
    free(copy);
}

static fedge_status replay_file(void *user, const char *name, fedge_error *err)
{
    corpus *of = user;
    char path[1024];
    uint8_t *data = NULL;
    size_t size = 0;
    (void)snprintf(path, sizeof(path), "%s/%s", of->folder, name);
    (void)printf("%s\n", path);
    (void)fflush(stdout);
    assert_int_equal(fedge_os_read_file(path, MAX_BYTES, &data, &size, err), FEDGE_OK);
    replay(of->take, data, size);
    free(data);
    of->num_files++;
    return FEDGE_OK;
}

/* One folder of tests/fuzz/corpus. */
static fedge_status replay_corpus(void *user, const char *name, fedge_error *err)
{
    char folder[512];
    corpus of = {.folder = folder};
    (void)snprintf(folder, sizeof(folder), FEDGE_SOURCE_DIR "/tests/fuzz/corpus/%s", name);
    for (size_t i = 0; i < sizeof(fuzzers) / sizeof(fuzzers[0]); i++) {
        if (strcmp(fuzzers[i].name, name) == 0)
            of.take = fuzzers[i].take;
    }
    if (!of.take)
        fail_msg("corpus/%s is of no fuzzer: name it in test_corpora.c", name);
    assert_int_equal(fedge_os_list_dir(folder, replay_file, &of, err), FEDGE_OK);
    assert_true(of.num_files > 0);
    (*(unsigned *)user)++;
    return FEDGE_OK;
}

static void every_corpus_is_replayed(void **state)
{
    (void)state;
    fedge_error err = {.message = ""};
    unsigned num_corpora = 0;
    assert_int_equal(
        fedge_os_list_dir(FEDGE_SOURCE_DIR "/tests/fuzz/corpus", replay_corpus, &num_corpora, &err),
        FEDGE_OK);
    assert_true(num_corpora > 10);
}

/* A fuzzer's first input is none at all; what libFuzzer tries next is short. */
static void short_inputs_are_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(fuzzers) / sizeof(fuzzers[0]); i++) {
        for (unsigned byte = 0; byte < 256; byte += 5) {
            const uint8_t input = (uint8_t)byte;
            (void)printf("%s, byte %u\n", fuzzers[i].name, byte);
            (void)fflush(stdout);
            replay(fuzzers[i].take, &input, byte == 0 ? 0 : 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_corpus_is_replayed),
        cmocka_unit_test(short_inputs_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
