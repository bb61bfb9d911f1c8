#include "edge/io/update.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/message.h"
#include "edge/io/deflate.h"

#define DEFLATE_LEVEL 1 /* int8 deltas shrink as much as they ever do, at the least time */

size_t fedge_update_max_size(const fedge_plan *plan)
{
    return fedge_codec_size(plan->update.codec, &plan->schema);
}

/* Deflates [raw] when the plan wants it and it helps; *bytes is then a smaller block of its own,
 * else [raw] itself, and [section] says which. Takes [raw] on success. */
static fedge_status pack_section(const fedge_plan *plan, uint8_t *raw, size_t raw_size,
                                 fedge_section_info *section, uint8_t **bytes, fedge_error *err)
{
    size_t size = raw_size;
    *bytes = raw;
    if (plan->update.deflate && raw_size > 1) {
        uint8_t *packed = malloc(raw_size - 1);
        if (packed == NULL)
            return fedge_fail(err, FEDGE_NO_MEMORY, "no memory to deflate %zu bytes", raw_size);
        fedge_status st =
            fedge_deflate(raw, raw_size, DEFLATE_LEVEL, packed, raw_size - 1, &size, err);
        if (st == FEDGE_OK) {
            free(raw);
            *bytes = packed;
        } else {
            free(packed);
            if (st != FEDGE_TOO_BIG)
                return st;
            size = raw_size;
        }
    }
    *section = (fedge_section_info){.codec = plan->update.codec,
                                    .deflate = size < raw_size,
                                    .size = size,
                                    .raw_size = raw_size};
    (void)snprintf(section->name, sizeof section->name, "%s", FEDGE_SECTION_DELTA);
    return FEDGE_OK;
}

/* What the client cut is worth knowing; without room for it the result goes without. */
static void add_clamped(fedge_upload *upload, uint64_t clamped)
{
    if (clamped == 0 || upload->num_metrics >= FEDGE_MAX_METRICS)
        return;
    fedge_metric *metric = &upload->metrics[upload->num_metrics++];
    *metric = (fedge_metric){.name = "clamped", .value = (double)clamped};
}

fedge_status fedge_update_encode(const fedge_plan *plan, const int8_t *bounds_log2,
                                 const float *delta, fedge_upload *upload, uint8_t **bytes,
                                 fedge_error *err)
{
    size_t raw_size = fedge_update_max_size(plan);
    uint8_t *raw = malloc(raw_size > 0 ? raw_size : 1);
    if (raw == NULL)
        return fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an update of %zu bytes", raw_size);
    fedge_codec_stats stats = {0};
    fedge_section_info section;
    fedge_status st = fedge_codec_encode(plan->update.codec, &plan->schema, bounds_log2, delta, raw,
                                         raw_size, &stats, err);
    if (st == FEDGE_OK)
        st = pack_section(plan, raw, raw_size, &section, bytes, err);
    if (st != FEDGE_OK) {
        free(raw);
        return st;
    }
    upload->num_sections = 1;
    upload->sections[0] = section;
    upload->size = section.size;
    upload->crc32 = fedge_crc32(0, *bytes, (size_t)section.size);
    add_clamped(upload, stats.clamped);
    return FEDGE_OK;
}

fedge_status fedge_update_check(const fedge_plan *plan, const fedge_upload *upload,
                                fedge_error *err)
{
    const uint64_t raw_size = fedge_update_max_size(plan);
    const fedge_section_info *section = &upload->sections[0];
    if (upload->num_sections != 1)
        return fedge_fail(err, FEDGE_MISMATCH, "%u sections; the plan wants one, \"%s\"",
                          upload->num_sections, FEDGE_SECTION_DELTA);
    if (strcmp(section->name, FEDGE_SECTION_DELTA) != 0)
        return fedge_fail(err, FEDGE_MISMATCH, "section \"%s\"; the plan wants \"%s\"",
                          section->name, FEDGE_SECTION_DELTA);
    if (section->codec != plan->update.codec)
        return fedge_fail(err, FEDGE_MISMATCH, "section \"%s\" has codec %s; the plan wants %s",
                          section->name, fedge_codec_name(section->codec),
                          fedge_codec_name(plan->update.codec));
    if (section->deflate && !plan->update.deflate)
        return fedge_fail(err, FEDGE_MISMATCH,
                          "section \"%s\" is deflated; the plan does not allow it", section->name);
    if (section->size > raw_size)
        return fedge_fail(err, FEDGE_TOO_BIG,
                          "section \"%s\" has %" PRIu64 " bytes; the plan's limit is %" PRIu64,
                          section->name, section->size, raw_size);
    if (section->raw_size != raw_size)
        return fedge_fail(err, FEDGE_MISMATCH,
                          "section \"%s\" has %" PRIu64 " bytes before deflate; the plan's schema "
                          "makes %" PRIu64,
                          section->name, section->raw_size, raw_size);
    if (section->deflate == (section->size == raw_size) || section->size == 0)
        return fedge_fail(err, FEDGE_MISMATCH,
                          "section \"%s\" has %" PRIu64 " bytes %s deflate, %" PRIu64 " without",
                          section->name, section->size,
                          section->deflate ? "with" : "although without", raw_size);
    if (upload->size != section->size)
        return fedge_fail(err, FEDGE_MISMATCH,
                          "upload of %" PRIu64 " bytes, its sections have %" PRIu64, upload->size,
                          section->size);
    return FEDGE_OK;
}

fedge_status fedge_update_decode(const fedge_plan *plan, const int8_t *bounds_log2,
                                 const fedge_upload *upload, const uint8_t *bytes, uint8_t *scratch,
                                 size_t scratch_size, int32_t *v, fedge_error *err)
{
    const size_t raw_size = fedge_update_max_size(plan);
    assert(scratch_size >= raw_size);
    (void)scratch_size;
    fedge_status st = fedge_update_check(plan, upload, err);
    if (st != FEDGE_OK)
        return st;
    const fedge_section_info *section = &upload->sections[0];
    /* What has passed the check is at most raw_size: it fits in a size_t. */
    uint32_t crc = fedge_crc32(0, bytes, (size_t)upload->size);
    if (crc != upload->crc32)
        return fedge_fail(err, FEDGE_CORRUPT,
                          "upload of %" PRIu64 " bytes has CRC-32 %08x, announced was %08x",
                          upload->size, crc, upload->crc32);
    if (section->deflate) {
        st = fedge_inflate(bytes, (size_t)section->size, scratch, raw_size, err);
        if (st != FEDGE_OK)
            return fedge_error_prefix(err, st, "section \"%s\"", section->name);
        bytes = scratch;
    }
    return fedge_codec_decode(plan->update.codec, &plan->schema, bounds_log2, bytes, raw_size, v,
                              err);
}
