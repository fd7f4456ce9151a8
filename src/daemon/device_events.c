#include "device_events.h"

#include "engine.h"

#include "base/array.h"
#include "base/log.h"
#include "device/context.h"
#include "device/nvml_reader.h"

#include <stdio.h>
#include <string.h>

#define TEXT_MAX 400

/* A figure that has failed counts as readable again after it was readable at this many ticks in
 * a row. Without this rule, a figure that fails from time to time would fill the log. */
#define QUERY_GOOD_TICKS 5

/* Emits an event that says that the driver is open, or why there is no GPU. A driver counts as
 * open even if it has no GPUs; service.c logs the empty list of GPUs at the level debug. Emits
 * nothing if emit_nvml_failure() reports the same cause. */
static void emit_driver_state(const struct driver_events *d, struct engine *e,
			      const struct gw_status *s, unsigned gpus)
{
	const struct gw_cause_info *c = gw_cause_info(s->cause);

	if (s->cause == GW_CAUSE_NONE || (s->cause == GW_CAUSE_NO_GPU && s->driver_version))
		engine_event(e, "driver", NULL, "info", "%s opened with %u GPU%s%s%s",
			     s->cause == GW_CAUSE_NONE ? s->backend : "nvml", gpus,
			     gpus == 1 ? "" : "s", s->driver_version ? ", driver " : "",
			     s->driver_version ? s->driver_version : "");
	else if (s->cause != d->nvml_cause)
		engine_event(e, "driver", NULL,
			     c->severity == GW_SEVERITY_ERROR ? "warning" : "info", "%s",
			     *s->message ? s->message : c->sentence);
}

/* Emits an event that says why NVML cannot be used. Its severity is "info" if GPUs of another
 * vendor are in use, else "warning". */
static void emit_nvml_failure(struct engine *e, const struct gw_status *s, const char *message)
{
	bool other = s->cause == GW_CAUSE_NONE && !strstr(s->backend, "nv");

	engine_event(e, "driver", NULL, other ? "info" : "warning",
		     "NVML cannot be used: %s%s%s", message,
		     s->cause == GW_CAUSE_NONE ? "; used instead: " : "",
		     s->cause == GW_CAUSE_NONE ? s->backend : "");
}

void driver_events_follow(struct driver_events *d, struct engine *e, const struct view *v,
			  const struct reading *r)
{
	const struct gw_status *s = gw_snapshot_status(v->snap);
	/* On a machine without a GPU, nothing is wrong if NVIDIA's library is missing. */
	enum gw_cause nvml = s->cause == GW_CAUSE_NO_GPU && r->nvml_cause == GW_CAUSE_NO_LIBRARY
				     ? GW_CAUSE_NONE
				     : r->nvml_cause;

	if (nvml != d->nvml_cause && nvml != GW_CAUSE_NONE)
		emit_nvml_failure(e, s, r->nvml_message);
	d->nvml_cause = nvml;
	if (v->tick == 1 || s->cause != d->cause || strcmp(s->backend, d->backend) != 0)
		emit_driver_state(d, e, s, gw_snapshot_device_count(v->snap));
	d->cause = s->cause;
	snprintf(d->backend, sizeof(d->backend), "%s", s->backend);
}

static const char *gpu_name(const struct gw_device *d)
{
	const char *name = gw_device_text(d, GW_T_NAME);

	return name ? name : "GPU";
}

static void emit_gpu_state(const struct gpu_events *g, struct engine *e,
			   const struct gw_device *d, const char *uuid, bool let_go)
{
	bool well = d->state == GW_DEVICE_OK || d->state == GW_DEVICE_ASLEEP || let_go;

	if (d->state == GW_DEVICE_OK)
		engine_event(e, "device-state", uuid, "info", "GPU %u (%s) %s", d->index,
			     gpu_name(d), g->known ? "responds again" : "found");
	else
		engine_event(e, "device-state", uuid, well ? "info" : "error",
			     "GPU %u (%s) is %s%s%s", d->index, gpu_name(d),
			     gw_device_state_name(d->state), *d->message ? ": " : "",
			     d->message);
}

bool gpu_events_follow_state(struct gpu_events *g, struct engine *e, const struct view *v,
			     unsigned i, const char *uuid)
{
	const struct gw_device *d = gw_snapshot_device(v->snap, i);
	bool changed = g->known && g->state != d->state;

	if (changed || !g->known)
		emit_gpu_state(g, e, d, uuid, v->let_go);
	g->known = true;
	g->state = d->state;
	return changed;
}

/* The NVML calls and, for each call, the figures that it returns. Generated from the table of
 * the NVML backend. */
