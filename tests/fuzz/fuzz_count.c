/* Any reply of a server: no crash; the counter is a finite sum that is not negative, or
 * absent with a reason. */
#include "cli/counter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_reading(const struct counter_reading *r)
{
	double sum = 0;

	if (isnan(r->value) != (r->why[0] != '\0') || r->n > COUNTER_SERIES)
		abort();
	for (unsigned i = 0; i < r->n; i++)
		sum += r->series[i].value;
	if (!isnan(r->value) && !(r->n > 0 && sum >= 0 && r->value == sum))
		abort();
}

/* The first line is the selector and also a URL; the rest is the reply. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *rest, why[COUNTER_WHY];
	struct counter_reading r = { .value = 0 };

	if (!text)
		return 0;
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	rest = text + strcspn(text, "\n");
	if (*rest)
		*rest++ = '\0';
	counter_kinds[COUNTER_URL].check(text, why, sizeof(why));
	counter_text(rest, strlen(rest), *text ? text : NULL, &r);
	check_reading(&r);
	free(text);
	return 0;
}
