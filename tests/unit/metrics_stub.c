/* metrics_stub: what metrics asks of the rest of the service, in its simplest form. */
#include "serve/http.h"
#include "serve/view.h"

#include <stdio.h>

bool view_is_error(unsigned absence)
{
	switch (absence) {
	case GW_ABSENT_ERROR:
	case GW_ABSENT_LOST:
	case GW_ABSENT_STALLED:
	case GW_ABSENT_INVALID:
	case GW_ABSENT_NO_DRIVER: return true;
	default: return false;
	}
}

const char *view_stale(const struct view *v, uint64_t now_ns, char *out, size_t size)
{
	if (gw_snapshot_mono_ns(v->snap) + 3 * v->interval_ns >= now_ns)
		return NULL;
	snprintf(out, size, "nothing was read for more than three intervals");
	return out;
}

void http_counts(const struct http *h, struct http_counts *ret)
{
	(void)h;
	*ret = (struct http_counts){ .requests = { 1, 0, 200, 3, 40, 5 },
				     .accepted = 17,
				     .refused = 2,
				     .timeouts = 1,
				     .connections = 4,
				     .streams = 1,
				     .bytes_sent = 123456 };
}