static const struct query_call {
	uint8_t call, older;
	uint8_t count, figure[4];
} query_calls[] = {
#define READ(tier, shape, call, which, scale, most, older, ...) \
	{ CALL_##call, CALL_##older, sizeof((uint8_t[]){ __VA_ARGS__ }), { __VA_ARGS__ } },
#define FIELD(quantity, id, scope, scale, max) \
	{ CALL_fields, CALL_none, 1, { GW_Q_##quantity } },
#define GPM(quantity, metric) { CALL_gpm_get, CALL_none, 1, { GW_Q_##quantity } },
#include "device/nvml_readers.def"
#undef READ
#undef FIELD
#undef GPM
	{ CALL_compute_v3, CALL_compute_v2, 1, { QUERY_PROCESSES } },
};
/* In the table of the NVML backend, NO means "no quantity". In this file, the same number
 * stands for the process list. */
_Static_assert(NO == QUERY_PROCESSES, "NO has the number of the process list");
_Static_assert(QUERY_FIGURES < UINT8_MAX, "a figure fits in a byte");

static bool was_called(const struct view *v, unsigned call)
{
	return call < CALL_COST_CALLS && atomic_load(&v->ctx->cost.row[call].count);
}

/* Returns the name of the NVML call that reads a figure, such as "nvmlDeviceGetPowerUsage". If
 * that call was never made, returns the name of the older variant that the backend uses
 * instead. For another backend, returns the name of the backend. */
static const char *query_call_name(const struct view *v, const struct gw_device *d,
				   unsigned figure)
{
	const struct query_call *row = &query_calls[COUNT(query_calls) - 1];

	if (strcmp(d->backend, "nvml") != 0)
		return d->backend;
	for (unsigned i = 0; i < COUNT(query_calls) && figure != QUERY_PROCESSES; i++)
		if (memchr(query_calls[i].figure, (int)figure, query_calls[i].count)) {
			row = &query_calls[i];
			break;
		}
	return nvml_symbol[row->older != CALL_none && !was_called(v, row->call) ? row->older
										: row->call];
}

static const char *query_figure_key(unsigned figure)
{
	return figure == QUERY_PROCESSES ? "processes" : gw_quantity_info(figure)->key;
}

/* Counts one reading of the figure. Returns 1 if the figure has just begun to fail, -1 if it is
 * readable again, else 0. */
static int query_count(struct gpu_events *g, unsigned figure, bool fails)
{
	if (fails) {
		g->good[figure] = 0;
		return ++g->failed[figure] == 1;
	}
	return g->failed[figure] && ++g->good[figure] >= QUERY_GOOD_TICKS ? -1 : 0;
}

/* A driver call that begins to fail or works again. */
struct query_change {
	bool fails;
	const char *call;
	char figures[256]; /* Keys of the quantities that the call reads, separated by ", ". */
	enum gw_absence why;
	uint32_t failed; /* Number of failed readings, if the call works again. */
};

static void query_add_figure(struct query_change *c, unsigned figure)
{
	size_t used = strlen(c->figures);

	snprintf(c->figures + used, sizeof(c->figures) - used, "%s%s", used ? ", " : "",
		 query_figure_key(figure));
}

static void emit_query_change(struct engine *e, const struct gw_device *d, const char *uuid,
			      const struct query_change *c)
{
	struct log_pair pair[] = { LOG_I("gpu", d->index), LOG_S("call", c->call) };
	char text[TEXT_MAX];

	if (c->fails)
		snprintf(text, sizeof(text), "GPU %u (%s): %s fails: %s; missing: %s", d->index,
			 gpu_name(d), c->call, gw_absence_text(c->why), c->figures);
	else
		snprintf(text, sizeof(text),
			 "GPU %u (%s): %s works again after %u failed readings: %s", d->index,
			 gpu_name(d), c->call, c->failed, c->figures);
	engine_emit(e, &(struct view_event){ .kind = "query",
					     .uuid = uuid,
					     .severity = c->fails ? "error" : "info",
					     .text = text,
					     .pair = pair,
					     .pairs = COUNT(pair) });
}

void gpu_events_follow_queries(struct gpu_events *g, struct engine *e, const struct view *v,
			       unsigned i, const char *uuid)
{
	const struct gw_device *d = gw_snapshot_device(v->snap, i);
	int8_t news[QUERY_FIGURES] = { 0 };
	uint8_t why[QUERY_FIGURES] = { 0 };

	if (d->state != GW_DEVICE_OK)
		return;
	for (unsigned k = 0; k < QUERY_FIGURES; k++) {
		why[k] = k == QUERY_PROCESSES
				 ? (uint8_t)gw_process_list_absence(v->processes, i)
			 : k < d->value_count ? d->value_absence[k]
					      : GW_HAVE;
		news[k] = (int8_t)query_count(g, k, view_is_error(why[k]));
	}
	for (unsigned k = 0; k < QUERY_FIGURES; k++) {
		struct query_change c = { .fails = news[k] > 0, .why = why[k] };

		if (!news[k])
			continue;
		c.failed = g->failed[k];
		c.call = query_call_name(v, d, k);
		for (unsigned m = k; m < QUERY_FIGURES; m++) {
			if (news[m] != (c.fails ? 1 : -1) || query_call_name(v, d, m) != c.call)
				continue;
			query_add_figure(&c, m);
			news[m] = 0;
			if (!c.fails)
				g->failed[m] = g->good[m] = 0;
		}
		emit_query_change(e, d, uuid, &c);
	}
}
