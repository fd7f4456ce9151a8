#include "top_driver.h"

#include "cli.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest time between two readings of the energy counters. One reading takes 3 to 5 ms on an
 * H200. */
#define ENERGY_NS (20 * NS_PER_S)
/* Time between two readings of the process lists (PROCESSES_NS) and of the SM utilisation of
 * the processes (SM_NS). The driver needs 0.03 ms for a list, but 2 ms per GPU for the
 * utilisation, which is a mean over at least 3 s. */
#define PROCESSES_NS (1900 * NS_PER_MS)
/* With these times, the utilisation is read with every second list. With more than FEW_GPUS
 * GPUs, lists are read less often, so the utilisation is read with every list. */
#define SM_NS     (3 * NS_PER_S)
#define FEW_GPUS  2
#define MANY_GPUS 8

/* The energy counter of a GPU at its first and at its last reading. */
struct counter {
	char uuid[64];
	double first_j, last_j; /* NAN: not read */
	uint64_t first_ns, last_ns;
	uint8_t absence;
};

/* The SM utilisation of a process at the last reading. */
struct sm {
	int64_t pid;
	uint64_t start_ticks;
	unsigned device;
	double ratio; /* NAN: unknown */
};

struct top_driver {
	struct cli *c;
	const struct clock *clock;
	bool zoom;
	struct gw_process_list *list;
	struct sm *sm;
	unsigned sms, sm_cap;
	bool sm_missing; /* a process started after the last reading of the utilisation */
	struct counter *counter;
	unsigned counters, counter_cap;
	uint64_t energy_first_ns; /* time of the first reading of the counters */
	/* Times of the last reading of the counters, the process lists and the utilisation. 0:
	 * not read yet. */
	uint64_t energy_ns, processes_ns, sm_ns;
};

static struct counter *find_counter(struct top_driver *t, const char *uuid)
{
	struct counter *c;

	for (unsigned i = 0; i < t->counters; i++)
		if (strcmp(t->counter[i].uuid, uuid) == 0)
			return &t->counter[i];
	if (array_reserve(&t->counter, &t->counter_cap, t->counters + 1, sizeof(*c)) != 0)
		return NULL;
	c = &t->counter[t->counters++];
	*c = (struct counter){ .first_j = NAN, .last_j = NAN, .absence = GW_ABSENT_NOT_READ };
	snprintf(c->uuid, sizeof(c->uuid), "%s", uuid);
	return c;
}

/* Computes the energy of a GPU since the start of top. Reads the counter from the snapshot if
 * `read` is set. If the counter is lower than before, the driver was loaded again, and counting
 * starts again. */
static void read_energy(struct top_driver *t, struct top_gpu *g, const struct gw_device *d,
			bool read)
{
	struct counter *c = find_counter(t, g->uuid);
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
	g->energy_age_s = isnan(c->last_j) ? 0 : (double)(d->end_ns - c->last_ns) / 1e9;
}

