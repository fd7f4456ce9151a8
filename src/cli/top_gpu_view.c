#include "top_gpu_view.h"

#include "base/array.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "output.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GAP 1 /* columns between two graphs */
/* Columns between a value and the label to the right of it. Labels contain single blanks. */
#define FIGURE_GAP 2
#define BAR_LEAST  6 /* columns of the shortest bar */
/* From this width on, a graph has room for the full label, the value and a bar. */
#define LABEL_WIDTH 34
/* A narrower graph shows the full value instead of a bar. */
#define BAR_WIDTH        22
#define ENERGY_AGE_WIDTH 16 /* columns of "  energy 19s old" */

void gpu_view_energy(char out[static 24], double joules)
{
	static const char *const units[] = { "J", "kJ", "MJ", "GJ", "TJ" };
	unsigned u = 0;

	while (joules >= 9999.5 && u + 1 < COUNT(units)) {
		joules /= 1000;
		u++;
	}
	if (isnan(joules))
		snprintf(out, 24, "-");
	else
		snprintf(out, 24, "%.*f %s", u && joules < 99.95 ? 1 : 0, joules, units[u]);
}

/* Writes a whole number with its unit, such as "694 W", or "-" for NAN. */
static void whole(char out[static 48], double v, const char *unit)
{
	if (isnan(v))
		snprintf(out, 48, "-");
	else
		snprintf(out, 48, "%.0f %s", v, unit);
}

/* What is shown about one figure: in its caption, its bar and its graph. */
struct gauge {
	const char *label, *brief; /* brief: the label for narrow graphs */
	enum canvas_style style;
	double value;
	double high;                   /* value at which the bar or the graph is full */
	double mark;                   /* limit that is marked; NAN: none */
	char text[48], short_text[48]; /* the value; short_text is for narrow graphs */
};

/* Returns the first of a and b that is known and positive, or else c. */
static double first_known(double a, double b, double c)
{
	return !isnan(a) && a > 0 ? a : !isnan(b) && b > 0 ? b : c;
}

static void gauge_power(struct gauge *o, const struct top_gpu *g)
{
	double limit = g->value[TOP_POWER_LIMIT];

	o->high = first_known(g->value[TOP_POWER_LIMIT_MAX], limit, 500);
	o->mark = limit;
	whole(o->text, o->value, "W");
	if (!isnan(limit) && !isnan(o->value))
		snprintf(o->text, sizeof(o->text), "%.0f/%.0f W", o->value, limit);
	if (o->value >= 0.99 * limit)
		o->style = CANVAS_WARN;
}

static void gauge_memory(struct gauge *o, const struct top_gpu *g)
{
	double total = g->value[TOP_MEMORY_TOTAL], unit = 1024.0 * 1024 * 1024;
	const char *name = "GiB";

	o->high = first_known(total, o->value, 1);
	if (total < unit) {
		unit /= 1024;
		name = "MiB";
	}
	if (isnan(o->value))
		snprintf(o->text, sizeof(o->text), "-");
	else if (isnan(total))
		snprintf(o->text, sizeof(o->text), "%.1f %s", o->value / unit, name);
	else {
		snprintf(o->short_text, sizeof(o->short_text), "%.*f/%.*f %s",
			 o->value < 99.95 * unit, o->value / unit, total < 99.95 * unit,
			 total / unit, name);
		snprintf(o->text, sizeof(o->text), "%s, %.0f %%", o->short_text,
			 100 * o->value / total);
	}
}

static void gauge_temperature(struct gauge *o, const struct top_gpu *g)
{
	const double margin = g->value[TOP_MARGIN];
	const double left = isnan(margin) ? g->value[TOP_TEMPERATURE_LIMIT] - o->value : margin;

	o->high = 100;
	whole(o->text, o->value, "°C");
	whole(o->short_text, o->value, "°C");
	if (isnan(left + o->value))
		return;
	o->mark = o->value + left;
	o->high = o->mark > 90 ? o->mark + 10 : 100;
	snprintf(o->text, sizeof(o->text), "%.0f/%.0f °C", o->value, o->mark);
	if (left < 10)
		o->style = left < 3 ? CANVAS_BAD : CANVAS_WARN;
}

