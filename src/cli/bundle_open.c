#include "bundle_open.h"
#include "run_result.h"
#include "session.h"

#include "base/array.h"
#include "serve/timespec_parse.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GPUS 64 /* Largest number of GPUs in a bundle. */

static const struct gw_interval unknown = { NAN, NAN, NAN };

/* One window of one GPU. */
struct rebuilt_window {
	/* All windows of a run have the same id. A run has one window per GPU. */
	unsigned id;
	/* The source of the evidence for the validity codes. */
	struct tracked_window window;
	struct measured_device d;
};

/* The windows that bundle_recompute() found. */
struct rebuild {
	struct rebuilt_window *v;
	unsigned n, room;        /* Number of windows in v, and capacity of v. */
	struct bundle_opened *e; /* Where the statistics are stored. */
	int err;                 /* The first error, or 0. */
};

static struct rebuilt_window *push_window(struct rebuild *p)
{
	if (array_reserve(&p->v, &p->room, p->n + 1, sizeof(*p->v)) != 0) {
		p->err = -GW_E_NOMEM;
		return NULL;
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
	d->power_limit_w = f->window->begin_limits.known ? f->window->begin_limits.limit_w
							 : f->setup->limit_w;
	d->who = f->window->shares;
	d->processes = d->who.count > 0;
	d->baseline.net_joules = unknown;
	d->baseline.adjusted_joules = NAN;
}

static void add_found(void *arg, const struct bundle_found *f)
{
	struct rebuild *p = arg;
	struct rebuilt_window *s = push_window(p);

	if (!s)
		return;
	s->id = f->id;
	s->window = *f->window;
	p->e->interval_s = f->interval_s;
	fill_device(&s->d, f);
}

bool bundle_is_inside(const struct gw_energy *a, const struct gw_energy *b)
{
	return a->begin_ns >= b->begin_ns && a->end_ns <= b->end_ns && a->seconds < b->seconds;
}

static bool is_run(const struct rebuild *p, const struct rebuilt_window *s)
{
	for (size_t i = 0; i < p->n; i++)
		if (s->d.index == p->v[i].d.index &&
		    bundle_is_inside(&s->d.energy, &p->v[i].d.energy))
			return false;
	return s->d.energy.end_ns > s->d.energy.begin_ns;
}

static void write_evidence(const void *of, unsigned i, const struct gw_energy *e, unsigned code,
			   char *out, size_t size)
{
	(void)i;
	window_tracker_evidence(of, e, code, out, size);
}

/* Makes a run from the window `first` and the windows with the same id on other devices. */
static int make_run(const struct rebuild *p, const struct rebuilt_window *first, unsigned trial,
		    struct measured_run *r)
{
	r->device = calloc(GPUS, sizeof(*r->device));
	if (!r->device)
		return -GW_E_NOMEM;
	for (const struct rebuilt_window *s = first; s < p->v + p->n; s++) {
		if (s->id != first->id || r->devices == GPUS)
			continue;
		r->device[r->devices] = s->d;
		r->device[r->devices].provenance =
			p->e->sum.simulated ? GW_FROM_SIMULATOR : GW_FROM_DRIVER;
		run_result_codes(r, r->devices++, write_evidence, &s->window);
	}
	r->trial = trial;
	r->begin_ns = first->d.energy.begin_ns;
	r->seconds = first->d.energy.seconds;
	r->exit_status = -1;
	r->figures = run_figures_unknown;
	r->host = (struct host_energy){ .joules = NAN, .why = GW_ABSENT_NOT_READ };
	run_result_sum(r);
	return 0;
}

static bool is_repeated(const struct rebuild *p, const struct rebuilt_window *s)
{
	for (const struct rebuilt_window *o = p->v; o < s; o++)
		if (o->id == s->id)
			return true;
	return false;
}

static int make_runs(const struct rebuild *p, uint64_t wall_ns, struct measured *m)
{
	m->run = calloc(p->n + 1, sizeof(*m->run));
	if (!m->run)
		return -GW_E_NOMEM;
	for (size_t i = 0; i < p->n; i++) {
		const struct rebuilt_window *s = &p->v[i];
		struct measured_run *r = &m->run[m->runs];

		if (is_repeated(p, s) || !is_run(p, s))
			continue;
		if (make_run(p, s, ++m->runs, r) != 0)
			return -GW_E_NOMEM;
		r->begin_wall_ns = wall_ns + r->begin_ns - m->run[0].begin_ns;
		m->validity = r->validity > m->validity ? r->validity : m->validity;
	}
	return 0;
}

/* Writes the result of the windows to out, as docs/schema/measure.json describes. This is for a
 * measurement that was killed, or that could not write its result because the disk failed.
 * Fields that the samples do not contain (environment, baselines, host, iterations, tokens) are
 * null. */
static int write_result(const struct rebuild *p, struct buf *out)
{
	const struct bundle_summary *sum = &p->e->sum;
	char name[sizeof(sum->command)];
	struct measured m = { .simulated = sum->simulated,
			      .label = *sum->label ? sum->label : NULL,
			      .model_size_bytes = NAN,
			      .iterations = NAN,
			      .tokens = NAN,
			      .version = sum->version };
	struct json j;
	int err;

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(sum->command, " "), sum->command);
	m.command_name = *sum->command ? session_command_name(name) : NULL;
	if (strchr(sum->command, ' '))
		m.command = sum->command;
	/* If the time cannot be parsed, the result has a time in 1970. */
	(void)timespec_parse(sum->created, 0, &m.wall_ns);
	err = make_runs(p, m.wall_ns, &m);
	json_init(&j, out, true);
	if (!err)
		render_result(&j, &m, NULL, NULL, NULL);
	if (!err)
		err = json_end(&j);
	for (unsigned i = 0; i < m.runs; i++)
		run_result_done(&m.run[i]);
	free(m.run);
	return err;
}

