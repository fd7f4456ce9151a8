#include "guard/worker/wire.h"

#include "base/text.h"
#include "base/utf8.h"

#include <gpuward.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SIGNAL_MAX 64
#define ERROR_MAX  99

static const char *const verbs[] = { "checkpoint", "restore", "signal", "unit" };

const char *wire_verb_name(enum wire_verb verb)
{
	return verbs[verb];
}

bool wire_is_unit(const char *name)
{
	size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				":_.\\@-");

	return n > 0 && n < WIRE_UNIT && name[n] == '\0' && name[0] != '-' && strchr(name, '.');
}

/* Each read_x() function moves *at past the text that it reads. It returns false if the text
 * does not match. */

/* Reads a number from 1 to most, without leading zeros. */
static bool read_number(const char **at, uint64_t most, uint64_t *ret)
{
	return **at != '0' && text_read_number(at, most, ret);
}

static bool read_count(const char **at, unsigned most, unsigned *ret)
{
	uint64_t v;

	if (!read_number(at, most, &v))
		return false;
	*ret = (unsigned)v;
	return true;
}

static const char *read_targets(const char *at, struct wire_request *r)
{
	for (r->targets = 0; *at; r->targets++) {
		struct proc_id *t = &r->target[r->targets];
		uint64_t pid;

		if (r->targets == WIRE_TARGETS)
			return "the request names more than 64 processes";
		if (!text_read_word(&at, " ") || !read_number(&at, INT32_MAX, &pid) ||
		    !text_read_word(&at, ":") || !read_number(&at, UINT64_MAX, &t->start_ticks))
			return "a process must be written as PID:START";
		t->pid = (int64_t)pid;
		for (unsigned i = 0; i < r->targets; i++)
			if (r->target[i].pid == t->pid)
				return "a process is named twice";
	}
	return r->targets ? NULL : "the request names no process";
}

static const char *read_unit(const char *at, struct wire_request *r)
{
	r->start = text_read_word(&at, " start ");
	if (!r->start && !text_read_word(&at, " stop "))
		return "the action for a unit must be start or stop";
	if (!wire_is_unit(at))
		return "the name of the unit is not valid";
	memcpy(r->unit, at, strlen(at) + 1);
	return NULL;
}

static const char *read_line(const char *at, struct wire_request *r)
{
	unsigned verb = 0;

	while (verb < sizeof(verbs) / sizeof(*verbs) && !text_read_word(&at, verbs[verb]))
		verb++;
	if (verb == sizeof(verbs) / sizeof(*verbs) || !text_read_word(&at, " "))
		return "the verb must be checkpoint, restore, signal or unit";
	r->verb = (enum wire_verb)verb;
	if (r->verb == WIRE_SIGNAL)
		return read_count(&at, SIGNAL_MAX, &r->signal)
			       ? read_targets(at, r)
			       : "the signal number must be 1 to 64";
	if (!read_count(&at, WIRE_TIMEOUT_MS, &r->timeout_ms))
		return "the time must be between 1 ms and one hour (3600000 ms)";
	return r->verb == WIRE_UNIT_VERB ? read_unit(at, r) : read_targets(at, r);
}

int wire_read(const char *text, size_t size, struct wire_request *ret, const char **ret_why)
{
	char line[WIRE_SIZE];

	memset(ret, 0, sizeof(*ret));
	*ret_why = NULL;
	if (size == 0 || size > WIRE_SIZE)
		*ret_why = "the request is empty or longer than 4096 bytes";
	else if (memchr(text, '\n', size) != text + size - 1)
		*ret_why = "the request must be exactly one line";
	else if (memchr(text, '\0', size))
		*ret_why = "the request contains a NUL";
	if (*ret_why)
		return -GW_E_PARSE;
	memcpy(line, text, size - 1);
	line[size - 1] = '\0';
	*ret_why = read_line(line, ret);
	return *ret_why ? -GW_E_PARSE : 0;
}

size_t wire_write(const struct wire_request *r, char *out)
{
	size_t n;

	if (r->verb == WIRE_UNIT_VERB)
		return wire_is_unit(r->unit)
			       ? (size_t)snprintf(out, WIRE_SIZE, "unit %u %s %s\n",
						  r->timeout_ms, r->start ? "start" : "stop",
						  r->unit)
			       : 0;
	n = (size_t)snprintf(out, WIRE_SIZE, "%s %u", verbs[r->verb],
			     r->verb == WIRE_SIGNAL ? r->signal : r->timeout_ms);
	for (unsigned i = 0; i < r->targets && i < WIRE_TARGETS; i++)
		n += (size_t)snprintf(out + n, WIRE_SIZE - n, " %" PRId64 ":%" PRIu64,
				      r->target[i].pid, r->target[i].start_ticks);
	out[n++] = '\n'; /* there is room: 64 processes take less than 2200 bytes */
	out[n] = '\0';
	return n;
}

int wire_reply_read(const char *line, struct wire_reply *ret)
{
	const char *at = line;
	bool good = text_read_word(&at, "ok ");
	unsigned v = 0;

	if (!good && !text_read_word(&at, "no "))
		return -GW_E_PARSE;
	if (!read_count(&at, good ? WIRE_TARGETS : ERROR_MAX, &v) &&
	    !(good && text_read_word(&at, "0")))
		return -GW_E_PARSE;
	if (!text_read_word(&at, " "))
		return -GW_E_PARSE;
	*ret = (struct wire_reply){ .rc = good ? 0 : -(int)v, .count = good ? v : 0 };
	utf8_clean(ret->words, sizeof(ret->words), at);
	return 0;
}

size_t wire_reply_write(const struct wire_reply *r, char out[static WIRE_SIZE])
{
	char words[WIRE_WORDS];

	utf8_clean(words, sizeof(words), r->words);
	return (size_t)snprintf(out, WIRE_SIZE, "%s %u %s\n", r->rc ? "no" : "ok",
				r->rc ? (unsigned)-r->rc : r->count, words);
}
