#include "top_screen.h"

#include "output.h"
#include "top_gpu_view.h"

#include "base/array.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/utf8.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *title;
	unsigned width;
	unsigned rank; /* the column with the highest rank is hidden first; 0: never hidden */
	bool right;
} process_columns[TOP_COLUMNS] = {
	[TOP_PID] = { "PID", 8, 0, true },       [TOP_USER] = { "USER", 8, 2, false },
	[TOP_GPU] = { "GPU", 4, 0, true },       [TOP_TYPE] = { "TYPE", 5, 7, false },
	[TOP_SM] = { "SM%", 4, 0, true },        [TOP_MEMORY] = { "MEMORY", 9, 0, true },
	[TOP_ENERGY] = { "ENERGY", 7, 4, true }, [TOP_CPU] = { "CPU%", 5, 1, true },
	[TOP_TIME] = { "TIME", 6, 5, true },     [TOP_WHERE] = { "UNIT", 18, 6, false },
	[TOP_GUARD] = { "GUARD", 16, 3, false }, [TOP_COMMAND] = { "COMMAND", 16, 0, false },
};

const char *process_view_title(enum top_column column)
{
	return process_columns[column].title;
}

/* Returns true if the column is UNIT, GUARD or ENERGY and no process has a value for it. Such a
 * column is not shown. */
static bool column_is_empty(enum top_column column, const struct top_model *m)
{
	for (unsigned i = 0; i < m->processes; i++)
		if ((column == TOP_WHERE && *m->process[i].where) ||
		    (column == TOP_GUARD && *m->process[i].guard) ||
		    (column == TOP_ENERGY && !isnan(m->process[i].energy_j)))
			return false;
	return column == TOP_WHERE || column == TOP_GUARD || column == TOP_ENERGY;
}

/* Decides which columns are shown. Adds the titles of columns that have values but do not fit
 * to `hidden`. */
static void choose_columns(const struct canvas *c, const struct top_model *m,
			   bool shown[static TOP_COLUMNS], struct buf *hidden)
{
	for (unsigned i = 0; i < TOP_COLUMNS; i++)
		shown[i] = !column_is_empty(i, m);
	for (;;) {
		unsigned used = 0, worst = TOP_COLUMNS;

		for (unsigned i = 0; i < TOP_COLUMNS; i++) {
			if (!shown[i])
				continue;
			used += process_columns[i].width + 1;
			if (process_columns[i].rank &&
			    (worst == TOP_COLUMNS ||
			     process_columns[i].rank > process_columns[worst].rank))
				worst = i;
		}
		if (used <= c->columns + 1 || worst == TOP_COLUMNS)
			break;
		shown[worst] = false;
	}
	for (unsigned i = 0; i < TOP_COLUMNS; i++)
		if (!shown[i] && !column_is_empty(i, m))
			buf_addf(hidden, "%s%s", hidden->len ? ", " : "",
				 process_columns[i].title);
}

static void percent(char out[static 64], double ratio)
{
	if (isnan(ratio))
		snprintf(out, 64, "-");
	else
		snprintf(out, 64, "%.0f", ratio * 100);
}

static void column_value(const struct top_process *p, const struct top_model *m,
			 enum top_column column, char out[static 64])
{
	char text[24] = "";

	switch (column) {
	case TOP_PID: snprintf(out, 64, "%lld", (long long)p->pid); return;
	case TOP_GPU: snprintf(out, 64, "%u", m->gpu[p->gpu].index); return;
	case TOP_TYPE: snprintf(out, 64, "%s", figure_process_type(p->type)); return;
	case TOP_SM: percent(out, p->sm_ratio); return;
	case TOP_CPU: percent(out, p->cpu_ratio); return;
	case TOP_MEMORY: figure_bytes(text, p->memory_bytes); break;
	case TOP_ENERGY: gpu_view_energy(text, p->energy_j); break;
	case TOP_TIME: figure_run_time(text, p->run_s); break;
	case TOP_USER: snprintf(out, 64, "%s", *p->user ? p->user : "-"); return;
	case TOP_WHERE: snprintf(out, 64, "%.63s", *p->where ? p->where : "-"); return;
	case TOP_GUARD: snprintf(out, 64, "%s", *p->guard ? p->guard : "-"); return;
	default: break;
	}
	snprintf(out, 64, "%s", text);
}

