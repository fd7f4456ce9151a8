/* wire: the protocol between the guard and its companion, a small program with privileges.
 *
 * Each connection has one request, of one line. The companion replies with the line "taken"
 * when it accepts the request, and with one more line when the request is done:
 *
 *         checkpoint 30000 1234:98765 1235:98770       milliseconds to lock, PID:START_TICKS
 *         restore 30000 1234:98765
 *         signal 15 1234:98765                         number of the signal
 *         unit 30000 stop ollama.service               or start
 *
 *         taken
 *         ok 2 text                                    number of handled processes
 *         no 4 text                                    an enum gw_error
 *
 * A request can be written in only one way: if wire_read() accepts a text, wire_write() writes
 * the same text again. */
#ifndef GW_GUARD_WORKER_WIRE_H
#define GW_GUARD_WORKER_WIRE_H

#include "guard/worker/checkpoint.h"

#include <stdbool.h>
#include <stddef.h>

#define WIRE_SIZE       4096 /* size of a request or a reply, with its newline */
#define WIRE_TARGETS    64
#define WIRE_UNIT       256
#define WIRE_WORDS      500
#define WIRE_TIMEOUT_MS 3600000
#define WIRE_TAKEN      "taken\n"

enum wire_verb { WIRE_CHECKPOINT, WIRE_RESTORE, WIRE_SIGNAL, WIRE_UNIT_VERB };
const char *wire_verb_name(enum wire_verb verb);

struct wire_request {
	enum wire_verb verb;
	unsigned timeout_ms; /* 1 to WIRE_TIMEOUT_MS; not used for signal */
	unsigned signal;     /* 1 to 64 */
	bool start;          /* for unit: true starts the unit, false stops it */
	char unit[WIRE_UNIT];
	unsigned targets; /* 1 to WIRE_TARGETS; not used for unit */
	struct proc_id target[WIRE_TARGETS];
};

struct wire_reply {
	int rc; /* 0 or a negative gw_error */
	unsigned count;
	char words[WIRE_WORDS];
};

/* Reads one request of size bytes; its only newline is the last byte. Returns 0. Returns
 * -GW_E_PARSE with a phrase that names the error; *ret is then undefined. */
int wire_read(const char *text, size_t size, struct wire_request *ret, const char **ret_why);
/* Writes a request. Returns its length in out[WIRE_SIZE]; 0: the request is not valid. */
size_t wire_write(const struct wire_request *r, char *out);

/* Reads the last line of a reply, without its newline. */
int wire_reply_read(const char *line, struct wire_reply *ret);
/* Writes a reply with its newline. Control characters in its words become '?'. */
size_t wire_reply_write(const struct wire_reply *r, char out[static WIRE_SIZE]);

/* True if name can be the name of a unit: it has only letters, digits and the characters
 * :_.\@-, contains a dot, and does not begin with '-'. */
bool wire_is_unit(const char *name);

#endif
