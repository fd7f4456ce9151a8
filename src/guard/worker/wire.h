/* wire: what is said between the guard and its companion, the small program that has the privileges.
 *
 * One request a connection, one line; then "taken", and when it is done one line that says how it went:
 *
 *	checkpoint 30000 1234:98765 1235:98770       put away; time to lock, process:start time
 *	restore 30000 1234:98765                     bring back
 *	signal 15 1234:98765                         number of the signal
 *	unit 30000 stop ollama.service               or start
 *
 *	taken
 *	ok 2 words                                   for how many it was done
 *	no 4 words                                   an enum gw_error
 *
 * Every request has one way to be written: wire_write() of what wire_read() took is the same text. */
#ifndef GW_GUARD_WORKER_WIRE_H
#define GW_GUARD_WORKER_WIRE_H

#include "guard/worker/checkpoint.h"

#include <stdbool.h>
#include <stddef.h>

#define WIRE_SIZE       4096 /* of a request, with its newline; of a reply likewise */
#define WIRE_TARGETS    64
#define WIRE_UNIT       256
#define WIRE_WORDS      500
#define WIRE_TIMEOUT_MS 3600000
#define WIRE_TAKEN      "taken\n"

enum wire_verb { WIRE_CHECKPOINT, WIRE_RESTORE, WIRE_SIGNAL, WIRE_UNIT_VERB };
const char *wire_verb_name(enum wire_verb verb);

struct wire_request {
	enum wire_verb verb;
	unsigned timeout_ms; /* 1 to WIRE_TIMEOUT_MS; not of signal */
	unsigned signal;     /* 1 to 64 */
	bool start;          /* of unit; else stop */
	char unit[WIRE_UNIT];
	unsigned targets; /* 1 to WIRE_TARGETS; not of unit */
	struct checkpoint_target target[WIRE_TARGETS];
};

struct wire_reply {
	int rc; /* 0 or a negative gw_error */
	unsigned count;
	char words[WIRE_WORDS];
};

/* The whole of text is one request: size bytes that end with the only newline.  0, or -GW_E_PARSE with a
 * phrase of what is wrong; *ret is then undefined. */
int wire_read(const char *text, size_t size, struct wire_request *ret, const char **ret_why);
/* Length of the text in out[WIRE_SIZE], 0 where the request cannot be written. */
size_t wire_write(const struct wire_request *r, char *out);

/* Of a reply's last line, without its newline. */
int wire_reply_read(const char *line, struct wire_reply *ret);
/* With its newline; control characters of the words become '?'. */
size_t wire_reply_write(const struct wire_reply *r, char out[static WIRE_SIZE]);

/* Is this the name of a unit: letters, digits and :_.\@- with a dot in it, not beginning with '-'? */
bool wire_is_unit(const char *name);

#endif
