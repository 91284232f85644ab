/* The beginning and the end of each call on a device. */
#include "gpu/device/work.h"

bcfg_outcome bcfg_work_gather(const bcfg_work *work, bcfg_fault *fault) {
    bcfg_outcome outcome = BCFG_DEVICE_OK;
    for (int i = 0; i < work->other_count && outcome == BCFG_DEVICE_OK; i++)
        outcome = bcfg_place_order(work->driver, work->others[i], work->stream, fault);
    return outcome;
}

bcfg_outcome bcfg_work_scatter(const bcfg_work *work, bcfg_outcome outcome, bcfg_fault *fault) {
    /* Later work on the other streams must wait for what was just put on this one. */
    for (int i = 0; i < work->other_count && outcome == BCFG_DEVICE_OK; i++)
        outcome = bcfg_place_order(work->driver, work->stream, work->others[i], fault);
    if (work->synchronizes && outcome == BCFG_DEVICE_OK)
        outcome = bcfg_place_synchronize(work->driver, work->stream, fault);
    /* After a failure the other streams cannot tell when the work that was already queued is done:
     * wait for it. */
    bcfg_fault another;
    if (outcome != BCFG_DEVICE_OK && (work->other_count > 0 || work->synchronizes))
        (void)bcfg_place_synchronize(work->driver, work->stream, &another);
    return outcome;
}

static void leave(bcfg_session *session) {
    if (session->handle != NULL) bcfg_handle_give(session->handle);
    bcfg_place_leave(session->work->driver, &session->visit);
}

bcfg_outcome bcfg_work_begin(const bcfg_work *work, bcfg_session *session, bcfg_fault *fault) {
    session->work = work;
    session->handle = NULL;
    bcfg_outcome outcome = bcfg_place_enter(work->driver, work->index, &session->visit, fault);
    if (outcome != BCFG_DEVICE_OK) return outcome;
    if (work->library != NULL)
        outcome = bcfg_handle_take(work->library, work->driver, work->index, work->stream,
                                   &session->handle, fault);
    if (outcome == BCFG_DEVICE_OK) outcome = bcfg_work_gather(work, fault);
    if (outcome != BCFG_DEVICE_OK) leave(session);
    return outcome;
}

bcfg_outcome bcfg_work_end(bcfg_session *session, bcfg_outcome outcome, bcfg_fault *fault) {
    outcome = bcfg_work_scatter(session->work, outcome, fault);
    leave(session);
    return outcome;
}
