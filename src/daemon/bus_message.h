/* bus_message: the messages of D-Bus, as bytes.
 *
 * No more of the protocol than a listener needs who calls a few methods: calls whose arguments are strings, and the
 * heads of what comes back.  Pure: nothing here knows a socket. */
#ifndef GW_DAEMON_BUS_MESSAGE_H
#define GW_DAEMON_BUS_MESSAGE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bus_type { BUS_CALL = 1, BUS_REPLY, BUS_ERROR, BUS_SIGNAL };

/* Of a message that was read; the texts are NULL where it has none, and lie in its bytes. */
struct bus_message {
	enum bus_type type;
	bool big_endian;
	uint32_t serial, reply_to;
	const char *path, *interface, *member, *error, *destination, *sender, *signature;
	const uint8_t *body;
	size_t body_size;
};

/* The first message of these bytes.  Its size; 0: it is not all there; -GW_E_PARSE: these are no messages. */
long bus_read(const uint8_t *bytes, size_t size, struct bus_message *ret);

/* The body of a message of signature "b": 0 or -GW_E_PARSE. */
int bus_read_bool(const struct bus_message *m, bool *ret);

struct bus_method {
	const char *destination, *path, *interface, *member;
};

/* A call, added to out.  arg: strings, the last followed by NULL. */
void bus_write(struct buf *out, uint32_t serial, const struct bus_method *m,
	       const char *const *arg);

#endif
