/* Replies with events, as a list or as a stream, and writes the stream's message for a tick. */
#include "guard_doc.h"
#include "http_check.h"

#include "base/suggest.h"
#include "measure/workload_energy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_STANDARD 100
#define EVENTS_MOST     1000

/* The quantities in the message for a tick. These are only the quantities that the charts show,
 * because every client of the stream receives this message at every tick. */
static const unsigned tick_figures[] = {
	GW_Q_POWER,           GW_Q_POWER_LIMIT,        GW_Q_TEMPERATURE_GPU,
	GW_Q_UTILIZATION_GPU, GW_Q_UTILIZATION_MEMORY, GW_Q_MEMORY_USED,
	GW_Q_MEMORY_TOTAL,    GW_Q_CLOCK_SM,           GW_Q_CLOCK_REASONS,
};

static void tick_device(struct json *j, const struct view *v, unsigned i)
{
	const struct gw_device *d = gw_snapshot_device(v->snap, i);

	json_object(j, NULL);
	json_string(j, "uuid", gw_device_text(d, GW_T_UUID));
	json_uint(j, "index", d->index);
	json_string(j, "state", gw_device_state_name(d->state));
	for (size_t k = 0; k < sizeof(tick_figures) / sizeof(tick_figures[0]); k++)
		render_figure(j, d, tick_figures[k]);
	json_double(j, "energy_joules_total",
		    i < v->devices && v->self.counts_known ? v->device[i].energy_joules
							   : (double)NAN);
	json_object_end(j);
}

#define TICK_PROCESSES 64

/* Selects the processes with the most memory. Writes their indices to `out` and returns their
 * number. */
static unsigned tick_select(const struct gw_process_list *list, unsigned *out)
{
	unsigned n = 0;

	for (unsigned i = 0; list && i < gw_process_list_count(list); i++) {
		unsigned least = 0;

		if (n < TICK_PROCESSES) {
			out[n++] = i;
			continue;
		}
		for (unsigned k = 1; k < n; k++)
			if (gw_process_list_get(list, out[k])->memory_bytes <
			    gw_process_list_get(list, out[least])->memory_bytes)
				least = k;
		if (gw_process_list_get(list, i)->memory_bytes >
		    gw_process_list_get(list, out[least])->memory_bytes)
			out[least] = i;
	}
	return n;
}

static void tick_process(struct json *j, const struct view *v, unsigned i)
{
	const struct gw_process *p = gw_process_list_get(v->processes, i);
	const struct gw_device *d = gw_snapshot_device(v->snap, p->device);
	const struct view_process *e = v->process ? &v->process[i] : NULL;
	const bool energy = e && e->absence == GW_HAVE;

	json_object(j, NULL);
	json_uint(j, "device_index", d ? d->index : p->device);
	json_int(j, "pid", p->pid);
	json_uint_if(j, "start_ticks", p->start_ticks, p->start_ticks);
	if (p->mig_gpu_instance >= 0)
		json_int(j, "gpu_instance", p->mig_gpu_instance);
	json_int_if(j, "memory_bytes", p->memory_absence == GW_HAVE, p->memory_bytes);
	json_double(j, "utilization_sm_ratio",
		    p->sm_absence == GW_HAVE ? p->sm_ratio : (double)NAN);
	json_double(j, "cpu_used_cores",
		    p->cpu_absence == GW_HAVE ? p->cpu_cores : (double)NAN);
	json_double(j, "energy_joules", energy ? e->energy_joules : (double)NAN);
	json_double(j, "power_watts", energy ? e->power_w : (double)NAN);
	json_object_end(j);
}

/* Writes the figures of the largest processes. The message has no names and no absence reasons;
 * /api/v1/processes has them. */
static void tick_processes(struct json *j, const struct view *v)
{
	unsigned chosen[TICK_PROCESSES];
	const unsigned n = tick_select(v->processes, chosen);

	json_array(j, "processes");
	for (unsigned i = 0; i < n; i++)
		tick_process(j, v, chosen[i]);
	json_array_end(j);
}

#define TICK_WORKLOADS 64

