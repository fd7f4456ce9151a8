#include "top_model.h"

#include "base/array.h"
#include "base/buf.h"
#include "base/json_doc.h"
#include "base/utf8.h"
#include "serve/render.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct top_figure_info top_figure_info[TOP_FIGURES] = {
#define F(name, quantity, label) { GW_Q_##quantity, label },
	TOP_FIGURE_ROWS(F)
#undef F
};

enum top_figure top_graph_figure(enum top_graph graph)
{
	static const enum top_figure figures[] = { TOP_UTILIZATION, TOP_POWER, TOP_MEMORY_USED,
						   TOP_TEMPERATURE };

	return figures[graph];
}

void top_model_init(struct top_model *m)
{
	*m = (struct top_model){ .host = { NAN, NAN, NAN, NAN } };
}

void top_model_done(struct top_model *m)
{
	free(m->gpu);
	free(m->process);
	free(m->worker);
	top_model_init(m);
}

int top_model_copy(struct top_model *to, const struct top_model *from)
{
	struct top_model old;

	if (array_reserve(&to->gpu, &to->gpu_cap, from->gpus, sizeof(*to->gpu)) != 0 ||
	    array_reserve(&to->process, &to->process_cap, from->processes,
			  sizeof(*to->process)) != 0 ||
	    array_reserve(&to->worker, &to->worker_cap, from->workers, sizeof(*to->worker)) !=
		    0)
		return -GW_E_NOMEM;
	old = *to;
	*to = *from;
	to->gpu = old.gpu;
	to->gpu_cap = old.gpu_cap;
	to->process = old.process;
	to->process_cap = old.process_cap;
	to->worker = old.worker;
	to->worker_cap = old.worker_cap;
	if (to->gpus)
		memcpy(to->gpu, from->gpu, to->gpus * sizeof(*to->gpu));
	if (to->processes)
		memcpy(to->process, from->process, to->processes * sizeof(*to->process));
	if (to->workers)
		memcpy(to->worker, from->worker, to->workers * sizeof(*to->worker));
	return 0;
}

static void history_clear(struct top_gpu *g)
{
	for (unsigned i = 0; i < TOP_GRAPHS; i++)
		for (unsigned k = 0; k < TOP_SAMPLES; k++)
			g->history[i][k] = NAN;
	g->next = 0;
}

int top_model_set_gpus(struct top_model *m, unsigned n)
{
	int err = array_reserve(&m->gpu, &m->gpu_cap, n, sizeof(*m->gpu));

	if (err)
		return err;
	for (unsigned i = m->gpus; i < n; i++) {
		memset(&m->gpu[i], 0, sizeof(m->gpu[i]));
		history_clear(&m->gpu[i]);
	}
	m->gpus = n;
	return 0;
}

struct top_process *top_model_add_process(struct top_model *m)
{
	struct top_process *p;

	if (array_reserve(&m->process, &m->process_cap, m->processes + 1,
			  sizeof(*m->process)) != 0)
		return NULL;
	p = &m->process[m->processes++];
	*p = (struct top_process){ .uid = -1,
				   .sm_ratio = NAN,
				   .memory_bytes = NAN,
				   .energy_j = NAN,
				   .cpu_ratio = NAN,
				   .run_s = NAN };
	return p;
}

void top_gpu_begin(struct top_gpu *g, const char *uuid)
{
	if (strcmp(g->uuid, uuid) != 0) {
		snprintf(g->uuid, sizeof(g->uuid), "%s", uuid);
		history_clear(g);
	}
	for (unsigned i = 0; i < TOP_FIGURES; i++) {
		g->value[i] = NAN;
		g->absence[i] = GW_ABSENT_NO_DATA;
	}
	g->held[0] = g->pstate[0] = g->message[0] = '\0';
	g->energy_j = g->energy_s = NAN;
	g->energy_age_s = 0;
	g->energy_absence = GW_ABSENT_NO_DATA;
	g->age_s = 0;
	g->migs = 0;
}

struct top_mig *top_gpu_add_mig(struct top_gpu *g, int instance, const char *name)
{
	struct top_mig *m = &g->mig[g->migs];
	const char *profile = strstr(name, "MIG ");

	if (g->migs == TOP_MIG)
		return NULL;
	g->migs++;
	*m = (struct top_mig){ .instance = instance, .memory_used = NAN, .memory_total = NAN };
	utf8_clean(m->name, sizeof(m->name), profile ? profile : name);
	return m;
}

void top_gpu_remember(struct top_gpu *g)
{
	for (unsigned i = 0; i < TOP_GRAPHS; i++)
		g->history[i][g->next] = (float)g->value[top_graph_figure(i)];
	g->next = (g->next + 1) % TOP_SAMPLES;
}

