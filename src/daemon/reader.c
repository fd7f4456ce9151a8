#include "reader.h"

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/text.h"
#include "device/context.h"
#include "device/nvsmi.h"
#include "device/process_list.h"
#include "measure/meter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define JOBS 32
/* Shortest and longest pause before the GPUs are opened again after a failure. */
#define RETRY_LEAST_NS (1 * NS_PER_S)
#define RETRY_MOST_NS  (30 * NS_PER_S)
/* Time between two readings of the environment. The HEALTH tier has the same interval. */
#define ENVIRONMENT_NS (10 * NS_PER_S)

/* What the reader thread does between two rounds. */
struct job {
	void (*fn)(void *arg, struct gw_ctx *ctx); /* NULL if the job is a request. */
	void *arg;
	enum reader_request request;
};

struct reader {
	struct reader_config config;
	struct gw_options options;
	const struct clock *clock;
	struct loop_source *source;
	/* Used by the reader thread only. */
	struct gw_ctx *ctx;
	struct metering *metering;
	bool retiring; /* The GPUs changed. The meter stops when the main thread allows it. */
	bool let_go;   /* The drivers are released. */
	unsigned requests_done;
	int request_error;
	uint64_t missed;    /* Number of skipped rounds. */
	uint64_t health_ns; /* Monotonic time at which a round last read every tier. */
	/* The lock of the mailbox protects the members from here to `watch`. */
	struct mailbox box;
	struct reading reading[2];
	char failure[320]; /* Why the context cannot be opened. "" if it is open. */
	/* The reader fills `empty` next. `full` waits for the main thread, which uses
	 * `shown`. */
	struct reading *empty, *full;
	struct job job[JOBS]; /* In order of arrival. */
	unsigned jobs;
	uint64_t interval_ns;
	bool profile; /* Each round also reads GW_TIER_PROFILE. */
	/* What clients need. */
	struct {
		uint64_t look_until_ns; /* Monotonic time; reader_look() sets it. */
		uint64_t until_ns;      /* Monotonic time; reader_watch() sets it. */
		bool due_now;           /* A full round is due at once. */
		bool repaced;           /* The time of the next round must be computed again. */
		bool sm_read; /* The last round read the SM utilisation of every process. */
	} watch;
	/* Used by the main thread only. */
	struct reading *shown;
};

static void metering_feed(void *arg, unsigned i, const struct event *e)
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
	*ret_seconds = energy_total_seconds(&m->device[i].total);
	pthread_mutex_unlock(&m->device[i].lock);
	return j;
}

/* Called before the first event of a device. */
static void metering_begin_device(void *arg, unsigned i, unsigned position,
				  const struct energy_setup *setup)
{
	struct metering *m = arg;

	(void)position;
	if (i < m->count)
		energy_total_init(&m->device[i].total, setup, clock_mono_ns(clock_real()));
}

static void metering_free(struct metering *m)
{
	if (!m)
		return;
	if (m->meter && gw_meter_stop(m->meter) != 0)
		return; /* A thread of the meter hangs in the driver and may still use m. */
	for (unsigned i = 0; i < m->count; i++)
		pthread_mutex_destroy(&m->device[i].lock);
	free(m->device);
	free(m);
}

static uint64_t signature(const struct gw_snapshot *snap);

/* Starts a meter for the GPUs of a snapshot. Sets *ret_unmetered if memory or threads are
 * missing. */
static struct metering *metering_new(struct reader *r, const struct gw_snapshot *snap,
				     bool *ret_unmetered)
{
	unsigned count = gw_snapshot_device_count(snap);
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_PROCESSES,
				      .cache_dir = r->config.cache_dir };
	const struct energy_setup unknown = { .spacing_s = 0.1, .limit_w = NAN };
	struct metering *m = calloc(1, sizeof(*m));
	int err;

	if (m)
		m->device = calloc(count + 1, sizeof(*m->device));
	*ret_unmetered = true;
	if (!m || !m->device) {
		free(m);
		return NULL;
	}
	m->count = count;
	m->signature = signature(snap);
	for (unsigned i = 0; i < count; i++) {
		pthread_mutex_init(&m->device[i].lock, NULL);
		energy_total_init(&m->device[i].total, &unknown, 0);
		m->device[i].hung = gw_snapshot_device(snap, i)->state == GW_DEVICE_STALLED;
	}
	err = meter_start(r->ctx,
			  &(struct meter_config){ .options = &o,
						  .on_setup = metering_begin_device,
						  .on_event = metering_feed,
						  .arg = m,
						  .service = true },
			  &m->meter);
	*ret_unmetered = err == -GW_E_NOMEM;
	if (err) {
		metering_free(m);
		return NULL;
	}
	/* The service does not know which program is measured. Every process is a descendant of
	 * pid 1. So if pid 1 counts as the measured program, no process is reported as
	 * foreign. */
	meter_set_own_process(m->meter, 1);
	return m;
}