/* Writes the figures of the running workloads per GPU. The message has no names;
 * /api/v1/workloads has them. */
static void tick_workloads(struct json *j, const struct view *v)
{
	const struct workload_energy *e = v->workloads;
	unsigned n = 0;

	json_array(j, "workloads");
	for (unsigned i = 0; e && i < e->count && n < TICK_WORKLOADS; i++) {
		const struct workload_row *r = &e->row[i];
		const struct gw_device *d = gw_snapshot_device(v->snap, r->gpu);

		if (!r->processes)
			continue;
		n++;
		json_object(j, NULL);
		json_uint(j, "device_index", d ? d->index : r->gpu);
		json_string(j, "kind", workload_kind_word(r->workload.kind));
		render_text(j, "id", r->workload.id);
		render_text(j, "part", r->workload.part);
		json_uint(j, "processes", r->processes);
		json_double(j, "gpu_seconds", r->gpu_seconds);
		json_double(j, "memory_bytes", r->memory_bytes);
		json_double(j, "utilization_sm_ratio", r->sm_ratio);
		json_double(j, "energy_joules", r->charged ? r->joules : (double)NAN);
		json_double(j, "power_watts", r->power_w);
		json_object_end(j);
	}
	json_array_end(j);
}

static void tick_host(struct json *j, const struct view *v)
{
	double value;

	json_object(j, "host");
	for (unsigned h = 0; h < GW_HOST_QUANTITIES; h++)
		if (gw_snapshot_host(v->snap, h, &value) == GW_HAVE)
			json_double(j, gw_host_quantity_info(h)->key, value);
		else
			json_null(j, gw_host_quantity_info(h)->key);
	json_object_end(j);
}

/* Ends the document without the line break of json_end(): a message is one line. */
static void end_line(struct json *j)
{
	if (json_end(j) == 0)
		j->out->p[--j->out->len] = '\0';
}

void api_tick_json(struct buf *out, const struct view *v)
{
	char why[512];
	struct json j;

	if (!v->tick || !v->snap)
		return;
	json_init(&j, out, false);
	json_object(&j, NULL);
	json_uint(&j, "tick", v->tick);
	json_time(&j, "time_utc", gw_snapshot_wall_ns(v->snap));
	json_bool(&j, "simulated", view_simulated(v));
	json_bool(&j, "let_go", v->let_go);
	json_bool(&j, "ready",
		  !view_unready(v, gw_snapshot_mono_ns(v->snap), why, sizeof(why)));
	json_array(&j, "devices");
	for (unsigned i = 0; i < gw_snapshot_device_count(v->snap); i++)
		tick_device(&j, v, i);
	json_array_end(&j);
	tick_processes(&j, v);
	tick_workloads(&j, v);
	tick_host(&j, v);
	json_object_end(&j);
	end_line(&j);
}

static void event_object(struct json *j, const struct view_event *e)
{
	json_object(j, NULL);
	json_uint(j, "id", e->id);
	json_time(j, "time_utc", e->wall_ns);
	json_string(j, "kind", e->kind);
	json_string(j, "severity", e->severity);
	json_string(j, "uuid", e->uuid);
	json_string(j, "text", e->text);
	json_bool(j, "simulated", e->simulated);
	json_object_end(j);
}

void api_event_json(struct buf *out, const struct view_event *e)
{
	struct json j;

	json_init(&j, out, false);
	event_object(&j, e);
	end_line(&j);
}

static const struct {
	const char *word;
	enum stream_topic bit;
} topic_table[] = {
	{ "tick", STREAM_TICK },
	{ "event", STREAM_EVENT },
	{ "window", STREAM_WINDOW },
	{ "guard", STREAM_GUARD },
};
#define TOPICS (sizeof(topic_table) / sizeof(topic_table[0]))

static unsigned topic_bit(const char *word)
{
	for (size_t i = 0; i < TOPICS; i++)
		if (strcmp(topic_table[i].word, word) == 0)
			return topic_table[i].bit;
	return 0;
}

