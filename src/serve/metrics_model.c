/* metrics_model: writes the tokens and the energy of each model on the inference servers.
 *
 * rate(energy) / rate(tokens) is joules per token: both counters of a model grow at the same
 * moment. */
#include "metrics_page.h"

#include "model_energy.h"

#include <math.h>
#include <string.h>

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
