/* api_fixture: a view over the simulator in stepped time and a fake service, for tests of
 * routes. */
#ifndef TESTS_API_FIXTURE_H
#define TESTS_API_FIXTURE_H

#include "simtest.h"

#include "http_fake.h"

#include "serve/api_parts.h"
#include "serve/asset.h"
#include "serve/windows.h"

#include "measure/meter.h"
#include "measure/process_energy.h"
#include "measure/workload_energy.h"

#include <fnmatch.h>
#include <math.h>

static const unsigned char page[] = "<html>";
const struct asset assets[] = {
	{ "/", "text/html", page, page + 6, NULL, NULL },
	{ "/assets/big.js", "text/javascript", NULL, NULL, page, page + 6 },
};
const unsigned asset_count = 2;

enum metrics_form metrics_negotiate(const char *accept)
{
	return accept && strstr(accept, "openmetrics") ? METRICS_OPENMETRICS
						       : METRICS_PROMETHEUS;
}

const char *metrics_type(enum metrics_form form)
{
	return form == METRICS_OPENMETRICS ? "application/openmetrics-text" : "text/plain";
}

void metrics_render(struct buf *out, const struct api *a, enum metrics_form form)
{
	buf_adds(out, "up 1\n");
}

static struct {
	struct api api;
	struct view_device device[64];
	struct gw_process_list *processes;
	struct view_process process[512];
	struct process_history past; /* history of GPU 0 */
	struct gw_environment *env;
	struct reply reply;
	unsigned logged, kept, forgotten, asked;
	/* documents of open windows: `begun` counts stored ones, `done` counts deleted ones */
	unsigned begun, done;
	char begun_id[64], begun_json[4096];
	int keep_answer;
	size_t kept_size;
	int ask_answer, request_error;
	bool ask_done; /* true: the engine fulfils a request at the next reading */
	enum view_request what;
	char kept_id[64], kept_json[65536], logged_text[256], logged_severity[16];
} t;

/* The stored Idempotency-Key of a window. */
static struct {
	char id[64], json[256];
} stored_key;

static struct {
	struct workload workload; /* workload of every process */
	struct workload of_process[512];
	struct workload_energy energy;
} work;

static inline int history(void *engine, const char *uuid, unsigned quantity, uint64_t from,
			  uint64_t to, uint64_t step, struct view_point *out, unsigned max,
			  uint64_t *ret_step)
{
	unsigned n = 0;

	for (uint64_t at = from; at < to && n < max; at += step, n++)
		out[n] = (struct view_point){ at, step, 100 + n, 90, 110, n == 1 ? 0 : 5 };
	*ret_step = step;
	return (int)n;
}

static inline int events(void *engine, uint64_t after, unsigned max,
			 void (*each)(void *arg, const struct view_event *e), void *arg)
{
	if (after == UINT64_MAX)
		after = max < 5 ? 5 - max : 0;
	for (uint64_t id = after + 1; id <= 5 && max--; id++)
		each(arg,
		     &(struct view_event){ id, 1700000000 * NS_PER_S, "driver", NULL, "info",
					   "a \"thing\" happened", NULL, 0, false });
	return 0;
}

static inline uint64_t log_event(void *engine, const struct view_event *e)
{
	t.logged++;
	snprintf(t.logged_text, sizeof(t.logged_text), "%s", e->text);
	snprintf(t.logged_severity, sizeof(t.logged_severity), "%s", e->severity);
	return 100 + t.logged;
}

static inline int keep(void *engine, const char *kind, const char *id, const char *json,
		       size_t size)
{
	assert_int_equal(strlen(json), size);
	assert_true(size <= VIEW_DOCUMENT_MAX);
	if (strcmp(kind, "window-open") == 0) {
		t.begun++;
		snprintf(t.begun_id, sizeof(t.begun_id), "%s", id);
		snprintf(t.begun_json, sizeof(t.begun_json), "%s", json);
		return 0;
	}
	if (strcmp(kind, "window-key") == 0) {
		snprintf(stored_key.id, sizeof(stored_key.id), "%s", id);
		snprintf(stored_key.json, sizeof(stored_key.json), "%s", json);
		return 0;
	}
	assert_string_equal(kind, "window");
	if (t.keep_answer)
		return t.keep_answer;
	t.kept++;
	t.kept_size = size;
	snprintf(t.kept_id, sizeof(t.kept_id), "%s", id);
	snprintf(t.kept_json, sizeof(t.kept_json), "%s", json);
	return 0;
}

static inline int kept(void *engine, const char *kind, unsigned max,
		       void (*each)(void *arg, const char *id, const char *json), void *arg)
{
	if (strcmp(kind, "window-open") == 0) {
		if (max && *t.begun_id)
			each(arg, t.begun_id, t.begun_json);
	} else if (strcmp(kind, "window-key") == 0) {
		if (max && *stored_key.id)
			each(arg, stored_key.id, stored_key.json);
	} else if (max && *t.kept_id) {
		each(arg, t.kept_id, t.kept_json);
	}
	return 0;
}

