#include "top_reader.h"

#include "cli.h"
#include "client.h"
#include "remote.h"
#include "top_documents.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/json_doc.h"
#include "base/mailbox.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_NS (3 * NS_PER_S) /* limit for one request */
/* time between readings of the energy counter: one reading costs 3 ms on an H200 */
#define ENERGY_NS (5 * NS_PER_S)
/* Time between readings of the processes: the driver needs 2 ms per GPU for their SM
 * utilisation, which is a mean over some seconds. */
#define PROCESSES_NS (1900 * NS_PER_MS)
#define STOP_NS      NS_PER_S
#define STACK_BYTES  (256u << 10)
#define CLASS_GPUS   8 /* with more GPUs, classes are read once in CLASS_TICKS readings */
#define CLASS_TICKS  8
#define HOST_TICKS   2 /* CPU and memory of the machine are read once in this many readings */
#define GUARD_TICKS  5

/* Energy counter of a GPU at the first and at the last reading. */
struct counter {
	char uuid[64];
	double first_j, last_j; /* NAN: not read */
	uint64_t first_ns, last_ns;
	uint8_t absence;
};

struct top_reader {
	struct top_reader_options o;
	struct top_model work; /* used by the thread only */
	unsigned readings;     /* of the service */
	/* of the driver */
	struct gw_process_list *list;
	struct counter *counter;
	unsigned counters, counter_cap;
	/* time of the first reading, of the last energy reading and of the last process
	 * reading */
	uint64_t begin_ns, energy_ns, processes_ns;
	/* of the service */
	struct buf last; /* the last reply about the GPUs */
	struct deadline_stop stop;
	struct mailbox box;
	/* protected by the lock of the mailbox */
	struct top_model ready;
	bool fresh, paused;
};

static uint64_t now_ns(void)
{
	return clock_mono_ns(clock_real());
}

/* ---- the driver ---- */

static struct counter *find_counter(struct top_reader *r, const char *uuid)
{
	struct counter *c;

	for (unsigned i = 0; i < r->counters; i++)
		if (strcmp(r->counter[i].uuid, uuid) == 0)
			return &r->counter[i];
	if (array_reserve(&r->counter, &r->counter_cap, r->counters + 1, sizeof(*c)) != 0)
		return NULL;
	c = &r->counter[r->counters++];
	*c = (struct counter){ .first_j = NAN, .last_j = NAN, .absence = GW_ABSENT_NOT_READ };
	snprintf(c->uuid, sizeof(c->uuid), "%s", uuid);
	return c;
}

/* Reads the counter if the snapshot has it.  A counter that fell starts again: the driver was
 * reloaded. */
static void read_energy(struct top_reader *r, struct top_gpu *g, const struct gw_device *d,
			bool read)
{
	struct counter *c = find_counter(r, g->uuid);
	double v = NAN;

	if (!c)
		return;
	if (read)
		c->absence = (uint8_t)gw_device_value(d, GW_Q_ENERGY, &v);
	if (!isnan(v)) {
		if (!(v >= c->last_j)) {
			c->first_j = v;
			c->first_ns = d->end_ns;
		}
		c->last_j = v;
		c->last_ns = d->end_ns;
	}
	g->energy_absence = c->absence;
	g->energy_j = c->last_j - c->first_j;
	g->energy_s = isnan(c->last_j) ? (double)NAN : (double)(c->last_ns - c->first_ns) / 1e9;
}

static void read_held(struct top_gpu *g, double mask)
{
	char names[160];
	struct buf b;

	if (gw_quantity_name(GW_Q_CLOCK_REASONS, mask, names, sizeof(names)) != 0)
		return;
	buf_init_fixed(&b, g->held, sizeof(g->held));
	for (char *at = names, *word; (word = strsep(&at, ",")) != NULL;)
		if (*word)
			buf_addf(&b, "%s%s", b.len ? ", " : "", top_held_words(word));
}

