/* metrics: writes the metrics page, which consists of several parts, and the compatibility set.
 *
 * The samples of a family must be contiguous, so the outer loop is over families and the inner
 * loop over GPUs. */
#include "metrics_page.h"

#include "guard_view.h"
#include "metrics.h"

#include "base/array.h"
#include "base/number.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static void page_init(struct page *p, struct buf *out, const struct api *a,
		      enum metrics_form form)
{
	struct labels l;

	p->t = (struct metrics_text){ .out = out, .form = form };
	p->a = a;
	p->v = &a->view;
	p->workers = p->v->guard && p->v->guard->policy && p->v->guard->policy->workers > 0;
	p->current = view_current(p->v, clock_mono_ns(p->a->clock));
	p->gpus = p->v->snap ? gw_snapshot_device_count(p->v->snap) : 0;
	if (p->gpus > PAGE_GPUS)
		p->gpus = PAGE_GPUS;
	for (unsigned i = 0; i < p->gpus; i++) {
		labels_clear(&l);
		labels_add(&l, "uuid", gw_device_text(page_gpu(p, i), GW_T_UUID));
		labels_add_number(&l, "gpu", page_gpu(p, i)->index);
		assert(l.len < PAGE_BASE);
		memcpy(p->base[i], l.text, l.len + 1);
	}
}

bool page_family(struct page *p, unsigned family)
{
	if (!metrics_chosen(&p->a->metrics, family, p->workers))
		return false;
	metrics_table(family, &p->family);
	metrics_family(&p->t, &p->family);
	return true;
}

void page_one(struct page *p, unsigned family, double value)
{
	if (page_family(p, family))
		metrics_sample(&p->t, NULL, NULL, value);
}

void page_word(struct page *p, const char *base, const char *name, const char *value, bool set)
{
	if (set || p->a->metrics.zeros)
		page_labelled(p, base, name, value, set);
}

void page_labelled(struct page *p, const char *base, const char *name, const char *value,
		   double v)
{
	struct labels l;

	labels_clear(&l);
	labels_add(&l, name, value);
	metrics_sample(&p->t, base, l.text, v);
}

double page_figure(const struct page *p, unsigned i, unsigned q)
{
	const struct gw_device *d = page_gpu(p, i);
	double v = NAN;

	if (page_responds(p, i))
		gw_device_value(d, q, &v);
	return v;
}

bool page_listed(const struct page *p, unsigned i)
{
	return page_responds(p, i) && p->v->processes &&
	       gw_process_list_absence(p->v->processes, i) == GW_HAVE;
}

void page_processes(struct page *p, bool not_ours)
{
	const struct gw_process_list *list = p->v->processes;
	unsigned n[PAGE_GPUS] = { 0 };
	int64_t self = getpid();

	for (unsigned i = 0; list && i < gw_process_list_count(list); i++) {
		const struct gw_process *x = gw_process_list_get(list, i);

		if (x->device < PAGE_GPUS && !(not_ours && x->pid == self))
			n[x->device]++;
	}
	for (unsigned i = 0; i < p->gpus; i++) {
		int others = not_ours ? metrics_guard_others(p, i) : -1;

		if (page_listed(p, i))
			metrics_sample(&p->t, p->base[i], NULL,
				       others >= 0 ? (double)others : (double)n[i]);
	}
}

static void host(struct page *p)
{
	for (unsigned q = 0; q < GW_HOST_QUANTITIES; q++) {
		double v = NAN;

		gw_snapshot_host(p->v->snap, q, &v);
		page_one(p, METRIC_OF_HOST(q), v);
	}
}

static double all_errors(const struct page *p)
{
	double sum = 0;

	for (unsigned i = 0; i < p->gpus; i++)
		for (unsigned a = GW_HAVE + 1; page_known(p, i) && a < GW_ABSENCES; a++)
			sum += view_is_error(a) ? (double)page_known(p, i)->errors[a] : 0;
	return sum;
}

/* Converts a ratio to percent. Rounds the result, because 0.29 times 100 is
 * 28.999999999999996. */
static double percent(double ratio)
{
	return rint(ratio * 1e8) / 1e6;
}

static void old_figures(struct page *p)
{
	static const struct {
		unsigned metric, quantity;
	} rows[] = {
		{ M_OLD_TEMPERATURE, GW_Q_TEMPERATURE_GPU },
		{ M_OLD_UTILIZATION, GW_Q_UTILIZATION_GPU },
		{ M_OLD_POWER, GW_Q_POWER },
		{ M_OLD_FREE, GW_Q_MEMORY_FREE },
		{ M_OLD_TOTAL, GW_Q_MEMORY_TOTAL },
	};

	for (size_t r = 0; r < COUNT(rows); r++) {
		if (!page_family(p, rows[r].metric))
			continue;
		for (unsigned i = 0; i < p->gpus; i++) {
			double v = page_figure(p, i, rows[r].quantity);

			metrics_sample(&p->t, p->base[i], NULL,
				       rows[r].metric == M_OLD_UTILIZATION ? percent(v) : v);
		}
	}
}