/* The stored workloads: their number, the bytes of padding in each, and how many were read. */
static struct {
	unsigned count, padding, read;
} jobs;

static inline int find_jobs(void *engine, const struct view_find *f, view_found_fn *each,
			    void *arg)
{
	static char json[65536];
	char id[80];

	assert_string_equal(f->kind, "workload");
	for (unsigned i = jobs.count; i-- > 0;) {
		snprintf(id, sizeof(id), "%016u-unit-%016x", 1000 * i, i);
		if (strcmp(id, f->from) < 0 || fnmatch(f->glob, id, 0) != 0)
			continue;
		snprintf(json, sizeof(json),
			 "{\"kind\":\"unit\",\"id\":\"\\\",\\\"name\\\":\\\"x\",\"namespace\":"
			 "null,"
			 "\"name\":\"%sjob%u\",\"part\":\"%*s\"}",
			 i % 10 ? "" : "\\u0001\\\"", i, (int)jobs.padding, "");
		jobs.read += !f->ids_only;
		if (!each(arg, id, f->ids_only ? NULL : json))
			break;
	}
	return 0;
}

static inline void forget(void *engine, const char *kind, const char *id)
{
	t.forgotten += strcmp(kind, "window") == 0;
	t.done += strcmp(kind, "window-open") == 0;
	if (strcmp(kind, "window-key") == 0 && strcmp(id, stored_key.id) == 0)
		stored_key.id[0] = '\0';
}

static unsigned unstored; /* number of calls of is_stored() after which everything is stored */

static inline bool is_stored(void *engine)
{
	if (unstored)
		unstored--;
	return !unstored;
}

static inline int ask(void *engine, enum view_request what)
{
	t.asked++;
	t.what = what;
	return t.ask_answer ? t.ask_answer : (int)t.api.view.requests.done + 1;
}

static struct {
	unsigned count;
	uint64_t id;
	char json[65536];
} pushed;

void stream_push(struct stream *s, enum stream_topic topic, const char *name, uint64_t id,
		 const char *json, size_t size)
{
	assert_int_equal(topic, STREAM_WINDOW);
	assert_string_equal(name, "window");
	assert_null(memchr(json, '\n', size));
	pushed.count++;
	pushed.id = id;
	snprintf(pushed.json, sizeof(pushed.json), "%.*s", (int)size, json);
}

static const struct view_ops ops = { .history = history,
				     .events = events,
				     .emit = log_event,
				     .put_document = keep,
				     .each_document = kept,
				     .find_documents = find_jobs,
				     .delete_document = forget,
				     .request = ask,
				     .stored = is_stored };

/* Adds two readings of the processes of each GPU to their workload. */
static inline void take_workloads(struct view *v)
{
	static const double counter[] = { 300, 1234.5 };

	for (unsigned i = 0; i < v->devices; i++)
		for (unsigned k = 0; k < 2; k++) {
			struct workload_use use[COUNT_OF(t.process)];
			size_t n = 0;

			for (unsigned p = 0; p < gw_process_list_count(t.processes); p++)
				if (gw_process_list_get(t.processes, p)->device == i)
					use[n++] = (struct workload_use){ &work.workload,
									  "alice",
									  934.5 * k,
									  GW_HAVE,
									  ATTRIBUTE_MEASURED,
									  2147483648,
									  0.5,
									  451.75 };
			workload_energy_tick(
				&work.energy, i,
				&(struct workload_step){ counter[k], 1,
							 gw_snapshot_wall_ns(sim.snap), true,
							 false },
				use, n);
		}
	v->workloads = &work.energy;
}

/* Takes the process list. Adds energy to each process, and a history to those of GPU 0, as the
 * engine does. */
static inline void take_processes(struct view *v)
{
	assert_int_equal(gw_process_list_want(t.processes, GW_PROCESS_SM), 0);
	assert_int_equal(gw_process_list_take(t.processes), 0);
	assert_in_range(gw_process_list_count(t.processes), 0, COUNT_OF(t.process));
	v->processes = t.processes;
	v->process = t.process;
	v->process_workload = work.of_process;
	for (unsigned i = 0; i < gw_process_list_count(t.processes); i++) {
		const struct gw_process *p = gw_process_list_get(t.processes, i);
		struct process_history_reading r = { .id = { p->pid, p->start_ticks },
						     .gpu_instance = p->mig_gpu_instance,
						     .name = p->name,
						     .value = { (double)p->memory_bytes, 0.5,
								451.75 } };

		t.process[i] = (struct view_process){ GW_HAVE, 934.5, 451.75,
						      ATTRIBUTE_MEASURED, 451.75 };
		work.of_process[i] = work.workload;
		for (unsigned k = 0; k < 3 && p->device == 0; k++)
			process_history_add(&t.past,
					    gw_snapshot_mono_ns(sim.snap) +
						    k * PROCESS_HISTORY_STEP_NS,
					    &r);
	}
	t.device[0].past = &t.past;
	take_workloads(v);
}