static void gauge_init(struct gauge *o, const struct top_gpu *g, enum top_graph graph)
{
	static const struct gauge kinds[] = {
		[TOP_GRAPH_UTILIZATION] = { "utilisation", "util", CANVAS_UTILIZATION, NAN, 1,
					    NAN, "", "" },
		[TOP_GRAPH_POWER] = { "power", "power", CANVAS_POWER, NAN, 1, NAN, "", "" },
		[TOP_GRAPH_MEMORY] = { "memory", "mem", CANVAS_MEMORY, NAN, 1, NAN, "", "" },
		[TOP_GRAPH_TEMPERATURE] = { "temperature", "temp", CANVAS_TEMPERATURE, NAN, 100,
					    NAN, "", "" },
	};

	*o = kinds[graph];
	o->value = g->value[top_graph_figure(graph)];
	switch (graph) {
	case TOP_GRAPH_POWER: gauge_power(o, g); break;
	case TOP_GRAPH_MEMORY: gauge_memory(o, g); break;
	case TOP_GRAPH_TEMPERATURE: gauge_temperature(o, g); break;
	default: whole(o->text, o->value * 100, "%");
	}
	if (!*o->short_text)
		snprintf(o->short_text, sizeof(o->short_text), "%s", o->text);
}

/* Draws the label, a bar and the value into the columns from `column` to `end` - 1. If there is
 * too little room, uses the short label and the short value, then leaves out the bar, then the
 * label: the unit of the value shows what it is. */
static void draw_caption(struct canvas *c, unsigned row, unsigned column, unsigned end,
			 const struct gauge *o)
{
	const size_t width = end - column, bar_room = BAR_LEAST + 1;
	const char *label = width >= LABEL_WIDTH ? o->label : o->brief, *text = o->text;
	const size_t label_room = strlen(label) + 1;
	unsigned at = column;
	size_t used;

	if (label_room + utf8_columns(text) > width ||
	    (width >= BAR_WIDTH && label_room + utf8_columns(text) + bar_room > width &&
	     label_room + utf8_columns(o->short_text) + bar_room <= width))
		text = o->short_text;
	used = label_room + utf8_columns(text);
	if (used <= width)
		at = canvas_format(c, row, column, end, CANVAS_DIM, "%s ", label);
	if (used + bar_room <= width) {
		unsigned bar = (unsigned)(width - used - 1);

		canvas_bar(c, row, at, bar, o->value / o->high, o->mark / o->high, o->style);
		at += bar + 1;
	}
	canvas_text(c, row, at, end, o->style, text);
}

/* A graph of a GPU. */
struct graph_of {
	const struct top_gpu *g;
	enum top_graph graph;
};

static double graph_sample(const void *arg, unsigned i)
{
	const struct graph_of *a = arg;

	return top_gpu_sample(a->g, a->graph, i);
}

/* Draws a caption in the first row and the graph in the other rows. */
static void draw_gauge(struct canvas *c, unsigned row, unsigned rows, unsigned column,
		       unsigned end, const struct top_gpu *g, enum top_graph graph)
{
	const struct graph_of arg = { g, graph };
	struct gauge o;

	gauge_init(&o, g, graph);
	draw_caption(c, row, column, end, &o);
	canvas_graph(c, &(struct canvas_graph){ .row = row + 1,
						.column = column,
						.rows = rows - 1,
						.columns = end - column,
						.high = o.high,
						.mark = o.mark,
						.style = o.style,
						.sample = graph_sample,
						.arg = &arg });
}

