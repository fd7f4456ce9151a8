/* top_terminal: puts a canvas on the terminal and reads keys, with ncursesw.
 *
 * The library is loaded when `gpuward top` starts, so that every other command works without
 * the library, and starts quickly.  Only rows that changed are written. */
#ifndef GW_CLI_TOP_TERMINAL_H
#define GW_CLI_TOP_TERMINAL_H

#include "top_canvas.h"

/* Keys other than characters. */
enum top_key {
	TOP_KEY_NONE = -1,        /* no key was pressed */
	TOP_KEY_ENTER = 0x110000, /* larger than any code point */
	TOP_KEY_ESCAPE,
	TOP_KEY_BACKSPACE,
	TOP_KEY_TAB,
	TOP_KEY_UP,
	TOP_KEY_DOWN,
	TOP_KEY_LEFT,
	TOP_KEY_RIGHT,
	TOP_KEY_PAGE_UP,
	TOP_KEY_PAGE_DOWN,
	TOP_KEY_HOME,
	TOP_KEY_END,
	TOP_KEY_RESIZE,
	TOP_KEY_OTHER
};

/* Starts the screen and sets the locale.  color: use colours.  *ret_utf8: the terminal gets UTF-8
 * (struct canvas).  Returns 0, or -GW_E_NOSUPPORT or -GW_E_STATE with a
 * sentence in message. */
int top_terminal_begin(bool color, bool *ret_utf8, char *message, size_t size);
void top_terminal_end(void);

/* Gets the size of the screen, which is at most 1000 rows and columns, and adapts the screen if
 * the size of the terminal changed. */
void top_terminal_size(unsigned *ret_rows, unsigned *ret_columns);
void top_terminal_show(const struct canvas *c);

/* Returns the next key (a character or an enum top_key) without waiting. */
int top_terminal_key(void);

#endif
