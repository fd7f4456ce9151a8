/* windows: energy windows that somebody opened over HTTP and will end or forget.
 *
 * They live on the meter of the view.  One that nobody ends is ended after its limit; when the meter
 * goes away they end as they stand.  Ended ones are kept (view_ops.keep) as the document that
 * `gpuward measure` writes for a part of a run, and the latest in memory. */
#ifndef GW_SERVE_WINDOWS_H
#define GW_SERVE_WINDOWS_H

#include "view.h"

#include "base/json.h"

#define WINDOWS_OPEN_MAX 64

struct windows;
struct windows_entry;

int windows_new(struct windows **ret);
void windows_free(struct windows *w);

/* A view came: follows a changed meter, ends what is past its limit, finishes what can be. */
void windows_tick(struct windows *w, const struct view *v, uint64_t now_ns);

/* The meter is about to go away: ends every open window now, with what is known. */
void windows_meter_gone(struct windows *w, const struct view *v);

#endif
