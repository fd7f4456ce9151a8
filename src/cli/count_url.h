/* count_url: a server's counter, fetched from its URL over plain http.  See count_kinds. */
#ifndef GW_CLI_COUNT_URL_H
#define GW_CLI_COUNT_URL_H

#include "count.h"

/* http://HOST[:PORT][/PATH][#WHAT]; WHAT as in count_text.h. */
int count_url_check(const char *url, char *why, size_t size);
/* The URL without what may be secret or is no part of the place: its query and its counter. */
void count_url_place(const char *url, char *out, size_t size);
void count_url_read(const char *url, const struct patience_asker *asker,
		    struct count_reading *ret);

#endif
