#include "edge/data/formats/safetensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/bytes.h"
#include "edge/core/half.h"
#include "edge/json/json.h"

#define PREFIX_SIZE 8 /* header size as u64 */
#define ALIGNMENT 8   /* alignment of the data in the file */
#define METADATA "__metadata__"
#define HEADER_DEPTH 3 /* { tensor { shape [ ] } } */

/* --- writing ---------------------------------------------------------------------------------- */

/* The growing header: always counted, stored up to the capacity. */
typedef struct sink {
    char *out;
    size_t capacity;
    size_t used;
} sink;

static void put(sink *s, const char *text)
{
    for (; *text; text++, s->used++) {
        if (s->used < s->capacity)
            s->out[s->used] = *text;
    }
}

static void put_number(sink *s, uint64_t n)
{
    char digits[24];
    (void)snprintf(digits, sizeof(digits), "%" PRIu64, n);
    put(s, digits);
}

/* A JSON string. */
static void put_string(sink *s, const char *text)
{
    put(s, "\"");
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        char escaped[8] = {*text};
        if (c == '"' || c == '\\')
            (void)snprintf(escaped, sizeof(escaped), "\\%c", c);
        else if (c < 0x20)
            (void)snprintf(escaped, sizeof(escaped), "\\u%04x", c);
        put(s, escaped);
    }
    put(s, "\"");
}

const fedge_tensor_spec *fedge_safetensors_next(const fedge_schema *schema,
                                                const fedge_tensor_spec *last)
{
    const fedge_tensor_spec *end = schema->tensors + schema->num_tensors;
    const fedge_tensor_spec *t = last ? last + 1 : schema->tensors;
    if (!FEDGE_HAS_TYPES)
        return t < end ? t : NULL;
    for (size_t width = last ? fedge_dtype_size(last->dtype) : 8; width > 0; width /= 2) {
        for (; t < end; t++) {
            if (fedge_dtype_size(t->dtype) == width)
                return t;
        }
        t = schema->tensors;
    }
    return NULL;
}

static size_t data_size_of(const fedge_tensor_spec *tensor)
{
    return tensor->count * (FEDGE_HAS_TYPES ? fedge_dtype_size(tensor->dtype) : sizeof(float));
}

size_t fedge_safetensors_data_size(const fedge_schema *schema)
{
    size_t size = 0;
    for (uint32_t i = 0; i < schema->num_tensors; i++)
        size += data_size_of(&schema->tensors[i]);
    return size;
}

static void put_header(sink *s, const fedge_schema *schema)
{
    uint64_t at = 0;
    const fedge_tensor_spec *t = NULL;
    put(s, "{");
    while ((t = fedge_safetensors_next(schema, t))) {
        put(s, s->used > 1 ? "," : "");
        put_string(s, t->name);
        put(s, ":{\"dtype\":\"");
        put(s, fedge_dtype_name(t->dtype));
        put(s, "\",\"shape\":[");
        for (uint32_t d = 0; d < t->rank; d++) {
            put(s, d ? "," : "");
            put_number(s, t->shape[d]);
        }
        put(s, "],\"data_offsets\":[");
        put_number(s, at);
        put(s, ",");
        put_number(s, at += data_size_of(t));
        put(s, "]}");
    }
    put(s, "}");
    /* Aligned, so that mapped data can be read as floats in place. The header has one form only,
     * since the file's hash identifies the model. */
    while (s->used % ALIGNMENT)
        put(s, " ");
}

static bool is_written(fedge_dtype dtype)
{
    return dtype == FEDGE_F32 ||
           (FEDGE_HAS_TYPES && (dtype == FEDGE_I64 || fedge_dtype_is_half(dtype)));
}

static fedge_status header_size(const fedge_schema *schema, size_t *size, fedge_error *err)
{
    for (uint32_t i = 0; i < schema->num_tensors; i++) {
        if (!is_written(schema->tensors[i].dtype)) {
            return fedge_fail(
                err, FEDGE_UNSUPPORTED,
                "safetensors: tensor \"%s\" is %s; only F32, F16, BF16 and I64 are written",
                schema->tensors[i].name, fedge_dtype_name(schema->tensors[i].dtype));
        }
    }
    /* The writing function counts, so that size and header always agree. */
    sink s = {NULL, 0, 0};
    put_header(&s, schema);
    if (s.used > FEDGE_SAFETENSORS_MAX_HEADER) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "safetensors: header of %zu bytes; the limit is %zu: shorten the names",
                          s.used, FEDGE_SAFETENSORS_MAX_HEADER);
    }
    *size = s.used;
    return FEDGE_OK;
}

