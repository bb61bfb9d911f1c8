#include "edge/data/formats/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>

#include "edge/core/os.h"

#define BUFFER_SIZE (32u * 1024u) /* zlib allocates three times this per open file */
#define CHUNK_SIZE 4096           /* skipped at a time */

fedge_status fedge_reader_open(fedge_reader *reader, const char *path, fedge_error *err)
{
    *reader = (fedge_reader){.file = NULL, .path = path, .size = 0};
    /* zlib does not report the size on disk, and its messages lack the file's name. */
    fedge_os_file file;
    FEDGE_TRY(fedge_os_open(&file, path, FEDGE_OS_READ, err));
    fedge_status status = fedge_os_file_size(&file, &reader->size, err);
    fedge_os_close(&file);
    if (status != FEDGE_OK)
        return status;
    errno = ENOMEM; /* the cause if zlib fails without setting errno */
    gzFile gz = gzopen(path, "rb");
    if (!gz)
        return fedge_fail_errno(err, errno, "%s: cannot be opened", path);
    if (gzbuffer(gz, BUFFER_SIZE)) {
        (void)gzclose_r(gz);
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory for a buffer of %u bytes", path,
                          BUFFER_SIZE);
    }
    reader->file = gz;
    return FEDGE_OK;
}

void fedge_reader_close(fedge_reader *reader)
{
    if (reader->file)
        (void)gzclose_r(reader->file); /* a read error was reported before */
    reader->file = NULL;
}

static uint64_t position(const fedge_reader *reader)
{
    const z_off_t at = gztell((gzFile)reader->file);
    return at < 0 ? 0 : (uint64_t)at;
}

/* zlib's pending error, checked after each short read. */
static fedge_status pending_error(fedge_reader *reader, int errnum, fedge_error *err)
{
    int code = Z_OK;
    const char *text = gzerror(reader->file, &code);
    switch (code) {
    case Z_OK:
    case Z_STREAM_END:
        return FEDGE_OK;
    case Z_ERRNO:
        return fedge_fail_errno(err, errnum, "%s: cannot be read at byte %" PRIu64, reader->path,
                                position(reader));
    case Z_BUF_ERROR:
        return fedge_fail(err, FEDGE_TRUNCATED,
                          "%s: the gzip stream is cut off after %" PRIu64 " decoded bytes (%" PRIu64
                          " bytes on disk); copy the file again",
                          reader->path, position(reader), reader->size);
    case Z_MEM_ERROR:
        return fedge_fail(err, FEDGE_NO_MEMORY, "%s: no memory to decompress it", reader->path);
    default:
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s: the gzip stream is broken after %" PRIu64
                          " decoded bytes (%s); copy the file again",
                          reader->path, position(reader), text);
    }
}

fedge_status fedge_reader_some(fedge_reader *reader, void *out, size_t size, size_t *got,
                               fedge_error *err)
{
    *got = 0;
    while (*got < size) {
        const size_t left = size - *got;
        const unsigned ask = left > INT_MAX ? (unsigned)INT_MAX : (unsigned)left;
        errno = 0;
        const int n = gzread(reader->file, (uint8_t *)out + *got, ask);
        if (n <= 0)
            return pending_error(reader, errno, err);
        *got += (size_t)n;
    }
    return FEDGE_OK;
}

static fedge_status rewind_file(fedge_reader *reader, fedge_error *err)
{
    if (gzrewind(reader->file)) {
        return fedge_fail(err, FEDGE_IO, "%s: cannot go back to its beginning; use a regular file",
                          reader->path);
    }
    return FEDGE_OK;
}

fedge_status fedge_reader_peek(fedge_reader *reader, uint8_t *out, size_t size, size_t *got,
                               fedge_error *err)
{
    FEDGE_TRY(fedge_reader_some(reader, out, size, got, err));
    if (*got == 0)
        return fedge_fail(err, FEDGE_TRUNCATED, "%s: the file is empty", reader->path);
    return rewind_file(reader, err);
}