void top_model_add_gap(struct top_model *m, uint64_t now_ns)
{
	uint64_t missed = m->read_ns && m->interval_ns && now_ns > m->read_ns
				  ? (now_ns - m->read_ns) / m->interval_ns
				  : 0;

	/* One missed reading is not shown as a gap, because the reading may only be late. */
	for (uint64_t i = 1; missed > 2 && i < missed && i <= TOP_SAMPLES; i++)
		for (unsigned k = 0; k < m->gpus; k++) {
			struct top_gpu *g = &m->gpu[k];

			for (unsigned graph = 0; graph < TOP_GRAPHS; graph++)
				g->history[graph][g->next] = NAN;
			g->next = (g->next + 1) % TOP_SAMPLES;
		}
}

double top_gpu_sample(const struct top_gpu *g, enum top_graph graph, unsigned i)
{
	if (i >= TOP_SAMPLES)
		return NAN;
	return (double)g->history[graph][(g->next + TOP_SAMPLES - 1 - i) % TOP_SAMPLES];
}

const char *top_held_words(const char *word)
{
	static const char *const words[][2] = {
		{ "idle", "idle" },
		{ "application_clocks", "application clocks" },
		{ "sw_power_cap", "power limit" },
		{ "hw_slowdown", "hardware slowdown" },
		{ "sync_boost", "sync boost" },
		{ "sw_thermal", "heat (software)" },
		{ "hw_thermal", "heat (hardware)" },
		{ "power_brake", "external power brake" },
		{ "display", "display" },
	};

	for (size_t i = 0; i < COUNT(words); i++)
		if (strcmp(words[i][0], word) == 0)
			return words[i][1];
	return word;
}

/* Returns the text by which a column is sorted, or NULL if it is sorted by a number. */
static const char *column_text(const struct top_process *p, enum top_column column)
{
	switch (column) {
	case TOP_USER: return p->user;
	case TOP_WHERE: return p->where;
	case TOP_GUARD: return p->guard;
	case TOP_COMMAND: return *p->command ? p->command : p->name;
	default: return NULL;
	}
}

static double column_number(const struct top_process *p, enum top_column column)
{
	switch (column) {
	case TOP_PID: return (double)p->pid;
	case TOP_GPU: return (double)p->gpu;
	case TOP_TYPE: return (double)p->type;
	case TOP_SM: return p->sm_ratio;
	case TOP_MEMORY: return p->memory_bytes;
	case TOP_ENERGY: return p->energy_j;
	case TOP_CPU: return p->cpu_ratio;
	case TOP_TIME: return p->run_s;
	default: return 0;
	}
}

/* Compares two numbers for qsort(): the larger one comes first if direction is 1. An unknown
 * number comes last in both directions. */
static int compare_numbers(double a, double b, int direction)
{
	if (isnan(a) || isnan(b))
		return isnan(a) - isnan(b);
	return direction * ((a < b) - (a > b));
}

static int compare_texts(const char *a, const char *b, int direction)
{
	const int order = strcasecmp(a, b);

	if (!*a || !*b)
		return !*a - !*b;
	return direction * order;
}

struct sorting {
	const struct top_order *order;
	const struct top_model *model;
};

static int compare_rows(const void *a, const void *b, void *arg)
{
	const struct sorting *s = arg;
	const struct top_process *p = &s->model->process[*(const unsigned *)a];
	const struct top_process *q = &s->model->process[*(const unsigned *)b];
	enum top_column column = s->order->column;
	const char *text = column_text(p, column);
	int direction = s->order->reverse ? -1 : 1, n;

	if (text)
		n = compare_texts(text, column_text(q, column), direction);
	/* here the smallest number comes first */
	else if (column == TOP_PID || column == TOP_GPU)
		n = compare_numbers(column_number(p, column), column_number(q, column),
				    -direction);
	else
		n = compare_numbers(column_number(p, column), column_number(q, column),
				    direction);
	if (n == 0)
		n = (p->pid > q->pid) - (p->pid < q->pid);
	return n ? n : (p->gpu > q->gpu) - (p->gpu < q->gpu);
}

static bool order_shows(const struct top_order *o, const struct top_process *p)
{
	const char *const texts[] = { p->user, p->name, p->command, p->where, p->guard };
	char pid[24];

	if (o->gpu >= 0 && p->gpu != (unsigned)o->gpu)
		return false;
	if (!*o->filter)
		return true;
	for (size_t i = 0; i < COUNT(texts); i++)
		if (strcasestr(texts[i], o->filter))
			return true;
	snprintf(pid, sizeof(pid), "%lld", (long long)p->pid);
	return strstr(pid, o->filter) != NULL;
}