static void read_gpu(struct top_gpu *g, const struct gw_device *d)
{
	const char *name = gw_device_text(d, GW_T_NAME), *pci = gw_device_text(d, GW_T_PCI),
		   *uuid = gw_device_text(d, GW_T_UUID);
	char identity[32];

	snprintf(identity, sizeof(identity), "%u", d->index);
	top_gpu_begin(g, uuid ? uuid : identity);
	g->index = d->index;
	g->state = d->state;
	utf8_clean(g->name, sizeof(g->name), name ? name : "");
	utf8_clean(g->pci, sizeof(g->pci), pci ? pci : "");
	utf8_clean(g->message, sizeof(g->message), d->message);
	for (unsigned i = 0; i < TOP_FIGURES; i++)
		g->absence[i] =
			(uint8_t)gw_device_value(d, top_figure_info[i].quantity, &g->value[i]);
	if (g->absence[TOP_PERFORMANCE_STATE] == GW_HAVE)
		gw_quantity_name(GW_Q_PERFORMANCE_STATE, g->value[TOP_PERFORMANCE_STATE],
				 g->pstate, sizeof(g->pstate));
	if (g->absence[TOP_CLOCK_REASONS] == GW_HAVE)
		read_held(g, g->value[TOP_CLOCK_REASONS]);
	top_gpu_remember(g);
}

static void read_status(struct top_model *m, const struct gw_snapshot *snap)
{
	const struct gw_status *s = gw_snapshot_status(snap);
	double *const host[] = { &m->host.cpu_ratio, &m->host.cpus, &m->host.ram_used,
				 &m->host.ram_total };
	static const unsigned quantity[] = { GW_H_CPU_UTILIZATION, GW_H_CPU_COUNT,
					     GW_H_RAM_USED, GW_H_RAM_TOTAL };

	snprintf(m->source, sizeof(m->source), "%s", "driver");
	utf8_clean(m->driver, sizeof(m->driver), s->driver_version ? s->driver_version : "");
	utf8_clean(m->status, sizeof(m->status), s->message);
	snprintf(m->remedy, sizeof(m->remedy), "%s", gw_cause_info(s->cause)->remedy);
	m->simulated = s->simulated;
	m->local = true;
	for (unsigned i = 0; i < COUNT(quantity); i++) {
		*host[i] = NAN;
		gw_snapshot_host(snap, quantity[i], host[i]);
	}
}

static void copy_text(char *out, size_t size, const char *text)
{
	utf8_clean(out, size, text ? text : "");
}

static void read_process(struct top_process *p, const struct gw_process *q)
{
	p->pid = q->pid;
	p->start_ticks = q->start_ticks;
	p->uid = q->uid;
	p->type = q->type;
	if (q->memory_absence == GW_HAVE)
		p->memory_bytes = (double)q->memory_bytes;
	copy_text(p->user, sizeof(p->user), q->user);
	copy_text(p->name, sizeof(p->name), q->name);
	copy_text(p->command, sizeof(p->command), q->command);
	copy_text(p->where, sizeof(p->where), q->container ? q->container : q->unit);
	p->run_s = q->run_seconds;
	if (q->sm_absence == GW_HAVE)
		p->sm_ratio = q->sm_ratio;
	if (q->cpu_absence == GW_HAVE)
		p->cpu_ratio = q->cpu_cores;
}

/* position: the position in the model of each device of the snapshot; -1: not selected. */
static int read_processes(struct top_reader *r, const int position[static 256])
{
	int err = gw_process_list_take(r->list);

	if (err)
		return err;
	r->work.processes = 0;
	for (unsigned i = 0; i < gw_process_list_count(r->list); i++) {
		const struct gw_process *q = gw_process_list_get(r->list, i);
		struct top_process *p;

		if (q->device >= 256 || position[q->device] < 0)
			continue;
		p = top_model_add_process(&r->work);
		if (!p)
			return -GW_E_NOMEM;
		p->gpu = (unsigned)position[q->device];
		read_process(p, q);
	}
	return 0;
}

