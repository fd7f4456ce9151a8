/* top_terminal: shows a canvas on the terminal and reads keys, with the library ncursesw.
 *
 * The library is loaded when `gpuward top` starts, so that all other commands work without it
 * and start quickly. Only cells that changed are written. */
#ifndef GW_CLI_TOP_TERMINAL_H
#define GW_CLI_TOP_TERMINAL_H

#include "top_canvas.h"

/* Keys that are not characters. */
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

/* Starts the screen and sets the locale. Uses colours if `color` is set and the terminal has
 * them. *ret_utf8 is true if the locale uses UTF-8; store it in canvas.utf8. Returns 0, or
 * -GW_E_NOSUPPORT or -GW_E_STATE with a sentence in message. */
int top_terminal_begin(bool color, bool *ret_utf8, char *message, size_t size);
void top_terminal_end(void);

/* Gets the size of the screen, at most 1000 rows and 1000 columns. If the size of the terminal
 * changed, adapts the screen to it. */
void top_terminal_size(unsigned *ret_rows, unsigned *ret_columns);
void top_terminal_show(const struct canvas *c);

/* Returns the next key (a character or an enum top_key) without waiting. */
int top_terminal_key(void);

#endif