unsigned top_order_apply(const struct top_order *o, const struct top_model *m, unsigned *row)
{
	struct sorting s = { o, m };
	unsigned n = 0;

	for (unsigned i = 0; i < m->processes; i++)
		if (order_shows(o, &m->process[i]))
			row[n++] = i;
	qsort_r(row, n, sizeof(*row), compare_rows, &s);
	return n;
}

static void text_of(const struct json_doc *r, const char *path, char *out, size_t size)
{
	const char *s = json_doc_string(r, path);

	utf8_clean(out, size, s ? s : "");
}

static enum gw_device_state state_find(const char *name)
{
	for (unsigned i = GW_DEVICE_OK; name && i <= GW_DEVICE_CLOSED; i++)
		if (strcmp(gw_device_state_name(i), name) == 0)
			return (enum gw_device_state)i;
	return GW_DEVICE_FAULT;
}

/* Joins the words of an array with commas. If translate is not NULL, it is called for each
 * word. */
static void join_words(const struct json_doc *r, const char *path,
		       const char *(*translate)(const char *word), char *out, size_t size)
{
	char joined[200];
	struct buf b;

	buf_init_fixed(&b, joined, sizeof(joined));
	for (size_t i = 0; i < json_doc_count(r, path); i++) {
		const char *word = json_doc_string(json_doc_at(r, path, i), "");

		if (word)
			buf_addf(&b, "%s%s", b.len ? ", " : "",
				 translate ? translate(word) : word);
	}
	utf8_clean(out, size, joined);
}

static void read_figures(struct top_gpu *g, const struct json_doc *d)
{
	const struct json_doc *absent = json_doc_get(d, "absent");

	for (unsigned i = 0; i < TOP_FIGURES; i++) {
		const char *key = gw_quantity_info(top_figure_info[i].quantity)->key;
		enum json_doc_type type = json_doc_type(d, key);

		if (type == JSON_DOC_NUMBER)
			g->value[i] = json_doc_number(d, key);
		g->absence[i] = type != JSON_DOC_NULL && type != JSON_DOC_ABSENT
					? (uint8_t)GW_HAVE
					: (uint8_t)render_read_absence(
						  absent ? json_doc_string(absent, key) : NULL);
	}
	text_of(d, gw_quantity_info(GW_Q_PERFORMANCE_STATE)->key, g->pstate, sizeof(g->pstate));
	join_words(d, gw_quantity_info(GW_Q_CLOCK_REASONS)->key, top_held_words, g->held,
		   sizeof(g->held));
}

static void read_instances(struct top_gpu *g, const struct json_doc *d)
{
	for (size_t i = 0; i < json_doc_count(d, "mig_devices"); i++) {
		const struct json_doc *m = json_doc_at(d, "mig_devices", i);
		const char *name = json_doc_string(m, "name");
		int64_t instance;
		struct top_mig *to;

		if (!json_doc_integer(m, "gpu_instance", &instance) || instance > 1000)
			instance = -1;
		to = top_gpu_add_mig(g, (int)instance, name ? name : "");
		if (!to)
			return;
		to->memory_used = json_doc_figure(m, "memory_used_bytes");
		to->memory_total = json_doc_figure(m, "memory_total_bytes");
	}
}

static void read_device(struct top_gpu *g, const struct json_doc *d)
{
	const char *uuid = json_doc_string(d, "uuid");
	char identity[64];

	g->index = (unsigned)json_doc_number(d, "index");
	snprintf(identity, sizeof(identity), "%u", g->index);
	top_gpu_begin(g, uuid ? uuid : identity);
	text_of(d, "name", g->name, sizeof(g->name));
	text_of(d, "pci_bus_id", g->pci, sizeof(g->pci));
	text_of(d, "message", g->message, sizeof(g->message));
	g->state = state_find(json_doc_string(d, "state"));
	g->energy_j = json_doc_figure(d, "energy_joules_total");
	g->energy_s = json_doc_figure(d, "energy_measured_seconds_total");
	g->energy_absence = isnan(g->energy_j) ? GW_ABSENT_NO_DATA : GW_HAVE;
	g->age_s = json_doc_figure(d, "seen_age_seconds");
	read_figures(g, d);
	read_instances(g, d);
	top_gpu_remember(g);
}