/* Returns a hash of the set of GPUs. Another set gives another hash. */
static uint64_t signature(const struct gw_snapshot *snap)
{
	uint64_t h = TEXT_HASH_START;

	for (unsigned i = 0; i < gw_snapshot_device_count(snap); i++) {
		const struct gw_device *d = gw_snapshot_device(snap, i);
		const char *uuid = gw_device_text(d, GW_T_UUID);

		const char *id = uuid ? uuid : gw_device_text(d, GW_T_PCI);

		h = text_hash(h, id ? id : "", (id ? strlen(id) : 0) + 1);
	}
	return h;
}

/* True if a GPU that hung when the meter started responds again. The meter does not measure
 * such a GPU yet. */
static bool any_recovered(const struct metering *m, const struct gw_snapshot *snap)
{
	for (unsigned i = 0; i < m->count && i < gw_snapshot_device_count(snap); i++)
		if (m->device[i].hung &&
		    gw_snapshot_device(snap, i)->state != GW_DEVICE_STALLED)
			return true;
	return false;
}

static void update_metering(struct reader *r, struct reading *x)
{
	const struct gw_snapshot *snap = x->snap;
	unsigned count = gw_snapshot_device_count(snap);
	struct metering *m = r->metering;

	x->unmetered = false;
	if (r->let_go || r->retiring)
		return;
	/* Stop the old meter later, because the main thread must first close the windows of
	 * this meter. */
	if (m) {
		r->retiring = m->signature != signature(snap) || any_recovered(m, snap);
		return;
	}
	if (count > 0) /* If metering_new() fails, the next round tries again. */
		r->metering = metering_new(r, snap, &x->unmetered);
}

/* True if the cause is a failure of NVML. Two causes are no failure: NVML opened but has no
 * GPU, and NVML was not opened because this would wake a GPU. */
static bool is_init_failure(enum gw_cause cause)
{
	return cause != GW_CAUSE_NONE && cause != GW_CAUSE_NO_GPU && cause != GW_CAUSE_ASLEEP;
}

static void read_program(struct backend *b, struct view_program *ret)
{
	struct nvsmi_facts f;

	if (nvsmi_facts(b, &f)) /* Without facts, *ret keeps the figures of the last round. */
		*ret = (struct view_program){ f.programs + f.starts,
					      (double)f.program_ns * 1e-9,
					      (double)f.child_cpu_ns * 1e-9, f.stalls };
}

static void read_nvml_failure(const struct reader *r, struct reading *x)
{
	x->nvml_cause = GW_CAUSE_NONE;
	pthread_mutex_lock(&r->ctx->lock);
	for (unsigned i = 0; i < r->ctx->openers && !r->ctx->released; i++) {
		const struct opener *o = r->ctx->opener[i];

		if (!o->hung)
			read_program(&r->ctx->opener[i]->b, &x->program);
		/* If a driver call hangs, the thread of the call still owns the backend. So
		 * skip a backend that hangs. */
		if (o->b.ops != &backend_nvml || o->hung || !is_init_failure(o->b.cause))
			continue;
		x->nvml_cause = o->b.cause;
		memcpy(x->nvml_message, o->b.message, sizeof(x->nvml_message));
	}
	pthread_mutex_unlock(&r->ctx->lock);
}

/* Collects the environment again, because uptime, governor and driver change while the service
 * runs. Each of the two readings has its own environment, because the main thread may still use
 * the environment of the other reading. */
static void read_environment(const struct reader *r, struct reading *x)
{
	struct gw_environment *env;

	if (x->env && x->begin_ns - x->env_ns < ENVIRONMENT_NS)
		return;
	if (gw_environment_new(r->ctx, &env) != 0)
		return; /* Out of memory. The next round tries again. */
	gw_environment_free(x->env);
	x->env = env;
	x->env_ns = x->begin_ns;
}

