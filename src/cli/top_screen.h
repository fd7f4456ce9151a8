/* top_screen: the layout of `gpuward top`: draws a model and the state of the user's keys on a
 * canvas of any size.  Pure: no terminal, no clock.
 *
 * Rows from above: a line about the machine, messages, the GPUs, the processes, a line with the
 * keys.  The fewer rows there are per GPU, the simpler its picture: graphs, bars, one line. */
#ifndef GW_CLI_TOP_SCREEN_H
#define GW_CLI_TOP_SCREEN_H

#include "top_canvas.h"
#include "top_model.h"

/* On a smaller terminal only a sentence is shown. */
#define TOP_ROWS_MIN    10
#define TOP_COLUMNS_MIN 60

enum top_focus { TOP_FOCUS_PROCESSES, TOP_FOCUS_GPUS };

/* The question in the last line, or the text that covers the screen. */
enum top_prompt { TOP_PROMPT_NONE, TOP_PROMPT_FILTER, TOP_PROMPT_KILL, TOP_PROMPT_HELP };

/* Identifies the process at the cursor in every model. */
struct top_cursor {
	int64_t pid; /* 0: no process */
	uint64_t start_ticks;
	unsigned gpu;
};

struct top_ui {
	enum top_focus focus;
	enum top_prompt prompt;
	bool zoom, paused;
	bool follow; /* true: the selection follows its process; false: it stays in its row */
	struct top_order order;
	unsigned gpu;      /* the selected GPU */
	unsigned gpu_top;  /* the first GPU on the screen */
	unsigned gpu_page; /* number of GPUs on the screen */
	unsigned *row;     /* positions of the processes in the model, as shown */
	unsigned rows, row_cap;
	unsigned selected;         /* position in row[] */
	struct top_cursor cursor;  /* the selected process */
	unsigned process_top;      /* the first process on the screen */
	unsigned page;             /* number of processes on the screen */
	struct top_process target; /* the process that TOP_PROMPT_KILL asks about */
	char message[200];         /* replaces the line with the keys; "": none */
	char hidden[64];           /* titles of the columns that do not fit; "": none */
	char clock[16];            /* time of day; "": not shown */
	uint64_t now_ns;           /* current time on the monotonic clock */
};

/* Fills ui->row from the model and moves the selection with its process, if ui->follow is set.
 * If that process is not shown any more, the selection stays in its row.  Call it after the
 * model or the order changed.  Returns 0 or -GW_E_NOMEM. */
int top_ui_arrange(struct top_ui *ui, const struct top_model *m);

/* Moves the selection to a row.  From then on the selection follows the process in this row; in
 * the first row, the selection stays in the row. */
void top_ui_select(struct top_ui *ui, const struct top_model *m, unsigned row);

/* Returns the selected process; NULL: none. */
const struct top_process *top_ui_selected(const struct top_ui *ui, const struct top_model *m);

/* Returns how old the figures are in seconds, or 0 if they are current. */
double top_model_old_s(const struct top_model *m, uint64_t now_ns);

/* Draws everything.  Moves ui->gpu_top and ui->process_top so that the selection is visible,
 * and sets ui->page. */
void top_screen_draw(struct canvas *c, const struct top_model *m, struct top_ui *ui);

/* Returns the title of a column of the process table. */
const char *process_view_title(enum top_column column);

#endif
