#include "reader.h"

#include "base/clock.h"
#include "base/thread.h"
#include "device/context.h"
#include "measure/meter.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define JOBS 16
#define ASKS 16

struct job {
	void (*fn)(void *arg, struct gw_ctx *ctx);
	void *arg;
};

struct reader {
	struct reader_config config;
	struct gw_options options;
	const struct clock *clock;
	int event_fd;
	struct loop_source *source;
	pthread_t thread;
	/* The thread's own. */
	struct gw_ctx *ctx;
	struct gw_environment *env;
	struct metering *metering;
	bool retiring;
	bool let_go;
	unsigned asks;
	int ask_error;
	uint64_t missed;
	/* Shared. */
	pthread_mutex_t lock;
	pthread_cond_t wake, news;
	struct reading reading[2];
	struct reading *empty,
		*full; /* to be filled, to be looked at; the third place is `shown` */
	bool stop, gone;
	enum reader_request ask[ASKS]; /* in the order in which they came */
	unsigned asks_waiting;
	struct job job[JOBS];
	unsigned jobs;
	uint64_t interval_ns;
	/* The main thread's own. */
	struct reading *shown;
};

/* ---- the running energy ---- */

static void feed(void *arg, unsigned i, const struct event *e)
{
	struct metering *m = arg;

	if (i >= m->count)
		return;
	pthread_mutex_lock(&m->device[i].lock);
	energy_total_feed(&m->device[i].total, e);
	pthread_mutex_unlock(&m->device[i].lock);
}

double metering_joules(struct metering *m, unsigned i, double *ret_seconds)
{
	double j;

	pthread_mutex_lock(&m->device[i].lock);
	j = energy_total_joules(&m->device[i].total);
	*ret_seconds = m->device[i].total.measured_s;
	pthread_mutex_unlock(&m->device[i].lock);
	return j;
}

/* Before the first event of a device. */
static void about(void *arg, unsigned i, unsigned position, const struct energy_setup *setup)
{
	struct metering *m = arg;

	(void)position;
	if (i < m->count)
		energy_total_init(&m->device[i].total, setup->spacing_s);
}

static void metering_free(struct metering *m)
{
	if (!m)
		return;
	if (m->meter && gw_meter_stop(m->meter) != 0)
		return; /* a thread of it hangs in the driver and may yet come back to us */
	for (unsigned i = 0; i < m->count; i++)
		pthread_mutex_destroy(&m->device[i].lock);
	free(m->device);
	free(m);
}

static uint64_t signature(const struct gw_snapshot *snap);

static struct metering *metering_new(struct reader *r, const struct gw_snapshot *snap)
{
	unsigned count = gw_snapshot_device_count(snap);
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_PROCESSES,
				      .cache_dir = r->config.cache_dir };
	struct metering *m = calloc(1, sizeof(*m));

	if (m)
		m->device = calloc(count + 1, sizeof(*m->device));
	if (!m || !m->device) {
		free(m);
		return NULL;
	}
	m->count = count;
	m->signature = signature(snap);
	for (unsigned i = 0; i < count; i++) {
		pthread_mutex_init(&m->device[i].lock, NULL);
		energy_total_init(&m->device[i].total, 0.1);
		m->device[i].hung = gw_snapshot_device(snap, i)->state == GW_DEVICE_STALLED;
	}
	if (meter_start(r->ctx,
			&(struct meter_config){ .options = &o,
						.about = about,
						.listen = feed,
						.arg = m,
						.anchored = true },
			&m->meter) != 0) {
		metering_free(m);
		return NULL;
	}
	/* Nobody is a stranger to a service: who opened a window says what it is of, and the shares of
	 * the processes are told.  All descend from the first one. */
	meter_own(m->meter, 1);
	return m;
}

/* ---- which GPUs are measured ---- */

static uint64_t mix(uint64_t h, const char *text)
{
	for (; text && *text; text++)
		h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return (h ^ 0xff) * UINT64_C(0x100000001b3);
}

/* Another number when there are other GPUs. */
static uint64_t signature(const struct gw_snapshot *snap)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (unsigned i = 0; i < gw_snapshot_device_count(snap); i++) {
		const struct gw_device *d = gw_snapshot_device(snap, i);
		const char *uuid = gw_device_text(d, GW_T_UUID);

		h = mix(h, uuid ? uuid : gw_device_text(d, GW_T_PCI));
	}
	return h;
}

/* One that hung as the meter was started is not measured by it: is there one that answers again? */
static bool any_awoke(const struct metering *m, const struct gw_snapshot *snap)
{
	for (unsigned i = 0; i < m->count && i < gw_snapshot_device_count(snap); i++)
		if (m->device[i].hung &&
		    gw_snapshot_device(snap, i)->state != GW_DEVICE_STALLED)
			return true;
	return false;
}

static void measure_what_is_there(struct reader *r, const struct gw_snapshot *snap)
{
	unsigned count = gw_snapshot_device_count(snap);
	struct metering *m = r->metering;

	if (r->let_go || r->retiring)
		return;
	if (m) { /* the main thread has windows on it, and lets go of them first */
		r->retiring = m->signature != signature(snap) || any_awoke(m, snap);
		return;
	}
	if (count > 0)
		r->metering = metering_new(r, snap); /* no memory: next time */
}

