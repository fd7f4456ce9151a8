/* top_screen: the layout of `gpuward top`. It draws a model on a canvas of any size. It is
 * pure: it uses no terminal and no clock. The screen shows, from top to bottom: a line about
 * the machine, messages, the GPUs, the processes, and a line with the keys. The number of free
 * rows decides whether a GPU is drawn with graphs, with bars or as one line. */
#ifndef GW_CLI_TOP_SCREEN_H
#define GW_CLI_TOP_SCREEN_H

#include "top_canvas.h"
#include "top_model.h"

/* On a smaller terminal, top shows only a sentence that asks for a larger terminal. */
#define TOP_ROWS_MIN    10
#define TOP_COLUMNS_MIN 60

enum top_focus { TOP_FOCUS_PROCESSES, TOP_FOCUS_GPUS };

/* The question in the last line of the screen, or the help, which covers the whole screen. */
enum top_prompt { TOP_PROMPT_NONE, TOP_PROMPT_FILTER, TOP_PROMPT_KILL, TOP_PROMPT_HELP };

/* Identifies the process at the cursor, so that it is found after the model was read again. */
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
	unsigned *row; /* indices of the processes in the model, in the order on the screen */
	unsigned rows, row_cap;
	unsigned selected;         /* index in row[] of the selected process */
	struct top_cursor cursor;  /* the selected process */
	unsigned process_top;      /* the first process on the screen */
	unsigned page;             /* number of processes on the screen */
	struct top_process target; /* the process that TOP_PROMPT_KILL asks about */
	char message[200];         /* shown instead of the keys; "": none */
	char hidden[64];           /* titles of the columns that do not fit; "": none */
	char clock[16];            /* time of day; "": not shown */
	uint64_t now_ns;           /* current time on the monotonic clock */
};

/* Fills ui->row from the model. If ui->follow is set, the selection moves to the new row of its
 * process. If that process is no longer shown, the selection stays in its row. Call this after
 * the model or the order changed. Returns 0 or -GW_E_NOMEM. */
int top_ui_arrange(struct top_ui *ui, const struct top_model *m);

/* Moves the selection to a row. After that, the selection follows the process in this row,
 * except in the first row: there, the selection stays in the row. */
void top_ui_select(struct top_ui *ui, const struct top_model *m, unsigned row);

/* Returns the selected process; NULL: none. */
const struct top_process *top_ui_selected(const struct top_ui *ui, const struct top_model *m);

/* Returns the age of the figures in seconds, or 0 if they are current. */
double top_model_old_s(const struct top_model *m, uint64_t now_ns);

/* Draws the whole screen. Changes ui->gpu_top and ui->process_top so that the selection is
 * visible, and sets ui->gpu_page, ui->page and ui->hidden. */
void top_screen_draw(struct canvas *c, const struct top_model *m, struct top_ui *ui);

/* Returns the title of a column of the process table. */
const char *process_view_title(enum top_column column);

#endif
