/* The measuring half of inflate.sh: one update's bytes, deflated as clients do it, inflated by each
 * library there is. zlib and ISA-L run as in servers, piece by piece and with fedge's checks;
 * libdeflate and zlib-ng, which fedge does not use, are loaded where the system has them and are
 * given the whole stream at once. A line for each: stream, library, how, bytes in, bytes out,
 * seconds; and one for the deflater. */
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "edge/wire/deflate.h"

#define MIN_SECONDS 0.5 /* of each measurement of a turn */

static void require(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "bench_inflate_fedge: %s\n", what);
        exit(1);
    }
}

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* --- streams ---------------------------------------------------------------------------------- */

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return ((double)(*state >> 33) + 0.5) * 0x1p-31;
}

static double normal(uint64_t *state)
{
    const double radius = sqrt(-2.0 * log(uniform(state)));
    return radius * cos(6.283185307179586 * uniform(state));
}

/* Deltas of weights are about normal: as 32-bit floats, and as bytes over a block's largest value,
 * which is about three deviations. */
static void make_floats(uint8_t *bytes, size_t size)
{
    uint64_t state = 1;
    for (size_t i = 0; i + 4 <= size; i += 4) {
        const float value = (float)(0.01 * normal(&state));
        memcpy(bytes + i, &value, sizeof(value));
    }
}

static void make_int8(uint8_t *bytes, size_t size)
{
    uint64_t state = 2;
    for (size_t i = 0; i < size; i++) {
        const double value = rint(normal(&state) * 127 / 3);
        bytes[i] = (uint8_t)(int8_t)(value > 127 ? 127 : value < -127 ? -127 : value);
    }
}

/* One step from few examples leaves most values as they were. */
static void make_sparse(uint8_t *bytes, size_t size)
{
    uint64_t state = 3;
    for (size_t i = 0; i < size; i++)
        bytes[i] = uniform(&state) < 0.05 ? (uint8_t)(uniform(&state) * 255) : 0;
}

typedef struct stream {
    const char *name;
    void (*make)(uint8_t *bytes, size_t size);
} stream;

static const stream streams[] = {
    {"none", make_floats}, {"int8", make_int8}, {"int8, 95 % zeros", make_sparse}};

/* --- libraries -------------------------------------------------------------------------------- */

typedef struct bytes {
    const uint8_t *in;
    uint8_t *out;
    size_t in_size, out_size, at;
} bytes;

typedef struct library {
    const char *name, *how;
    const fedge_inflater *inflater; /* NULL: whole */
    bool (*whole)(const bytes *b);
} library;

static fedge_status read_piece(void *user, uint8_t *out, size_t size, fedge_error *err)
{
    bytes *b = user;
    (void)err;
    memcpy(out, b->in + b->at, size);
    b->at += size;
    return FEDGE_OK;
}

static void *(*libdeflate_new)(void);
static int (*libdeflate_run)(void *, const void *, size_t, void *, size_t, size_t *);
static int (*zlib_ng_run)(uint8_t *, size_t *, const uint8_t *, size_t);

static bool by_libdeflate(const bytes *b)
{
    static void *made;
    size_t size = 0;
    if (!made)
        made = libdeflate_new();
    return made && libdeflate_run(made, b->in, b->in_size, b->out, b->out_size, &size) == 0 &&
           size == b->out_size;
}

static bool by_zlib_ng(const bytes *b)
{
    size_t size = b->out_size;
    return zlib_ng_run(b->out, &size, b->in, b->in_size) == 0 && size == b->out_size;
}

/* A function of a library; dlsym's void * is one in POSIX. */
static bool load(const char *file, const char *function, void *into)
{
    void *opened = dlopen(file, RTLD_NOW);
    void *found = opened ? dlsym(opened, function) : NULL;
    memcpy(into, &found, sizeof(found));
    return found != NULL;
}

static uint32_t find_libraries(library found[8])
{
    uint32_t num = 0;
    for (const fedge_inflater *const *i = fedge_inflaters(); *i; i++)
        found[num++] = (library){(*i)->name, "in pieces", *i, NULL};
    if (load("libdeflate.so.0", "libdeflate_alloc_decompressor", &libdeflate_new) &&
        load("libdeflate.so.0", "libdeflate_zlib_decompress", &libdeflate_run))
        found[num++] = (library){"libdeflate", "whole", NULL, by_libdeflate};
    if (load("libz-ng.so.2", "zng_uncompress", &zlib_ng_run))
        found[num++] = (library){"zlib-ng", "whole", NULL, by_zlib_ng};
    return num;
}

static void inflate_once(const library *l, bytes *b)
{
    fedge_error err;
    b->at = 0;
    require(l->inflater ? fedge_inflate_read_by(l->inflater, read_piece, b, b->in_size, b->out,
                                                b->out_size, &err) == FEDGE_OK
                        : l->whole(b),
            "a stream was not inflated");
}

/* Seconds of CPU for one stream. */
static double measure(const library *l, bytes *b)
{
    const double start = cpu_seconds();
    double now = start;
    int times = 0;
    for (; now - start < MIN_SECONDS; now = cpu_seconds(), times++)
        inflate_once(l, b);
    return (now - start) / times;
}

/* The same of deflating it; *size: the bytes of the stream. */
static double measure_deflater(fedge_deflater *deflater, const uint8_t *raw, size_t raw_size,
                               uint8_t *packed, size_t room, size_t *size)
{
    const double start = cpu_seconds();
    double now = start;
    int times = 0;
    for (; now - start < MIN_SECONDS; now = cpu_seconds(), times++) {
        require(fedge_deflater_run(deflater, raw, raw_size, packed, room, size),
                "an update was not deflated");
    }
    return (now - start) / times;
}

int main(int argc, char **argv)
{
    const size_t size = argc == 2 ? strtoul(argv[1], NULL, 10) & ~(size_t)3 : 0;
    require(size > 0, "usage: bench_inflate_fedge BYTES");
    library libraries[8];
    const uint32_t num = find_libraries(libraries);
    const size_t room = size + size / 64 + 4096;
    uint8_t *raw = malloc(size), *packed = malloc(room), *out = malloc(size);
    fedge_error err;
    fedge_deflater *deflater = NULL;
    require(raw && packed && out && fedge_deflater_new(&deflater, &err) == FEDGE_OK, "no memory");
    for (size_t s = 0; s < sizeof(streams) / sizeof(streams[0]); s++) {
        bytes b = {.in = packed, .out = out, .out_size = size};
        streams[s].make(raw, size);
        const double seconds = measure_deflater(deflater, raw, size, packed, room, &b.in_size);
        printf("%s\tfedge\tdeflates\t%zu\t%zu\t%.9f\n", streams[s].name, size, b.in_size, seconds);
        for (uint32_t i = 0; i < num; i++) {
            memset(out, 0, size);
            inflate_once(&libraries[i], &b);
            require(memcmp(raw, out, size) == 0, "a stream was inflated to other bytes");
            printf("%s\t%s\t%s\t%zu\t%zu\t%.9f\n", streams[s].name, libraries[i].name,
                   libraries[i].how, b.in_size, b.out_size, measure(&libraries[i], &b));
        }
    }
    fedge_deflater_free(deflater);
    free(raw);
    free(packed);
    free(out);
    return 0;
}