static enum canvas_style cell_style(const struct top_process *p, enum top_column column)
{
	if (column == TOP_GUARD && strcmp(p->class, "contender") == 0)
		return CANVAS_WARN;
	if (column == TOP_GUARD && strcmp(p->class, "worker") == 0)
		return CANVAS_GOOD;
	return column == TOP_SM       ? CANVAS_UTILIZATION
	       : column == TOP_MEMORY ? CANVAS_MEMORY
	       : column == TOP_ENERGY ? CANVAS_POWER
				      : CANVAS_PLAIN;
}

/* Returns the command. If it is wider than `width` columns, leaves out the folder of its
 * program. */
static const char *short_command(const char *command, size_t width)
{
	const size_t program = strcspn(command, " ");
	size_t at = program;

	if (utf8_columns(command) <= width)
		return command;
	while (at > 0 && command[at - 1] != '/')
		at--;
	return at < program ? command + at : command;
}

static void draw_process(struct canvas *c, unsigned row, const struct top_process *p,
			 const struct top_model *m, const bool shown[static TOP_COLUMNS])
{
	const char *command = *p->command ? p->command : *p->name ? p->name : "-";
	unsigned at = 0;
	char text[64];

	for (unsigned i = 0; i < TOP_COMMAND; i++) {
		unsigned end = at + process_columns[i].width;

		if (!shown[i])
			continue;
		column_value(p, m, i, text);
		if (process_columns[i].right)
			canvas_right(c, row, at, end, cell_style(p, i), text);
		else
			canvas_text(c, row, at, end, cell_style(p, i), text);
		at = end + 1;
	}
	canvas_text(c, row, at, c->columns, CANVAS_PLAIN,
		    short_command(command, c->columns > at ? c->columns - at : 0));
}

static void draw_table_heading(struct canvas *c, unsigned row, const struct top_ui *ui,
			       const bool shown[static TOP_COLUMNS])
{
	unsigned at = 0;

	canvas_paint(c, row, CANVAS_HEADING);
	for (unsigned i = 0; i < TOP_COLUMNS; i++) {
		unsigned end = at + process_columns[i].width;
		char text[32];

		if (!shown[i])
			continue;
		snprintf(text, sizeof(text), "%s%s", process_columns[i].title,
			 ui->order.column != i ? ""
			 : c->utf8             ? ui->order.reverse ? "▲" : "▼"
			 : ui->order.reverse   ? "^"
					       : "v");
		if (process_columns[i].right)
			canvas_right(c, row, at, end, CANVAS_HEADING, text);
		else
			canvas_text(c, row, at, end + 1, CANVAS_HEADING, text);
		at = end + 1;
	}
}

/* Changes *top, the first visible row of `count` rows, so that the row `selected` is visible.
 * `page` rows are visible at a time. */
static void top_scroll_to(unsigned *top, unsigned selected, unsigned page, unsigned count)
{
	if (selected >= *top + page)
		*top = selected - page + 1;
	if (selected < *top)
		*top = selected;
	if (*top + page > count)
		*top = count > page ? count - page : 0;
}

/* Draws the table of processes into `rows` rows. Changes ui->process_top so that the selected
 * process is visible, and sets ui->page and ui->hidden. */