fedge_status fedge_safetensors_size(const fedge_schema *schema, size_t *size, fedge_error *err)
{
    size_t header = 0;
    FEDGE_TRY(header_size(schema, &header, err));
    *size = PREFIX_SIZE + header + fedge_safetensors_data_size(schema);
    return FEDGE_OK;
}

fedge_status fedge_safetensors_write_header(const fedge_schema *schema, uint8_t *out,
                                            size_t out_size, fedge_error *err)
{
    size_t header = 0;
    FEDGE_TRY(header_size(schema, &header, err));
    if (out_size != PREFIX_SIZE + header) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "safetensors: a buffer of %zu bytes for a header of %zu", out_size,
                          PREFIX_SIZE + header);
    }
    for (size_t i = 0; i < PREFIX_SIZE; i++)
        out[i] = (uint8_t)((uint64_t)header >> (8 * i));
    sink s = {(char *)out + PREFIX_SIZE, header, 0};
    put_header(&s, schema);
    return FEDGE_OK;
}

/* Byte by byte, for big-endian machines; compilers make one store of it on others. */
static void put_values(const float *values, size_t count, uint8_t *data)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        data[4 * i] = (uint8_t)bits;
        data[4 * i + 1] = (uint8_t)(bits >> 8);
        data[4 * i + 2] = (uint8_t)(bits >> 16);
        data[4 * i + 3] = (uint8_t)(bits >> 24);
    }
}

/* Writes elements [at, at + count) of the tensor in its dtype. */
static void put_elements(const fedge_tensor_spec *tensor, const float *values, size_t at,
                         size_t count, uint8_t *data)
{
    const float *from = values + tensor->offset;
    if (!FEDGE_HAS_TYPES || tensor->dtype == FEDGE_F32) {
        put_values(from + at, count, data);
        return;
    }
    for (size_t i = 0; i < count && fedge_dtype_is_half(tensor->dtype); i++)
        fedge_put_u16(data + 2 * i, fedge_half_of(tensor->dtype, from[at + i]));
    for (size_t i = 0; i < count && tensor->dtype == FEDGE_I64; i++) {
        uint64_t bits;
        memcpy(&bits, from + 2 * (at + i), sizeof(bits));
        fedge_put_u64(data + 8 * i, bits);
    }
}

fedge_status fedge_safetensors_write(const fedge_schema *schema, const float *values, uint8_t *out,
                                     size_t out_size, fedge_error *err)
{
    const size_t bytes = fedge_safetensors_data_size(schema);
    const fedge_tensor_spec *t = NULL;
    FEDGE_TRY(fedge_safetensors_write_header(schema, out, out_size - bytes, err));
    out += out_size - bytes;
    while ((t = fedge_safetensors_next(schema, t))) {
        put_elements(t, values, 0, t->count, out);
        out += data_size_of(t);
    }
    return FEDGE_OK;
}

/* Puts the data through [part] (FEDGE_SAFETENSORS_PART), which is full each time but the last. */
static fedge_status put_data(const fedge_schema *schema, const float *values, uint8_t *part,
                             fedge_put_fn put_bytes, void *user, fedge_error *err)
{
    const fedge_tensor_spec *t = NULL;
    size_t used = 0;
    while ((t = fedge_safetensors_next(schema, t))) {
        const size_t width = FEDGE_HAS_TYPES ? fedge_dtype_size(t->dtype) : sizeof(float);
        for (size_t at = 0, n; at < t->count; at += n) {
            const size_t room = (FEDGE_SAFETENSORS_PART - used) / width, left = t->count - at;
            n = left < room ? left : room;
            put_elements(t, values, at, n, part + used);
            used += n * width;
            if (used < FEDGE_SAFETENSORS_PART)
                continue;
            FEDGE_TRY(put_bytes(user, part, used, err));
            used = 0;
        }
    }
    return used > 0 ? put_bytes(user, part, used, err) : FEDGE_OK;
}

