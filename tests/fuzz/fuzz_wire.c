/* Any request to the companion and any content of its file: no crash; a refusal has a
 * message; an accepted request is written identically; a file with an unknown line allows
 * nothing. */
#include "companion/allow.h"
#include "guard/worker/wire.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_request(const char *text, size_t size)
{
	struct wire_request r;
	const char *why = NULL;
	char again[WIRE_SIZE];

	if (wire_read(text, size, &r, &why) != 0) {
		if (!why || !*why)
			abort();
		return;
	}
	if (wire_write(&r, again) != size || memcmp(again, text, size) != 0)
		abort();
	if (r.verb == WIRE_UNIT_VERB ? !wire_is_unit(r.unit) : r.targets == 0)
		abort();
	for (unsigned i = 0; i < r.targets; i++)
		if (r.target[i].pid < 1 || r.target[i].start_ticks == 0)
			abort();
}

static void check_reply(const char *line)
{
	struct wire_reply r, back;
	char text[WIRE_SIZE];

	if (wire_reply_read(line, &r) != 0)
		return;
	text[wire_reply_write(&r, text) - 1] = '\0';
	if (wire_reply_read(text, &back) != 0 || back.rc != r.rc || back.count != r.count)
		abort();
}

static void check_file(char *text)
{
	static struct allow a;
	char message[300] = "";
	struct proc nobody = { .pid = 5, .uid = -1 };

	if (allow_read(&a, "f", text, message, sizeof(message)) != 0 &&
	    (a.rules != 0 || !*message))
		abort();
	if (a.rules > ALLOW_RULES)
		abort();
	/* No rule may allow a signal to a process about which nothing is known. */
	if (allow_process(&a, ALLOW_SIGNAL, &nobody, message, sizeof(message)) == 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	check_request(text, size);
	check_reply(text);
	check_file(text);
	free(text);
	return 0;
}