fedge_status fedge_reader_total(fedge_reader *reader, uint64_t *total, fedge_error *err)
{
    *total = reader->size;
    if (gzdirect(reader->file))
        return FEDGE_OK;
    uint8_t chunk[CHUNK_SIZE];
    size_t got = sizeof(chunk);
    for (*total = 0; got == sizeof(chunk); *total += got)
        FEDGE_TRY(fedge_reader_some(reader, chunk, sizeof(chunk), &got, err));
    return rewind_file(reader, err);
}

fedge_status fedge_reader_read(fedge_reader *reader, void *out, size_t size, const char *what,
                               fedge_error *err)
{
    size_t got = 0;
    FEDGE_TRY(fedge_reader_some(reader, out, size, &got, err));
    if (got < size) {
        return fedge_fail(err, FEDGE_TRUNCATED,
                          "%s: ends at byte %" PRIu64 ", within %s: %zu of %zu bytes are there",
                          reader->path, position(reader), what, got, size);
    }
    return FEDGE_OK;
}

fedge_status fedge_reader_skip(fedge_reader *reader, uint64_t size, const char *what,
                               fedge_error *err)
{
    uint8_t chunk[CHUNK_SIZE];
    while (size > 0) {
        const size_t n = size < CHUNK_SIZE ? (size_t)size : CHUNK_SIZE;
        FEDGE_TRY(fedge_reader_read(reader, chunk, n, what, err));
        size -= n;
    }
    return FEDGE_OK;
}

fedge_status fedge_reader_line(fedge_reader *reader, char *out, size_t capacity, size_t *length,
                               bool *end, fedge_error *err)
{
    const uint64_t before = position(reader);
    *length = 0;
    *end = false;
    out[0] = '\0';
    errno = 0;
    if (!gzgets(reader->file, out, (int)capacity)) {
        out[0] = '\0';
        *end = true;
        return pending_error(reader, errno, err);
    }
    const int errnum = errno;
    size_t n = strlen(out);
    if (n != position(reader) - before) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s: not a text file: there is a NUL at byte %" PRIu64, reader->path,
                          before + n);
    }
    if (n > 0 && out[n - 1] == '\n') {
        n--;
    } else if (n == capacity - 1) {
        return fedge_fail(err, FEDGE_TOO_BIG, "%s: a line is longer than the limit of %zu bytes",
                          reader->path, capacity - 2);
    } else { /* the last line, or the remainder of a broken stream */
        FEDGE_TRY(pending_error(reader, errnum, err));
    }
    if (n > 0 && out[n - 1] == '\r')
        n--;
    out[n] = '\0';
    *length = n;
    return FEDGE_OK;
}

fedge_status fedge_reader_end(fedge_reader *reader, fedge_error *err)
{
    const uint64_t at = position(reader);
    uint8_t byte;
    size_t got = 0;
    FEDGE_TRY(fedge_reader_some(reader, &byte, 1, &got, err));
    if (got > 0) {
        return fedge_fail(err, FEDGE_MISMATCH,
                          "%s: goes on behind byte %" PRIu64 ", where its header says it ends",
                          reader->path, at);
    }
    return FEDGE_OK;
}

fedge_status fedge_reader_expect(fedge_reader *reader, uint64_t size, const char *what,
                                 fedge_error *err)
{
    const uint64_t at = position(reader);
    const uint64_t ratio = gzdirect(reader->file) ? 1 : FEDGE_READER_MAX_RATIO;
    const uint64_t most = reader->size > UINT64_MAX / ratio ? UINT64_MAX : reader->size * ratio;
    if (most < at || most - at < size) {
        return fedge_fail(err, FEDGE_TRUNCATED,
                          "%s: its header promises %" PRIu64
                          " bytes of %s, but the file has only %" PRIu64 "%s",
                          reader->path, size, what, ratio == 1 ? most - at : reader->size,
                          ratio == 1 ? " behind it" : " (compressed)");
    }
    return FEDGE_OK;
}