/* Returns true if --gpu names the device.  A GPU that it names may be missing for a while. */
static bool is_selected(const struct cli *c, const struct gw_device *d)
{
	for (unsigned i = 0; d && i < c->gpu.count; i++)
		if (gw_device_matches(d, c->gpu.item[i]) == 1)
			return true;
	return d && c->gpu.count == 0;
}

/* Returns 0 or a negative error, with a sentence in work.problem. */
static int read_driver(struct top_reader *r)
{
	struct cli *c = r->o.c;
	uint64_t now = now_ns();
	bool energy =
		!r->energy_ns || now - r->energy_ns >= (r->readings < 6 ? NS_PER_S : ENERGY_NS);
	int position[256], err;
	unsigned n = 0;

	err = gw_snapshot_take(c->snap, GW_TIERS_COMMON | (energy ? GW_TIER_ENERGY : 0));
	for (unsigned i = 0; i < 256; i++)
		position[i] =
			!err && is_selected(c, gw_snapshot_device(c->snap, i)) ? (int)n++ : -1;
	if (!err)
		err = top_model_set_gpus(&r->work, n);
	if (err) {
		snprintf(r->work.problem, sizeof(r->work.problem), "%s", gw_strerror(err));
		return err;
	}
	top_model_add_gap(&r->work, now);
	for (unsigned i = 0; i < 256; i++) {
		const struct gw_device *d = gw_snapshot_device(c->snap, i);

		if (position[i] < 0)
			continue;
		read_gpu(&r->work.gpu[position[i]], d);
		read_energy(r, &r->work.gpu[position[i]], d, energy);
	}
	read_status(&r->work, c->snap);
	if (energy)
		r->energy_ns = now;
	if (!r->processes_ns || now - r->processes_ns >= PROCESSES_NS * (n > CLASS_GPUS ? 5
									 : n > 2        ? 2
											: 1)) {
		err = read_processes(r, position);
		r->processes_ns = now;
	}
	r->work.read_ns = now_ns();
	return err;
}

/* ---- the service ---- */

static bool reader_stopping(void *arg)
{
	struct top_reader *r = arg;

	return mailbox_stopping(&r->box);
}

/* Fetches a document.  Returns 0 if the service replied with 200; otherwise work.problem has a
 * sentence. */
static int service_fetch(struct top_reader *r, const char *path)
{
	struct remote *remote = r->o.remote;
	int err = remote_fetch(remote, path, &r->stop, REQUEST_NS, r->work.problem,
			       sizeof(r->work.problem));

	if (err || remote->status == 200)
		return err;
	remote_parse(remote);
	remote_refusal(remote, r->work.problem, sizeof(r->work.problem));
	return -GW_E_STATE;
}

/* Fetches a document like service_fetch() and parses it. */
static int service_get(struct top_reader *r, const char *path)
{
	int err = service_fetch(r, path);

	if (err)
		return err;
	remote_parse(r->o.remote);
	if (r->o.remote->reply)
		return 0;
	snprintf(r->work.problem, sizeof(r->work.problem),
		 "the server on %s does not reply like gpuward", r->o.remote->address);
	return -GW_E_PARSE;
}

/* Adds "gpu=" with the GPUs of --gpu. */
static void add_selection(const struct top_reader *r, struct buf *path, char before)
{
	const struct option_list *gpu = &r->o.c->gpu;

	for (unsigned i = 0; i < gpu->count; i++) {
		if (i == 0)
			buf_addf(path, "%cgpu=", before);
		else
			buf_addc(path, ',');
		remote_escape(path, gpu->item[i]);
	}
}

static int get_selected(struct top_reader *r, const char *route, char before)
{
	char path[2048];
	struct buf b;

	buf_init_fixed(&b, path, sizeof(path));
	buf_adds(&b, route);
	add_selection(r, &b, before);
	return service_get(r, path);
}

