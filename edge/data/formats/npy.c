#include <stdlib.h>
#include <string.h>

#include "edge/data/formats/data_file.h"

#define PREFIX_SIZE 8 /* magic, major and minor version */
#define MAX_WORD 32   /* a key or a type, with NUL */

static const uint8_t MAGIC[FEDGE_ARRAY_MAGIC_SIZE] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

bool fedge_npy_matches(const uint8_t *magic, size_t size)
{
    return size >= sizeof(MAGIC) && memcmp(magic, MAGIC, sizeof(MAGIC)) == 0;
}

/* The header is a Python dictionary; this is a position in its NUL-terminated text. */
typedef struct scanner {
    const char *at;
    const char *path;
    fedge_error *err;
} scanner;

static fedge_status broken(const scanner *s, const char *what)
{
    return fedge_fail(s->err, FEDGE_CORRUPT, "%s: npy header: %s before \"%.20s\"", s->path, what,
                      s->at);
}

static void skip_spaces(scanner *s)
{
    while (*s->at == ' ' || *s->at == '\n' || *s->at == '\t')
        s->at++;
}

/* Skips [c] if it is next. */
static bool take(scanner *s, char c)
{
    skip_spaces(s);
    if (*s->at != c)
        return false;
    s->at++;
    return true;
}

static fedge_status scan_string(scanner *s, char word[MAX_WORD])
{
    skip_spaces(s);
    const char quote = *s->at;
    if (quote != '\'' && quote != '"')
        return broken(s, "a quoted word is missing");
    const char *start = s->at + 1;
    const char *stop = strchr(start, quote);
    if (!stop || stop - start >= MAX_WORD)
        return broken(s, "a quoted word does not end");
    memcpy(word, start, (size_t)(stop - start));
    word[stop - start] = '\0';
    s->at = stop + 1;
    return FEDGE_OK;
}

/* One-byte types have no byte order, but some programs write "<u1". Big-endian types are refused.
 */
static fedge_status scan_descr(scanner *s, fedge_array_info *info)
{
    static const struct {
        const char *descr;
        fedge_dtype dtype;
    } TYPES[] = {{"|u1", FEDGE_U8},  {"<u1", FEDGE_U8},  {"<i4", FEDGE_I32},
                 {"<i8", FEDGE_I64}, {"<f4", FEDGE_F32}, {"<f8", FEDGE_F64}};
    char word[MAX_WORD];
    skip_spaces(s);
    if (*s->at == '[') {
        return fedge_fail(s->err, FEDGE_UNSUPPORTED, "%s: a structured npy array; save a plain one",
                          s->path);
    }
    FEDGE_TRY(scan_string(s, word));
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(TYPES[0]); i++) {
        if (strcmp(word, TYPES[i].descr) == 0) {
            info->dtype = TYPES[i].dtype;
            return FEDGE_OK;
        }
    }
    return fedge_fail(s->err, FEDGE_UNSUPPORTED,
                      "%s: npy elements of type '%s'; use array.astype('|u1'), '<i4', '<i8', '<f4' "
                      "or '<f8'",
                      s->path, word);
}

static fedge_status scan_order(scanner *s)
{
    skip_spaces(s);
    if (strncmp(s->at, "False", 5) == 0) {
        s->at += 5;
        return FEDGE_OK;
    }
    if (strncmp(s->at, "True", 4) == 0) {
        return fedge_fail(s->err, FEDGE_UNSUPPORTED,
                          "%s: an npy array in Fortran order; save numpy.ascontiguousarray(array)",
                          s->path);
    }
    return broken(s, "True or False is missing");
}

static fedge_status scan_shape(scanner *s, fedge_array_info *info)
{
    if (!take(s, '('))
        return broken(s, "the shape is missing");
    info->rank = 0;
    while (!take(s, ')')) {
        if (info->rank == FEDGE_ARRAY_MAX_RANK) {
            return fedge_fail(s->err, FEDGE_UNSUPPORTED, "%s: npy array of more than %d dimensions",
                              s->path, FEDGE_ARRAY_MAX_RANK);
        }
        if (*s->at < '0' || *s->at > '9')
            return broken(s, "a dimension is missing");
        uint64_t dim = 0;
        for (; *s->at >= '0' && *s->at <= '9'; s->at++) {
            if (dim > (UINT64_MAX - 9) / 10)
                return broken(s, "a dimension is too big");
            dim = dim * 10 + (uint64_t)(*s->at - '0');
        }
        info->dims[info->rank++] = dim;
        if (!take(s, ',') && *s->at != ')')
            return broken(s, "a comma is missing");
    }
    if (info->rank == 0) {
        return fedge_fail(s->err, FEDGE_MISMATCH, "%s: a single number, not an array of examples",
                          s->path);
    }
    return FEDGE_OK;
}

