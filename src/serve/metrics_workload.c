/* metrics_workload: writes the workloads on each GPU, and the models on the inference servers.
 *
 * At most WORKLOAD_SERIES_MAX workloads per GPU have their own series. workload_energy.h
 * chooses them so that no counter decreases while its series exists. The rest of the GPU's
 * energy (idle, unattributed, other workloads) has series with other kinds, so that the sum
 * over all series is the energy of the GPU. */
#include "metrics_page.h"
#include "metrics_text.h"
#include "model_energy.h"
#include "workload_energy.h"

#include <math.h>
#include <string.h>

static void put_sample(struct page *p, unsigned gpu, const char *kind, const struct workload *w,
		       double v)
{
	struct labels l;

	labels_clear(&l);
	labels_add(&l, "kind", kind);
	labels_add(&l, "namespace", w ? w->space : "");
	labels_add(&l, "name", w ? w->name : "");
	labels_add(&l, "part", w ? w->part : "");
	metrics_sample(&p->t, p->base[gpu], l.text, v);
}

/* Returns one figure of a workload; NAN: unknown. */
typedef double row_figure(const struct workload_row *r);

/* Rounds to microjoules or microseconds. The rounded counter still never decreases. */
static double micro(double v)
{
	return rint(v * 1e6) / 1e6;
}

static double row_energy(const struct workload_row *r)
{
	return r->charged ? micro(r->joules - r->series_from_j) : (double)NAN;
}

static double row_seconds(const struct workload_row *r)
{
	return micro(r->gpu_seconds);
}

static double row_memory(const struct workload_row *r)
{
	return r->processes ? r->memory_bytes : (double)NAN;
}

static double row_sm(const struct workload_row *r)
{
	return r->processes ? r->sm_ratio : (double)NAN;
}

static double row_power(const struct workload_row *r)
{
	return r->processes ? r->power_w : (double)NAN;
}

/* Writes one family with a sample per workload. Returns false if the family is not served. */
static bool put_rows(struct page *p, unsigned metric, row_figure *figure)
{
	const struct workload_energy *e = p->v->workloads;

	if (!page_family(p, metric))
		return false;
	for (unsigned i = 0; i < p->gpus; i++)
		for (unsigned k = 0; k < e->count; k++)
			if (e->row[k].gpu == i && e->row[k].has_series)
				put_sample(p, i, workload_kind_word(e->row[k].workload.kind),
					   &e->row[k].workload, figure(&e->row[k]));
	return true;
}

/* Writes energy that belongs to no single workload (enum workload_rest). always: even if it is
 * 0 joules. Otherwise the series exists only from the first joule on, because most GPUs never
 * need it. */
static void put_rest(struct page *p, unsigned gpu, const char *kind, double joules, bool always)
{
	if (always || joules != 0)
		put_sample(p, gpu, kind, NULL, micro(joules));
}

/* Writes the energy that is in no workload's series, so that the sum is complete. Call it right
 * after the energy of the workloads, in the same family. */
static void put_rests(struct page *p)
{
	const struct workload_energy *e = p->v->workloads;

	for (unsigned i = 0; i < p->gpus && i < e->gpus; i++) {
		if (!e->gpu[i].begun)
			continue;
		for (unsigned r = 0; r < WORKLOAD_RESTS; r++)
			put_rest(p, i, workload_rest_word(r), e->gpu[i].rest_j[r],
				 r == WORKLOAD_IDLE || r == WORKLOAD_UNATTRIBUTED);
		put_rest(p, i, "other", workload_energy_series_other(e, i), false);
	}
}

void metrics_workloads(struct page *p)
{
	if (!p->v->workloads || !p->v->self.counts_known)
		return;
	if (put_rows(p, M_WORKLOAD_ENERGY, row_energy))
		put_rests(p);
	put_rows(p, M_WORKLOAD_SECONDS, row_seconds);
	put_rows(p, M_WORKLOAD_MEMORY, row_memory);
	put_rows(p, M_WORKLOAD_SM, row_sm);
	put_rows(p, M_WORKLOAD_POWER, row_power);
}

/* Models. rate(energy) / rate(tokens) is joules per token, because both counters of a model
 * increase at the same time. */

static void put_tokens(struct page *p, const struct model_row *r)
{
	struct labels l;

	for (unsigned d = 0; r->counted && d < MODEL_DIRECTIONS; d++) {
		labels_clear(&l);
		labels_add(&l, "worker", r->worker);
		labels_add(&l, "model", r->model);
		labels_add(&l, "direction", model_direction_name(d));
		metrics_sample(&p->t, l.text, NULL, r->tokens[d]);
	}
}

static void put_energy(struct page *p, const struct model_energy *m, const struct model_row *r)
{
	struct labels l;

	labels_clear(&l);
	labels_add(&l, "worker", r->worker);
	labels_add(&l, "model", r->model);
	for (unsigned i = 0; i < p->gpus; i++) {
		const char *uuid = gw_device_text(page_gpu(p, i), GW_T_UUID);

		for (unsigned g = 0; uuid && g < m->gpus; g++)
			if (strcmp(uuid, m->gpu[g]) == 0 && r->joules[g] > 0)
				metrics_sample(&p->t, p->base[i], l.text,
					       rint(r->joules[g] * 1e6) / 1e6);
	}
}

void metrics_model(struct page *p)
{
	const struct model_energy *m = p->v->models;
	const struct model_row *r;

	if (m && page_family(p, M_MODEL_TOKENS))
		for (unsigned i = 0; (r = model_energy_row(m, i)); i++)
			put_tokens(p, r);
	if (m && page_family(p, M_MODEL_ENERGY))
		for (unsigned i = 0; (r = model_energy_row(m, i)); i++)
			put_energy(p, m, r);
}