static void process_view_draw(struct canvas *c, unsigned row, unsigned rows,
			      const struct top_model *m, struct top_ui *ui)
{
	bool shown[TOP_COLUMNS];
	char text[64];
	struct buf hidden;

	if (rows < 2)
		return;
	buf_init_fixed(&hidden, ui->hidden, sizeof(ui->hidden));
	choose_columns(c, m, shown, &hidden);
	draw_table_heading(c, row, ui, shown);
	ui->page = rows - 1;
	top_scroll_to(&ui->process_top, ui->selected, ui->page, ui->rows);
	if (ui->rows == 0)
		canvas_format(c, row + 1, 0, c->columns, CANVAS_DIM, "%s",
			      *ui->order.filter ? "No process matches the filter."
			      : ui->zoom        ? "No process uses this GPU."
						: "No process uses a GPU.");
	for (unsigned i = 0; i < ui->page && ui->process_top + i < ui->rows; i++) {
		unsigned at = ui->process_top + i;

		draw_process(c, row + 1 + i, &m->process[ui->row[at]], m, shown);
		if (ui->focus == TOP_FOCUS_PROCESSES && at == ui->selected)
			canvas_paint(c, row + 1 + i, CANVAS_SELECTED);
	}
	if (ui->rows > ui->page) {
		snprintf(text, sizeof(text), " %u to %u of %u", ui->process_top + 1,
			 ui->process_top + ui->page, ui->rows);
		canvas_right(c, row, c->columns / 2, c->columns, CANVAS_HEADING, text);
	}
}

/* Figures count as old after this time, or after three intervals if that is longer. */
#define OLD_NS        (3 * NS_PER_S)
#define PROCESSES_MIN 2 /* the process table gets at least this many rows */
/* rows that are kept free for processes, if the terminal has enough rows */
#define PROCESSES_WANT 6
#define BLOCK_MOST     12 /* largest number of rows per GPU, if there are several */
#define LARGE_LEAST    9  /* smallest and largest number of rows for large graphs */
#define LARGE_MOST     27

static void remember_cursor(struct top_ui *ui, const struct top_model *m)
{
	const struct top_process *p = top_ui_selected(ui, m);

	if (p)
		ui->cursor = (struct top_cursor){ p->pid, p->start_ticks, p->gpu };
}

static bool is_at_cursor(const struct top_ui *ui, const struct top_process *p)
{
	return p->pid == ui->cursor.pid && p->start_ticks == ui->cursor.start_ticks &&
	       p->gpu == ui->cursor.gpu;
}

int top_ui_arrange(struct top_ui *ui, const struct top_model *m)
{
	if (array_reserve(&ui->row, &ui->row_cap, m->processes ? m->processes : 1,
			  sizeof(*ui->row)) != 0)
		return -GW_E_NOMEM;
	ui->gpu = ui->gpu < m->gpus ? ui->gpu : m->gpus ? m->gpus - 1 : 0;
	ui->order.gpu = ui->zoom ? (int)ui->gpu : -1;
	ui->rows = top_order_apply(&ui->order, m, ui->row);
	for (unsigned i = 0; ui->follow && i < ui->rows; i++)
		if (is_at_cursor(ui, &m->process[ui->row[i]]))
			ui->selected = i;
	ui->selected = ui->selected < ui->rows ? ui->selected : ui->rows ? ui->rows - 1 : 0;
	remember_cursor(ui, m);
	return 0;
}

void top_ui_select(struct top_ui *ui, const struct top_model *m, unsigned row)
{
	ui->selected = row;
	ui->follow = row > 0;
	remember_cursor(ui, m);
}

const struct top_process *top_ui_selected(const struct top_ui *ui, const struct top_model *m)
{
	if (ui->selected >= ui->rows || ui->row[ui->selected] >= m->processes)
		return NULL;
	return &m->process[ui->row[ui->selected]];
}

double top_model_old_s(const struct top_model *m, uint64_t now_ns)
{
	uint64_t most = 3 * m->interval_ns > OLD_NS ? 3 * m->interval_ns : OLD_NS;
	uint64_t age = now_ns > m->read_ns ? now_ns - m->read_ns : 0;

	if (!m->read_ns || (!*m->problem && age <= most))
		return 0;
	return (double)age / 1e9;
}

/* A part of the first or the last line of the screen. */
struct part {
	char text[120];
	enum canvas_style style;
	unsigned rank; /* the part with the highest rank is left out first; 0: never */
};

