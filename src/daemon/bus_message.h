/* bus_message: encodes and decodes D-Bus messages.
 *
 * Supports what a small client needs: method calls with a few types of arguments, and the
 * headers of incoming messages. The functions are pure: they use no socket. */
#ifndef GW_DAEMON_BUS_MESSAGE_H
#define GW_DAEMON_BUS_MESSAGE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bus_type { BUS_CALL = 1, BUS_REPLY, BUS_ERROR, BUS_SIGNAL };

/* A decoded message. The strings point into the bytes that bus_read() got; the string of a
 * missing header field is NULL. */
struct bus_message {
	enum bus_type type;
	bool big_endian;
	uint32_t serial, reply_to;
	const char *path, *interface, *member, *error, *destination, *sender, *signature;
	const uint8_t *body;
	size_t body_size;
};

/* Decodes the first message in bytes. Returns its size, 0 if the message is incomplete, or
 * -GW_E_PARSE if the bytes are not D-Bus. */
long bus_read(const uint8_t *bytes, size_t size, struct bus_message *ret);

/* Decodes a body of signature "b". Returns 0 or -GW_E_PARSE. */
int bus_read_bool(const struct bus_message *m, bool *ret);

/* bus_read_u32() decodes a body that begins with a number (signature "u..."),
 * bus_read_u32_text() a body of signature "us". Both return 0 or -GW_E_PARSE. The text points
 * into the body. */
int bus_read_u32(const struct bus_message *m, uint32_t *ret);
int bus_read_u32_text(const struct bus_message *m, uint32_t *ret, const char **ret_text);

struct bus_method {
	const char *destination, *path, *interface, *member;
};

/* A method call that is appended to out. Call bus_call_begin(), then one bus_put_*() per
 * argument in the order of the signature, then bus_call_end(). */
struct bus_call {
	struct buf *out;
	size_t begin, body; /* Positions in out where the message and its body begin. */
};
void bus_call_begin(struct bus_call *c, struct buf *out, uint32_t serial,
		    const struct bus_method *m, const char *signature);
void bus_put_u32(struct bus_call *c, uint32_t n); /* Signature "u" or "i". */
void bus_put_text(struct bus_call *c, const char *s);
/* Signature "as". The list ends with NULL. */
void bus_put_texts(struct bus_call *c, const char *const *list);
/* Signature "a{sv}"; the array is empty. */
void bus_put_no_pairs(struct bus_call *c);
void bus_call_end(struct bus_call *c);

/* Appends the first bytes that a connection sends: the user id and, with unix_fds, the request
 * to pass descriptors. */
void bus_write_greeting(struct buf *out, bool unix_fds);

/* Appends a method call to out. arg is a NULL-terminated array of string arguments. */
void bus_write(struct buf *out, uint32_t serial, const struct bus_method *m,
	       const char *const *arg);

#endif
