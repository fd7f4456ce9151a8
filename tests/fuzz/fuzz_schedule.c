/* Any string as a schedule: no crash; a refusal has a message; an accepted schedule reads back
 * from its text and applies to the stated minutes of a week. */
#include "guard/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_words(const struct policy_span *s)
{
	static const char *const names[] = { "mon", "tue", "wed", "thu", "fri", "sat", "sun" };
	struct policy_span again[POLICY_SPANS];
	char text[100] = "", message[200];
	size_t n = 0;

	for (unsigned d = 0; d < 7; d++)
		if (s->days >> d & 1)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", n ? "," : "",
					      names[d]);
	snprintf(text + n, sizeof(text) - n, " %02u:%02u-%02u:%02u", s->from_min / 60,
		 s->from_min % 60, s->to_min / 60, s->to_min % 60);
	if (policy_spans_read(text, again, 0, message, sizeof(message)) != 1 ||
	    memcmp(s, again, sizeof(*s)) != 0)
		abort();
}

static unsigned count(unsigned days)
{
	unsigned n = 0;

	for (; days; days >>= 1)
		n += days & 1;
	return n;
}

static void check_minutes(const struct policy_span *s)
{
	struct policy_worker w = { .schedule = { *s }, .schedules = 1 };
	unsigned length = (s->to_min > s->from_min ? 0 : 1440) + s->to_min - s->from_min;
	unsigned minutes = 0;

	for (int t = 0; t < 7 * 1440; t++) {
		struct tm tm = { .tm_wday = t / 1440,
				 .tm_hour = t % 1440 / 60,
				 .tm_min = t % 60 };

		minutes += policy_in_schedule(&w, &tm);
	}
	if (minutes != length * count(s->days))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct policy_span span[POLICY_SPANS];
	char text[300], message[200] = "";
	int n;

	snprintf(text, sizeof(text), "%.*s", (int)(size < 299 ? size : 299),
		 (const char *)data);
	n = policy_spans_read(text, span, 0, message, sizeof(message));
	if (n > POLICY_SPANS || n == 0 || (n < 0 && !*message))
		abort();
	for (int i = 0; i < n; i++) {
		if (!span[i].days || span[i].days > 0x7f || span[i].from_min >= 1440 ||
		    span[i].to_min > 1440 || span[i].from_min == span[i].to_min)
			abort();
		check_words(&span[i]);
		check_minutes(&span[i]);
	}
	return 0;
}