static void add_part(struct part *parts, unsigned *n, unsigned rank, enum canvas_style style,
		     const char *text)
{
	if (!*text)
		return;
	snprintf(parts[*n].text, sizeof(parts[*n].text), "%s", text);
	parts[*n].style = style;
	parts[(*n)++].rank = rank;
}

/* Leaves out parts, highest rank first, until the others fit into the columns. */
static void fit_parts(struct part *parts, unsigned n, unsigned columns)
{
	for (;;) {
		unsigned used = 0, worst = n;

		for (unsigned i = 0; i < n; i++) {
			if (!*parts[i].text)
				continue;
			used += (unsigned)strlen(parts[i].text) + 2;
			if (parts[i].rank && (worst == n || parts[i].rank > parts[worst].rank))
				worst = i;
		}
		if (used <= columns + 2 || worst == n)
			return;
		parts[worst].text[0] = '\0';
	}
}

static void add_host(struct part *parts, unsigned *n, const struct top_host *h)
{
	char text[120], used[24], total[24];

	if (!isnan(h->cpu_ratio)) {
		if (isnan(h->cpus))
			snprintf(text, sizeof(text), "CPU %.0f %%", h->cpu_ratio * 100);
		else
			snprintf(text, sizeof(text), "CPU %.0f %% (%.0f CPUs)",
				 h->cpu_ratio * 100, h->cpus);
		add_part(parts, n, 3, CANVAS_PLAIN, text);
	}
	if (!isnan(h->ram_used) && !isnan(h->ram_total)) {
		snprintf(text, sizeof(text), "RAM %s / %s", figure_bytes(used, h->ram_used),
			 figure_bytes(total, h->ram_total));
		add_part(parts, n, 4, CANVAS_PLAIN, text);
	}
}

static void add_total_power(struct part *parts, unsigned *n, const struct top_model *m)
{
	double watts = 0;
	char text[40];

	for (unsigned i = 0; i < m->gpus; i++)
		/* if one value is NAN, the sum is NAN, too */
		watts += m->gpu[i].value[TOP_POWER];
	snprintf(text, sizeof(text), "%.0f W in all", watts);
	if (m->gpus > 1 && !isnan(watts))
		add_part(parts, n, 5, CANVAS_PLAIN, text);
}

static void draw_machine(struct canvas *c, const struct top_model *m, const struct top_ui *ui,
			 bool old)
{
	struct part parts[12];
	char text[120];
	unsigned n = 0, at = 0, end = c->columns;

	add_part(parts, &n, 0, CANVAS_BOLD, "gpuward top");
	add_part(parts, &n, 0, CANVAS_MARK, m->simulated ? " SIMULATED " : "");
	add_part(parts, &n, 0, CANVAS_MARK, ui->paused ? " PAUSED " : "");
	if (ui->gpu_page && ui->gpu_page < m->gpus)
		snprintf(text, sizeof(text), "GPUs %u to %u of %u", m->gpu[ui->gpu_top].index,
			 m->gpu[ui->gpu_top + ui->gpu_page - 1].index, m->gpus);
	else
		snprintf(text, sizeof(text), "%u GPU%s", m->gpus, m->gpus == 1 ? "" : "s");
	add_part(parts, &n, 1, CANVAS_PLAIN, m->read_ns ? text : "");
	add_total_power(parts, &n, m);
	add_host(parts, &n, &m->host);
	snprintf(text, sizeof(text), "driver %s", m->driver);
	add_part(parts, &n, 7, CANVAS_DIM, *m->driver ? text : "");
	snprintf(text, sizeof(text), "read from the %s", m->source);
	add_part(parts, &n, 6, CANVAS_DIM, *m->source ? text : "");
	if (*ui->clock)
		end -= (unsigned)strlen(ui->clock) + 2;
	fit_parts(parts, n, end);
	for (unsigned i = 0; i < n; i++)
		if (*parts[i].text)
			at = canvas_text(c, 0, at, end,
					 old && parts[i].rank ? CANVAS_DIM : parts[i].style,
					 parts[i].text) +
			     2;
	canvas_right(c, 0, end, c->columns, CANVAS_DIM, ui->clock);
}

