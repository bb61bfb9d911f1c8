#include "edge/io/update.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "edge/core/message.h"
#include "edge/io/deflate.h"

static size_t raw_size_of(const fedge_section *section)
{
    return fedge_codec_size(section->codec, &section->schema);
}

size_t fedge_update_max_size(const fedge_plan *plan)
{
    size_t size = 0;
    for (uint32_t i = 0; i < plan->sent.num_sections; i++)
        size += raw_size_of(&plan->sent.sections[i]);
    return size;
}

/* Deflates the bytes (raw_size) in their place when the plan wants it and it helps; [info] says
 * how it went. */
static fedge_status pack_section(const fedge_plan *plan, const fedge_section *section, uint8_t *raw,
                                 size_t raw_size, uint8_t *scratch, fedge_section_info *info,
                                 fedge_error *err)
{
    size_t size = raw_size;
    if (plan->update.deflate && raw_size > 1) {
        fedge_status st = fedge_deflate(raw, raw_size, scratch, raw_size - 1, &size, err);
        if (st == FEDGE_OK)
            memcpy(raw, scratch, size);
        if (st != FEDGE_OK && st != FEDGE_TOO_BIG)
            return st;
        size = st == FEDGE_OK ? size : raw_size;
    }
    *info = (fedge_section_info){
        .codec = section->codec, .deflate = size < raw_size, .size = size, .raw_size = raw_size};
    (void)snprintf(info->name, sizeof info->name, "%s", section->name);
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

fedge_status fedge_update_encode_into(const fedge_plan *plan, const int8_t *bounds_log2,
                                      const float *values, fedge_upload *upload, uint8_t *bytes,
                                      uint8_t *scratch, size_t size, fedge_error *err)
{
    assert(size >= fedge_update_max_size(plan));
    (void)size;
    uint64_t clamped = 0;
    upload->size = 0;
    upload->num_sections = 0;
    for (uint32_t i = 0; i < plan->sent.num_sections; i++) {
        const fedge_section *section = &plan->sent.sections[i];
        fedge_section_info *info = &upload->sections[upload->num_sections++];
        const size_t raw_size = raw_size_of(section);
        fedge_codec_stats stats = {0};
        uint8_t *raw = bytes + upload->size;
        fedge_status st =
            fedge_codec_encode(section->codec, &section->schema, bounds_log2 + section->first,
                               values, raw, raw_size, &stats, err);
        if (st == FEDGE_OK)
            st = pack_section(plan, section, raw, raw_size, scratch, info, err);
        if (st != FEDGE_OK)
            return st;
        upload->size += info->size;
        clamped += stats.clamped;
    }
    upload->crc32 = fedge_crc32(0, bytes, (size_t)upload->size);
    add_clamped(upload, clamped);
    return FEDGE_OK;
}

/* Room for the largest section when deflate has made it shorter. */
static size_t scratch_of(const fedge_plan *plan)
{
    size_t largest = 2;
    for (uint32_t i = 0; i < plan->sent.num_sections; i++) {
        const size_t size = raw_size_of(&plan->sent.sections[i]);
        largest = size > largest ? size : largest;
    }
    return largest - 1;
}

fedge_status fedge_update_encode(const fedge_plan *plan, const int8_t *bounds_log2,
                                 const float *values, fedge_upload *upload, uint8_t **bytes,
                                 fedge_error *err)
{
    size_t most = fedge_update_max_size(plan);
    const bool deflate = plan->update.deflate;
    uint8_t *made = malloc(most > 0 ? most : 1),
            *scratch = deflate ? malloc(scratch_of(plan)) : NULL;
    fedge_status st =
        made == NULL || (deflate && scratch == NULL)
            ? fedge_fail(err, FEDGE_NO_MEMORY, "no memory for an update of %zu bytes", most)
            : fedge_update_encode_into(plan, bounds_log2, values, upload, made, scratch, most, err);
    free(scratch);
    if (st != FEDGE_OK) {
        free(made);
        return st;
    }
    uint8_t *shorter =
        upload->size > 0 && upload->size < most ? realloc(made, (size_t)upload->size) : NULL;
    *bytes = shorter != NULL ? shorter : made;
    return FEDGE_OK;
}

/* Is the section announced as the plan makes it? */
static fedge_status check_section(const fedge_plan *plan, const fedge_section *wanted,
                                  const fedge_section_info *section, fedge_error *err)
{
    const uint64_t raw_size = raw_size_of(wanted);
    if (strcmp(section->name, wanted->name) != 0)
        return fedge_fail(err, FEDGE_MISMATCH, "section \"%s\"; the plan wants \"%s\"",
                          section->name, wanted->name);
    if (section->codec != wanted->codec)
        return fedge_fail(err, FEDGE_MISMATCH, "section \"%s\" has codec %s; the plan wants %s",
                          section->name, fedge_codec_name(section->codec),
                          fedge_codec_name(wanted->codec));
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
    return FEDGE_OK;
}

fedge_status fedge_update_check(const fedge_plan *plan, const fedge_upload *upload,
                                fedge_error *err)
{
    const fedge_sent *sent = &plan->sent;
    uint64_t size = 0;
    if (upload->num_sections != sent->num_sections)
        return fedge_fail(err, FEDGE_MISMATCH, "%u sections; the plan wants %u, first \"%s\"",
                          upload->num_sections, sent->num_sections, sent->sections[0].name);
    for (uint32_t i = 0; i < sent->num_sections; i++) {
        fedge_status st = check_section(plan, &sent->sections[i], &upload->sections[i], err);
        if (st != FEDGE_OK)
            return st;
        size += upload->sections[i].size;
    }
    if (upload->size != size)
        return fedge_fail(err, FEDGE_MISMATCH,
                          "upload of %" PRIu64 " bytes, its sections have %" PRIu64, upload->size,
                          size);
    return FEDGE_OK;
}

fedge_status fedge_update_fail_crc32(uint64_t size, uint32_t crc, uint32_t announced,
                                     fedge_error *err)
{
    return fedge_fail(err, FEDGE_CORRUPT,
                      "upload of %" PRIu64 " bytes has CRC-32 %08x, announced was %08x", size, crc,
                      announced);
}

fedge_status fedge_update_unpack(const fedge_plan *plan, const fedge_upload *upload,
                                 const uint8_t *bytes, uint8_t *raw, size_t raw_size,
                                 fedge_error *err)
{
    assert(raw_size >= fedge_update_max_size(plan));
    (void)raw_size;
    fedge_status st = fedge_update_check(plan, upload, err);
    if (st != FEDGE_OK)
        return st;
    /* What has passed the check is at most fedge_update_max_size: it fits in a size_t. */
    uint32_t crc = fedge_crc32(0, bytes, (size_t)upload->size);
    if (crc != upload->crc32)
        return fedge_update_fail_crc32(upload->size, crc, upload->crc32, err);
    for (uint32_t i = 0; i < plan->sent.num_sections; i++) {
        const fedge_section_info *info = &upload->sections[i];
        const size_t size = raw_size_of(&plan->sent.sections[i]);
        if (!info->deflate)
            memcpy(raw, bytes, size);
        else if ((st = fedge_inflate(bytes, (size_t)info->size, raw, size, err)) != FEDGE_OK)
            return fedge_error_prefix(err, st, "section \"%s\"", info->name);
        bytes += info->size;
        raw += size;
    }
    return FEDGE_OK;
}

fedge_status fedge_update_decode(const fedge_plan *plan, const int8_t *bounds_log2,
                                 const fedge_upload *upload, const uint8_t *bytes, uint8_t *scratch,
                                 size_t scratch_size, int32_t *v, fedge_error *err)
{
    fedge_status st = fedge_update_unpack(plan, upload, bytes, scratch, scratch_size, err);
    for (uint32_t i = 0; i < plan->sent.num_sections && st == FEDGE_OK; i++) {
        const fedge_section *section = &plan->sent.sections[i];
        const size_t size = raw_size_of(section);
        st = fedge_codec_decode(section->codec, &section->schema, bounds_log2 + section->first,
                                scratch, size, v, err);
        scratch += size;
    }
    return st;
}
