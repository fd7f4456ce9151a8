/* client: an HTTP client that sends one request and reads the reply.
 *
 * It uses HTTP/1.1 without TLS, over TCP or a UNIX socket, and opens one connection per
 * request. Each request has a deadline. A reply has at most 16 MiB. Redirections are not
 * followed. */
#ifndef GW_CLI_CLIENT_H
#define GW_CLI_CLIENT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* A way to end a wait early, for example after Ctrl-C. When requested() returns true, the wait
 * continues for at most 0.4 s: a reply that is on its way still arrives, and a silent server
 * does not block the program. */
struct deadline_stop {
	bool (*requested)(void *arg);
	void *arg;
	int fd; /* becomes readable when the result of requested() may have changed */
};

struct deadline {
	uint64_t until_ns; /* time on the monotonic clock */
	/* NULL: the wait cannot be ended early, or the deadline was already shortened */
	const struct deadline_stop *stop;
	bool stopped; /* the deadline was shortened because of `stop` */
	/* Called once if the wait takes longer than 2 s. NULL: nothing is called. */
	void (*slow)(const char *address);
	const char *address; /* argument of slow() */
	uint64_t slow_ns;    /* time at which slow() is called */
};

void deadline_init(struct deadline *d, uint64_t most_ns, const struct deadline_stop *stop);

/* Shortens the deadline if d->stop->requested() returns true. */
void deadline_check_stop(struct deadline *d);

/* Waits until one of the events (as for poll()) occurs on fd. Returns 0, -GW_E_IO, or the error
 * of deadline_error(). */
int deadline_poll(struct deadline *d, int fd, short events);

/* Returns the error for a wait that reached its deadline: -GW_E_STATE if it was stopped early,
 * else -GW_E_TIMEOUT. */
int deadline_error(const struct deadline *d);

/* Finds the addresses of a host with getaddrinfo(), in a thread. If the name server does not
 * answer, getaddrinfo() blocks; this function returns at the deadline and does not wait for the
 * thread. Returns 0, and the caller frees *ret with freeaddrinfo(). Errors: -GW_E_NODEV (no
 * such host), -GW_E_NOMEM, or an error of deadline_poll(). */
struct addrinfo;
int client_resolve(const char *host, const char *port, struct deadline *d,
		   struct addrinfo **ret);

/* Returns the port of "HOST:PORT". Returns 0 if the host is not this machine, or if its address
 * is not found within 2 s. */
unsigned client_own_port(const char *address, const struct deadline_stop *stop);

#define CLIENT_REPLY_MAX (16u << 20)

struct client_request {
	const char *address; /* "HOST:PORT" or "unix:PATH" */
	const char *method, *path;
	const char *accept; /* media types for the header Accept */
	/* access token; NULL or "": the request has no token */
	const char *token;
	const char *body; /* JSON text to send; NULL: the request has no body */
	/* lets the caller end the wait early; NULL: the wait ends only at the deadline */
	const struct deadline_stop *stop;
	/* called once if the reply takes longer than 2 s; NULL: nothing is called */
	void (*slow)(const char *address);
};

/* Sends a request and adds the body of the reply to *ret_body.  Returns 0 for any HTTP status.
 * Errors: -GW_E_NOENT (no server listens), -GW_E_NODEV (no such host), -GW_E_ARG (not an
 * address), -GW_E_PERM, -GW_E_TIMEOUT, -GW_E_STATE (stopped early), -GW_E_SIZE, -GW_E_IO or
 * -GW_E_PARSE (not an HTTP reply). */
int client_request_reply(const struct client_request *q, uint64_t timeout_ns, int *ret_status,
			 struct buf *ret_body);

/* Do the same as client_request_reply() in two steps. Between the two calls, the caller can do
 * other work. client_reply() closes the descriptor that client_send() opened. */
int client_send(const struct client_request *q, uint64_t timeout_ns, int *ret_fd);
int client_reply(int fd, uint64_t timeout_ns, int *ret_status, struct buf *ret_body);

#endif
