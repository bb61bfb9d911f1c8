#include "edge/data/formats/data_file.h"

#include "edge/data/formats/leaf.h"
#include "edge/train/kernels/half.h"

#include <string.h>

/* Whether values and labels are in one file. */
static bool has_both(fedge_data_role role)
{
    return role == FEDGE_DATA_VALUES_WITH_LABELS || role == FEDGE_DATA_INLINE_LABELS;
}

static fedge_status check_labels(const fedge_data_spec *spec, const char *path,
                                 fedge_data_role role, bool has_labels, fedge_error *err)
{
    if (spec->targets.kind == FEDGE_TARGETS_INPUT)
        return FEDGE_OK; /* they are not read */
    const bool wanted = has_both(role);
    if (wanted && !has_labels) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%s: a file without labels; name the file that has them "
                          "(csv holds them in its last column)",
                          path);
    }
    if (!wanted && has_labels) {
        return fedge_fail(err, FEDGE_INVALID_ARGUMENT,
                          "%s: a file with labels of its own; leave \"labels\" out", path);
    }
    return FEDGE_OK;
}

static fedge_status read_header(fedge_data_file *file, const fedge_data_spec *spec,
                                fedge_data_role role, fedge_error *err)
{
    fedge_reader *reader = &file->reader;
    uint8_t head[FEDGE_CIFAR_HEAD_SIZE];
    size_t got = 0;
    uint64_t size = 0;
    FEDGE_TRY(fedge_reader_peek(reader, head, sizeof(head), &got, err));
    const bool labels = role == FEDGE_DATA_INLINE_LABELS || role == FEDGE_DATA_LABELS;
    if (!FEDGE_WITH_MORE_DATA && (head[0] == '{' || (got > 8 && head[8] == '{' && head[7] == 0))) {
        return fedge_fail(
            err, FEDGE_UNSUPPORTED,
            "%s: this small build reads no JSON or safetensors data; convert it to csv or npy",
            reader->path);
    }
    file->format = FEDGE_DATA_ARRAY;
    if (fedge_npy_matches(head, got)) {
        FEDGE_TRY(check_labels(spec, reader->path, role, false, err));
        return fedge_npy_read_header(reader, &file->info, err);
    }
    if (FEDGE_WITH_MORE_DATA && fedge_tensor_data_matches(head, got))
        return fedge_tensor_data_open(reader, labels, has_both(role), &file->info, err);
    if (role != FEDGE_DATA_LABELS)
        FEDGE_TRY(fedge_cifar_matches(spec, reader, head, got, &size, err));
    if (size > 0) {
        FEDGE_TRY(check_labels(spec, reader->path, role, true, err));
        return fedge_cifar_layout(spec, reader->path, size, labels, &file->info, err);
    }
    if (fedge_idx_matches(head, got)) {
        FEDGE_TRY(check_labels(spec, reader->path, role, false, err));
        return fedge_idx_read_header(reader, &file->info, err);
    }
    file->format = FEDGE_DATA_CSV;
    if (!FEDGE_WITH_MORE_DATA || !fedge_leaf_matches(head, got))
        return FEDGE_OK;
    file->format = FEDGE_DATA_LEAF;
    return check_labels(spec, reader->path, role, true, err);
}

fedge_status fedge_data_file_open(fedge_data_file *file, const fedge_data_spec *spec,
                                  const char *path, fedge_data_role role, fedge_error *err)
{
    FEDGE_TRY(fedge_reader_open(&file->reader, path, err));
    fedge_status status = read_header(file, spec, role, err);
    if (status != FEDGE_OK || file->format != FEDGE_DATA_ARRAY)
        fedge_reader_close(&file->reader);
    return status;
}

void fedge_data_file_close(fedge_data_file *file)
{
    fedge_reader_close(&file->reader);
}

/* ---- elements of arrays ---------------------------------------------------------------------- */

static uint64_t load_bits(const fedge_array_info *info, const uint8_t *in)
{
    const size_t size = fedge_dtype_size(info->dtype);
    uint64_t bits = 0;
    for (size_t i = 0; i < size; i++)
        bits = bits << 8 | in[info->big_endian ? i : size - 1 - i];
    return bits;
}

int64_t fedge_array_integer(const fedge_array_info *info, const uint8_t *in)
{
    const uint64_t bits = load_bits(info, in);
    if (info->dtype == FEDGE_I32)
        return (int32_t)(uint32_t)bits;
    return (int64_t)bits;
}

float fedge_array_float(const fedge_array_info *info, const uint8_t *in)
{
    const uint64_t bits = load_bits(info, in);
    if (info->dtype == FEDGE_F64) {
        double x;
        memcpy(&x, &bits, sizeof(x));
        return (float)x;
    }
    if (FEDGE_WITH_MORE_DATA && info->dtype == FEDGE_F16)
        return fedge_f16_to_float((uint16_t)bits);
    const uint32_t low = (uint32_t)(info->dtype == FEDGE_BF16 ? bits << 16 : bits);
    float x;
    memcpy(&x, &low, sizeof(x));
    return x;
}