static void __attribute__((format(printf, 2, 3)))
bundle_opened_note(struct bundle_opened *e, const char *fmt, ...)
{
	va_list ap;

	if (e->notes == BUNDLE_OPENED_NOTES)
		return;
	va_start(ap, fmt);
	vsnprintf(e->note[e->notes++], BUNDLE_OPENED_NOTE, fmt, ap);
	va_end(ap);
}

void bundle_problems(const struct bundle_summary *s, const char *dir,
		     void (*say)(void *arg, const char *sentence), void *arg)
{
	char text[BUNDLE_OPENED_NOTE];

	if (s->check == BUNDLE_UNFINISHED)
		snprintf(text, sizeof(text), "%s is incomplete: it has no SHA256SUMS", dir);
	else if (s->check == BUNDLE_CHANGED)
		snprintf(text, sizeof(text), "%s/%s was changed after it was written", dir,
			 s->changed_file);
	if (s->check == BUNDLE_UNFINISHED || s->check == BUNDLE_CHANGED)
		say(arg, text);
	if (s->bad_lines) {
		snprintf(text, sizeof(text), "%s: %llu lines of samples could not be read", dir,
			 (unsigned long long)s->bad_lines);
		say(arg, text);
	}
}

static void note_problem(void *arg, const char *sentence)
{
	bundle_opened_note(arg, "%s", sentence);
}

static void note_problems(struct bundle_opened *e)
{
	const struct bundle_summary *s = &e->sum;

	bundle_problems(s, e->path, note_problem, e);
	if (s->cut)
		bundle_opened_note(e,
				   "%s: %u of %u windows are truncated; their values cover the "
				   "existing samples only",
				   e->path, s->cut, s->windows);
}

/* Computes the result from the samples, because result.json is missing or unreadable. `why`
 * says why it is unreadable. The result is written and read again, because `gpuward diff`
 * compares documents. */
static int use_samples(struct bundle_opened *e, const struct rebuild *p, const char *why,
		       char *message, size_t size)
{
	struct buf text;
	int err;

	buf_init(&text, 256u << 20);
	err = write_result(p, &text);
	if (err)
		snprintf(message, size, "%s: %s", e->path, gw_strerror(err));
	else
		err = result_file_read(&e->result, e->path, text.p, text.len, message, size);
	buf_done(&text);
	if (err)
		return -1;
	e->bundle_rebuilt = true;
	if (access(e->file, F_OK) != 0)
		bundle_opened_note(e,
				   "%s has no result.json; its values are computed from its "
				   "samples, and its environment is unknown",
				   e->path);
	else
		bundle_opened_note(e,
				   "%s; its values are computed from its samples, and its "
				   "environment is unknown",
				   why);
	return 0;
}

static int open_bundle(struct bundle_opened *e, char *message, size_t size)
{
	char why[BUNDLE_OPENED_NOTE - 200] = "", samples[4900] = "";
	struct rebuild p = { .e = e };
	int err = bundle_recompute(e->path, add_found, &p, &e->sum, samples, sizeof(samples));

	err = err ? err : p.err;
	if (err && !*samples)
		snprintf(samples, sizeof(samples), "%s: %s", e->path, gw_strerror(err));
	e->read = !err;
	snprintf(e->file, sizeof(e->file), "%s/result.json", e->path);
	err = result_file_read(&e->result, e->file, NULL, 0, why, sizeof(why));
	if (err && e->read)
		err = use_samples(e, &p, why, message, size);
	/* Report why the samples cannot be read. This is more useful than the error about
	 * result.json. */
	else if (err)
		snprintf(message, size, "%s", samples);
	else if (!e->read)
		bundle_opened_note(e, "the samples are not used: %s", samples);
	if (!err && e->read)
		note_problems(e);
	free(p.v);
	return err;
}

int bundle_open(struct bundle_opened *e, const char *path, char *message, size_t size)
{
	struct stat st;

	memset(e, 0, sizeof(*e));
	e->path = path;
	e->bundle = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	if (e->bundle)
		return open_bundle(e, message, size);
	return result_file_read(&e->result, path, NULL, 0, message, size);
}

void bundle_opened_done(struct bundle_opened *e)
{
	result_file_free(&e->result);
}
