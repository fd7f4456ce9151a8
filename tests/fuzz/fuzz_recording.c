/* Any lines of a recording: the recording is replayed or refused, without a crash. */
#include "daemon/recording.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *rest = NULL;
	static const struct policy none;
	static struct scene scene;
	struct guard_decision d;
	unsigned line;
	struct recording_reader *t;
	uint64_t wall_ns;
	int err = 0;

	memcpy(text, data, size);
	text[size] = '\0';
	err = recording_last_scene(text, &none, &scene, &line);
	if (err != 0 && err != -GW_E_PARSE && err != -GW_E_NOSUPPORT)
		abort();
	err = 0;
	if (recording_reader_new(NULL, false, &t) != 0)
		abort();
	for (char *l = strtok_r(text, "\n", &rest); l && !err;
	     l = strtok_r(NULL, "\n", &rest)) {
		err = recording_read(t, l);
		while (!err && recording_next_decision(t, &d, &wall_ns))
			if (d.worker >= recording_reader_policy(t)->workers)
				abort();
	}
	recording_reader_free(t);
	free(text);
	return 0;
}