static enum canvas_style state_style(const struct top_gpu *g)
{
	switch (g->state) {
	case GW_DEVICE_OK: return CANVAS_GOOD;
	case GW_DEVICE_ASLEEP: return CANVAS_DIM;
	case GW_DEVICE_CLOSED: return CANVAS_WARN;
	default: return CANVAS_BAD;
	}
}

/* Returns true if the clocks are limited and the GPU is not idle. Low clocks of an idle GPU
 * need no warning. */
static bool is_held(const struct top_gpu *g)
{
	return *g->held && strcmp(g->held, "idle") != 0;
}

static void held_text(const struct top_gpu *g, char *out, size_t size)
{
	if (is_held(g))
		snprintf(out, size, "clocks limited by %s", g->held);
	else if (*g->held)
		snprintf(out, size, "%s", g->held);
	else
		snprintf(out, size, "%s",
			 g->absence[TOP_CLOCK_REASONS] == GW_HAVE ? "no clock limit" : "");
}

/* Writes "15.4 kJ in 2m10". */
static void energy_text(const struct top_gpu *g, char out[static 64])
{
	char energy[24], time[16];

	gpu_view_energy(energy, g->energy_j);
	snprintf(out, 64, "%s in %s", energy, figure_run_time(time, g->energy_s));
}

/* Draws one line with the name, the clock, the energy and why the clocks are limited. */
static void draw_title(struct canvas *c, unsigned row, const struct top_gpu *g, bool selected)
{
	char held[128], energy[64], age[16];
	unsigned at = canvas_format(c, row, 0, c->columns, CANVAS_BOLD, "GPU %u", g->index);
	unsigned end = c->columns;

	at = canvas_format(c, row, at + 2, c->columns / 2, CANVAS_BOLD, "%s",
			   *g->name ? g->name : "-");
	if (selected)
		canvas_paint(c, row, CANVAS_SELECTED);
	if (g->state != GW_DEVICE_OK) {
		canvas_format(c, row, at + 2, end, state_style(g), "%s",
			      gw_device_state_name(g->state));
		return;
	}
	at = canvas_format(c, row, at + 2, end, CANVAS_PLAIN, "%s", g->pstate);
	if (!isnan(g->value[TOP_CLOCK_SM]))
		at = canvas_format(c, row, at + 1, end, CANVAS_PLAIN, "%.0f MHz",
				   g->value[TOP_CLOCK_SM] / 1e6);
	if (g->energy_s > 0) {
		energy_text(g, energy);
		at = canvas_text(c, row, at + 2, end, CANVAS_PLAIN, energy);
	}
	if (c->columns >= 110 && !isnan(g->value[TOP_FAN]))
		at = canvas_format(c, row, at + 2, end, CANVAS_PLAIN, "fan %.0f %%",
				   g->value[TOP_FAN] * 100);
	held_text(g, held, sizeof(held));
	if (g->age_s >= 5)
		at = canvas_format(c, row, at + 2, end, CANVAS_BAD, "read %.0f s ago",
				   g->age_s);
	else
		at = canvas_text(c, row, at + 2, end, is_held(g) ? CANVAS_WARN : CANVAS_DIM,
				 held);
	if (g->energy_age_s >= 1 && at + ENERGY_AGE_WIDTH <= end)
		canvas_format(c, row, at + 2, end, CANVAS_DIM, "energy %s old",
			      figure_run_time(age, g->energy_age_s));
}

/* Returns the first column of graph i if n graphs are drawn next to each other. */
static unsigned slot(const struct canvas *c, unsigned i, unsigned n)
{
	return i * (c->columns + GAP) / n;
}

unsigned gpu_view_graph_columns(const struct canvas *c, bool large)
{
	return slot(c, 1, large ? 2 : TOP_GRAPHS) - GAP;
}

/* The columns of a GPU that is drawn as one line. */
enum { LINE_INDEX, LINE_UTIL, LINE_POWER, LINE_MEMORY, LINE_TEMP, LINE_ENERGY, LINE_HELD };
struct line_layout {
	unsigned at[LINE_HELD + 1]; /* position of each column */
	unsigned bar[LINE_HELD];    /* width of its bar; 0: no bar */
	unsigned name;              /* width of the GPU's name; 0: not shown */
};

