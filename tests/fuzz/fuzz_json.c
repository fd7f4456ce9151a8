/* Any bytes as a string: the writer emits valid UTF-8 without raw control characters or
 * unescaped quotes. */
#include "base/json.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *p, const char *end)
{
	for (; p < end; p += utf8_length(p)) {
		if (utf8_length(p) == 0 || (unsigned char)*p < 0x20 || *p == '"')
			abort();
		if (*p == '\\')
			p++;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct buf out;
	struct json j;

	memcpy(text, data, size);
	text[size] = '\0';
	buf_init(&out, 1 << 20);
	json_init(&j, &out, false);
	json_string(&j, NULL, text);
	if (json_end(&j) == 0) {
		if (out.p[0] != '"' || strcmp(out.p + out.len - 2, "\"\n") != 0)
			abort();
		check_text(out.p + 1, out.p + out.len - 2);
	}
	buf_done(&out);
	free(text);
	return 0;
}
