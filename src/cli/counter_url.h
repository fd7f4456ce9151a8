/* count_url: a server's counter, fetched from its URL over plain http.  See counter_kinds. */
#ifndef GW_CLI_COUNTER_URL_H
#define GW_CLI_COUNTER_URL_H

#include "counter.h"

/* http://HOST[:PORT][/PATH][#WHAT]; WHAT as in counter_text.h. */
int counter_url_check(const char *url, char *why, size_t size);
/* The URL without what may be secret or is no part of the place: its query and its counter. */
void counter_url_place(const char *url, char *out, size_t size);
void counter_url_read(const char *url, const struct deadline_stop *stop,
		      struct counter_reading *ret);

#endif
