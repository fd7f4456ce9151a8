/* Writes the fleet as a JSON document and as sentences. */
#include "fleet_parts.h"

#include "base/json_doc.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CLOCK_S 30 /* a smaller difference of the clocks has no remark */

const char *fleet_node_state_word(enum fleet_node_state s)
{
	static const char *const words[] = {
		[FLEET_NODE_OK] = "ok",       [FLEET_NODE_DOWN] = "down",
		[FLEET_NODE_GONE] = "gone",   [FLEET_NODE_STALE] = "stale",
		[FLEET_NODE_AHEAD] = "ahead",
	};

	return words[s];
}

const char *fleet_rest_text(const char *kind)
{
	if (strcmp(kind, "idle") == 0)
		return "GPUs without a process";
	if (strcmp(kind, "unattributed") == 0)
		return "no process can be charged";
	return "no workload";
}

bool fleet_is_empty(const struct fleet *f, char *why, size_t size)
{
	const char *job = f->question.job ? f->question.job : FLEET_JOB;
	unsigned failed = 0;

	if (f->nodes)
		return false;
	for (unsigned q = 0; q < FLEET_QUERIES; q++)
		failed += !f->answer[q].doc;
	if (failed)
		for (unsigned q = 0; q < FLEET_QUERIES; q++) {
			if (f->answer[q].doc)
				continue;
			snprintf(why, size, "Prometheus at %s: %s", f->url,
				 f->answer[q].problem);
			return true;
		}
	if (f->question.node || f->question.job)
		snprintf(why, size,
			 "Prometheus at %s has no metric gpuward_up with a job that matches "
			 "%s%s%s: check %s",
			 f->url, job, f->question.node ? " and a node that matches " : "",
			 f->question.node ? f->question.node : "",
			 f->question.node ? "--job and --node" : "--job, or job in [fleet]");
	else
		snprintf(why, size,
			 "Prometheus at %s has no metric gpuward_up: add a scrape_config "
			 "(docs/FLEET.md has one), or let the nodes send their metrics with "
			 "[push]",
			 f->url);
	return true;
}

/* ---- remarks ---- */

static bool remark_clock(const struct fleet *f, char *out, size_t size)
{
	if (!(fabs(f->clock_ahead_s) > CLOCK_S))
		return false;
	snprintf(out, size,
		 "The clock of Prometheus is %.0f s %s the clock of this machine: check both "
		 "with timedatectl.",
		 fabs(f->clock_ahead_s), f->clock_ahead_s > 0 ? "ahead of" : "behind");
	return true;
}

static bool remark_doubled(const struct fleet *f, char *out, size_t size)
{
	if (!f->doubled)
		return false;
	snprintf(out, size,
		 "%u GPU%s counted twice, because two nodes have the same UUID. Perhaps one "
		 "machine is pushed and scraped, or scraped under two addresses; select one "
		 "with --job or --node.%s",
		 f->doubled, f->doubled == 1 ? " is" : "s are",
		 f->gpus_simulated > 0 ? " Simulated machines can have the same UUIDs although "
					 "they are different machines."
				       : "");
	return true;
}

static bool remark_refused(const struct fleet *f, char *out, size_t size)
{
	unsigned n = 0;

	for (unsigned i = 0; i < f->nodes; i++)
		n += f->node[i].energy_refused;
	if (!n)
		return false;
	snprintf(out, size,
		 "The energy of %u node%s is left out: it is more than the power limits allow, "
		 "so a counter went back, perhaps because an old database was restored.",
		 n, n == 1 ? "" : "s");
	return true;
}

