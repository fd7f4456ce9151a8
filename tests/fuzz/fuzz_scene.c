/* Any lines of a recording: an accepted scene is written and reads back the same. */
#include "base/buf.h"
#include "guard/scene.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct scene s, back;

static void check_back(void)
{
	struct buf once, twice;
	char *rest = NULL, *copy;
	int err = 0;

	buf_init(&once, 16 << 20);
	buf_init(&twice, 16 << 20);
	scene_write(&once, &s);
	copy = strdup(once.p);
	memset(&back, 0, sizeof(back));
	for (char *l = strtok_r(copy, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest))
		err = scene_read(&back, l);
	scene_write(&twice, &back);
	if (err != 1 || once.err || strcmp(once.p, twice.p) != 0)
		abort();
	free(copy);
	buf_done(&once);
	buf_done(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *rest = NULL;

	memcpy(text, data, size);
	text[size] = '\0';
	memset(&s, 0, sizeof(s));
	for (char *l = strtok_r(text, "\n", &rest); l; l = strtok_r(NULL, "\n", &rest))
		if (scene_read(&s, l) == 1)
			check_back();
	free(text);
	return 0;
}
