#include "suspend.h"

#include "bus_connection.h"

#include "base/clock.h"

#include <gpuward.h>

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define RETRY_NS    (60 * NS_PER_S)
#define BUS_PATH    "/run/dbus/system_bus_socket"
#define LOGIND      "org.freedesktop.login1"
#define LOGIND_PATH "/org/freedesktop/login1"
#define MANAGER     "org.freedesktop.login1.Manager"
#define SIGNAL      "PrepareForSleep"
#define OWNER       "NameOwnerChanged"

/* Receives PrepareForSleep on the system bus and holds a delay lock, so that logind waits for
 * the service. logind waits a few seconds at most (InhibitDelayMaxSec=). Without a bus or
 * without logind, no suspend is reported, and the service tries to connect again every
 * minute. */

/* Serial numbers of our calls. */
enum { S_HELLO = 1, S_MATCH, S_OWNER, S_LOCK };

struct logind {
	struct loop *loop;
	/* going is true if the machine is about to suspend, and false if it is awake. */
	void (*sleeps)(void *arg, bool going);
	void *arg;
	struct loop_source *source, *again;
	struct bus_connection bus;
	int lock;   /* Descriptor of the delay lock. -1 if there is none. */
	bool going; /* logind announced a suspend. */
	bool ready; /* The service is ready for the suspend. */
};

static void release_lock(struct logind *l)
{
	if (l->lock >= 0)
		close(l->lock);
	l->lock = -1;
}

static void disconnect(struct logind *l)
{
	loop_remove(l->source);
	l->source = NULL;
	bus_connection_close(&l->bus);
	release_lock(l);
}

static void set_going(struct logind *l, bool going)
{
	bool news = going != l->going;

	l->going = going;
	l->ready = l->ready && going;
	if (news)
		l->sleeps(l->arg, going);
}

/* If the bus connection is lost, the service assumes that the machine is awake. */
static void retry_later(struct logind *l)
{
	disconnect(l);
	set_going(l, false);
	loop_set_time(l->again, clock_mono_ns(clock_real()) + RETRY_NS);
}

static void write_inhibit(struct buf *out)
{
	static const struct bus_method m = { LOGIND, LOGIND_PATH, MANAGER, "Inhibit" };
	static const char *const arg[] = { "sleep", "gpuward", "closes the GPUs' drivers",
					   "delay", NULL };

	bus_write(out, S_LOCK, &m, arg);
}

/* Sends the messages in out without waiting. They have a few hundred bytes, and the socket
 * buffer has space for many thousand. So if they do not fit, the bus has stopped reading. */
static bool send_calls(struct logind *l, const struct buf *out)
{
	return bus_connection_send(&l->bus, out, 0) == 0;
}

/* Sends the authentication and the first calls together. */
static bool send_greeting(struct logind *l)
{
	char text[BUS_OUT_SIZE];
	struct buf out;

	buf_init_fixed(&out, text, sizeof(text));
	bus_connection_hello(&l->bus, &out, S_HELLO);
	bus_write_match(&out, S_MATCH,
			"type='signal',sender='" LOGIND "',path='" LOGIND_PATH
			"',interface='" MANAGER "',member='" SIGNAL "'");
	bus_write_match(&out, S_OWNER,
			"type='signal',sender='" BUS_NAME "',interface='" BUS_NAME
			"',member='" OWNER "',arg0='" LOGIND "'");
	write_inhibit(&out);
	return send_calls(l, &out);
}

static bool request_lock(struct logind *l)
{
	char text[BUS_OUT_SIZE];
	struct buf out;

	buf_init_fixed(&out, text, sizeof(text));
	write_inhibit(&out);
	return send_calls(l, &out);
}

static bool is_signal(const struct bus_message *m)
{
	/* Any process can send a signal with a destination directly to this service. The match
	 * rule does not check the sender of such a signal, so ignore the signal. */
	return m->type == BUS_SIGNAL && !m->destination && m->member && m->interface &&
	       strcmp(m->member, SIGNAL) == 0 && strcmp(m->interface, MANAGER) == 0;
}

/* True if logind started or stopped. The bus itself sends this signal. */
static bool is_owner_change(const struct bus_message *m)
{
	return m->type == BUS_SIGNAL && !m->destination && m->member && m->sender &&
	       strcmp(m->member, OWNER) == 0 && strcmp(m->sender, BUS_NAME) == 0;
}

/* Handles one message. Returns false if the connection must be closed. */
static bool handle_message(void *arg, const struct bus_message *m)
{
	struct logind *l = arg;
	bool going;

	if (m->type == BUS_ERROR && m->reply_to != S_LOCK)
		return false;
	if (m->type == BUS_REPLY && m->reply_to == S_LOCK) {
		release_lock(l);
		l->lock = l->bus.received;
		l->bus.received = -1;
		if (l->ready) /* The lock came too late. Keeping it would delay the suspend. */
			release_lock(l);
	} else if (is_signal(m) && bus_read_bool(m, &going) == 0) {
		set_going(l, going);
		return going || request_lock(l);
	} else if (is_owner_change(m)) {
		/* logind restarted. It will not report the end of a suspend that began before
		 * the restart. */
		set_going(l, false);
		return request_lock(l);
	}
	return true;
}

