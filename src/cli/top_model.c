#include "top_model.h"

#include "base/array.h"
#include "base/utf8.h"

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

struct top_worker *top_model_add_worker(struct top_model *m)
{
	struct top_worker *w;

	if (array_reserve(&m->worker, &m->worker_cap, m->workers + 1, sizeof(*m->worker)) != 0)
		return NULL;
	w = &m->worker[m->workers++];
	*w = (struct top_worker){ .since_s = NAN };
	return w;
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

	/* A single missed reading is only late; it is not shown as a gap. */
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

/* Returns the text that a column sorts by, or NULL if the column sorts by a number, largest
 * first. */
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

/* Unknown values come last in both directions. */
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
	else if (column == TOP_PID || column == TOP_GPU) /* small numbers first */
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