/* Reads the class of each process, if the guard has workers. */
static int read_classes(struct top_reader *r)
{
	struct top_model *m = &r->work;
	bool used[256] = { false };
	char path[160];

	if (!m->workers || (m->gpus > CLASS_GPUS && r->readings % CLASS_TICKS != 0))
		return 0;
	for (unsigned i = 0; i < m->processes; i++)
		used[m->process[i].gpu] = true;
	for (unsigned i = 0; i < m->gpus; i++) {
		if (!used[i])
			continue;
		snprintf(path, sizeof(path), "/api/v1/guard/gpus/%s", m->gpu[i].uuid);
		if (service_get(r, path) == 0)
			top_read_guard_gpu(m, r->o.remote->reply);
	}
	return 0;
}

/* Reads what is read only after a new reading of the GPUs: processes, host, guard, classes. */
static int read_rest(struct top_reader *r)
{
	struct remote *remote = r->o.remote;
	int err = get_selected(r, "/api/v1/processes", '?');

	if (!err)
		err = top_read_processes(&r->work, remote->reply);
	if (!err && r->readings % HOST_TICKS == 0 &&
	    service_get(r, "/api/v1/snapshot?processes=false&gpu=0") == 0)
		top_read_host(&r->work, remote->reply);
	/* If the guard has no workers, ask less often: only a new configuration can add
	 * some. */
	if (!err && (r->work.workers || r->readings % GUARD_TICKS == 0) &&
	    service_get(r, "/api/v1/guard?limit=1") == 0)
		err = top_read_guard(&r->work, remote->reply);
	return err ? err : read_classes(r);
}

/* Reads the history of the service and the time between its readings, once. */
static void read_past(struct top_reader *r)
{
	struct remote *remote = r->o.remote;
	double s;

	if (service_get(r, "/api/v1/self") == 0) {
		s = json_doc_number(remote->reply, "interval_seconds");
		r->work.interval_ns = s > 0 ? (uint64_t)(s * 1e9) : NS_PER_S;
	}
	if (get_selected(r,
			 "/api/v1/series?quantity=power_watts,utilization_gpu_ratio,"
			 "memory_used_bytes,temperature_gpu_celsius&from=-10m&tier=second",
			 '&') == 0)
		top_read_series(&r->work, remote->reply);
}

static int read_service(struct top_reader *r)
{
	struct remote *remote = r->o.remote;
	char path[2048];
	struct buf b, old;
	int err;

	buf_init_fixed(&b, path, sizeof(path));
	buf_adds(&b, "/api/v1/devices");
	add_selection(r, &b, '?');
	err = service_fetch(r, path);
	if (err)
		return err;
	if (r->work.read_ns && !*r->work.problem && r->last.len == remote->body.len &&
	    memcmp(r->last.p, remote->body.p, r->last.len) == 0)
		return 0; /* the service has not read the GPUs since the last reply */
	remote_parse(remote);
	if (!remote->reply || json_doc_type(remote->reply, "devices") != JSON_DOC_ARRAY) {
		snprintf(r->work.problem, sizeof(r->work.problem),
			 "the server on %s does not reply like gpuward", remote->address);
		return -GW_E_PARSE;
	}
	top_model_add_gap(&r->work, now_ns());
	err = top_read_devices(&r->work, remote->reply);
	old = r->last;
	r->last = remote->body;
	remote->body = old;
	snprintf(r->work.source, sizeof(r->work.source), "service %s", remote->address);
	r->work.local = r->o.local;
	r->work.read_ns = now_ns();
	if (!err)
		err = read_rest(r);
	if (!err && r->readings++ == 0)
		read_past(r);
	return err;
}

/* ---- the thread ---- */

static void publish(struct top_reader *r)
{
	mailbox_lock(&r->box);
	if (top_model_copy(&r->ready, &r->work) == 0)
		r->fresh = true;
	mailbox_unlock(&r->box);
	mailbox_notify(&r->box);
}

/* Waits until the next reading is due and the reader is not paused.  Returns false at the
 * end. */