static bool remark_warning(const struct fleet *f, char *out, size_t size)
{
	char text[300];

	for (unsigned q = 0; q < FLEET_QUERIES; q++) {
		const struct json_doc *d = f->answer[q].doc;

		if (!d)
			continue;
		if (json_doc_count(d, "warnings") > 0) {
			const char *s = json_doc_string(json_doc_at(d, "warnings", 0), "");

			utf8_clean(text, sizeof(text), s ? s : "without a reason");
			snprintf(out, size,
				 "Prometheus warns that its answer may be incomplete: %s",
				 text);
			return true;
		}
		if (json_doc_true(d, "isPartial")) {
			snprintf(out, size,
				 "Prometheus says that its answer is incomplete, "
				 "because a part of its storage did not answer.");
			return true;
		}
	}
	return false;
}

bool fleet_remark(const struct fleet *f, unsigned i, char *out, size_t size)
{
	static bool (*const remark[])(const struct fleet *, char *,
				      size_t) = { remark_clock, remark_doubled, remark_refused,
						  remark_warning };

	for (unsigned k = 0; k < sizeof(remark) / sizeof(remark[0]); k++)
		if (remark[k](f, out, size) && i-- == 0)
			return true;
	return false;
}

/* ---- JSON ---- */

static void write_count(struct json *j, const char *key, double v)
{
	json_uint_if(j, key, !isnan(v) && v >= 0, v >= 0 ? (uint64_t)(v + 0.5) : 0);
}

static void write_place(struct json *j, const char *cluster, const char *instance)
{
	json_string(j, "cluster", *cluster ? cluster : NULL);
	json_string(j, "node", instance);
}

static void write_total(struct json *j, const struct fleet *f)
{
	const struct fleet_total *t = &f->total;

	json_object(j, "total");
	json_uint(j, "nodes", t->nodes);
	json_uint(j, "nodes_up", t->nodes_up);
	json_uint(j, "nodes_down", t->nodes_down);
	json_uint(j, "nodes_gone", t->nodes_gone);
	json_uint(j, "nodes_stale", t->nodes_stale);
	write_count(j, "gpus", t->gpus);
	write_count(j, "gpus_up", t->gpus_up);
	write_count(j, "gpus_down", t->gpus_down);
	json_double(j, "power_watts", t->power_w);
	json_uint(j, "power_nodes", t->power_nodes);
	json_double(j, "energy_joules", t->energy_j);
	json_uint(j, "energy_nodes", t->energy_nodes);
	json_double(j, "utilization_ratio", t->utilization);
	json_double(j, "memory_used_bytes", t->memory_used);
	json_double(j, "memory_total_bytes", t->memory_total);
	write_count(j, "idle_held_gpus", t->idle_gpus);
	json_double(j, "idle_held_watts", t->idle_w);
	json_object_end(j);
}

static void write_node(struct json *j, const struct fleet_node *n)
{
	json_object(j, NULL);
	write_place(j, n->cluster, n->instance);
	json_string(j, "state", fleet_node_state_word(fleet_node_state(n)));
	json_double(j, "age_seconds", n->age_s);
	write_count(j, "gpus", n->gpus);
	write_count(j, "gpus_up", n->gpus_up);
	write_count(j, "gpus_down", n->gpus_down);
	json_double(j, "power_watts", n->power_w);
	json_double(j, "energy_joules", n->energy_j);
	json_string(j, "energy_problem",
		    n->energy_refused ? "more than the power limits allow" : NULL);
	json_double(j, "utilization_ratio", n->utilization);
	json_double(j, "memory_used_bytes", n->memory_used);
	json_double(j, "memory_total_bytes", n->memory_total);
	write_count(j, "idle_held_gpus", n->idle_gpus);
	json_double(j, "idle_held_watts", n->idle_w);
	json_object_end(j);
}

static void write_attention(struct json *j, const struct fleet_attention *a)
{
	json_object(j, NULL);
	write_place(j, a->cluster, a->instance);
	json_string(j, "gpu", *a->gpu ? a->gpu : NULL);
	json_string(j, "uuid", *a->uuid ? a->uuid : NULL);
	json_string(j, "reason", a->reason);
	json_string(j, "state", *a->state ? a->state : NULL);
	json_string(j, "what", a->what);
	json_string(j, "remedy", a->remedy);
	json_uint(j, "more_reasons", a->more);
	json_double(j, "age_seconds", a->age_s);
	json_object_end(j);
}