static void old_evictions(struct page *p)
{
	const struct guard_view *g = p->v->guard;

	if (!page_family(p, M_OLD_EVICTIONS))
		return;
	for (unsigned i = 0; i < p->gpus; i++)
		metrics_sample(&p->t, p->base[i], NULL,
			       g && g->evictions && i < g->devices ? g->evictions[i] : 0);
}

static void compatible(struct page *p)
{
	if (page_family(p, M_OLD_OTHERS))
		page_processes(p, true);
	old_evictions(p);
	old_figures(p);
	if (!p->v->self.counts_known)
		return;
	page_one(p, M_OLD_ERRORS, all_errors(p));
	page_one(p, M_OLD_INIT, (double)p->v->init_failures);
}

static void write_page(struct page *p)
{
	metrics_service(p);
	if (p->v->snap) {
		metrics_gpus(p);
		metrics_workloads(p);
		metrics_guard(p);
		metrics_model(p);
		host(p);
	}
	metrics_cost(p);
	compatible(p);
	metrics_dcgm(p);
}

void metrics_render(struct buf *out, const struct api *a, enum metrics_form form)
{
	struct page p;

	page_init(&p, out, a, form);
	write_page(&p);
	metrics_end(&p.t);
}

void metrics_each(const struct api *a, const struct metrics_sink *sink)
{
	struct page p;

	page_init(&p, NULL, a, METRICS_PROMETHEUS);
	p.t.sink = sink;
	write_page(&p);
}

/* A part of the Accept header, without the spaces around it. */
struct piece {
	const char *p;
	size_t n;
};

/* Returns the next part, which ends at the character `stop` or at the address `end`. Sets *rest
 * to the text after it. */
static struct piece next_piece(const char **rest, const char *end, char stop)
{
	const char *from = *rest, *to = memchr(from, stop, (size_t)(end - from));

	to = to ? to : end;
	*rest = to < end ? to + 1 : end;
	while (from < to && (*from == ' ' || *from == '\t'))
		from++;
	while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
		to--;
	return (struct piece){ from, (size_t)(to - from) };
}

static bool piece_is(struct piece x, const char *text)
{
	return x.n == strlen(text) && strncasecmp(x.p, text, x.n) == 0;
}

static bool piece_begins(struct piece x, const char *text)
{
	return x.n >= strlen(text) && strncasecmp(x.p, text, strlen(text)) == 0;
}

/* Reads "q=0.5". Returns 1 if there is no number from 0 to 1. */
static double quality(struct piece x)
{
	char text[8] = "";
	const char *end;
	double q;

	memcpy(text, x.p + 2, x.n - 2 < sizeof(text) ? x.n - 2 : sizeof(text) - 1);
	q = number_parse(text, &end);
	return end != text && q >= 0 && q <= 1 ? q : 1;
}

struct range { /* one element of the Accept header */
	struct piece type;
	double q;
	bool ours; /* we support the version that it names, or it names none */
};

static struct range read_range(struct piece x)
{
	const char *at = x.p, *end = x.p + x.n;
	struct range r = { .type = next_piece(&at, end, ';'), .q = 1, .ours = true };

	while (at < end) {
		struct piece option = next_piece(&at, end, ';');

		if (piece_begins(option, "q="))
			r.q = quality(option);
		else if (piece_begins(option, "version="))
			r.ours = piece_is(option, "version=1.0.0") ||
				 piece_is(option, "version=0.0.1") ||
				 piece_is(option, "version=\"1.0.0\"");
	}
	return r;
}

enum metrics_form metrics_negotiate(const char *accept)
{
	double open = 0, plain = 0;
	int exact = 0; /* precision for plain text: none, * / *, text / *, text/plain */
	const char *end;

	if (!accept)
		return METRICS_PROMETHEUS;
	end = accept + strlen(accept);
	while (accept < end) {
		struct range r = read_range(next_piece(&accept, end, ','));
		int how = piece_is(r.type, "text/plain") ? 3
			  : piece_is(r.type, "text/*")   ? 2
			  : piece_is(r.type, "*/*")      ? 1
							 : 0;

		if (piece_is(r.type, "application/openmetrics-text") && r.ours && r.q > open)
			open = r.q;
		if (how > exact) {
			exact = how;
			plain = r.q;
		}
	}
	return open > 0 && open >= plain ? METRICS_OPENMETRICS : METRICS_PROMETHEUS;
}

const char *metrics_type(enum metrics_form form)
{
	return form == METRICS_OPENMETRICS
		       ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
		       : "text/plain; version=0.0.4; charset=utf-8";
}
