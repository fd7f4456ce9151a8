/* bus_connection: a connection to a D-Bus bus: address, authentication, sending and receiving.
 *
 * Only bus_connection_send() waits for the bus, at most as long as its caller allows. The
 * caller watches `fd` and calls bus_connection_read(). */
#ifndef GW_DAEMON_BUS_CONNECTION_H
#define GW_DAEMON_BUS_CONNECTION_H

#include "bus_message.h"

#include <sys/socket.h>
#include <sys/un.h>

#define BUS_NAME     "org.freedesktop.DBus"
#define BUS_OUT_SIZE 8192 /* enough for what a caller sends at once */

struct bus_address {
	struct sockaddr_un a;
	socklen_t size;
};

/* Reads the first address of the list, which must be unix:path= or unix:abstract=. If list is
 * NULL or "", the address is the socket with the path `fallback`. Returns false if the address
 * cannot be used. */
bool bus_address_read(struct bus_address *ret, const char *list, const char *fallback);

struct bus_connection {
	int fd;        /* -1: not connected */
	int received;  /* descriptor that was received with the current message; -1: none */
	bool unix_fds; /* the connection can receive descriptors */
	bool greeted;  /* the authentication is complete */
	uint8_t *in;
	size_t used; /* number of bytes in in[] */
};

#define BUS_CONNECTION_CLOSED            \
	{                                \
		.fd = -1, .received = -1 \
	}

/* Connects. *c must be closed. Returns 0, -GW_E_NOMEM, or -GW_E_IO with errno. */
int bus_connection_open(struct bus_connection *c, const struct bus_address *to, bool unix_fds);
void bus_connection_close(struct bus_connection *c);

/* bus_connection_hello() appends what a connection sends first: the authentication and the call
 * Hello. bus_write_match() appends a request for the signals that match the rule. The bus
 * answers in the order of the calls. */
void bus_connection_hello(const struct bus_connection *c, struct buf *out, uint32_t serial);
void bus_write_match(struct buf *out, uint32_t serial, const char *rule);

/* Sends the bytes in out. Returns 0, or -GW_E_IO if the bus accepts nothing for wait_ms. */
int bus_connection_send(struct bus_connection *c, const struct buf *out, int wait_ms);

/* Reads what has arrived, without waiting, and calls handle() for each message. handle()
 * returns false to end the connection; it may take c->received and set it to -1. Returns 0, or
 * -GW_E_IO if the connection must be closed. */
int bus_connection_read(struct bus_connection *c,
			bool (*handle)(void *arg, const struct bus_message *m), void *arg);

#endif