/* Draws "guard enforce: ollama evicted 12s (contention)". */
static void draw_guard(struct canvas *c, unsigned row, const struct top_model *m)
{
	unsigned at =
		canvas_format(c, row, 0, c->columns, CANVAS_DIM, "guard %s:", m->guard_mode);

	for (unsigned i = 0; i < m->workers; i++) {
		const struct top_worker *w = &m->worker[i];
		bool active = strcmp(w->state, "active") == 0;
		char time[24];

		figure_run_time(time, w->since_s);
		at = canvas_format(c, row, at + 1, c->columns,
				   active ? CANVAS_GOOD : CANVAS_WARN, "%s %s%s %s%s%s%s%s",
				   w->name, w->state, w->hypothetical ? " (dry run)" : "", time,
				   *w->reasons ? " (" : "", w->reasons, *w->reasons ? ")" : "",
				   i + 1 < m->workers ? "," : "");
	}
}

static unsigned draw_old(struct canvas *c, unsigned row, const struct top_model *m, double old)
{
	char age[24], text[600];

	figure_run_time(age, old);
	snprintf(text, sizeof(text), "These figures are %s old: %s; trying again", age,
		 *m->problem ? m->problem : "the last reading has not finished");
	return canvas_wrap(c, row, 2, 0, c->columns, CANVAS_BAD, text);
}

static unsigned draw_lines(struct canvas *c, unsigned row, unsigned rows,
			   const struct top_model *m, struct top_ui *ui)
{
	unsigned page = rows - 1 < m->gpus ? rows - 1 : m->gpus;

	gpu_view_heading(c, row);
	ui->gpu_page = page;
	top_scroll_to(&ui->gpu_top, ui->gpu, page, m->gpus);
	for (unsigned i = 0; i < page; i++)
		gpu_view_draw(c, row + 1 + i, GPU_VIEW_LINE, &m->gpu[ui->gpu_top + i],
			      ui->focus == TOP_FOCUS_GPUS && ui->gpu == ui->gpu_top + i);
	return page + 1;
}

/* Draws why there is no GPU. */
static unsigned draw_no_gpu(struct canvas *c, unsigned row, unsigned rows,
			    const struct top_model *m)
{
	char text[sizeof(m->status)];
	unsigned used;

	if (!m->read_ns)
		return canvas_wrap(c, row, rows, 0, c->columns, CANVAS_PLAIN,
				   *m->problem ? m->problem : "Reading the GPUs...");
	snprintf(text, sizeof(text), "%s", *m->status ? m->status : "No GPU was found.");
	text[0] = (char)toupper((unsigned char)text[0]);
	used = canvas_wrap(c, row, rows, 0, c->columns, CANVAS_WARN, text);
	if (*m->remedy && used < rows)
		used += canvas_wrap(c, row + used, rows - used, 0, c->columns, CANVAS_PLAIN,
				    m->remedy);
	return used;
}

/* Writes the time that the graphs cover, at the right end of a title. Returns false if there is
 * no room. */
static bool draw_span(struct canvas *c, unsigned row, const struct top_model *m, bool large)
{
	double s = 2 * (double)gpu_view_graph_columns(c, large) * (double)m->interval_ns / 1e9;
	char text[64], time[24];

	figure_run_time(time, s);
	snprintf(text, sizeof(text), "  graphs: last %s", time);
	for (size_t i = 0; i < strlen(text); i++)
		if (canvas_at(c, row, c->columns - 1 - (unsigned)i)->code != ' ')
			return false;
	canvas_right(c, row, 0, c->columns, CANVAS_DIM, text);
	return true;
}

