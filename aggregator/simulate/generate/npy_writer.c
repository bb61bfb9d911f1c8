#include "aggregator/simulate/generate/npy_writer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CHUNK ((size_t)1 << 20)      /* bytes written at once */
#define MAX_APPEND ((size_t)1 << 14) /* values appended at once */
#define HEADER_SIZE 128u             /* a multiple of 64, as NumPy's */
#define PREFIX_SIZE 10u              /* magic, version, length of the dictionary */

static const char *descr_of(fedge_dtype dtype)
{
    return dtype == FEDGE_U8 ? "|u1" : dtype == FEDGE_F32 ? "<f4" : "<i4";
}

static void make_header(fedge_dtype dtype, uint32_t rank, const uint32_t *shape,
                        uint8_t header[HEADER_SIZE])
{
    char text[HEADER_SIZE - PREFIX_SIZE];
    int size = snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': False, 'shape': (",
                        descr_of(dtype));
    for (uint32_t i = 0; i < rank; i++)
        size += snprintf(text + size, sizeof(text) - (size_t)size, "%" PRIu32 ",", shape[i]);
    size += snprintf(text + size, sizeof(text) - (size_t)size, ")}");
    assert(size < (int)sizeof(text)); /* rank numbers of ten digits fit */
    memset(text + size, ' ', sizeof(text) - (size_t)size);
    text[sizeof(text) - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    fedge_put_u16(header + 8, HEADER_SIZE - PREFIX_SIZE);
    memcpy(header + PREFIX_SIZE, text, sizeof(text));
}

static fedge_status flush(fedge_npy_writer *writer, fedge_error *err)
{
    FEDGE_TRY(fedge_os_write_at(&writer->file, writer->offset, writer->rows.data, writer->rows.size,
                                err));
    writer->offset += writer->rows.size;
    fedge_buffer_consume(&writer->rows, writer->rows.size);
    return FEDGE_OK;
}

fedge_status fedge_npy_writer_init(fedge_npy_writer *writer, const char *path, fedge_dtype dtype,
                                   uint32_t rank, const uint32_t *shape, fedge_error *err)
{
    uint8_t header[HEADER_SIZE];
    uint64_t size = fedge_dtype_size(dtype);
    assert(rank >= 1 && rank <= FEDGE_NPY_MAX_RANK);
    *writer = (fedge_npy_writer){.file = {.fd = -1}, .dtype = dtype};
    fedge_buffer_init(&writer->rows, CHUNK);
    for (uint32_t i = 0; i < rank; i++)
        size *= shape[i];
    make_header(dtype, rank, shape, header);
    FEDGE_TRY(fedge_os_open(&writer->file, path, FEDGE_OS_CREATE, err));
    FEDGE_TRY(fedge_os_reserve(&writer->file, HEADER_SIZE + size, err));
    return fedge_buffer_append(&writer->rows, header, sizeof(header), err);
}

static fedge_status append(fedge_npy_writer *writer, const uint8_t *values, size_t count,
                           fedge_error *err)
{
    const size_t size = count * fedge_dtype_size(writer->dtype);
    uint8_t *rows = NULL;
    FEDGE_TRY(writer->rows.size + size > CHUNK ? flush(writer, err) : FEDGE_OK);
    FEDGE_TRY(fedge_buffer_reserve(&writer->rows, size, &rows, err));
    if (writer->dtype == FEDGE_U8)
        memcpy(rows, values, size);
    for (size_t i = 0; i < count && writer->dtype != FEDGE_U8; i++) { /* little-endian */
        uint32_t bits;
        memcpy(&bits, values + 4 * i, sizeof(bits));
        fedge_put_u32(rows + 4 * i, bits);
    }
    writer->rows.size += size;
    return FEDGE_OK;
}

fedge_status fedge_npy_writer_append(fedge_npy_writer *writer, const void *values, size_t count,
                                     fedge_error *err)
{
    const uint8_t *at = values;
    while (count > 0) {
        const size_t chunk = count < MAX_APPEND ? count : MAX_APPEND;
        FEDGE_TRY(append(writer, at, chunk, err));
        at += chunk * fedge_dtype_size(writer->dtype);
        count -= chunk;
    }
    return FEDGE_OK;
}

fedge_status fedge_npy_writer_finish(fedge_npy_writer *writer, fedge_error *err)
{
    FEDGE_TRY(flush(writer, err));
    return fedge_os_sync(&writer->file, err);
}

void fedge_npy_writer_fini(fedge_npy_writer *writer)
{
    fedge_buffer_fini(&writer->rows);
    if (writer->file.fd >= 0)
        fedge_os_close(&writer->file);
    writer->file.fd = -1;
}