static void bus_readable(void *arg, int fd, uint32_t events)
{
	struct logind *l = arg;

	(void)fd;
	(void)events;
	if (bus_connection_read(&l->bus, handle_message, l) != 0)
		retry_later(l);
}

static void connect_bus(void *arg, uint64_t now_ns)
{
	struct bus_address a;
	struct logind *l = arg;

	(void)now_ns;
	if (!bus_address_read(&a, getenv("DBUS_SYSTEM_BUS_ADDRESS"), BUS_PATH) ||
	    bus_connection_open(&l->bus, &a, true) != 0 || !send_greeting(l) ||
	    loop_add_fd(l->loop, l->bus.fd, EPOLLIN, bus_readable, l, &l->source) != 0)
		retry_later(l);
}

static int logind_new(struct loop *loop, void (*sleeps)(void *arg, bool going), void *arg,
		      struct logind **ret)
{
	struct logind *l = calloc(1, sizeof(*l));

	if (!l || loop_add_timer(loop, connect_bus, l, &l->again) != 0) {
		free(l);
		return -GW_E_NOMEM;
	}
	l->loop = loop;
	l->sleeps = sleeps;
	l->arg = arg;
	l->bus = (struct bus_connection)BUS_CONNECTION_CLOSED;
	l->lock = -1;
	connect_bus(l, 0);
	*ret = l;
	return 0;
}

static void logind_free(struct logind *l)
{
	if (!l)
		return;
	disconnect(l);
	loop_remove(l->again);
	free(l);
}

enum suspend_phase {
	SUSPEND_AWAKE,
	SUSPEND_RELEASING, /* logind waits until the drivers are released. */
	SUSPEND_ALLOWED,   /* The machine may suspend, or is suspended. */
};

struct suspend {
	struct engine *engine;
	struct logind *logind;
	enum suspend_phase phase;
	/* This module requested the release of the drivers, and it must open them again. If
	 * let_go is true in the phase SUSPEND_AWAKE, the drivers are not open again yet. */
	bool let_go;
	int number; /* Number of the last request. */
};

static bool send_request(struct suspend *d, enum view_request what)
{
	const struct view *v = engine_view(d->engine);
	int number = v->ops->request(v->engine, what);

	if (number > 0)
		d->number = number;
	return number > 0;
}

/* Releases the delay lock, so that the machine may suspend. */
static void allow_suspend(struct suspend *d)
{
	d->phase = SUSPEND_ALLOWED;
	release_lock(d->logind);
	d->logind->ready = true;
}

/* Requests the release of the drivers. If the drivers are already released, allows the suspend.
 * The view is only reliable if no request is pending, because a pending request could open the
 * drivers. If the request queue is full, the next view tries again. */
static void begin_suspend(struct suspend *d)
{
	const struct view *v = engine_view(d->engine);

	if (v->let_go && v->requests.done == v->requests.made)
		allow_suspend(d);
	else
		d->let_go = send_request(d, VIEW_LET_GO) || d->let_go;
}

/* Opens the drivers again. If the request queue is full, the next view tries again. */
static void open_drivers(struct suspend *d)
{
	if (!d->let_go || !send_request(d, VIEW_RESUME))
		return;
	d->let_go = false;
	engine_event(d->engine, "service", NULL, "info",
		     "the machine resumed; the drivers are opened again");
}

static void logind_changed(void *arg, bool going)
{
	struct suspend *d = arg;

	/* logind waits for the service before the machine suspends, but not after the machine
	 * resumes. */
	d->phase = going ? SUSPEND_RELEASING : SUSPEND_AWAKE;
	if (going)
		begin_suspend(d);
	else
		open_drivers(d);
}

static void emit_suspend(const struct suspend *d, const struct view *v)
{
	if (v->let_go)
		engine_event(d->engine, "service", NULL, "info",
			     "the machine suspends; the drivers are released");
	else
		engine_event(d->engine, "service", NULL, "warning",
			     "the machine suspends while a driver is still open: %s",
			     gw_strerror(v->requests.error));
}

void suspend_tick(struct suspend *d)
{
	const struct view *v = d ? engine_view(d->engine) : NULL;

	if (!d)
		return;
	if (d->phase == SUSPEND_AWAKE) {
		open_drivers(d);
	} else if (d->phase == SUSPEND_RELEASING && !d->let_go) {
		begin_suspend(d);
	} else if (d->phase == SUSPEND_RELEASING && view_request_done(v, d->number)) {
		emit_suspend(d, v);
		allow_suspend(d);
	}
}

int suspend_new(struct loop *loop, struct engine *engine, struct suspend **ret)
{
	struct suspend *d = calloc(1, sizeof(*d));

	if (!d)
		return -GW_E_NOMEM;
	d->engine = engine;
	if (logind_new(loop, logind_changed, d, &d->logind) != 0) {
		free(d);
		return -GW_E_NOMEM;
	}
	*ret = d;
	return 0;
}

void suspend_free(struct suspend *d)
{
	if (d)
		logind_free(d->logind);
	free(d);
}