/* {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 784), } in any order. */
static fedge_status scan_dictionary(scanner *s, fedge_array_info *info)
{
    enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
    unsigned seen = 0;
    if (!take(s, '{'))
        return broken(s, "the dictionary is missing");
    while (!take(s, '}')) {
        char key[MAX_WORD];
        FEDGE_TRY(scan_string(s, key));
        if (!take(s, ':'))
            return broken(s, "a colon is missing");
        unsigned bit = 0;
        if (strcmp(key, "descr") == 0) {
            bit = DESCR;
            FEDGE_TRY(scan_descr(s, info));
        } else if (strcmp(key, "fortran_order") == 0) {
            bit = ORDER;
            FEDGE_TRY(scan_order(s));
        } else if (strcmp(key, "shape") == 0) {
            bit = SHAPE;
            FEDGE_TRY(scan_shape(s, info));
        }
        if (bit == 0 || (seen & bit)) {
            return fedge_fail(s->err, FEDGE_CORRUPT, "%s: npy header: key '%s' is %s", s->path, key,
                              bit == 0 ? "not known" : "there twice");
        }
        seen |= bit;
        if (!take(s, ',') && *s->at != '}')
            return broken(s, "a comma is missing");
    }
    if (seen != (DESCR | ORDER | SHAPE)) {
        return fedge_fail(s->err, FEDGE_CORRUPT,
                          "%s: npy header: descr, fortran_order or shape is missing", s->path);
    }
    skip_spaces(s);
    if (*s->at)
        return broken(s, "nothing should follow the dictionary, yet it goes on");
    return FEDGE_OK;
}

/* Reads magic, version and length of the dictionary. */
static fedge_status read_prefix(fedge_reader *reader, uint32_t *length, fedge_error *err)
{
    uint8_t head[PREFIX_SIZE + 4];
    FEDGE_TRY(fedge_reader_read(reader, head, PREFIX_SIZE, "the npy header", err));
    if (!fedge_npy_matches(head, PREFIX_SIZE))
        return fedge_fail(err, FEDGE_CORRUPT, "%s: not an npy file", reader->path);
    const unsigned major = head[6], minor = head[7];
    if (major < 1 || major > 3 || minor != 0) {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s: npy format version %u.%u; 1.0 to 3.0 are read", reader->path, major,
                          minor);
    }
    const size_t length_size = major == 1 ? 2 : 4;
    FEDGE_TRY(fedge_reader_read(reader, head, length_size, "the npy header", err));
    *length = (uint32_t)head[0] | (uint32_t)head[1] << 8;
    if (major > 1)
        *length |= (uint32_t)head[2] << 16 | (uint32_t)head[3] << 24;
    if (*length > FEDGE_NPY_MAX_HEADER) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%s: npy header of %u bytes; the limit is %u",
                          reader->path, *length, FEDGE_NPY_MAX_HEADER);
    }
    return FEDGE_OK;
}

fedge_status fedge_npy_read_header(fedge_reader *reader, fedge_array_info *info, fedge_error *err)
{
    uint32_t length = 0;
    FEDGE_TRY(read_prefix(reader, &length, err));
    char *text = malloc((size_t)length + 1);
    if (!text) {
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for a header of %u bytes",
                          reader->path, length);
    }
    memset(info, 0, sizeof(*info));
    fedge_status status;
    FEDGE_TRY_OR(fedge_reader_read(reader, text, length, "the npy header", err), done);
    text[length] = '\0';
    scanner s = {text, reader->path, err};
    status =
        strlen(text) != length ? broken(&s, "there is a NUL in it,") : scan_dictionary(&s, info);
done:
    free(text);
    return status;
}
