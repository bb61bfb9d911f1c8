#include <string.h>

#include "edge/data/formats/data_file.h"

#define TYPE_U8 0x08
#define TYPE_F32 0x0D

bool fedge_idx_matches(const uint8_t *magic, size_t size)
{
    return size >= 2 && magic[0] == 0 && magic[1] == 0;
}

static uint32_t load_be32(const uint8_t *in)
{
    return (uint32_t)in[0] << 24 | (uint32_t)in[1] << 16 | (uint32_t)in[2] << 8 | in[3];
}

fedge_status fedge_idx_read_header(fedge_reader *reader, fedge_array_info *info, fedge_error *err)
{
    uint8_t head[4];
    FEDGE_TRY(fedge_reader_read(reader, head, sizeof(head), "the idx header", err));
    if (!fedge_idx_matches(head, sizeof(head))) {
        return fedge_fail(err, FEDGE_CORRUPT,
                          "%s: not an idx file: it begins with %02x %02x instead of 00 00",
                          reader->path, head[0], head[1]);
    }
    memset(info, 0, sizeof(*info));
    info->big_endian = true;
    if (head[2] == TYPE_U8) {
        info->dtype = FEDGE_U8;
    } else if (head[2] == TYPE_F32) {
        info->dtype = FEDGE_F32;
    } else {
        return fedge_fail(err, FEDGE_UNSUPPORTED,
                          "%s: idx elements of type 0x%02x; only 0x08 (unsigned byte) and 0x0d "
                          "(float) are read",
                          reader->path, head[2]);
    }
    info->rank = head[3];
    if (info->rank < 1 || info->rank > FEDGE_ARRAY_MAX_RANK) {
        return fedge_fail(err, FEDGE_CORRUPT, "%s: idx array of %u dimensions; 1 to %d are read",
                          reader->path, info->rank, FEDGE_ARRAY_MAX_RANK);
    }
    for (uint32_t i = 0; i < info->rank; i++) {
        uint8_t dim[4];
        FEDGE_TRY(fedge_reader_read(reader, dim, sizeof(dim), "the idx dimensions", err));
        info->dims[i] = load_be32(dim);
    }
    return FEDGE_OK;
}