/* ---- a round ---- */

static void read_all(struct reader *r, struct reading *x)
{
	x->begin_ns = clock_mono_ns(r->clock);
	gw_snapshot_take(x->snap, GW_TIERS_COMMON);
	gw_process_list_take(x->processes);
	if (!r->env)
		gw_environment_new(r->ctx, &r->env); /* next time, when there is no memory */
	measure_what_is_there(r, x->snap);
	x->env = r->env;
	x->metering = r->metering;
	x->retire = r->retiring;
	x->let_go = r->let_go;
	x->asks = r->asks;
	x->ask_error = r->ask_error;
	x->missed = r->missed;
	x->ctx = r->ctx;
	x->end_ns = clock_mono_ns(r->clock);
}

static void do_asked(struct reader *r, enum reader_request what)
{
	switch (what) {
	case READER_LET_GO:
		r->ask_error = gw_ctx_release(r->ctx);
		r->let_go = r->let_go || r->ask_error == 0;
		r->asks++;
		break;
	case READER_RESUME:
		r->ask_error = gw_ctx_reopen(r->ctx);
		r->let_go = r->let_go && r->ask_error != 0;
		r->asks++;
		break;
	case READER_CAME:
	case READER_GONE: context_moved(r->ctx, what == READER_GONE); break;
	case READER_RETIRED:
		if (r->retiring)
			metering_free(r->metering);
		r->metering = NULL;
		r->retiring = false;
		break;
	}
}

/* Everything that somebody asked for.  True: there was something, and a round should follow. */
static bool do_requests(struct reader *r)
{
	enum reader_request ask[ASKS];
	struct job job[JOBS];
	unsigned asks, jobs;

	pthread_mutex_lock(&r->lock);
	asks = r->asks_waiting;
	memcpy(ask, r->ask, sizeof(ask));
	r->asks_waiting = 0;
	jobs = r->jobs;
	memcpy(job, r->job, sizeof(job));
	r->jobs = 0;
	pthread_mutex_unlock(&r->lock);
	for (unsigned i = 0; i < asks; i++)
		do_asked(r, ask[i]);
	for (unsigned i = 0; i < jobs; i++)
		job[i].fn(job[i].arg, r->ctx);
	return asks + jobs > 0;
}

static void hand_over(struct reader *r, struct reading *x)
{
	pthread_mutex_lock(&r->lock);
	r->full = x;
	pthread_mutex_unlock(&r->lock);
	if (eventfd_write(r->event_fd, 1) != 0)
		return; /* it is full only when it was told already */
}

static struct reading *take_empty(struct reader *r)
{
	struct reading *x;

	pthread_mutex_lock(&r->lock);
	x = r->empty;
	r->empty = NULL;
	pthread_mutex_unlock(&r->lock);
	return x;
}

static bool asked(const struct reader *r)
{
	return r->asks_waiting || r->jobs;
}

/* Until due, or something is asked.  True: the end. */
static bool sleep_until(struct reader *r, uint64_t due_ns)
{
	struct timespec until = clock_timespec(due_ns);
	bool stop;

	pthread_mutex_lock(&r->lock);
	while (!r->stop && !asked(r) &&
	       pthread_cond_clockwait(&r->wake, &r->lock, CLOCK_MONOTONIC, &until) == 0)
		;
	stop = r->stop;
	pthread_mutex_unlock(&r->lock);
	return stop;
}

static uint64_t interval(struct reader *r)
{
	uint64_t ns;

	pthread_mutex_lock(&r->lock);
	ns = r->interval_ns;
	pthread_mutex_unlock(&r->lock);
	return ns;
}

/* Deadlines are absolute: being late once does not make the next one late. */
static uint64_t next_due(struct reader *r, uint64_t due_ns)
{
	uint64_t every = interval(r), now = clock_mono_ns(r->clock), late;

	late = now > due_ns ? (now - due_ns) / every : 0;
	r->missed += late;
	return due_ns + (late + 1) * every;
}

static void round_of(struct reader *r)
{
	struct reading *x = take_empty(r);

	if (!x) { /* the main thread has not looked at the last one */
		r->missed++;
		return;
	}
	read_all(r, x);
	hand_over(r, x);
}

static bool prepare(struct reader *r)
{
	if (gw_open(&r->options, &r->ctx) != 0)
		return false;
	for (unsigned i = 0; i < 2; i++)
		if (gw_snapshot_new(r->ctx, &r->reading[i].snap) != 0 ||
		    gw_process_list_new(r->ctx, &r->reading[i].processes) != 0)
			return false;
	return true;
}

static void finish(struct reader *r)
{
	metering_free(r->metering);
	r->metering = NULL;
	gw_environment_free(r->env);
}