static void line_layout(const struct canvas *c, struct line_layout *l)
{
	static const unsigned text[] = { 4, 6, 10, 13, 6, 8 };
	/* 12 is the width of the last column, which shows why the clocks are limited. */
	unsigned used = 12, at = 0, spare, bars;

	*l = (struct line_layout){ .name = 0 };
	for (size_t i = 0; i < COUNT(text); i++)
		used += text[i] + 1;
	spare = c->columns > used ? c->columns - used : 0;
	l->name = spare >= 45 ? 24 : 0;
	spare -= l->name;
	bars = spare >= 3 * BAR_LEAST ? 3 : spare / BAR_LEAST;
	for (unsigned i = 0; i < COUNT(text); i++) {
		if (i >= LINE_UTIL && i < LINE_UTIL + bars)
			l->bar[i] = spare / bars < 24 ? spare / bars : 24;
		l->at[i] = at;
		at += text[i] + 1 + l->bar[i] + (i == LINE_INDEX ? l->name : 0);
	}
	l->at[LINE_HELD] = at;
}

void gpu_view_heading(struct canvas *c, unsigned row)
{
	static const char *const titles[] = { "GPU",  "UTIL",   "POWER", "MEMORY",
					      "TEMP", "ENERGY", "CLOCKS" };
	struct line_layout l;

	line_layout(c, &l);
	canvas_paint(c, row, CANVAS_HEADING);
	for (unsigned i = 0; i <= LINE_HELD; i++)
		canvas_text(c, row, l.at[i], c->columns, CANVAS_HEADING, titles[i]);
	if (l.name)
		canvas_text(c, row, 5, c->columns, CANVAS_HEADING, "NAME");
}

static void draw_line_gauge(struct canvas *c, unsigned row, const struct line_layout *l,
			    unsigned i, const struct top_gpu *g, enum top_graph graph)
{
	struct gauge o;

	gauge_init(&o, g, graph);
	canvas_right(c, row, l->at[i] + l->bar[i], l->at[i + 1] - 1, o.style, o.short_text);
	if (l->bar[i])
		canvas_bar(c, row, l->at[i], l->bar[i] - 1, o.value / o.high, o.mark / o.high,
			   o.style);
}

/* Draws the name of a GPU. If it is too long, leaves out its middle, because the names of
 * similar GPUs often differ at the end. */
static void draw_name(struct canvas *c, unsigned row, unsigned column, unsigned end,
		      const char *name)
{
	const unsigned width = end - column, tail = width / 2;

	if (utf8_columns(name) <= width) {
		canvas_text(c, row, column, end, CANVAS_PLAIN, name);
		return;
	}
	/* adds the mark for cut text */
	canvas_text(c, row, column, end - tail, CANVAS_PLAIN, name);
	canvas_text(c, row, end - tail, end, CANVAS_PLAIN, utf8_tail(name, tail));
}

static void draw_line(struct canvas *c, unsigned row, const struct top_gpu *g, bool selected)
{
	struct line_layout l;
	char energy[24];

	line_layout(c, &l);
	canvas_format(c, row, 0, l.at[LINE_UTIL], CANVAS_BOLD, "%3u", g->index);
	if (l.name)
		draw_name(c, row, 5, l.at[LINE_UTIL] - 1, g->name);
	if (selected)
		canvas_paint(c, row, CANVAS_SELECTED);
	if (g->state != GW_DEVICE_OK) {
		canvas_format(c, row, l.at[LINE_UTIL], c->columns, state_style(g), "%s: %s",
			      gw_device_state_name(g->state), g->message);
		return;
	}
	draw_line_gauge(c, row, &l, LINE_UTIL, g, TOP_GRAPH_UTILIZATION);
	draw_line_gauge(c, row, &l, LINE_POWER, g, TOP_GRAPH_POWER);
	draw_line_gauge(c, row, &l, LINE_MEMORY, g, TOP_GRAPH_MEMORY);
	draw_line_gauge(c, row, &l, LINE_TEMP, g, TOP_GRAPH_TEMPERATURE);
	gpu_view_energy(energy, g->energy_s > 0 ? g->energy_j : (double)NAN);
	canvas_right(c, row, l.at[LINE_ENERGY], l.at[LINE_HELD] - 1, CANVAS_PLAIN, energy);
	if (g->age_s >= 5)
		canvas_format(c, row, l.at[LINE_HELD], c->columns, CANVAS_BAD, "read %.0fs ago",
			      g->age_s);
	else
		canvas_text(c, row, l.at[LINE_HELD], c->columns,
			    is_held(g) ? CANVAS_WARN : CANVAS_DIM, *g->held ? g->held : "free");
}

