#include "edge/data/formats/data_file.h"

#include <inttypes.h>
#include <string.h>

#define COARSE_LABELS 20 /* CIFAR-100's coarse labels */
#define FINE_LABELS 100
#define FIRST_TEXT 32 /* the smallest byte, besides white space, that begins a text */
#define IDX_HEAD 4    /* bytes before the dimensions */

static uint64_t be32(const uint8_t *in)
{
    return (uint64_t)in[0] << 24 | (uint64_t)in[1] << 16 | (uint64_t)in[2] << 8 | in[3];
}

/* Whether this is an idx header; *whole: its size matches the file's. */
static bool is_idx(const uint8_t *head, size_t head_size, uint64_t size, bool *whole)
{
    *whole = false;
    if (!fedge_idx_matches(head, head_size) || head_size < IDX_HEAD)
        return false;
    const uint32_t rank = head[3];
    const bool floats = head[2] == 0x0D;
    if ((head[2] != 0x08 && !floats) || rank < 1 || rank > FEDGE_ARRAY_MAX_RANK)
        return false;
    uint64_t bytes = floats ? 4 : 1;
    for (uint32_t i = 0; i < rank && IDX_HEAD + 4 * (size_t)(i + 1) <= head_size; i++) {
        const uint64_t dim = be32(head + IDX_HEAD + 4 * (size_t)i);
        bytes = dim == 0 || bytes <= size / dim ? bytes * dim : UINT64_MAX;
    }
    *whole = bytes < size && size - bytes == IDX_HEAD + 4 * (uint64_t)rank;
    return true;
}

/* Label bytes of a record. */
static uint32_t label_bytes(const fedge_data_spec *spec, uint64_t size)
{
    const bool may_be_100 = spec->num_labels == COARSE_LABELS || spec->num_labels == FINE_LABELS;
    const bool is_10 = size % (FEDGE_CIFAR_PIXELS + 1) == 0,
               is_100 = size % (FEDGE_CIFAR_PIXELS + 2) == 0;
    return may_be_100 && (is_100 || !is_10) ? 2 : 1;
}

static bool has_pixels(const fedge_data_spec *spec)
{
    static const uint32_t SHAPE[3] = {3, 32, 32};
    const bool image = spec->rank == 3 && memcmp(spec->shape, SHAPE, sizeof(SHAPE)) == 0;
    const bool flat = spec->rank == 1 && spec->shape[0] == FEDGE_CIFAR_PIXELS;
    return spec->dtype == FEDGE_U8 && (image || flat);
}

fedge_status fedge_cifar_matches(const fedge_data_spec *spec, fedge_reader *reader,
                                 const uint8_t *head, size_t head_size, uint64_t *size,
                                 fedge_error *err)
{
    bool whole_idx = false;
    const bool space = head[0] == '\t' || head[0] == '\n' || head[0] == '\r';
    const bool other = space || is_idx(head, head_size, 0, &whole_idx); /* may be another format */
    const bool fits = has_pixels(spec);
    *size = 0;
    if (head[0] >= FIRST_TEXT || (other && !fits))
        return FEDGE_OK;
    uint64_t total = 0;
    FEDGE_TRY(fedge_reader_total(reader, &total, err));
    const bool whole = total % (FEDGE_CIFAR_PIXELS + label_bytes(spec, total)) == 0;
    (void)is_idx(head, head_size, total, &whole_idx);
    if (!whole_idx && (whole || (fits && !other)))
        *size = total;
    return FEDGE_OK;
}

fedge_status fedge_cifar_layout(const fedge_data_spec *spec, const char *path, uint64_t size,
                                bool labels, fedge_array_info *info, fedge_error *err)
{
    const uint32_t num_label_bytes = label_bytes(spec, size),
                   record = num_label_bytes + FEDGE_CIFAR_PIXELS;
    if (size % record != 0) {
        return fedge_fail(
            err, FEDGE_TRUNCATED,
            "%s: %" PRIu64 " bytes are %" PRIu64 " records of %" PRIu32
            " bytes (CIFAR-%s's) and %" PRIu64 " more; copy the file again%s",
            path, size, size / record, record, num_label_bytes == 1 ? "10" : "100", size % record,
            num_label_bytes == 1 ? ", or for CIFAR-100 give the job's data 20 or 100 labels" : "");
    }
    *info = (fedge_array_info){.dtype = FEDGE_U8, .rank = labels ? 1 : 4, .dims = {size / record}};
    if (labels) {
        info->before = num_label_bytes == 2 && spec->num_labels == FINE_LABELS ? 1 : 0;
        info->after = record - 1 - info->before;
        return FEDGE_OK;
    }
    info->before = num_label_bytes;
    info->dims[1] = 3;
    info->dims[2] = info->dims[3] = 32;
    return FEDGE_OK;
}
