/* Any answer of an HTTP server or a container engine: no crash; a body is not longer than the
 * answer; an error text is one line. */
#include "text.h"

#include "base/http_message.h"
#include "base/json_doc.h"
#include "daemon/container_resolver.h"

static void check_message(const struct buf *answer)
{
	struct buf body;
	int status = 0;

	(void)http_message_complete(answer);
	buf_init(&body, 1 << 20);
	if (http_message_read(answer, &status, &body) == 0 &&
	    (status < 100 || status > 999 || body.len > answer->len))
		abort();
	buf_done(&body);
}

static void check_engine(const struct buf *answer)
{
	char out[65];

	if (container_query_read(answer, "Id", out, sizeof(out)) == 0 &&
	    !memchr(out, 0, sizeof(out)))
		abort();
}

static void check_error(const char *text, size_t size)
{
	char out[100];

	json_doc_error_text(text, size, out, sizeof(out));
	if (!memchr(out, 0, sizeof(out)) || strpbrk(out, "\n\r\033"))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);
	struct buf answer = { .p = text, .len = size, .cap = size + 1 };

	check_message(&answer);
	check_engine(&answer);
	check_error(text, size);
	free(text);
	return 0;
}