void gpu_view_draw(struct canvas *c, unsigned row, unsigned rows, const struct top_gpu *g,
		   bool selected)
{
	if (rows < GPU_VIEW_BARS) {
		draw_line(c, row, g, selected);
		return;
	}
	draw_title(c, row, g, selected);
	if (g->state != GW_DEVICE_OK) {
		canvas_wrap(c, row + 1, rows - 1, 0, c->columns, state_style(g), g->message);
		return;
	}
	for (unsigned i = 0; i < TOP_GRAPHS; i++)
		draw_gauge(c, row + 1, rows - 1, slot(c, i, TOP_GRAPHS),
			   slot(c, i + 1, TOP_GRAPHS) - GAP, g, i);
}

void gpu_view_large(struct canvas *c, unsigned row, unsigned rows, const struct top_gpu *g)
{
	unsigned half = (rows - 1) / 2;

	draw_title(c, row, g, false);
	for (unsigned i = 0; i < TOP_GRAPHS; i++)
		draw_gauge(c, row + 1 + i / 2 * half, half, slot(c, i % 2, 2),
			   slot(c, i % 2 + 1, 2) - GAP, g, i);
}

/* The energy is not a figure of the snapshot, but it is shown among the figures. */
#define FIGURE_ENERGY ((unsigned)TOP_FIGURES)
#define ENERGY_BEFORE TOP_UTILIZATION /* the energy stands before this figure */

static void energy_figure_text(const struct top_gpu *g, char out[static 64])
{
	char energy[64], age[16];

	energy_text(g, energy);
	if (g->energy_age_s >= 1)
		snprintf(out, 64, "%.40s, %s ago", energy,
			 figure_run_time(age, g->energy_age_s));
	else
		snprintf(out, 64, "%s", energy);
}

static void figure_text(const struct top_gpu *g, unsigned i, char out[static 64])
{
	const char *key;
	double v;
	char bytes[24];

	if (i == FIGURE_ENERGY) {
		energy_figure_text(g, out);
		return;
	}
	key = gw_quantity_info(top_figure_info[i].quantity)->key;
	v = g->value[i];
	if (i == TOP_PERFORMANCE_STATE || i == TOP_CLOCK_REASONS) {
		snprintf(out, 64, "%s",
			 i == TOP_PERFORMANCE_STATE ? g->pstate
			 : *g->held                 ? g->held
						    : "nothing");
		return;
	}
	switch (figure_unit(key)) {
	case UNIT_BYTES: snprintf(out, 64, "%s", figure_bytes(bytes, v)); break;
	case UNIT_WATTS: snprintf(out, 64, "%.1f W", v); break;
	case UNIT_CELSIUS: snprintf(out, 64, "%.0f °C", v); break;
	case UNIT_HERTZ: snprintf(out, 64, "%.0f MHz", v / 1e6); break;
	case UNIT_RATIO: snprintf(out, 64, "%.0f %%", v * 100); break;
	default: snprintf(out, 64, "%.0f", v);
	}
}