static void write_workload(struct json *j, const struct fleet_workload *w)
{
	json_object(j, NULL);
	json_string(j, "kind", w->kind);
	json_string(j, "namespace", *w->space ? w->space : NULL);
	json_string(j, "name", *w->name ? w->name : NULL);
	json_double(j, "energy_joules", w->energy_j);
	json_double(j, "share_ratio", w->share);
	json_object_end(j);
}

static void write_model(struct json *j, const struct fleet_model *m)
{
	json_object(j, NULL);
	json_string(j, "model", m->model);
	json_double(j, "energy_joules", m->energy_j);
	json_double(j, "tokens_prompt", m->tokens_prompt);
	json_double(j, "tokens_generated", m->tokens_generated);
	json_double(j, "joules_per_token", m->joules_per_token);
	json_object_end(j);
}

static void write_remarks(struct json *j, const struct fleet *f)
{
	char text[600];

	json_array(j, "remarks");
	for (unsigned i = 0; fleet_remark(f, i, text, sizeof(text)); i++)
		json_string(j, NULL, text);
	json_array_end(j);
	json_array(j, "problems");
	for (unsigned q = 0; q < FLEET_QUERIES; q++) {
		if (f->answer[q].doc)
			continue;
		json_object(j, NULL);
		json_string(j, "query", fleet_queries[q].key);
		json_string(j, "detail", f->answer[q].problem);
		json_object_end(j);
	}
	json_array_end(j);
}

void fleet_render(struct json *j, const struct fleet *f, unsigned top)
{
	json_string(j, "prometheus", f->url);
	json_time(j, "asked_utc", f->wall_ns);
	json_uint(j, "range_seconds", f->question.range_s);
	json_double(j, "engine_clock_ahead_seconds", f->clock_ahead_s);
	write_count(j, "gpus_simulated", f->gpus_simulated);
	write_remarks(j, f);
	write_total(j, f);
	json_array(j, "attention");
	for (unsigned i = 0; i < f->attentions && i < top; i++)
		write_attention(j, &f->attention[i]);
	json_array_end(j);
	json_bool(j, "attention_more", f->attention_cut || f->attentions > top);
	json_array(j, "nodes");
	for (unsigned i = 0; i < f->nodes; i++)
		write_node(j, &f->node[i]);
	json_array_end(j);
	json_array(j, "workloads");
	for (unsigned i = 0; i < f->workloads; i++)
		write_workload(j, &f->workload[i]);
	json_array_end(j);
	json_array(j, "models");
	for (unsigned i = 0; i < f->models && i < top; i++)
		write_model(j, &f->model[i]);
	json_array_end(j);
}

void fleet_render_fit(struct json *j, const struct fleet *f, double bytes, unsigned gpus,
		      unsigned top)
{
	json_object(j, "fits");
	json_double(j, "bytes", bytes);
	json_uint(j, "gpus", gpus);
	json_uint(j, "nodes", f->places);
	json_array(j, "places");
	for (unsigned i = 0; i < f->places && i < top; i++) {
		const struct fleet_place *p = &f->place[i];

		json_object(j, NULL);
		write_place(j, p->cluster, p->instance);
		json_uint(j, "gpus_with_room", p->gpus);
		json_array(j, "gpus");
		for (unsigned k = 0; k < p->count; k++) {
			const struct fleet_gpu *g = &f->gpu[p->first + k];

			json_object(j, NULL);
			json_string(j, "gpu", g->gpu);
			json_string(j, "uuid", g->uuid);
			json_double(j, "available_bytes", g->available_bytes);
			json_object_end(j);
		}
		json_array_end(j);
		json_object_end(j);
	}
	json_array_end(j);
	json_object_end(j);
}
