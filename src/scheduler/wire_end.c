/* wire_end.c - see wire_end.h */
#include "scheduler/wire_end.h"

#include "base/err.h"

EndReason wire_end_pack(end_reason why)
{
    switch (why) {
    case END_STOP: return END_REASON__STOP;
    case END_LENGTH: return END_REASON__LENGTH;
    case END_FAILED: return END_REASON__FAILED;
    case END_EVICTED: return END_REASON__EVICTED;
    case END_QUEUE_FULL: return END_REASON__QUEUE_FULL;
    case END_TOO_LATE: return END_REASON__TOO_LATE;
    case END_TOO_LARGE: return END_REASON__TOO_LARGE;
    case END_KILLS_WORKERS: return END_REASON__KILLS_WORKERS;
    }
    CHECK(!"an end_reason");
    return END_REASON__FAILED;
}

bool wire_end_read_report(EndReason why, end_reason *out)
{
    for (end_reason r = END_STOP; r <= END_EVICTED; r++)
        if (wire_end_pack(r) == why) {
            *out = r;
            return true;
        }
    return false;
}
