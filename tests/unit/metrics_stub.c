/* metrics_stub: replaces the server in tests of metrics. */
#include "serve/http.h"

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
