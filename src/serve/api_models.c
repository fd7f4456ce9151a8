/* Replies with the tokens and the energy of each model on the inference servers. */
#include "api_parts.h"

#include "guard_view.h"
#include "model_energy.h"

#include <math.h>
#include <string.h>

static void write_gpus(struct json *j, const struct view *v, const struct model_row *row)
{
	json_array(j, "gpus");
	for (unsigned g = 0; g < v->models->gpus; g++) {
		const struct gw_device *d = NULL;

		if (!(row->joules[g] > 0))
			continue;
		for (unsigned i = 0; v->snap && i < v->devices && !d; i++) {
			const struct gw_device *x = gw_snapshot_device(v->snap, i);
			const char *uuid = gw_device_text(x, GW_T_UUID);

			d = uuid && strcmp(uuid, v->models->gpu[g]) == 0 ? x : NULL;
		}
		json_object(j, NULL);
		json_string(j, "uuid", v->models->gpu[g]);
		json_uint_if(j, "index", d != NULL, d ? d->index : 0);
		json_double(j, "joules", row->joules[g]);
		json_object_end(j);
	}
	json_array_end(j);
}

static void write_span(struct json *j, const char *key, const struct model_row *row,
		       const struct model_span *s)
{
	json_object(j, key);
	json_double(j, "seconds", s->seconds);
	json_double(j, "joules", s->joules);
	json_double(j, "generated_tokens", row->counted ? s->tokens : (double)NAN);
	json_double(j, "tokens_per_second",
		    row->counted && s->seconds > 0 ? s->tokens / s->seconds : (double)NAN);
	json_double(j, "joules_per_token", s->joules_per_token);
	json_string(j, "joules_per_token_absent", s->why);
	json_object_end(j);
}

/* Returns why the tokens of a row are unknown; NULL: they are known. */
static const char *tokens_absent(const struct model_energy *m, const struct model_row *row)
{
	const struct model_worker *w = model_energy_worker_of(m, row);

	if (row->counted)
		return NULL;
	if (!row->model[0])
		return "no model";
	return w && w->why[0] ? w->why : "the server's counters have not been read yet";
}

static void write_model(struct json *j, const struct view *v, const struct model_row *row)
{
	struct model_span span;

	json_object(j, NULL);
	json_string(j, "worker", row->worker);
	json_string(j, "model", row->model);
	json_bool(j, "loaded", row->listed && model_energy_worker_of(v->models, row));
	json_double(j, "prompt_tokens", row->counted ? row->tokens[MODEL_PROMPT] : (double)NAN);
	json_double(j, "generated_tokens",
		    row->counted ? row->tokens[MODEL_GENERATED] : (double)NAN);
	json_string(j, "tokens_absent", tokens_absent(v->models, row));
	json_double(j, "energy_joules", model_row_joules(row));
	json_string(j, "method", model_method_name(row->method));
	json_string(j, "energy_method", row->share);
	write_gpus(j, v, row);
	model_span_minute(row, &span);
	write_span(j, "last_minute", row, &span);
	model_span_start(row, &span);
	write_span(j, "since_start", row, &span);
	json_object_end(j);
}

static void write_worker(struct json *j, const struct view *v, const struct model_worker *w)
{
	const int i = v->guard ? policy_find_worker(v->guard->policy, w->name) : -1;

	json_object(j, NULL);
	json_string(j, "worker", w->name);
	json_string(j, "kind",
		    i < 0 ? NULL : policy_kind_name(v->guard->policy->worker[i].kind));
	json_double(j, "waiting_joules", model_worker_pending(w));
	json_string(j, "tokens_absent", w->why[0] ? w->why : NULL);
	json_object_end(j);
}

void api_models(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct model_energy *m = a->view.models;
	const struct model_row *row;
	struct json j;

	(void)q;
	if (!api_has_reading(a, r))
		return;
	api_begin(&j, a, r);
	json_array(&j, "models");
	for (unsigned i = 0; m && (row = model_energy_row(m, i)); i++)
		write_model(&j, &a->view, row);
	json_array_end(&j);
	json_array(&j, "workers");
	for (unsigned i = 0; m && i < m->workers; i++)
		if (m->worker[i].present)
			write_worker(&j, &a->view, &m->worker[i]);
	json_array_end(&j);
	api_end(&j);
}