/* Draws one line per reason, such as "fan, encoder: unknown, not supported". Returns the number
 * of rows. */
static unsigned draw_reasons(struct canvas *c, unsigned row, unsigned rows,
			     const struct top_gpu *g)
{
	unsigned used = 0;

	for (unsigned why = 1; why < GW_ABSENCES && used < rows; why++) {
		char line[600];
		struct buf b;
		unsigned n = 0;

		buf_init_fixed(&b, line, sizeof(line));
		for (unsigned i = 0; i < TOP_FIGURES; i++)
			if (g->absence[i] == why)
				buf_addf(&b, "%s%s", n++ ? ", " : "", top_figure_info[i].label);
		if (g->energy_absence == why)
			buf_addf(&b, "%senergy", n++ ? ", " : "");
		if (!n)
			continue;
		buf_addf(&b, ": unknown, %s", gw_absence_text(why));
		used += canvas_wrap(c, row + used, rows - used, 0, c->columns, CANVAS_DIM,
				    line);
	}
	return used;
}

/* Draws one line per MIG instance, such as "MIG 3g.71gb (instance 1) 40.0 GiB / 69.0 GiB".
 * Returns the number of rows. */
static unsigned draw_instances(struct canvas *c, unsigned row, unsigned rows,
			       const struct top_gpu *g)
{
	unsigned i;

	for (i = 0; i < g->migs && i < rows; i++) {
		const struct top_mig *m = &g->mig[i];
		char used[24] = "-", total[24] = "-";

		figure_bytes(used, m->memory_used);
		figure_bytes(total, m->memory_total);
		if (m->instance >= 0)
			canvas_format(c, row + i, 0, 31, CANVAS_DIM, "%s (instance %d)",
				      *m->name ? m->name : "MIG", m->instance);
		else
			canvas_text(c, row + i, 0, 31, CANVAS_DIM, *m->name ? m->name : "MIG");
		canvas_format(c, row + i, 32, c->columns, CANVAS_PLAIN, "%s / %s", used, total);
	}
	return i;
}

/* Draws a figure into the columns from `at` to `end`. A text that is too long for its column
 * begins further left, if the label leaves room. */
static void draw_figure(struct canvas *c, unsigned row, unsigned at, unsigned end,
			const struct top_gpu *g, unsigned figure)
{
	const char *label = figure == FIGURE_ENERGY ? "energy" : top_figure_info[figure].label;
	const unsigned least = at + (unsigned)utf8_columns(label) + 1;
	unsigned begin = at + 24, width;
	char text[64];

	figure_text(g, figure, text);
	width = (unsigned)utf8_columns(text);
	if (begin + width > end)
		begin = end > least + width ? end - width : least;
	canvas_text(c, row, at, at + 23, CANVAS_DIM, label);
	canvas_text(c, row, begin < at + 24 ? begin : at + 24, end, CANVAS_PLAIN, text);
}

unsigned gpu_view_figures(struct canvas *c, unsigned row, unsigned rows,
			  const struct top_gpu *g)
{
	unsigned across = c->columns / 40 ? c->columns / 40 : 1, n = 0, height, used;
	unsigned known[TOP_FIGURES + 1];

	for (unsigned i = 0; i < TOP_FIGURES; i++) {
		if (i == ENERGY_BEFORE && g->energy_s > 0)
			known[n++] = FIGURE_ENERGY;
		if (g->absence[i] == GW_HAVE)
			known[n++] = i;
	}
	height = (n + across - 1) / across;
	height = height < rows ? height : rows;
	for (unsigned i = 0; i < n; i++) {
		unsigned at = i / (height ? height : 1) * (c->columns / across);

		if (i / (height ? height : 1) >= across)
			break;
		draw_figure(c, row + i % height, at, at + c->columns / across - FIGURE_GAP, g,
			    known[i]);
	}
	used = height;
	used += draw_instances(c, row + used, rows - used, g);
	return used + draw_reasons(c, row + used, rows - used, g);
}