/* Draws the GPUs into at most `rows` rows.  Returns the number of rows. */
static unsigned draw_gpus(struct canvas *c, unsigned row, unsigned rows,
			  const struct top_model *m, struct top_ui *ui)
{
	unsigned each;

	if (m->gpus == 0)
		return draw_no_gpu(c, row, rows, m);
	each = rows / m->gpus;
	if (m->gpus == 1 && rows >= LARGE_LEAST && m->gpu[0].state == GW_DEVICE_OK) {
		rows = rows < LARGE_MOST ? rows : LARGE_MOST;
		rows -= (rows - 1) % 2;
		gpu_view_large(c, row, rows, &m->gpu[0]);
		draw_span(c, row, m, true);
		return rows;
	}
	if (each < GPU_VIEW_BARS)
		return draw_lines(c, row, rows, m, ui);
	each = each < BLOCK_MOST ? each : BLOCK_MOST;
	for (unsigned i = 0; i < m->gpus; i++)
		gpu_view_draw(c, row + i * each, each, &m->gpu[i],
			      ui->focus == TOP_FOCUS_GPUS && ui->gpu == i);
	for (unsigned i = 0; each > GPU_VIEW_BARS && i < m->gpus; i++)
		if (draw_span(c, row + i * each, m, false))
			break;
	return each * m->gpus;
}

/* Draws one GPU with all its figures. */
static unsigned draw_zoom(struct canvas *c, unsigned row, unsigned rows,
			  const struct top_model *m, const struct top_ui *ui)
{
	const struct top_gpu *g = &m->gpu[ui->gpu];
	unsigned graphs = rows / 2 > LARGE_MOST ? LARGE_MOST : rows / 2;
	unsigned used = graphs;

	if (g->state != GW_DEVICE_OK) {
		gpu_view_draw(c, row, GPU_VIEW_LINE, g, false);
		used = 1 + canvas_wrap(c, row + 1, 3, 0, c->columns, CANVAS_BAD, g->message);
	} else if (graphs >= LARGE_LEAST + 6) {
		used = graphs - (graphs - 1) % 2;
		gpu_view_large(c, row, used, g);
		draw_span(c, row, m, true);
	} else {
		used = graphs < GPU_VIEW_BARS ? GPU_VIEW_BARS : graphs > 6 ? 6 : graphs;
		gpu_view_draw(c, row, used, g, false);
	}
	return used + gpu_view_figures(c, row + used, rows - used, g);
}

/* Draws the most important keys, and the titles of hidden columns. Keys that do not fit are
 * left out; the help shows all keys. */
static void draw_key_words(struct canvas *c, unsigned row, unsigned at, const struct top_ui *ui)
{
	static const char *const keys[2][7] = {
		{ "q quit", "? help", "Enter zoom", "/ filter", "< > sort", "space pause",
		  "k end process" },
		{ "q quit", "? help", "Esc all GPUs", "left/right other GPU", "/ filter",
		  "space pause" },
	};
	struct part parts[8];
	char text[80];
	unsigned n = 0;

	for (unsigned i = 0; i < COUNT(keys[0]) && keys[ui->zoom][i]; i++)
		add_part(parts, &n, i < 2 ? 0 : i, CANVAS_DIM, keys[ui->zoom][i]);
	snprintf(text, sizeof(text), "hidden: %s", ui->hidden);
	add_part(parts, &n, 1, CANVAS_DIM, *ui->hidden ? text : "");
	fit_parts(parts, n, c->columns > at ? c->columns - at : 0);
	for (unsigned i = 0; i < n; i++)
		if (*parts[i].text)
			at = canvas_text(c, row, at, c->columns, parts[i].style,
					 parts[i].text) +
			     2;
}

static void draw_keys(struct canvas *c, const struct top_ui *ui)
{
	const struct top_process *p = &ui->target;
	unsigned row = c->rows - 1, at = 0;

	if (ui->prompt == TOP_PROMPT_FILTER) {
		canvas_format(c, row, 0, c->columns, CANVAS_BOLD,
			      "Show processes with: %s_   (Enter: keep, Esc: show all)",
			      ui->order.filter);
		return;
	}
	if (ui->prompt == TOP_PROMPT_KILL) {
		canvas_format(c, row, 0, c->columns, CANVAS_MARK,
			      "End %.40s (pid %lld) with SIGTERM? y: yes, any other key: no",
			      *p->name ? p->name : p->command, (long long)p->pid);
		return;
	}
	if (*ui->message) {
		canvas_text(c, row, 0, c->columns, CANVAS_WARN, ui->message);
		return;
	}
	if (*ui->order.filter)
		at = canvas_format(c, row, 0, c->columns, CANVAS_MARK, " filter: %s ",
				   ui->order.filter) +
		     2;
	draw_key_words(c, row, at, ui);
}