/* The data that a round reads. */
struct round {
	bool full;
	unsigned tiers;
	unsigned processes; /* Bits of enum gw_process_want. */
};

/* Chooses what this round reads. A process that is alone on a GPU gets all energy of the GPU.
 * So its utilisation is read only while a client shows processes. */
static struct round begin_round(struct reader *r, uint64_t now_ns)
{
	struct round x = { .processes = GW_PROCESS_SM_SHARED };

	mailbox_lock(&r->box);
	x.full = r->watch.due_now || now_ns < r->watch.until_ns ||
		 r->interval_ns >= READER_REST_NS || !r->health_ns ||
		 now_ns - r->health_ns >= READER_REST_HEALTH_NS;
	x.tiers = !x.full      ? GW_TIER_STATIC | GW_TIER_FAST | GW_TIER_SLOW
		  : r->profile ? GW_TIERS_COMMON | GW_TIER_PROFILE
			       : GW_TIERS_COMMON;
	r->watch.sm_read = x.full && now_ns < r->watch.look_until_ns;
	if (r->watch.sm_read)
		x.processes = GW_PROCESS_SM;
	r->watch.due_now = false;
	mailbox_unlock(&r->box);
	if (x.full)
		r->health_ns = now_ns;
	return x;
}

/* Returns the time to the next round. */
static uint64_t reader_pace(struct reader *r, uint64_t now_ns)
{
	uint64_t ns;

	mailbox_lock(&r->box);
	ns = r->interval_ns;
	if (now_ns >= r->watch.until_ns && ns < READER_REST_NS)
		ns = READER_REST_NS;
	mailbox_unlock(&r->box);
	return ns;
}

static void read_all(struct reader *r, struct reading *x)
{
	struct round round;

	x->begin_ns = clock_mono_ns(r->clock);
	round = begin_round(r, x->begin_ns);
	gw_snapshot_take(x->snap, round.tiers);
	gw_process_list_want(x->processes, round.processes);
	gw_process_list_take(x->processes);
	read_nvml_failure(r, x);
	read_environment(r, x);
	update_metering(r, x);
	x->metering = r->metering;
	x->retire = r->retiring;
	x->let_go = r->let_go;
	x->requests_done = r->requests_done;
	x->request_error = r->request_error;
	x->missed = r->missed;
	x->ctx = r->ctx;
	x->end_ns = clock_mono_ns(r->clock);
	x->full = round.full;
	x->pace_ns = reader_pace(r, x->end_ns);
}

static void do_request(struct reader *r, enum reader_request what)
{
	switch (what) {
	case READER_LET_GO:
		r->request_error = gw_ctx_release(r->ctx);
		r->let_go = r->let_go || r->request_error == 0;
		r->requests_done++;
		break;
	case READER_RESUME:
		r->request_error = gw_ctx_reopen(r->ctx);
		r->let_go = r->let_go && r->request_error != 0;
		r->requests_done++;
		break;
	case READER_CAME:
	case READER_GONE: context_driver_changed(r->ctx, what == READER_GONE); break;
	case READER_RETIRED:
		if (r->retiring)
			metering_free(r->metering);
		r->metering = NULL;
		r->retiring = false;
		break;
	}
}

/* Does all jobs. Returns true if a round should follow, because there were jobs or because a
 * round is due at once. */
static bool do_jobs(struct reader *r)
{
	struct job job[JOBS];
	unsigned jobs;
	bool due_now;

	mailbox_lock(&r->box);
	due_now = r->watch.due_now;
	r->watch.repaced = false;
	jobs = r->jobs;
	memcpy(job, r->job, sizeof(job));
	r->jobs = 0;
	mailbox_unlock(&r->box);
	for (unsigned i = 0; i < jobs; i++)
		if (job[i].fn)
			job[i].fn(job[i].arg, r->ctx);
		else
			do_request(r, job[i].request);
	return due_now || jobs > 0;
}

/* Even a round that is due at once must wait until the main thread has taken the last reading.
 * Before that, there is no free buffer for another reading. */
static bool has_jobs(const struct reader *r)
{
	return r->jobs || r->watch.repaced || (r->watch.due_now && r->empty);
}