fedge_status fedge_safetensors_put(const fedge_schema *schema, const float *values,
                                   fedge_put_fn put_bytes, void *user, fedge_error *err)
{
    size_t size = 0;
    FEDGE_TRY(header_size(schema, &size, err));
    size += PREFIX_SIZE;
    uint8_t *bytes = malloc(size > FEDGE_SAFETENSORS_PART ? size : FEDGE_SAFETENSORS_PART);
    if (!bytes)
        return fedge_fail(err, FEDGE_NO_MEMORY, "safetensors: no memory for a header");
    fedge_status status;
    FEDGE_TRY_OR(fedge_safetensors_write_header(schema, bytes, size, err), done);
    for (size_t at = 0; at < size; at += FEDGE_SAFETENSORS_PART) {
        const size_t left = size - at, most = FEDGE_SAFETENSORS_PART;
        FEDGE_TRY_OR(put_bytes(user, bytes + at, left < most ? left : most, err), done);
    }
    status = put_data(schema, values, bytes, put_bytes, user, err);
done:
    free(bytes);
    return status;
}

/* --- reading the header ----------------------------------------------------------------------- */

/* A tensor of the JSON header. */
typedef struct entry {
    const char *name; /* points into the JSON tree */
    char dtype_name[8];
    fedge_dtype dtype;
    uint32_t rank;
    uint32_t shape[FEDGE_MAX_RANK];
    uint32_t num_offsets;
    uint64_t offsets[2]; /* [begin, end) in the data, in bytes */
} entry;

static const fedge_json_field ENTRY_FIELDS[] = {
    {.key = "dtype",
     .kind = FEDGE_JSON_TEXT,
     .flags = FEDGE_JSON_REQUIRED,
     FEDGE_JSON_AT(entry, dtype_name)},
    {.key = "shape",
     .kind = FEDGE_JSON_U32,
     .flags = FEDGE_JSON_REQUIRED | FEDGE_JSON_LIST,
     .min = 1,
     .max = UINT32_MAX,
     FEDGE_JSON_ARRAY(entry, shape, rank)},
    {.key = "data_offsets",
     .kind = FEDGE_JSON_U64,
     .flags = FEDGE_JSON_REQUIRED | FEDGE_JSON_LIST,
     .min_count = 2,
     FEDGE_JSON_ARRAY(entry, offsets, num_offsets)},
    {.key = NULL},
};

typedef struct header {
    fedge_json json;
    entry *entries; /* malloc'ed, in the order of their data */
    uint32_t count;
    uint64_t data_at, data_size; /* the data's offset in the file and size */
} header;

static void header_close(header *h)
{
    fedge_json_close(&h->json);
    free(h->entries);
}

/* Finds JSON and data in a file whose first bytes are [in]. */
static fedge_status locate(const uint8_t *in, uint64_t in_size, header *h, size_t *json_size,
                           fedge_error *err)
{
    if (in_size < PREFIX_SIZE) {
        return fedge_fail(err, FEDGE_TRUNCATED,
                          "safetensors: %" PRIu64 " bytes; the header's size alone takes %d",
                          in_size, PREFIX_SIZE);
    }
    uint64_t size = 0;
    for (size_t i = 0; i < PREFIX_SIZE; i++)
        size |= (uint64_t)in[i] << (8 * i);
    if (size > FEDGE_SAFETENSORS_MAX_HEADER) {
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "safetensors: header of %" PRIu64
                          " bytes; the limit is %zu (is it a safetensors file?)",
                          size, FEDGE_SAFETENSORS_MAX_HEADER);
    }
    if (size > in_size - PREFIX_SIZE) {
        return fedge_fail(err, FEDGE_TRUNCATED,
                          "safetensors: header of %" PRIu64 " bytes, but only %" PRIu64 " follow",
                          size, in_size - PREFIX_SIZE);
    }
    *json_size = (size_t)size;
    h->data_at = PREFIX_SIZE + size;
    h->data_size = in_size - h->data_at;
    return FEDGE_OK;
}

static fedge_status check_metadata(const fedge_json *json, const cJSON *node, fedge_error *err)
{
    if (!cJSON_IsObject(node))
        return fedge_json_fail(json, node, NULL, err, "must be an object of texts");
    for (const cJSON *text = node->child; text; text = text->next) {
        if (!cJSON_IsString(text))
            return fedge_json_fail(json, text, NULL, err, "must be a text");
    }
    return FEDGE_OK;
}

static fedge_status parse_dtype(entry *e, fedge_error *err)
{
    for (int d = 0; d < FEDGE_DTYPE_COUNT; d++) {
        if (strcmp(e->dtype_name, fedge_dtype_name((fedge_dtype)d)) == 0) {
            e->dtype = (fedge_dtype)d;
            return FEDGE_OK;
        }
    }
    return fedge_fail(err, FEDGE_UNSUPPORTED, "safetensors: tensor \"%.95s\" has dtype %s", e->name,
                      e->dtype_name);
}

