/* Any bytes as a segment of the push queue, and as an answer of an OTLP server: no crash and no
 * read past the end; a record that is found lies within the input. */
#include "daemon/push_segment.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data;
	struct push_record r;
	char message[64];

	for (size_t at = 0, found; at < size; at = found + PUSH_RECORD_HEAD + r.n) {
		found = push_record_find(p, size, at, &r);
		if (found == size)
			break;
		if (found < at || r.p != p + found + PUSH_RECORD_HEAD || r.p + r.n > p + size)
			abort();
	}
	(void)push_otlp_rejected(p, size, message, sizeof(message));
	if (!memchr(message, 0, sizeof(message)))
		abort();
	return 0;
}