static bool wait_until_due(struct top_reader *r, uint64_t due_ns)
{
	bool run;

	mailbox_lock(&r->box);
	while (!r->box.stop && (r->paused || now_ns() < due_ns))
		mailbox_wait(&r->box, r->paused ? UINT64_MAX : due_ns);
	run = !r->box.stop;
	/* reset the descriptor here, because a request also polls it */
	mailbox_clear(r->box.wake_fd);
	mailbox_unlock(&r->box);
	return run;
}

/* Returns the time until the next reading.  A service has nothing new before its own interval
 * is over; if its reading was late, the next attempt is soon. */
static uint64_t step_ns(const struct top_reader *r, bool fresh)
{
	if (!r->o.remote || *r->work.problem || r->work.interval_ns < r->o.interval_ns ||
	    /* with such a long interval, poll more often, so that the end of the service is
	     * noticed soon */
	    r->work.interval_ns > 2 * NS_PER_S)
		return r->o.interval_ns;
	return fresh ? r->work.interval_ns : r->o.interval_ns / 4;
}

static void reader_run(void *arg)
{
	struct top_reader *r = arg;
	uint64_t due_ns = now_ns();

	while (wait_until_due(r, due_ns)) {
		char before[sizeof(r->work.problem)];
		uint64_t read_ns = r->work.read_ns;
		int err;

		memcpy(before, r->work.problem, sizeof(before));
		err = r->o.remote ? read_service(r) : read_driver(r);
		if (!err)
			r->work.problem[0] = '\0';
		if (err || read_ns != r->work.read_ns || strcmp(before, r->work.problem) != 0)
			publish(r);
		due_ns += step_ns(r, read_ns != r->work.read_ns);
		if (due_ns < now_ns()) /* skip missed readings */
			due_ns = now_ns();
	}
}

static void reader_free(struct top_reader *r)
{
	gw_process_list_free(r->list);
	free(r->counter);
	top_model_done(&r->work);
	top_model_done(&r->ready);
	buf_done(&r->last);
	mailbox_done(&r->box);
	free(r);
}

int top_reader_start(const struct top_reader_options *o, struct top_reader **ret)
{
	struct top_reader *r = calloc(1, sizeof(*r));
	int err = 0;

	if (!r)
		return -GW_E_NOMEM;
	r->o = *o;
	top_model_init(&r->work);
	top_model_init(&r->ready);
	buf_init(&r->last, CLIENT_REPLY_MAX);
	r->work.interval_ns = o->interval_ns;
	r->begin_ns = now_ns();
	if (mailbox_init(&r->box, MAILBOX_NEWS_FD | MAILBOX_WAKE_FD) != 0)
		err = -GW_E_IO;
	r->stop = (struct deadline_stop){ reader_stopping, r, r->box.wake_fd };
	if (!err && !o->remote)
		err = gw_process_list_new(o->c->ctx, &r->list);
	if (r->list)
		(void)gw_process_list_want(r->list, GW_PROCESS_SM);
	if (!err)
		err = mailbox_start(&r->box, STACK_BYTES, reader_run, NULL, r);
	if (err)
		reader_free(r);
	else
		*ret = r;
	return err;
}

int top_reader_fd(const struct top_reader *r)
{
	return r->box.news_fd;
}

bool top_reader_take(struct top_reader *r, struct top_model *m)
{
	bool fresh;

	mailbox_clear(r->box.news_fd);
	mailbox_lock(&r->box);
	fresh = r->fresh && top_model_copy(m, &r->ready) == 0;
	r->fresh = false;
	mailbox_unlock(&r->box);
	return fresh;
}

void top_reader_pause(struct top_reader *r, bool paused)
{
	mailbox_lock(&r->box);
	r->paused = paused;
	mailbox_unlock(&r->box);
	mailbox_wake(&r->box);
}

int top_reader_stop(struct top_reader *r)
{
	int err = mailbox_stop(&r->box, STOP_NS);

	if (!err)
		reader_free(r);
	return err;
}