static void *run(void *arg)
{
	struct reader *r = arg;

	if (!prepare(r)) {
		hand_over(r, NULL);
	} else {
		uint64_t due = clock_mono_ns(r->clock);

		do {
			bool asked_for = do_requests(r);

			if (asked_for || clock_mono_ns(r->clock) >= due)
				round_of(r);
			if (clock_mono_ns(r->clock) >= due)
				due = next_due(r, due);
		} while (!sleep_until(r, due));
		do_requests(r); /* what was promised at the end: settings given back */
		finish(r);
	}
	pthread_mutex_lock(&r->lock);
	r->gone = true;
	pthread_cond_broadcast(&r->news);
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* ---- the main thread's side ---- */

static void arrived(void *arg, int fd, uint32_t events)
{
	struct reader *r = arg;
	struct reading *x;
	eventfd_t n;

	(void)events;
	if (eventfd_read(fd, &n) != 0)
		return;
	pthread_mutex_lock(&r->lock);
	x = r->full;
	r->full = NULL;
	pthread_mutex_unlock(&r->lock);
	/* Once this returns nobody looks at the one before. */
	r->config.came(r->config.arg, x);
	if (!x)
		return;
	pthread_mutex_lock(&r->lock);
	r->empty = r->shown;
	pthread_mutex_unlock(&r->lock);
	r->shown = x;
}

static void release(struct reader *r)
{
	for (unsigned i = 0; i < 2; i++) {
		gw_process_list_free(r->reading[i].processes);
		gw_snapshot_free(r->reading[i].snap);
	}
	gw_close(r->ctx);
	pthread_cond_destroy(&r->wake);
	pthread_cond_destroy(&r->news);
	pthread_mutex_destroy(&r->lock);
	free((char *)r->options.backend);
	free((char *)r->options.nvml_library);
	free((char *)r->options.root);
	free(r);
}

/* False: no memory.  *ret is the caller's to free. */
static bool copy(const char *text, const char **ret)
{
	*ret = text ? strdup(text) : NULL;
	return *ret || !text;
}

int reader_new(struct loop *l, const struct reader_config *config, struct reader **ret)
{
	struct reader *r = calloc(1, sizeof(*r));
	int err = 0;

	if (!r)
		return -GW_E_NOMEM;
	r->config = *config;
	r->options = *config->options;
	if (!copy(config->options->backend, &r->options.backend) ||
	    !copy(config->options->nvml_library, &r->options.nvml_library) ||
	    !copy(config->options->root, &r->options.root))
		err = -GW_E_NOMEM;
	r->clock = clock_real();
	r->interval_ns = config->interval_ns;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->wake, NULL);
	pthread_cond_init(&r->news, NULL);
	r->empty = &r->reading[0];
	r->shown = &r->reading[1];
	r->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!err && r->event_fd < 0)
		err = -GW_E_IO;
	if (!err)
		err = loop_add_fd(l, r->event_fd, EPOLLIN, arrived, r, &r->source);
	if (!err)
		err = thread_start(&r->thread, 0, run, r);
	if (err) {
		loop_remove(r->source);
		if (r->event_fd >= 0)
			close(r->event_fd);
		release(r);
		return err;
	}
	*ret = r;
	return 0;
}

int reader_free(struct reader *r, uint64_t timeout_ns)
{
	uint64_t until_ns = clock_mono_ns(clock_real()) + timeout_ns;
	struct timespec until = clock_timespec(until_ns);
	bool gone;

	if (!r)
		return 0;
	loop_remove(r->source);
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_signal(&r->wake);
	while (!r->gone &&
	       pthread_cond_clockwait(&r->news, &r->lock, CLOCK_MONOTONIC, &until) == 0)
		;
	gone = r->gone;
	pthread_mutex_unlock(&r->lock);
	if (!gone) {
		pthread_detach(r->thread);
		return -GW_E_STATE;
	}
	pthread_join(r->thread, NULL);
	close(r->event_fd);
	release(r);
	return 0;
}

void reader_set_interval(struct reader *r, uint64_t interval_ns)
{
	pthread_mutex_lock(&r->lock);
	r->interval_ns = interval_ns;
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->lock);
}

/* A driver that comes or goes says so for each of its GPUs: once is enough. */
static bool again(const struct reader *r, enum reader_request what)
{
	return (what == READER_CAME || what == READER_GONE) && r->asks_waiting > 0 &&
	       r->ask[r->asks_waiting - 1] == what;
}

int reader_ask(struct reader *r, enum reader_request what)
{
	int err = -GW_E_STATE;

	pthread_mutex_lock(&r->lock);
	if (again(r, what)) {
		err = 0;
	} else if (r->asks_waiting < ASKS) {
		r->ask[r->asks_waiting++] = what;
		err = 0;
	}
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->lock);
	return err;
}

int reader_do(struct reader *r, void (*fn)(void *arg, struct gw_ctx *ctx), void *arg)
{
	int err = -GW_E_STATE;

	pthread_mutex_lock(&r->lock);
	if (r->jobs < JOBS) {
		r->job[r->jobs++] = (struct job){ fn, arg };
		err = 0;
		pthread_cond_signal(&r->wake);
	}
	pthread_mutex_unlock(&r->lock);
	return err;
}