/* Waits until due_ns or until a request arrives. Returns true if the thread must stop. */
static bool sleep_until(struct reader *r, uint64_t due_ns)
{
	bool stop;

	mailbox_lock(&r->box);
	while (!r->box.stop && !has_jobs(r) && mailbox_wait(&r->box, due_ns))
		;
	stop = r->box.stop;
	mailbox_unlock(&r->box);
	return stop;
}

/* Returns the next deadline. Deadlines are absolute, so that a late round does not delay the
 * rounds after it; the skipped rounds are counted. When the pace becomes faster, the next round
 * comes at most one interval from now. */
static uint64_t next_due(struct reader *r, uint64_t due_ns)
{
	uint64_t now = clock_mono_ns(r->clock), every = reader_pace(r, now), late;

	if (now < due_ns)
		return due_ns < now + every ? due_ns : now + every;
	late = (now - due_ns) / every;
	r->missed += late;
	return due_ns + (late + 1) * every;
}

static void read_round(struct reader *r)
{
	struct reading *x;

	mailbox_lock(&r->box);
	x = r->empty;
	r->empty = NULL;
	mailbox_unlock(&r->box);
	if (!x) { /* The main thread has not taken the last reading. */
		r->missed++;
		return;
	}
	read_all(r, x);
	mailbox_lock(&r->box);
	r->full = x;
	mailbox_unlock(&r->box);
	mailbox_notify(&r->box);
}

/* Frees what reader_open() made. */
static void reader_release_context(struct reader *r)
{
	for (unsigned i = 0; i < 2; i++) {
		gw_process_list_free(r->reading[i].processes);
		gw_snapshot_free(r->reading[i].snap);
		r->reading[i].processes = NULL;
		r->reading[i].snap = NULL;
	}
	gw_close(r->ctx);
	r->ctx = NULL;
}

static bool reader_open(struct reader *r)
{
	int err = gw_open(&r->options, &r->ctx);

	for (unsigned i = 0; i < 2 && !err; i++) {
		err = gw_snapshot_new(r->ctx, &r->reading[i].snap);
		if (!err)
			err = gw_process_list_new(r->ctx, &r->reading[i].processes);
	}
	mailbox_lock(&r->box);
	snprintf(r->failure, sizeof(r->failure), "%s", err ? gw_ctx_error(r->ctx) : "");
	mailbox_unlock(&r->box);
	if (err)
		reader_release_context(r);
	return !err;
}

/* Tries to open the GPUs until this succeeds. The pauses between the attempts become longer.
 * Returns false if the thread must stop. */
static bool reader_open_at_last(struct reader *r)
{
	uint64_t pause_ns = RETRY_LEAST_NS;

	while (!reader_open(r)) {
		uint64_t until_ns = clock_mono_ns(r->clock) + pause_ns;
		bool stop;

		mailbox_notify(&r->box);
		mailbox_lock(&r->box);
		while (!r->box.stop && mailbox_wait(&r->box, until_ns))
			;
		stop = r->box.stop;
		mailbox_unlock(&r->box);
		if (stop)
			return false;
		pause_ns = pause_ns < RETRY_MOST_NS / 2 ? 2 * pause_ns : RETRY_MOST_NS;
	}
	process_list_follow(r->reading[0].processes, r->reading[1].processes);
	process_list_follow(r->reading[1].processes, r->reading[0].processes);
	return true;
}

static void reader_run(void *arg)
{
	struct reader *r = arg;

	if (reader_open_at_last(r)) {
		uint64_t due = clock_mono_ns(r->clock);

		reader_watch(r, due + READER_START_NS, false);
		do {
			bool asked_for = do_jobs(r);

			if (asked_for || clock_mono_ns(r->clock) >= due)
				read_round(r);
			due = next_due(r, due);
		} while (!sleep_until(r, due));
		do_jobs(r); /* Do the last jobs, such as restoring settings. */
		metering_free(r->metering);
		r->metering = NULL;
	}
}

static void reading_arrived(void *arg, int fd, uint32_t events)
{
	struct reader *r = arg;
	char failure[sizeof(r->failure)];
	struct reading *x;

	(void)events;
	if (!mailbox_clear(fd))
		return;
	mailbox_lock(&r->box);
	x = r->full;
	r->full = NULL;
	snprintf(failure, sizeof(failure), "%s", r->failure);
	mailbox_unlock(&r->box);
	if (!x) {
		if (*failure)
			r->config.failed(r->config.arg, failure);
		return;
	}
	/* After this call the previous reading is no longer used. */
	r->config.ready(r->config.arg, x);
	mailbox_lock(&r->box);
	r->empty = r->shown;
	if (r->watch.due_now)
		mailbox_wake(&r->box);
	mailbox_unlock(&r->box);
	r->shown = x;
}