/* Reads ?topics=a,b. If the parameter is absent, *ret has all topics. Returns false after an
 * error reply. */
static bool topics_of(const struct request *q, struct reply *r, unsigned *ret)
{
	const char *list = request_param(q, "topics");
	char word[32];

	*ret = list ? 0 : STREAM_TICK | STREAM_EVENT | STREAM_WINDOW | STREAM_GUARD;
	while (list) {
		size_t n = strcspn(list, ",");
		unsigned bit;

		snprintf(word, sizeof(word), "%.*s", (int)(n < 31 ? n : 31), list);
		bit = topic_bit(word);
		if (!bit) {
			const char *near = suggest(word, &topic_table[0].word, TOPICS,
						   sizeof(topic_table[0]));

			reply_problem(r, 400, "bad-parameter",
				      "Topics are tick, event, window and guard.",
				      "unknown topic \"%s\"%s%s%s", word,
				      near ? "; did you mean \"" : "", near ? near : "",
				      near ? "\"?" : "");
			return false;
		}
		*ret |= bit;
		list = list[n] ? list + n + 1 : NULL;
	}
	return true;
}

static bool wants_stream(const struct request *q)
{
	return check_prefers(request_header(q, "Accept"), "text/event-stream",
			     "application/json");
}

/* Gets the id of the last event that a reconnecting client has received: from the header
 * Last-Event-ID, else from ?after=. UINT64_MAX: neither is present. Returns false after an
 * error reply. */
static bool read_seen(const struct request *q, struct reply *r, uint64_t *ret)
{
	const char *last = request_header(q, "Last-Event-ID");
	char *end;

	if (!api_number(q, r, "after", UINT64_MAX, INT64_MAX, ret))
		return false;
	if (last && *last >= '0' && *last <= '9') {
		unsigned long long v = strtoull(last, &end, 10);

		if (!*end)
			*ret = v;
	}
	return true;
}

struct chosen {
	const char *kind;     /* the kind of events to list; NULL: all */
	struct json *j;       /* NULL: only count the events */
	unsigned count, skip; /* The first `skip` events are counted but not written. */
};

static void add_chosen(void *arg, const struct view_event *e)
{
	struct chosen *c = arg;

	if (c->kind && strcmp(e->kind, c->kind) != 0)
		return;
	if (c->j && c->count >= c->skip)
		event_object(c->j, e);
	c->count++;
}

/* Lists the latest events of a kind (NULL: all kinds). If a kind is given, calls events()
 * twice: the first call counts the events of this kind, to find out how many the second call
 * must skip. */
static void list_events(const struct api *a, const struct request *q, struct reply *r,
			const char *kind)
{
	const struct view_ops *ops = a->view.ops;
	const bool there = ops && ops->events;
	struct chosen c = { .kind = kind };
	uint64_t after, limit;
	struct json j;

	if (!api_number(q, r, "limit", EVENTS_STANDARD, EVENTS_MOST, &limit) ||
	    !read_seen(q, r, &after))
		return;
	const unsigned most = kind ? EVENTS_MOST : (unsigned)limit;

	if (there && kind)
		ops->events(a->view.engine, after, most, add_chosen, &c);
	c = (struct chosen){ kind, &j, 0, c.count > limit ? c.count - (unsigned)limit : 0 };
	api_begin(&j, a, r);
	json_array(&j, "events");
	if (there && most)
		ops->events(a->view.engine, after, most, add_chosen, &c);
	json_array_end(&j);
	api_end(&j);
}

void api_events(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	unsigned topics;
	uint64_t after;

	if (!topics_of(q, r, &topics))
		return;
	if (!wants_stream(q) || !a->stream) {
		list_events(a, q, r, NULL);
		return;
	}
	if (read_seen(q, r, &after))
		reply_stream(r, a->stream, after, topics);
}

void api_guard_events(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	uint64_t after;

	if (!guard_doc_there(a, r))
		return;
	if (!wants_stream(q) || !a->stream)
		list_events(a, q, r, "guard");
	else if (read_seen(q, r, &after))
		reply_stream(r, a->stream, after, STREAM_GUARD);
}
