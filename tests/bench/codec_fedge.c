/* fedge's half of codec.sh: encodes and decodes one tensor again and again on one thread.
 *
 *     bench_codec_fedge CODEC VALUES SECONDS
 *
 * prints bytes of floats a second of this thread's time, encoding and decoding, and the encoded
 * bytes. CODEC may end with +deflate, which is of the encoding alone. With xN in the place of
 * SECONDS it encodes N times and prints nothing, for codec_instructions.sh. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "edge/core/rng.h"
#include "edge/wire/deflate.h"
#include "tests/edge/core/codec/encode.h"

#define DEFLATE "+deflate"

static fedge_codec codec;
static fedge_tensor_spec spec;
static fedge_schema schema;
static float *values, *residual;
static uint8_t *bytes, *packed;
static fedge_deflater *deflater;
static int32_t *v;
static size_t most, size, packed_size; /* what travels has the less of the two sizes */
static const int8_t BOUND[1] = {2};

static void fail(const char *what)
{
    fprintf(stderr, "bench_codec_fedge: %s\n", what);
    exit(1);
}

static double thread_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void encode(void)
{
    if (codec_encode(&codec, &schema, BOUND, values, residual, bytes, most, &size, NULL, NULL) !=
        FEDGE_OK)
        fail("cannot encode");
    if (!deflater || !fedge_deflater_run(deflater, bytes, size, packed, size - 1, &packed_size))
        packed_size = size;
}

static void decode(void)
{
    if (fedge_codec_decode(&codec, &schema, BOUND, bytes, size, v, NULL) != FEDGE_OK)
        fail("cannot decode");
}

/* Bytes of floats a second. */
static double rate_of(void (*work)(void), double seconds)
{
    unsigned runs = 0;
    work();
    const double start = thread_seconds();
    double took = 0;
    while (took < seconds) {
        work();
        runs++;
        took = thread_seconds() - start;
    }
    return (double)runs * 4.0 * (double)spec.count / took;
}

/* Cuts +deflate off. */
static void take_deflate(char *text)
{
    char *end = strstr(text, DEFLATE);
    if (!end || end[sizeof(DEFLATE) - 1] != '\0')
        return;
    *end = '\0';
    if (fedge_deflater_new(&deflater, NULL) != FEDGE_OK)
        fail("no memory");
}

int main(int argc, char **argv)
{
    if (argc == 4)
        take_deflate(argv[1]);
    if (argc != 4 || fedge_codec_parse(argv[1], &codec, NULL) != FEDGE_OK)
        fail("give a codec, a number of values in thousands and seconds");
    const uint32_t shape[2] = {(uint32_t)strtoul(argv[2], NULL, 10), 1000};
    const double seconds = strtod(argv[3], NULL);
    fedge_schema_init(&schema, &spec, 1);
    if (fedge_schema_add(&schema, "w", FEDGE_F32, 2, shape, NULL) != FEDGE_OK)
        fail("cannot have so many values");
    most = fedge_codec_size(&codec, &schema);
    values = malloc(spec.count * sizeof(*values));
    residual = !fedge_codec_is_plain(&codec) ? calloc(spec.count, sizeof(*residual)) : NULL;
    v = malloc(spec.count * sizeof(*v));
    bytes = malloc(most);
    packed = malloc(most);
    if (!values || !v || !bytes || !packed || (!fedge_codec_is_plain(&codec) && !residual))
        fail("no memory");
    fedge_rng rng = fedge_rng_stream(1, FEDGE_PURPOSE_TEST, 0, 0, 0);
    for (size_t i = 0; i < spec.count; i++)
        values[i] = 0.01f * (float)fedge_rng_normal(&rng);
    if (argv[3][0] == 'x') {
        for (unsigned long left = strtoul(argv[3] + 1, NULL, 10); left > 0; left--)
            encode();
    } else {
        const double in = rate_of(encode, seconds), out = rate_of(decode, seconds);
        printf("%.0f %.0f %zu\n", in, out, packed_size);
    }
    free(values);
    free(residual);
    free(v);
    free(bytes);
    free(packed);
    fedge_deflater_free(deflater);
    return 0;
}