static void reader_release(struct reader *r)
{
	for (unsigned i = 0; i < 2; i++)
		gw_environment_free(r->reading[i].env);
	reader_release_context(r);
	mailbox_done(&r->box);
	free((char *)r->options.backend);
	free((char *)r->options.nvml_library);
	free((char *)r->options.root);
	free(r);
}

/* Copies a string; the caller frees *ret. Returns false if out of memory. */
static bool copy_text(const char *text, const char **ret)
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
	if (!copy_text(config->options->backend, &r->options.backend) ||
	    !copy_text(config->options->nvml_library, &r->options.nvml_library) ||
	    !copy_text(config->options->root, &r->options.root))
		err = -GW_E_NOMEM;
	r->clock = clock_real();
	r->interval_ns = config->interval_ns;
	r->empty = &r->reading[0];
	r->shown = &r->reading[1];
	if (mailbox_init(&r->box, MAILBOX_NEWS_FD) != 0 && !err)
		err = -GW_E_IO;
	if (!err)
		err = loop_add_fd(l, r->box.news_fd, EPOLLIN, reading_arrived, r, &r->source);
	if (!err)
		err = mailbox_start(&r->box, 0, reader_run, NULL, r);
	if (err) {
		loop_remove(r->source);
		reader_release(r);
		return err;
	}
	*ret = r;
	return 0;
}

int reader_free(struct reader *r, uint64_t timeout_ns)
{
	int err;

	if (!r)
		return 0;
	loop_remove(r->source);
	err = mailbox_stop(&r->box, timeout_ns);
	if (!err)
		reader_release(r);
	return err;
}

void reader_set_interval(struct reader *r, uint64_t interval_ns)
{
	mailbox_lock(&r->box);
	r->interval_ns = interval_ns;
	mailbox_wake(&r->box);
	mailbox_unlock(&r->box);
}

void reader_set_profile(struct reader *r, bool on)
{
	mailbox_lock(&r->box);
	r->profile = on;
	mailbox_unlock(&r->box);
}

void reader_look(struct reader *r, uint64_t until_ns, bool now)
{
	mailbox_lock(&r->box);
	if (now && !r->watch.sm_read && !r->watch.due_now) {
		r->watch.due_now = true;
		mailbox_wake(&r->box);
	}
	r->watch.look_until_ns = until_ns;
	mailbox_unlock(&r->box);
}

void reader_watch(struct reader *r, uint64_t until_ns, bool now)
{
	mailbox_lock(&r->box);
	if (until_ns > r->watch.until_ns) {
		/* If the reader rests (no client uses the readings), the next round is far away
		 * and must come earlier. */
		r->watch.repaced = clock_mono_ns(r->clock) >= r->watch.until_ns;
		r->watch.until_ns = until_ns;
	}
	r->watch.due_now |= now;
	if (r->watch.due_now || r->watch.repaced)
		mailbox_wake(&r->box);
	mailbox_unlock(&r->box);
}

/* Adds a job. If the last job is the same change of a driver, replaces that job, because the
 * kernel reports a change once per GPU. Returns 0, or -GW_E_STATE if the queue is full. */
static int add_job(struct reader *r, struct job job)
{
	int err = 0;

	mailbox_lock(&r->box);
	if (!job.fn && (job.request == READER_CAME || job.request == READER_GONE) &&
	    r->jobs > 0 && !r->job[r->jobs - 1].fn &&
	    r->job[r->jobs - 1].request == job.request)
		r->jobs--; /* The last job is the same request: replace it. */
	if (r->jobs < JOBS)
		r->job[r->jobs++] = job;
	else
		err = -GW_E_STATE;
	mailbox_wake(&r->box);
	mailbox_unlock(&r->box);
	return err;
}

int reader_send_request(struct reader *r, enum reader_request what)
{
	return add_job(r, (struct job){ .request = what });
}

int reader_do(struct reader *r, void (*fn)(void *arg, struct gw_ctx *ctx), void *arg)
{
	return add_job(r, (struct job){ .fn = fn, .arg = arg });
}
