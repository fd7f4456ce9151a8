#include "top_process_view.h"

#include "output.h"
#include "top_gpu_view.h"

#include "base/buf.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *title;
	unsigned width;
	unsigned rank; /* columns with a high rank are left out first; 0: never */
	bool right;
} columns[TOP_COLUMNS] = {
	[TOP_PID] = { "PID", 8, 0, true },       [TOP_USER] = { "USER", 8, 2, false },
	[TOP_GPU] = { "GPU", 4, 0, true },       [TOP_TYPE] = { "TYPE", 5, 7, false },
	[TOP_SM] = { "SM%", 4, 0, true },        [TOP_MEMORY] = { "MEMORY", 9, 0, true },
	[TOP_ENERGY] = { "ENERGY", 7, 4, true }, [TOP_CPU] = { "CPU%", 5, 1, true },
	[TOP_TIME] = { "TIME", 6, 5, true },     [TOP_WHERE] = { "UNIT", 18, 6, false },
	[TOP_GUARD] = { "GUARD", 16, 3, false }, [TOP_COMMAND] = { "COMMAND", 16, 0, false },
};

const char *process_view_title(enum top_column column)
{
	return columns[column].title;
}

/* Columns that are left out if no process has a value for them. */
static bool column_is_empty(enum top_column column, const struct top_model *m)
{
	for (unsigned i = 0; i < m->processes; i++)
		if ((column == TOP_WHERE && *m->process[i].where) ||
		    (column == TOP_GUARD && *m->process[i].guard) ||
		    (column == TOP_ENERGY && !isnan(m->process[i].energy_j)))
			return false;
	return column == TOP_WHERE || column == TOP_GUARD || column == TOP_ENERGY;
}

/* Sets which columns are shown, and the names of those that have values but do not fit. */
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
			used += columns[i].width + 1;
			if (columns[i].rank &&
			    (worst == TOP_COLUMNS || columns[i].rank > columns[worst].rank))
				worst = i;
		}
		if (used <= c->columns + 1 || worst == TOP_COLUMNS)
			break;
		shown[worst] = false;
	}
	for (unsigned i = 0; i < TOP_COLUMNS; i++)
		if (!shown[i] && !column_is_empty(i, m))
			buf_addf(hidden, "%s%s", hidden->len ? ", " : "", columns[i].title);
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
	static const char *const types[] = { "-", "C", "G", "C+G", "M", "C+M", "G+M", "C+G+M" };
	char text[24] = "";

	switch (column) {
	case TOP_PID: snprintf(out, 64, "%lld", (long long)p->pid); return;
	case TOP_GPU: snprintf(out, 64, "%u", m->gpu[p->gpu].index); return;
	case TOP_TYPE: snprintf(out, 64, "%s", types[p->type & 7]); return;
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

/* Returns the command without the folder of its program if it is longer than the space. */
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
		unsigned end = at + columns[i].width;

		if (!shown[i])
			continue;
		column_value(p, m, i, text);
		if (columns[i].right)
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
		unsigned end = at + columns[i].width;
		char text[32];

		if (!shown[i])
			continue;
		snprintf(text, sizeof(text), "%s%s", columns[i].title,
			 ui->order.column != i ? ""
			 : c->utf8             ? ui->order.reverse ? "▲" : "▼"
			 : ui->order.reverse   ? "^"
					       : "v");
		if (columns[i].right)
			canvas_right(c, row, at, end, CANVAS_HEADING, text);
		else
			canvas_text(c, row, at, end + 1, CANVAS_HEADING, text);
		at = end + 1;
	}
}

void process_view_draw(struct canvas *c, unsigned row, unsigned rows, const struct top_model *m,
		       struct top_ui *ui)
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
