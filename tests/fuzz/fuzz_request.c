/* Any body of a POST request: no crash and no leak; a refusal has a message. */
#include "text.h"

#include "serve/guard_question.h"
#include "serve/json_request.h"

#include <gpuward.h>

static void check_object(const char *text, size_t size)
{
	const char *word = NULL, *list[4], *names[4];
	struct json_request *b;
	char message[200] = "";
	double number = 0;
	unsigned count;
	bool flag = false, ok;

	if (json_request_open(text, size, "label gpus pinned seconds tags", &b, message,
			      sizeof(message)) != 0) {
		if (!*message)
			abort();
		return;
	}
	ok = json_request_text(b, "label", 0, &word) && json_request_word(b, "label", &word) &&
	     json_request_number(b, "seconds", &number) &&
	     json_request_flag(b, "pinned", &flag) &&
	     json_request_texts(b, "gpus", list, 4, &count) &&
	     json_request_pairs(b, "tags", names, list, 4, &count);
	if (!ok && !*json_request_message(b))
		abort();
	json_request_close(b);
}

static void check_question(const char *text, size_t size)
{
	/* fuzz_recording.c tests the lines of a recording. */
	static const struct guard_view_ops ops;
	static const struct policy none;
	static struct guard_question q;
	static struct scene now;
	char message[300] = "";

	memset(&q, 0, sizeof(q));
	if (guard_question_read(text, size, &none, &ops, &now, &q, message, sizeof(message)) ==
		    -GW_E_PARSE &&
	    !*message)
		abort();
	free(guard_question_policy(text, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	check_object(text, size);
	check_question(text, size);
	free(text);
	return 0;
}