static void copy_text(char *out, size_t size, const char *text)
{
	utf8_clean(out, size, text ? text : "");
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

static void read_instances(struct top_gpu *g, const struct gw_device *d)
{
	for (unsigned i = 0; i < d->mig_count; i++) {
		const struct gw_mig *m = d->mig[i];
		struct top_mig *to = top_gpu_add_mig(g, m->gpu_instance, m->name);

		if (to && m->memory_absence == GW_HAVE) {
			to->memory_used = (double)m->memory_used_bytes;
			to->memory_total = (double)m->memory_total_bytes;
		}
	}
}

static void read_gpu(struct top_gpu *g, const struct gw_device *d, unsigned tiers)
{
	const char *uuid = gw_device_text(d, GW_T_UUID);
	char identity[32];

	snprintf(identity, sizeof(identity), "%u", d->index);
	top_gpu_begin(g, uuid ? uuid : identity);
	g->index = d->index;
	g->state = d->state;
	copy_text(g->name, sizeof(g->name), gw_device_text(d, GW_T_NAME));
	copy_text(g->pci, sizeof(g->pci), gw_device_text(d, GW_T_PCI));
	utf8_clean(g->message, sizeof(g->message), d->message);
	for (unsigned i = 0; i < TOP_FIGURES; i++) {
		const unsigned quantity = top_figure_info[i].quantity;

		/* The snapshot still contains old values of the tiers that were not read now:
		 * do not show these values. */
		g->absence[i] = tiers & gw_quantity_info(quantity)->tier
					? (uint8_t)gw_device_value(d, quantity, &g->value[i])
					: GW_ABSENT_NOT_READ;
	}
	if (g->absence[TOP_PERFORMANCE_STATE] == GW_HAVE)
		gw_quantity_name(GW_Q_PERFORMANCE_STATE, g->value[TOP_PERFORMANCE_STATE],
				 g->pstate, sizeof(g->pstate));
	if (g->absence[TOP_CLOCK_REASONS] == GW_HAVE)
		read_held(g, g->value[TOP_CLOCK_REASONS]);
	read_instances(g, d);
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
	copy_text(m->driver, sizeof(m->driver), s->driver_version);
	utf8_clean(m->status, sizeof(m->status), s->message);
	snprintf(m->remedy, sizeof(m->remedy), "%s", gw_cause_info(s->cause)->remedy);
	m->simulated = s->simulated;
	m->local = true;
	for (unsigned i = 0; i < COUNT(quantity); i++) {
		*host[i] = NAN;
		gw_snapshot_host(snap, quantity[i], host[i]);
	}
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
	if (q->cpu_absence == GW_HAVE)
		p->cpu_ratio = q->cpu_cores;
}

static struct sm *find_sm(const struct top_driver *t, const struct gw_process *q)
{
	for (unsigned i = 0; i < t->sms; i++)
		if (t->sm[i].pid == q->pid && t->sm[i].start_ticks == q->start_ticks &&
		    t->sm[i].device == q->device)
			return &t->sm[i];
	return NULL;
}

static int keep_utilisation(struct top_driver *t)
{
	const unsigned n = gw_process_list_count(t->list);
	int err = array_reserve(&t->sm, &t->sm_cap, n, sizeof(*t->sm));

	t->sms = 0;
	for (unsigned i = 0; i < n && !err; i++) {
		const struct gw_process *q = gw_process_list_get(t->list, i);

		t->sm[t->sms++] =
			(struct sm){ q->pid, q->start_ticks, q->device,
				     q->sm_absence == GW_HAVE ? q->sm_ratio : (double)NAN };
	}
	return err;
}

/* Reads the process lists. Also reads the utilisation if SM_NS have passed or if a process is
 * new. */
static int take_processes(struct top_driver *t, uint64_t now)
{
	const bool sm = t->sm_missing || !t->sm_ns || now - t->sm_ns >= SM_NS;
	int err;

	(void)gw_process_list_want(t->list, sm ? GW_PROCESS_SM : 0);
	err = gw_process_list_take(t->list);
	if (!err && sm) {
		err = keep_utilisation(t);
		t->sm_ns = now;
	}
	t->sm_missing = false;
	return err;
}

/* Reads the processes into the model. m->gpu[position[i]] is device i of the snapshot; -1:
 * --gpu does not select the device, or there is no such device. */
static int read_processes(struct top_driver *t, struct top_model *m,
			  const int position[static 256], uint64_t now)
{
	int err = take_processes(t, now);

	if (err)
		return err;
	m->processes = 0;
	for (unsigned i = 0; i < gw_process_list_count(t->list); i++) {
		const struct gw_process *q = gw_process_list_get(t->list, i);
		const struct sm *sm = find_sm(t, q);
		struct top_process *p;

		if (q->device >= 256 || position[q->device] < 0)
			continue;
		p = top_model_add_process(m);
		if (!p)
			return -GW_E_NOMEM;
		p->gpu = (unsigned)position[q->device];
		read_process(p, q);
		p->sm_ratio = sm ? sm->ratio : (double)NAN;
		if (!sm)
			t->sm_missing = true;
	}
	return 0;
}

/* Returns true if --gpu selects the device, or if --gpu was not given. d may be NULL. */
static bool is_selected(const struct cli *c, const struct gw_device *d)
{
	for (unsigned i = 0; d && i < c->gpu.count; i++)
		if (gw_device_matches(d, c->gpu.item[i]) == 1)
			return true;
	return d && c->gpu.count == 0;
}

/* Returns true if it is time to read the energy counters. The time between two readings begins
 * with 1 s, so that a figure appears soon, and doubles until it reaches ENERGY_NS. */
static bool energy_is_due(const struct top_driver *t, uint64_t now)
{
	uint64_t step = t->energy_ns - t->energy_first_ns;

	step = step < NS_PER_S ? NS_PER_S : step > ENERGY_NS ? ENERGY_NS : step;
	return !t->energy_ns || now - t->energy_ns >= step;
}

static bool processes_are_due(const struct top_driver *t, uint64_t now, unsigned gpus)
{
	const uint64_t step = PROCESSES_NS * (gpus > MANY_GPUS ? 5 : gpus > FEW_GPUS ? 2 : 1);

	return !t->processes_ns || now - t->processes_ns >= step;
}

static int read_gpus(struct top_driver *t, struct top_model *m, uint64_t now,
		     int position[static 256])
{
	const bool energy = energy_is_due(t, now);
	struct gw_snapshot *snap = t->c->snap;
	const unsigned tiers = (GW_TIERS_COMMON & ~(t->zoom ? 0u : GW_TIER_SLOW)) |
			       (energy ? GW_TIER_ENERGY : 0);
	unsigned n = 0;
	int err = gw_snapshot_take(snap, tiers);

	for (unsigned i = 0; i < 256; i++)
		position[i] =
			!err && is_selected(t->c, gw_snapshot_device(snap, i)) ? (int)n++ : -1;
	if (!err)
		err = top_model_set_gpus(m, n);
	if (err)
		return err;
	top_model_add_gap(m, now);
	for (unsigned i = 0; i < 256; i++) {
		const struct gw_device *d = gw_snapshot_device(snap, i);

		if (position[i] < 0)
			continue;
		read_gpu(&m->gpu[position[i]], d, tiers);
		read_energy(t, &m->gpu[position[i]], d, energy);
	}
	read_status(m, snap);
	if (energy) {
		if (!t->energy_ns)
			t->energy_first_ns = now;
		t->energy_ns = now;
	}
	return 0;
}

int top_driver_read(struct top_driver *t, struct top_model *m)
{
	uint64_t now = clock_mono_ns(t->clock);
	int position[256], err = read_gpus(t, m, now, position);

	if (!err) {
		if (processes_are_due(t, now, m->gpus)) {
			err = read_processes(t, m, position, now);
			t->processes_ns = now;
		}
		m->read_ns = clock_mono_ns(t->clock);
	}
	if (err)
		snprintf(m->problem, sizeof(m->problem), "%s", gw_strerror(err));
	return err;
}

int top_driver_new(struct cli *c, const struct clock *clock, struct top_driver **ret)
{
	struct top_driver *t = calloc(1, sizeof(*t));
	int err = t ? gw_process_list_new(c->ctx, &t->list) : -GW_E_NOMEM;

	if (err) {
		free(t);
		return err;
	}
	t->c = c;
	t->clock = clock;
	*ret = t;
	return 0;
}

void top_driver_zoom(struct top_driver *t, bool zoom)
{
	t->zoom = zoom;
}

void top_driver_free(struct top_driver *t)
{
	if (!t)
		return;
	gw_process_list_free(t->list);
	free(t->counter);
	free(t->sm);
	free(t);
}
