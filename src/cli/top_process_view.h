/* top_process_view: draws the process table of `gpuward top` on a canvas.  Pure. */
#ifndef GW_CLI_TOP_PROCESS_VIEW_H
#define GW_CLI_TOP_PROCESS_VIEW_H

#include "top_screen.h"

/* Draws the heading and the processes of ui->row into `rows` rows.  Moves ui->process_top so
 * that the selected process is visible, and sets ui->page and ui->hidden. */
void process_view_draw(struct canvas *c, unsigned row, unsigned rows, const struct top_model *m,
		       struct top_ui *ui);

/* Returns the title of a column. */
const char *process_view_title(enum top_column column);

#endif