/* Checks that the offsets match shape and dtype and are in the data. */
static fedge_status check_extent(const header *h, const entry *e, fedge_error *err)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < e->rank; d++) {
        /* The table of fields has refused dimensions of 0. */
        if (count > FEDGE_MAX_ELEMENTS / e->shape[d]) {
            return fedge_fail(
                err, FEDGE_TOO_BIG,
                "safetensors: tensor \"%.95s\" has more than the limit of %zu elements", e->name,
                FEDGE_MAX_ELEMENTS);
        }
        count *= e->shape[d];
    }
    const uint64_t begin = e->offsets[0], end = e->offsets[1];
    const uint64_t bytes = count * fedge_dtype_size(e->dtype);
    if (end < begin || end - begin != bytes) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "safetensors: tensor \"%.95s\" has data_offsets [%" PRIu64 ", %" PRIu64
                          "], but shape and dtype take %" PRIu64 " bytes",
                          e->name, begin, end, bytes);
    }
    if (end > h->data_size) {
        return fedge_fail(err, FEDGE_TRUNCATED,
                          "safetensors: tensor \"%.95s\" ends at byte %" PRIu64
                          " of the data, but there are only %" PRIu64,
                          e->name, end, h->data_size);
    }
    return FEDGE_OK;
}

static fedge_status parse_entries(header *h, fedge_error *err)
{
    for (const cJSON *node = h->json.root->child; node; node = node->next) {
        if (strcmp(node->string, METADATA) == 0) {
            FEDGE_TRY(check_metadata(&h->json, node, err));
            continue;
        }
        if (h->count == FEDGE_MAX_TENSORS) {
            return fedge_fail(err, FEDGE_TOO_BIG, "safetensors: more than the limit of %d tensors",
                              FEDGE_MAX_TENSORS);
        }
        if (!cJSON_IsObject(node))
            return fedge_json_fail(&h->json, node, NULL, err, "must be an object");
        entry *e = &h->entries[h->count++];
        FEDGE_TRY(fedge_json_read(&h->json, node, ENTRY_FIELDS, e, err));
        e->name = node->string;
        FEDGE_TRY(parse_dtype(e, err));
        FEDGE_TRY(check_extent(h, e, err));
    }
    return FEDGE_OK;
}

static int by_offset(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return (x->offsets[0] > y->offsets[0]) - (x->offsets[0] < y->offsets[0]);
}

/* Every byte of the data must belong to exactly one tensor; otherwise different files could have
 * the same values, and the SHA-256 would not identify a model. */
static fedge_status check_cover(const header *h, fedge_error *err)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        const entry *e = &h->entries[i];
        if (e->offsets[0] != at) {
            return fedge_fail(err, FEDGE_CORRUPT,
                              "safetensors: tensor \"%.95s\" begins at byte %" PRIu64
                              " of the data, but the one before ends at %" PRIu64 " (%s)",
                              e->name, e->offsets[0], at, e->offsets[0] < at ? "overlap" : "gap");
        }
        at = e->offsets[1];
    }
    if (at != h->data_size) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "safetensors: the tensors end at byte %" PRIu64
                          " of the data, but there are %" PRIu64,
                          at, h->data_size);
    }
    return FEDGE_OK;
}

/* Opens a file of [in_size] bytes whose header is in [in]. On failure there is nothing to close. */
static fedge_status header_open(header *h, const uint8_t *in, uint64_t in_size, fedge_error *err)
{
    memset(h, 0, sizeof(*h));
    size_t json_size = 0;
    FEDGE_TRY(locate(in, in_size, h, &json_size, err));
    const fedge_json_options options = {.name = "safetensors header",
                                        .strict = true,
                                        .status = FEDGE_CORRUPT,
                                        .max_size = FEDGE_SAFETENSORS_MAX_HEADER,
                                        .max_depth = HEADER_DEPTH,
                                        .max_values = FEDGE_SAFETENSORS_MAX_VALUES};
    FEDGE_TRY(fedge_json_open(&h->json, (const char *)in + PREFIX_SIZE, json_size, &options, err));
    h->entries = malloc(FEDGE_MAX_TENSORS * sizeof(*h->entries));
    if (!h->entries) {
        fedge_json_close(&h->json);
        return fedge_fail(err, FEDGE_NO_MEMORY, "safetensors: no memory for %d tensors",
                          FEDGE_MAX_TENSORS);
    }
    fedge_status status;
    FEDGE_TRY_OR(parse_entries(h, err), failed);
    qsort(h->entries, h->count, sizeof(*h->entries), by_offset);
    FEDGE_TRY_OR(check_cover(h, err), failed);
    return FEDGE_OK;
failed:
    header_close(h);
    return status;
}

