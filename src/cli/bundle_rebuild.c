#include "bundle_rebuild.h"

#include "measured.h"

#include "serve/timespec_parse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS 64 /* of a bundle */

static const struct gw_interval unknown = { NAN, NAN, NAN };

/* A window of one device, as it was worked out. */
struct seen {
	unsigned id;
	struct tracked_window window; /* for evidence */
	struct measured_device d;
};

struct pile {
	struct seen *v;
	size_t n, room;
	struct bundle_rebuilt *made;
	int err;
};

static struct seen *push(struct pile *p)
{
	if (p->n == p->room) {
		size_t room = p->room ? 2 * p->room : 8;
		struct seen *v = realloc(p->v, room * sizeof(*v));

		if (!v) {
			p->err = -GW_E_NOMEM;
			return NULL;
		}
		p->v = v;
		p->room = room;
	}
	memset(&p->v[p->n], 0, sizeof(*p->v));
	return &p->v[p->n++];
}

static void fill_device(struct measured_device *d, const struct bundle_found *f)
{
	d->index = f->device;
	snprintf(d->uuid, sizeof(d->uuid), "%s", f->uuid);
	snprintf(d->name, sizeof(d->name), "%s", f->name);
	snprintf(d->driver, sizeof(d->driver), "%s", f->driver);
	d->energy = f->energy;
	d->sensor = f->setup->sensor;
	d->power_limit_w =
		f->window->limits_begun ? f->window->limit_begin_w : f->setup->limit_w;
	d->who = f->window->shares;
	d->processes = d->who.count > 0;
	d->baseline.net_joules = unknown;
	d->baseline.adjusted_joules = NAN;
}

static void take(void *arg, const struct bundle_found *f)
{
	struct pile *p = arg;
	struct seen *s = push(p);

	if (!s)
		return;
	s->id = f->id;
	s->window = *f->window;
	p->made->interval_s = f->interval_s;
	fill_device(&s->d, f);
}

/* A part that the program marked lies inside the window of its run. */
static bool inside(const struct seen *a, const struct seen *b)
{
	return a->id != b->id && a->d.index == b->d.index &&
	       a->d.energy.begin_ns >= b->d.energy.begin_ns &&
	       a->d.energy.end_ns <= b->d.energy.end_ns &&
	       a->d.energy.seconds < b->d.energy.seconds;
}

static bool is_run(const struct pile *p, const struct seen *s)
{
	for (size_t i = 0; i < p->n; i++)
		if (inside(s, &p->v[i]))
			return false;
	return s->d.energy.end_ns > s->d.energy.begin_ns;
}

static void evidence(const void *of, unsigned i, const struct gw_energy *e, unsigned code,
		     char *out, size_t size)
{
	const struct seen *const *seen = of;

	window_tracker_evidence(&seen[i]->window, e, code, out, size);
}

/* The run whose window is `first`, on all devices that have it. */
static int make_run(const struct pile *p, const struct seen *first, struct measured_run *r)
{
	const struct seen *of[GPUS];

	r->device = calloc(GPUS, sizeof(*r->device));
	if (!r->device)
		return -GW_E_NOMEM;
	for (const struct seen *s = first; s < p->v + p->n; s++) {
		if (s->id != first->id || r->devices == GPUS)
			continue;
		of[r->devices] = s;
		r->device[r->devices] = s->d;
		r->device[r->devices].provenance =
			p->made->sum.simulated ? GW_FROM_SIMULATOR : GW_FROM_DRIVER;
		measured_codes(r, r->devices++, evidence, of);
	}
	r->trial = p->made->runs + 1;
	r->begin_ns = first->d.energy.begin_ns;
	r->seconds = first->d.energy.seconds;
	r->exit_status = -1;
	r->iterations = r->tokens = r->latency_s = r->latency_p50_s = r->latency_p95_s = NAN;
	r->iteration_joules = r->token_joules = unknown;
	r->host = (struct host_energy){ .joules = NAN, .why = GW_ABSENT_NOT_READ };
	measured_add_up(r);
	return 0;
}

static bool seen_before(const struct pile *p, const struct seen *s)
{
	for (const struct seen *o = p->v; o < s; o++)
		if (o->id == s->id)
			return true;
	return false;
}

static int make_runs(struct pile *p, uint64_t wall_ns, struct measured *m)
{
	m->run = calloc(p->n + 1, sizeof(*m->run));
	if (!m->run)
		return -GW_E_NOMEM;
	for (size_t i = 0; i < p->n; i++) {
		const struct seen *s = &p->v[i];
		struct measured_run *r = &m->run[m->runs];

		if (seen_before(p, s) || !is_run(p, s))
			continue;
		if (make_run(p, s, r) != 0)
			return -GW_E_NOMEM;
		r->begin_wall_ns = wall_ns + r->begin_ns - m->run[0].begin_ns;
		m->validity = r->validity > m->validity ? r->validity : m->validity;
		p->made->runs = ++m->runs;
	}
	return 0;
}

/* "/opt/bin/train --key=x" was run as "train". */
static void command_name(char *command)
{
	char *slash;

	command[strcspn(command, " ")] = '\0';
	slash = strrchr(command, '/');
	if (slash && slash[1])
		memmove(command, slash + 1, strlen(slash + 1) + 1);
}

static int write_result(struct pile *p, struct buf *out)
{
	const struct bundle_summary *sum = &p->made->sum;
	char name[sizeof(sum->command)];
	struct measured m = { .simulated = sum->simulated,
			      .label = *sum->label ? sum->label : NULL,
			      .model_size_bytes = NAN,
			      .iterations = NAN,
			      .tokens = NAN,
			      .command_name = *sum->command ? name : NULL,
			      .version = sum->version };
	struct json j;
	int err;

	snprintf(name, sizeof(name), "%s", sum->command);
	command_name(name);
	if (strchr(sum->command, ' '))
		m.command = sum->command;
	(void)timespec_parse(sum->created, 0, &m.wall_ns); /* or the document says 1970 */
	err = make_runs(p, m.wall_ns, &m);
	json_init(&j, out, true);
	if (!err)
		render_result(&j, &m, NULL, NULL, NULL);
	if (!err)
		err = json_end(&j);
	for (unsigned i = 0; i < m.runs; i++)
		measured_run_done(&m.run[i]);
	free(m.run);
	return err;
}

int bundle_rebuild(const char *dir, struct bundle_rebuilt *ret, struct buf *out, char *message,
		   size_t size)
{
	struct pile p = { .made = ret };
	int err;

	memset(ret, 0, sizeof(*ret));
	err = bundle_recompute(dir, take, &p, &ret->sum, message, size);
	if (!err)
		err = p.err;
	if (!err)
		err = write_result(&p, out);
	if (err && !*message)
		snprintf(message, size, "%s: %s", dir, gw_strerror(err));
	free(p.v);
	return err;
}
