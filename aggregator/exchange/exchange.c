#include "aggregator/exchange/exchange.h"

#include <stdio.h>
#include <stdlib.h>

void fedge_request_free(fedge_request *request)
{
    if (request) {
        free(request->upload);
        free(request->frame);
        free(request);
    }
}

void fedge_reply_free(fedge_reply *reply)
{
    if (reply) {
        fedge_blob_release(reply->blob);
        free(reply);
    }
}

fedge_notice fedge_blob_is_gone(const char *hash)
{
    fedge_notice notice = {.reason = FEDGE_REASON_STALE_TASK};
    snprintf(notice.text, sizeof(notice.text), "no blob %.16s… is served any more", hash);
    return notice;
}
