#include "aggregator/run/engine_reports.h"

#include <string.h>

#include "aggregator/cluster/protocol/order.h"
#include "aggregator/run/engine_phase.h"
#include "aggregator/run/engine_upload.h"

/* One that any rank has no room for waits; any other failure is the run's. */
static void opened(fedge_engine *engine, const fedge_report *report, uint64_t now_ms)
{
    fedge_engine_other_ranks *others = &engine->other_ranks;
    fedge_error *worst = &others->worst;
    if (report->status != FEDGE_OK &&
        (worst->status == FEDGE_OK || worst->status == FEDGE_NO_SPACE))
        (void)fedge_fail(worst, report->status, "rank %u: %s", report->rank, report->message);
    if (--others->waiting == 0)
        fedge_engine_other_ranks_opened(engine, now_ms);
}

static void validated(fedge_engine *engine, const fedge_report *report, const char *meta,
                      uint64_t now_ms)
{
    fedge_error err;
    if (report->slot >= engine->num_slots || !engine->journal)
        return;
    /* In this rank's journal as well, which is what a restart reads first: it says where the bytes
     * are. */
    if (report->status == FEDGE_OK &&
        fedge_journal_accept_elsewhere(engine->journal, report->slot, &report->facts,
                                       &report->place, meta, &err) != FEDGE_OK) {
        fedge_engine_fail(engine, &err);
        return;
    }
    const fedge_engine_result result = {
        .slot = report->slot,
        .rank = report->rank,
        .task_id = report->task_id,
        .number = report->number,
        .held = true,
        /* It has one that does not count, and is not to. */
        .status = report->status == FEDGE_DUPLICATE ? FEDGE_INTERNAL : report->status,
        .message = report->message,
        .seconds_upload = report->seconds_upload};
    fedge_engine_take_result(engine, &result, now_ms);
}

void fedge_engine_report(fedge_engine *engine, const fedge_request *from, uint64_t now_ms)
{
    fedge_report report;
    if (from->payload_size < sizeof(report))
        return;
    memcpy(&report, from->payload, sizeof(report));
    /* It comes from another process, of the same build but perhaps in its last moments. */
    report.message[sizeof(report.message) - 1] = '\0';
    const char *meta = (const char *)from->payload + sizeof(report);
    /* What was said of a phase that is over has come too late. */
    if (report.phase != engine->other_ranks.phase ||
        report.size != from->payload_size - sizeof(report))
        return;
    switch (report.kind) {
    case FEDGE_REPORT_OPENED:
        opened(engine, &report, now_ms);
        break;
    case FEDGE_REPORT_VALIDATED:
        validated(engine, &report, meta, now_ms);
        break;
    case FEDGE_REPORT_RELEASED:
        fedge_engine_released(engine, report.slot, report.rank, now_ms);
        break;
    case FEDGE_REPORT_FLUSHED:
        if (--engine->other_ranks.waiting == 0)
            fedge_engine_other_ranks_closed(engine);
        break;
    }
    fedge_engine_pump(engine, now_ms);
}