static inline void take(void)
{
	struct view *v = &t.api.view;

	assert_int_equal(gw_snapshot_take(sim.snap, GW_TIERS_ALL), 0);
	v->snap = sim.snap;
	v->tick++;
	v->devices = gw_snapshot_device_count(sim.snap);
	for (unsigned i = 0; i < v->devices; i++)
		t.device[i] = (struct view_device){ .meter = (int)i,
						    .seen_ns = clock_mono_ns(&sim.clock),
						    .energy_joules = 1234.5,
						    .energy_seconds = 60,
						    .shares = { .processes_joules = 934.5,
								.former_joules = 100,
								.unattributed_joules = 50,
								.earlier_joules = 150,
								.known = true } };
	if (t.processes)
		take_processes(v);
}

static inline void begin(const char *world)
{
	struct gw_meter_options o = { .size = sizeof(o),
				      .flags = GW_METER_MANUAL,
				      .cache_dir = "" };

	memset(&t, 0, sizeof(t));
	memset(&stored_key, 0, sizeof(stored_key));
	memset(&fake, 0, sizeof(fake));
	sim_text(world);
	sim_step(5 * NS_PER_S);
	sim_open();
	t.api.clock = &sim.clock;
	t.api.windows_open = true;
	t.api.view.ops = &ops;
	t.api.view.device = t.device;
	t.api.view.interval_ns = NS_PER_S;
	t.api.view.self = (struct view_self){ .start_wall_ns = clock_wall_ns(&sim.clock),
					      .start_mono_ns = clock_mono_ns(&sim.clock),
					      .rss_bytes = 9 << 20,
					      .counts_known = true };
	work.workload = (struct workload){ WORKLOAD_SLURM, "4711", "alice", "4711", "0" };
	assert_int_equal(workload_energy_init(&work.energy, COUNT_OF(t.device), NULL, NULL), 0);
	assert_int_equal(windows_new(&t.api.windows), 0);
	assert_int_equal(gw_process_list_new(sim.ctx, &t.processes), 0);
	assert_int_equal(gw_environment_new(sim.ctx, &t.env), 0);
	t.api.view.env = t.env;
	assert_int_equal(gw_meter_start(sim.ctx, &o, &t.api.view.meter), 0);
	gw_meter_poll(t.api.view.meter);
	take();
}

static inline int end(void **state)
{
	buf_done(&t.reply.body);
	windows_free(t.api.windows);
	api_done(&t.api);
	gw_meter_stop(t.api.view.meter);
	gw_process_list_free(t.processes);
	process_history_done(&t.past);
	workload_energy_done(&work.energy);
	gw_environment_free(t.env);
	memset(&t, 0, sizeof(t));
	memset(&stored_key, 0, sizeof(stored_key));
	buf_init(&t.reply.body, 1);
	return sim_teardown(state);
}

#define API_TEST(name) TEST_WITH(name, NULL, end)

/* Lets time pass: the meter samples and the engine fulfils requests. */
static inline void pass(uint64_t until_ns)
{
	if (t.api.view.meter)
		meter_wait(t.api.view.meter, until_ns);
	else
		clock_sleep_until(&sim.clock, until_ns);
	if (t.ask_done && t.asked) {
		t.api.view.requests.done++;
		t.api.view.requests.error = t.request_error;
		if (!t.request_error)
			t.api.view.let_go = t.what == VIEW_LET_GO;
		t.asked = 0;
	}
}

static inline void run_for(double seconds)
{
	pass(clock_mono_ns(&sim.clock) + (uint64_t)(seconds * 1e9));
	take();
	windows_tick(t.api.windows, &t.api.view, clock_mono_ns(&sim.clock));
}

static inline const char *request(enum http_method method, const char *target, const char *body,
				  int status)
{
	if (t.reply.body.p)
		buf_done(&t.reply.body);
	fake_ask(&t.api, method, target, body, pass, &t.reply);
	if (t.reply.status != status)
		fail_msg("%s: %d, not %d: %s", target, t.reply.status, status, t.reply.body.p);
	return t.reply.body.p;
}

static inline const char *get(const char *target, int status)
{
	return request(HTTP_GET, target, "", status);
}

static inline const char *post(const char *target, const char *body, int status)
{
	if (*body)
		fake_add(&fake.head, "Content-Type", "application/json");
	return request(HTTP_POST, target, body, status);
}

static inline void at(const char *path, const char *value)
{
	char *got = json_at(t.reply.body.p, path);

	if (!got || strcmp(got, value) != 0)
		fail_msg("%s is %s, not %s, in %s", path, got ? got : "absent", value,
			 t.reply.body.p);
	free(got);
}

static inline double number(const char *path)
{
	char *got = json_at(t.reply.body.p, path);
	double v;

	if (!got)
		fail_msg("%s is absent in %s", path, t.reply.body.p);
	v = strcmp(got, "null") == 0 ? (double)NAN : strtod(got, NULL);
	free(got);
	return v;
}

static inline void says(const char *part)
{
	if (!strstr(t.reply.body.p, part))
		fail_msg("no \"%s\" in %s", part, t.reply.body.p);
}

#endif