fedge_status fedge_safetensors_read_schema(const uint8_t *in, size_t in_size, fedge_schema *schema,
                                           const uint8_t **data, fedge_error *err)
{
    header h;
    *data = NULL;
    FEDGE_TRY(header_open(&h, in, in_size, err));
    fedge_status status = FEDGE_OK;
    for (uint32_t i = 0; i < h.count && !status; i++) {
        const entry *e = &h.entries[i];
        status = fedge_schema_add(schema, e->name, e->dtype, e->rank, e->shape, err);
        if (status != FEDGE_OK)
            status = fedge_error_prefix(err, status, "safetensors");
    }
    if (status == FEDGE_OK)
        *data = in + h.data_at;
    header_close(&h);
    return status;
}

/* --- reading values --------------------------------------------------------------------------- */

static uint64_t load_le(const uint8_t *in, size_t size)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < size; i++)
        bits |= (uint64_t)in[i] << (8 * i);
    return bits;
}

static float load_value(const uint8_t *in, fedge_dtype dtype)
{
    switch (dtype) {
    case FEDGE_F16:
        return fedge_f16_to_float((uint16_t)load_le(in, 2));
    case FEDGE_BF16:
        return fedge_bf16_to_float((uint16_t)load_le(in, 2));
    case FEDGE_F64: {
        const uint64_t bits = load_le(in, 8);
        double x;
        memcpy(&x, &bits, sizeof(x));
        return (float)x;
    }
    default:
        return fedge_float_of_bits((uint32_t)load_le(in, 4));
    }
}

/* A file being read. */
typedef struct file {
    header header;
    fedge_get_fn get;
    void *user;
    uint8_t *part; /* (FEDGE_SAFETENSORS_PART) */
    bool subtract;
} file;

/* The two floats of an integer have its bytes. */
static fedge_status read_integers(const file *f, const entry *e, const fedge_tensor_spec *spec,
                                  float *out, fedge_error *err)
{
    const size_t most = FEDGE_SAFETENSORS_PART / sizeof(uint64_t);
    for (size_t i = 0; i < spec->count; i++) {
        const size_t left = spec->count - i, n = left < most ? left : most;
        if (i % most == 0) {
            FEDGE_TRY(f->get(f->user,
                             f->header.data_at + e->offsets[0] + (uint64_t)i * sizeof(uint64_t),
                             f->part, n * sizeof(uint64_t), err));
        }
        const uint64_t bits = load_le(f->part + i % most * sizeof(bits), sizeof(bits));
        memcpy(out + 2 * i, &bits, sizeof(bits));
    }
    return FEDGE_OK;
}

static fedge_status read_tensor(const file *f, const entry *e, const fedge_tensor_spec *spec,
                                float *out, fedge_error *err)
{
    if (e->rank != spec->rank || memcmp(e->shape, spec->shape, e->rank * sizeof(*e->shape)) != 0) {
        char have[FEDGE_SHAPE_TEXT_SIZE], want[FEDGE_SHAPE_TEXT_SIZE];
        return fedge_fail(err, FEDGE_MISMATCH,
                          "safetensors: tensor \"%s\" has shape %s, but the model's is %s",
                          spec->name, fedge_shape_text(e->rank, e->shape, have),
                          fedge_shape_text(spec->rank, spec->shape, want));
    }
    const bool is_float =
        e->dtype == FEDGE_F32 || e->dtype == FEDGE_F64 || fedge_dtype_is_half(e->dtype);
    const bool is_integer = FEDGE_HAS_TYPES && spec->dtype == FEDGE_I64;
    if (is_integer ? e->dtype != FEDGE_I64 : !is_float) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "safetensors: tensor \"%s\" holds %s, but the model needs %s", spec->name,
                          e->dtype_name, is_integer ? "I64" : "floats");
    }
    if (is_integer)
        return f->subtract ? FEDGE_OK : read_integers(f, e, spec, out, err);
    const size_t size = fedge_dtype_size(e->dtype), most = FEDGE_SAFETENSORS_PART / size;
    const uint64_t begin = f->header.data_at + e->offsets[0];
    for (size_t i = 0; i < spec->count; i++) {
        if (i % most == 0) {
            const size_t left = spec->count - i;
            FEDGE_TRY(f->get(f->user, begin + (uint64_t)i * size, f->part,
                             (left < most ? left : most) * size, err));
        }
        float value = load_value(f->part + i % most * size, e->dtype);
        if (FEDGE_HAS_TYPES && fedge_dtype_is_half(spec->dtype) && spec->dtype != e->dtype)
            value = fedge_half_value(spec->dtype, fedge_half_of(spec->dtype, value));
        out[i] = f->subtract ? out[i] - value : value;
        if (!isfinite(value)) {
            return fedge_fail(err, FEDGE_NOT_FINITE,
                              "safetensors: element %zu of tensor \"%s\" is not a finite float", i,
                              spec->name);
        }
    }
    return FEDGE_OK;
}