int top_read_devices(struct top_model *m, const struct json_doc *doc)
{
	size_t n = json_doc_count(doc, "devices");
	int err = top_model_set_gpus(m, n > 256 ? 256 : (unsigned)n);

	if (err)
		return err;
	for (unsigned i = 0; i < m->gpus; i++)
		read_device(&m->gpu[i], json_doc_at(doc, "devices", i));
	text_of(doc, "source.driver_version", m->driver, sizeof(m->driver));
	text_of(doc, "source.message", m->status, sizeof(m->status));
	text_of(doc, "source.remedy", m->remedy, sizeof(m->remedy));
	m->simulated = json_doc_true(doc, "source.simulated");
	return 0;
}

void top_read_host(struct top_model *m, const struct json_doc *doc)
{
	m->host =
		(struct top_host){ .cpu_ratio =
					   json_doc_figure(doc, "host.cpu_utilization_ratio"),
				   .cpus = json_doc_figure(doc, "host.cpu_online_cores"),
				   .ram_used = json_doc_figure(doc, "host.ram_used_bytes"),
				   .ram_total = json_doc_figure(doc, "host.ram_total_bytes") };
}

/* Returns the index of the GPU with this uuid, or -1. */
static int find_gpu(const struct top_model *m, const char *uuid)
{
	for (unsigned i = 0; uuid && i < m->gpus; i++)
		if (strcmp(m->gpu[i].uuid, uuid) == 0)
			return (int)i;
	return -1;
}

static void read_process(struct top_process *p, const struct json_doc *d, unsigned gpu)
{
	int64_t v;

	p->gpu = gpu;
	p->pid = json_doc_integer(d, "pid", &v) ? v : -1;
	p->uid = json_doc_integer(d, "uid", &v) ? v : -1;
	p->start_ticks = json_doc_integer(d, "start_ticks", &v) && v > 0 ? (uint64_t)v : 0;
	(void)render_read_types(json_doc_get(d, "types"), &p->type);
	p->sm_ratio = json_doc_figure(d, "utilization_sm_ratio");
	p->memory_bytes = json_doc_figure(d, "memory_bytes");
	p->energy_j = json_doc_figure(d, "energy_joules");
	p->cpu_ratio = json_doc_figure(d, "cpu_used_cores");
	p->run_s = json_doc_figure(d, "run_seconds");
	text_of(d, "user", p->user, sizeof(p->user));
	text_of(d, "name", p->name, sizeof(p->name));
	text_of(d, "command", p->command, sizeof(p->command));
	text_of(d, "container", p->where, sizeof(p->where));
	if (!*p->where)
		text_of(d, "unit", p->where, sizeof(p->where));
}

/* Copies the class of a process from the previous list, because classes are read less often
 * than processes. The search begins at the index `hint`, where the process probably is. */
static void keep_class(struct top_process *p, const struct top_process *old, unsigned n,
		       unsigned hint)
{
	for (unsigned i = 0; i < n; i++) {
		const struct top_process *q = &old[(hint + i) % n];

		if (q->pid != p->pid || q->start_ticks != p->start_ticks || q->gpu != p->gpu)
			continue;
		memcpy(p->class, q->class, sizeof(p->class));
		memcpy(p->guard, q->guard, sizeof(p->guard));
		return;
	}
}

int top_read_processes(struct top_model *m, const struct json_doc *doc)
{
	struct top_process *old = m->process, *p;
	unsigned n = m->processes;
	int err = 0;

	m->process = NULL;
	m->processes = m->process_cap = 0;
	for (size_t i = 0; i < json_doc_count(doc, "processes") && !err; i++) {
		const struct json_doc *d = json_doc_at(doc, "processes", i);
		int gpu = find_gpu(m, json_doc_string(d, "device_uuid"));

		if (gpu < 0)
			continue;
		p = top_model_add_process(m);
		if (!p) {
			err = -GW_E_NOMEM;
			break;
		}
		read_process(p, d, (unsigned)gpu);
		keep_class(p, old, n, m->processes - 1);
	}
	free(old);
	return err;
}

int top_read_guard(struct top_model *m, const struct json_doc *doc)
{
	const unsigned n = (unsigned)json_doc_count(doc, "workers");

	m->workers = 0;
	m->guard_mode[0] = '\0';
	if (array_reserve(&m->worker, &m->worker_cap, n, sizeof(*m->worker)) != 0)
		return -GW_E_NOMEM;
	for (; m->workers < n; m->workers++) {
		const struct json_doc *d = json_doc_at(doc, "workers", m->workers);
		struct top_worker *w = &m->worker[m->workers];

		text_of(d, "name", w->name, sizeof(w->name));
		text_of(d, "state", w->state, sizeof(w->state));
		join_words(d, "mask", NULL, w->reasons, sizeof(w->reasons));
		w->since_s = json_doc_figure(d, "since_seconds");
		w->hypothetical = json_doc_true(d, "hypothetical");
	}
	if (n)
		text_of(doc, "mode", m->guard_mode, sizeof(m->guard_mode));
	return 0;
}