static void draw_help(struct canvas *c)
{
	static const char *const lines[] = {
		"Keys of gpuward top",
		"",
		"q, Ctrl-C        quit",
		"up, down         move the cursor; also PgUp, PgDn, Home, End",
		"Tab              move between the GPUs and the processes",
		"Enter            zoom: all figures of one GPU; Esc shows all GPUs again",
		"left, right      in the zoom: previous or next GPU; elsewhere like < and >",
		"< and >          sort by the previous or next column; r reverses the order",
		"/                show only processes with a text, such as a name or pid",
		"space            pause: nothing is read until space is pressed again",
		"k                end the process at the cursor with SIGTERM, if it is yours",
		"?, h             this page; any key closes it",
		"",
		"Graphs: the newest reading is at the right. A line marks the power limit, or",
		"the temperature limit, where the driver begins to reduce the clocks.",
		"A gap means that nothing was read.",
		"SM% is a mean of at least 3 s, read every 4 s. One full core is 100 CPU%.",
		"Energy of a GPU: measured during the time that is shown next to it. Without a",
		"service, it can be 20 s old.",
		"Energy of a process: measured since the service first saw the process.",
		"- means unknown; the zoom says why.",
		"After \"hidden:\", the last line lists the columns that do not fit.",
	};

	for (unsigned i = 0; i < COUNT(lines) && i < c->rows; i++)
		canvas_text(c, i, 0, c->columns, i ? CANVAS_PLAIN : CANVAS_BOLD, lines[i]);
}

static void draw_too_small(struct canvas *c)
{
	char text[200];

	snprintf(text, sizeof(text),
		 "gpuward top needs %d columns and %d rows; this terminal has %u and %u. "
		 "Enlarge it, or press q.",
		 TOP_COLUMNS_MIN, TOP_ROWS_MIN, c->columns, c->rows);
	canvas_wrap(c, 0, c->rows, 0, c->columns, CANVAS_PLAIN, text);
}

/* Draws old figures in a dim colour, so that they look different from current ones. */
static void dim_rows(struct canvas *c, unsigned from, unsigned to)
{
	for (unsigned row = from; row < to; row++)
		canvas_paint(c, row, CANVAS_DIM);
}

void top_screen_draw(struct canvas *c, const struct top_model *m, struct top_ui *ui)
{
	double old = top_model_old_s(m, ui->now_ns);
	unsigned row = 1, body, end, keep;

	if (c->rows < TOP_ROWS_MIN || c->columns < TOP_COLUMNS_MIN) {
		draw_too_small(c);
		return;
	}
	if (ui->prompt == TOP_PROMPT_HELP) {
		draw_help(c);
		return;
	}
	end = c->rows - 1;
	ui->hidden[0] = '\0';
	ui->gpu_page = m->gpus;
	if (old > 0 && !ui->paused)
		row += draw_old(c, row, m, old);
	body = row;
	if (m->workers)
		draw_guard(c, row++, m);
	keep = 1 + (ui->rows < PROCESSES_MIN    ? PROCESSES_MIN
		    : ui->rows > PROCESSES_WANT ? PROCESSES_WANT
						: ui->rows);
	if (end - row < keep + GPU_VIEW_BARS)
		keep = 1 + PROCESSES_MIN;
	if (ui->zoom && m->gpus)
		row += draw_zoom(c, row, end - row - keep, m, ui);
	else
		row += draw_gpus(c, row, end - row - keep, m, ui);
	process_view_draw(c, row, end - row, m, ui);
	if (old > 0 && !ui->paused)
		dim_rows(c, body, end);
	draw_machine(c, m, ui, old > 0);
	draw_keys(c, ui);
}