/* Looks from entry [*next] on, since files often have the schema's order. */
static const entry *find_entry(const header *h, const char *name, uint32_t *next)
{
    for (uint32_t i = 0; i < h->count; i++) {
        const entry *e = &h->entries[(*next + i) % h->count];
        if (strcmp(e->name, name) == 0) {
            *next += i + 1;
            return e;
        }
    }
    return NULL;
}

/* PyTorch's BatchNorm counts batches in a tensor that fedge does not use. */
static bool is_counter(const entry *e)
{
    static const char END[] = ".num_batches_tracked";
    const size_t length = strlen(e->name), end = sizeof(END) - 1;
    return e->dtype == FEDGE_I64 && e->rank == 0 && length > end &&
           strcmp(e->name + length - end, END) == 0;
}

static fedge_status read_values(const file *f, const fedge_schema *schema, float *values,
                                fedge_error *err)
{
    const header *h = &f->header;
    uint32_t next = 0;
    for (uint32_t i = 0; i < schema->num_tensors; i++) {
        const fedge_tensor_spec *spec = &schema->tensors[i];
        const entry *e = find_entry(h, spec->name, &next);
        if (!e) {
            return fedge_fail(err, FEDGE_MISMATCH,
                              "safetensors: the model's tensor \"%s\" is not in the file",
                              spec->name);
        }
        FEDGE_TRY(read_tensor(f, e, spec, values + spec->offset, err));
    }
    /* Names are used once, so with as many entries there is no other. */
    for (uint32_t i = 0; h->count > schema->num_tensors && i < h->count; i++) {
        if (!fedge_schema_find(schema, h->entries[i].name) && !is_counter(&h->entries[i])) {
            return fedge_fail(err, FEDGE_MISMATCH,
                              "safetensors: tensor \"%.95s\" of the file is not in the model",
                              h->entries[i].name);
        }
    }
    return FEDGE_OK;
}

fedge_status fedge_safetensors_get(fedge_get_fn get, void *user, uint64_t size,
                                   const fedge_schema *schema, bool subtract, float *values,
                                   fedge_error *err)
{
    /* One block for the file's size, then the header, then parts of tensors. */
    uint8_t prefix[PREFIX_SIZE] = {0};
    file f = {.get = get, .user = user, .subtract = subtract};
    size_t json_size = 0;
    if (size >= PREFIX_SIZE)
        FEDGE_TRY(get(user, 0, prefix, PREFIX_SIZE, err));
    FEDGE_TRY(locate(prefix, size, &f.header, &json_size, err));
    const size_t head = PREFIX_SIZE + json_size;
    uint8_t *part = malloc(head > FEDGE_SAFETENSORS_PART ? head : FEDGE_SAFETENSORS_PART);
    if (!part)
        return fedge_fail(err, FEDGE_NO_MEMORY, "safetensors: no memory for %zu bytes", head);
    f.part = part;
    fedge_status status;
    FEDGE_TRY_OR(get(user, 0, part, head, err), done);
    FEDGE_TRY_OR(header_open(&f.header, part, size, err), done);
    status = read_values(&f, schema, values, err);
    header_close(&f.header);
done:
    free(part);
    return status;
}

/* [user] is the file in memory. */
static fedge_status get_memory(void *user, uint64_t offset, uint8_t *out, size_t size,
                               fedge_error *err)
{
    (void)err;
    memcpy(out, (const uint8_t *)user + offset, size);
    return FEDGE_OK;
}

fedge_status fedge_safetensors_read(const uint8_t *in, size_t in_size, const fedge_schema *schema,
                                    float *values, fedge_error *err)
{
    return fedge_safetensors_get(get_memory, (void *)(uintptr_t)in, in_size, schema, false, values,
                                 err);
}