/* Returns the state of a worker for the column GUARD, or "(dry run)" if the worker is in this
 * state only in a dry run. */
static const char *worker_state(const struct top_model *m, const char *name)
{
	for (unsigned i = 0; i < m->workers; i++)
		if (strcmp(m->worker[i].name, name) == 0)
			return m->worker[i].hypothetical ? "(dry run)" : m->worker[i].state;
	return "";
}

static void read_class(struct top_model *m, struct top_process *p, const struct json_doc *d)
{
	char worker[48];

	text_of(d, "class", p->class, sizeof(p->class));
	text_of(d, "worker", worker, sizeof(worker));
	if (*worker)
		snprintf(p->guard, sizeof(p->guard), "%s %s", worker, worker_state(m, worker));
	else
		snprintf(p->guard, sizeof(p->guard), "%s", p->class);
	if (isnan(p->sm_ratio))
		p->sm_ratio = json_doc_figure(d, "utilization_sm_ratio");
}

void top_read_guard_gpu(struct top_model *m, const struct json_doc *doc)
{
	int gpu = find_gpu(m, json_doc_string(doc, "uuid"));

	for (size_t i = 0; gpu >= 0 && i < json_doc_count(doc, "processes"); i++) {
		const struct json_doc *d = json_doc_at(doc, "processes", i);
		int64_t pid;

		if (!json_doc_integer(d, "pid", &pid))
			continue;
		for (unsigned k = 0; k < m->processes; k++)
			if (m->process[k].pid == pid && m->process[k].gpu == (unsigned)gpu)
				read_class(m, &m->process[k], d);
	}
}

static int find_graph(const char *key)
{
	for (unsigned i = 0; key && i < TOP_GRAPHS; i++)
		if (strcmp(gw_quantity_info(top_figure_info[top_graph_figure(i)].quantity)->key,
			   key) == 0)
			return (int)i;
	return -1;
}

/* A service without clients reads the GPUs only every REST_S seconds (daemon/reader.h), so its
 * history has gaps, and the graph would show single bars. This function fills each gap of at
 * most `most` samples with the value before it. */
#define REST_S 10
static void bridge_rests(float *history, unsigned most)
{
	unsigned last = TOP_SAMPLES; /* index of the last known sample; TOP_SAMPLES: none yet */

	for (unsigned i = 0; i < TOP_SAMPLES; i++) {
		if (isnan(history[i]))
			continue;
		for (unsigned k = last + 1; last < i && i - last <= most && k < i; k++)
			history[k] = history[last];
		last = i;
	}
}

/* Writes one series into the history. The newest sample of the history is at the time `end`, in
 * seconds. Samples without a reading are unknown. */
static void read_one_series(struct top_gpu *g, int graph, const struct json_doc *d, double end)
{
	double step = json_doc_number(d, "step_seconds");
	size_t n = json_doc_count(d, "time");

	for (unsigned i = 0; i < TOP_SAMPLES; i++)
		g->history[graph][i] = NAN;
	for (size_t i = 0; step > 0 && i < n && i < json_doc_count(d, "mean"); i++) {
		double age = (end - json_doc_number(json_doc_at(d, "time", i), "")) / step;

		if (age >= 0 && age < TOP_SAMPLES)
			g->history[graph][TOP_SAMPLES - 1 - (unsigned)age] =
				(float)json_doc_figure(json_doc_at(d, "mean", i), "");
	}
	if (step > 0)
		bridge_rests(g->history[graph], (unsigned)(REST_S / step) + 1);
}

void top_read_series(struct top_model *m, const struct json_doc *doc)
{
	size_t n = json_doc_count(doc, "series");
	double end = 0;

	for (size_t i = 0; i < n; i++) {
		const struct json_doc *d = json_doc_at(doc, "series", i);
		size_t last = json_doc_count(d, "time");
		double t = last ? json_doc_number(json_doc_at(d, "time", last - 1), "") : 0;

		end = t > end ? t : end;
	}
	for (size_t i = 0; i < n; i++) {
		const struct json_doc *d = json_doc_at(doc, "series", i);
		int gpu = find_gpu(m, json_doc_string(d, "gpu"));
		int graph = find_graph(json_doc_string(d, "quantity"));

		if (gpu < 0 || graph < 0)
			continue;
		m->gpu[gpu].next = 0;
		read_one_series(&m->gpu[gpu], graph, d, end);
	}
}
