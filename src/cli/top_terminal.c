#include "top_terminal.h"

#include "term.h"

#include "base/array.h"

#include <gpuward.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef GPUWARD_CURSES

#define NCURSES_NOMACROS         1
#define NCURSES_WIDECHAR         1
#define NCURSES_ENABLE_STDBOOL_H 1
#include <curses.h>

#include <dlfcn.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

/* Largest number of rows and columns that are used. ncursesw allocates memory for each cell,
 * and crashes if there is not enough. */
#define SIZE_MOST 1000

/* The functions of ncursesw that this file calls. */
/* clang-format off */
#define CURSES_FUNCTIONS(F) \
	F(newterm) F(endwin) F(delscreen) F(cbreak) F(noecho) F(keypad) F(nodelay) \
	F(curs_set) F(start_color) F(use_default_colors) F(has_colors) F(init_pair) \
	F(wattr_set) F(wmove) F(waddnwstr) F(wnoutrefresh) F(doupdate) F(wget_wch) \
	F(getmaxy) F(getmaxx) F(set_escdelay) F(clearok) F(resize_term)
/* clang-format on */

static struct {
#define F(name) __typeof__(&name) name;
	CURSES_FUNCTIONS(F)
#undef F
	WINDOW **window; /* stdscr */
} curses;

static struct {
	void *library;
	SCREEN *screen;
	bool color;
	struct canvas shown; /* copy of the cells that the terminal shows */
} terminal;

#ifdef GPUWARD_CURSES_LINKED
/* The portable archive of gpuward contains ncursesw: it is linked statically. */
static int load_curses(char *message, size_t size)
{
	(void)message;
	(void)size;
#define F(name) curses.name = name;
	CURSES_FUNCTIONS(F)
#undef F
	curses.window = &stdscr;
	return 0;
}
#else
static int load_curses(char *message, size_t size)
{
	static const char *const names[] = {
#define F(name) #name,
		CURSES_FUNCTIONS(F)
#undef F
	};
	void **const targets[] = {
#define F(name) (void **)&curses.name,
		CURSES_FUNCTIONS(F)
#undef F
	};
	void *symbol;

	terminal.library = dlopen("libncursesw.so.6", RTLD_NOW | RTLD_LOCAL);
	if (!terminal.library) {
		snprintf(message, size,
			 "top needs the library libncursesw.so.6, which cannot be loaded; "
			 "install it (Debian, Ubuntu: libncursesw6; Fedora: ncurses-libs; "
			 "Arch: ncurses), or use gpuward snapshot -w");
		return -GW_E_NOSUPPORT;
	}
	for (size_t i = 0; i < COUNT(names); i++) {
		symbol = dlsym(terminal.library, names[i]);
		if (!symbol)
			goto missing;
		memcpy(targets[i], &symbol, sizeof(symbol));
	}
	symbol = dlsym(terminal.library, "stdscr");
	if (!symbol)
		goto missing;
	curses.window = symbol;
	return 0;
missing:
	snprintf(message, size,
		 "libncursesw.so.6 lacks a function that top needs; install a current version");
	return -GW_E_NOSUPPORT;
}
#endif

static WINDOW *window(void)
{
	return *curses.window;
}

static const struct {
	short color;       /* -1: the default colour */
	attr_t attributes; /* on a terminal with colours */
	attr_t plain;      /* on a terminal without colours */
} styles[CANVAS_STYLES] = {
	[CANVAS_PLAIN] = { -1, A_NORMAL, A_NORMAL },
	[CANVAS_BOLD] = { -1, A_BOLD, A_BOLD },
	[CANVAS_DIM] = { -1, A_DIM, A_DIM },
	[CANVAS_GOOD] = { COLOR_GREEN, A_NORMAL, A_NORMAL },
	[CANVAS_WARN] = { COLOR_YELLOW, A_BOLD, A_BOLD },
	[CANVAS_BAD] = { COLOR_RED, A_BOLD, A_BOLD },
	[CANVAS_MARK] = { COLOR_YELLOW, A_REVERSE, A_REVERSE },
	[CANVAS_HEADING] = { COLOR_CYAN, A_REVERSE, A_REVERSE },
	[CANVAS_SELECTED] = { -1, A_REVERSE, A_REVERSE },
	[CANVAS_POWER] = { COLOR_YELLOW, A_NORMAL, A_NORMAL },
	[CANVAS_UTILIZATION] = { COLOR_GREEN, A_NORMAL, A_NORMAL },
	[CANVAS_MEMORY] = { COLOR_CYAN, A_NORMAL, A_NORMAL },
	[CANVAS_TEMPERATURE] = { COLOR_MAGENTA, A_NORMAL, A_NORMAL },
};

/* Sets the encoding in which ncursesw writes characters. If the locale of the user is not
 * installed, tries C.UTF-8 or C. Returns true if the encoding is UTF-8. */
static bool set_encoding(void)
{
	if (!setlocale(LC_CTYPE, "") && (!term_utf8() || !setlocale(LC_CTYPE, "C.UTF-8")))
		setlocale(LC_CTYPE, "C");
	return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

/* Handler of SIGWINCH. The signal interrupts poll(), so that top draws the screen in its new
 * size. */
static void on_resize(int signal)
{
	(void)signal;
}

/* Reads the size of the terminal, at most SIZE_MOST. Returns false if the terminal does not
 * know its size. */
static bool read_size(int *ret_rows, int *ret_columns)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || !size.ws_row || !size.ws_col)
		return false;
	*ret_rows = size.ws_row < SIZE_MOST ? size.ws_row : SIZE_MOST;
	*ret_columns = size.ws_col < SIZE_MOST ? size.ws_col : SIZE_MOST;
	return true;
}

/* Opens the screen with at most SIZE_MOST rows and columns. ncursesw does not limit the size
 * itself, but it reads the size from the variables LINES and COLUMNS, so these variables are
 * set here. use_env(FALSE) is not used: with it, ncursesw would refuse terminals such as
 * "linux", because their description has no size. The handler of SIGWINCH is set before
 * newterm(), because ncursesw does not replace an existing handler. top_terminal_size() handles
 * later changes of the size. */
static SCREEN *open_screen(void)
{
	struct sigaction action = { .sa_handler = on_resize };
	int rows = 24, columns = 80;
	char text[16];
	SCREEN *screen;

	sigaction(SIGWINCH, &action, NULL);
	read_size(&rows, &columns);
	snprintf(text, sizeof(text), "%d", rows);
	setenv("LINES", text, 1);
	snprintf(text, sizeof(text), "%d", columns);
	setenv("COLUMNS", text, 1);
	screen = curses.newterm(NULL, stdout, stdin);
	unsetenv("LINES");
	unsetenv("COLUMNS");
	return screen;
}

int top_terminal_begin(bool color, bool *ret_utf8, char *message, size_t size)
{
	int err = load_curses(message, size);

	if (err)
		return err;
	*ret_utf8 = set_encoding();
	terminal.screen = open_screen();
	if (!terminal.screen) {
		const char *kind = getenv("TERM");

		snprintf(message, size,
			 "the terminal type '%.40s' (variable TERM) is not known on this "
			 "machine; set TERM, for example to xterm, or use gpuward snapshot -w",
			 kind ? kind : "");
		return -GW_E_STATE;
	}
	curses.cbreak();
	curses.noecho();
	curses.keypad(window(), TRUE);
	curses.nodelay(window(), TRUE);
	curses.set_escdelay(50);
	curses.curs_set(0);
	terminal.color = color && curses.has_colors() && curses.start_color() == OK &&
			 curses.use_default_colors() == OK;
	for (short i = 1; terminal.color && i < CANVAS_STYLES; i++)
		curses.init_pair(i, styles[i].color, -1);
	return 0;
}

void top_terminal_end(void)
{
	curses.endwin();
	curses.delscreen(terminal.screen);
	canvas_done(&terminal.shown);
}

void top_terminal_size(unsigned *ret_rows, unsigned *ret_columns)
{
	int rows = curses.getmaxy(window()), columns = curses.getmaxx(window());
	int new_rows, new_columns;

	if (read_size(&new_rows, &new_columns) &&
	    (new_rows != rows || new_columns != columns) &&
	    curses.resize_term(new_rows, new_columns) == OK) {
		rows = new_rows;
		columns = new_columns;
	}
	*ret_rows = rows > 0 ? (unsigned)rows : 1;
	*ret_columns = columns > 0 ? (unsigned)columns : 1;
}

/* Writes the cells from `column` to `end` - 1. Cells that are next to each other and have the
 * same style are written together. */
static void write_cells(const struct canvas *c, unsigned row, unsigned column, unsigned end)
{
	wchar_t text[256];

	while (column < end) {
		uint32_t style = canvas_at(c, row, column)->style;
		unsigned at = column;
		int n = 0;

		for (;
		     at < end && n < (int)COUNT(text) && canvas_at(c, row, at)->style == style;
		     at++)
			if (canvas_at(c, row, at)->code)
				text[n++] = (wchar_t)canvas_at(c, row, at)->code;
		curses.wattr_set(window(),
				 terminal.color ? styles[style].attributes
						: styles[style].plain,
				 terminal.color ? (short)style : 0, NULL);
		curses.wmove(window(), (int)row, (int)column);
		curses.waddnwstr(window(), text, n);
		column = at;
	}
}

/* Finds the cells of a row that differ from what the terminal shows. Returns the first column
 * that differs; *ret_end is the column after the last one. Both halves of a wide character are
 * always included. */
static unsigned changed_cells(const struct canvas *c, unsigned row, unsigned *ret_end)
{
	unsigned first = 0, end = c->columns;
	const struct canvas_cell *a = canvas_at(c, row, 0), *b;

	*ret_end = end;
	if (terminal.shown.rows != c->rows || terminal.shown.columns != c->columns)
		return 0;
	b = canvas_at(&terminal.shown, row, 0);
	while (first < end && memcmp(&a[first], &b[first], sizeof(*a)) == 0)
		first++;
	while (end > first && memcmp(&a[end - 1], &b[end - 1], sizeof(*a)) == 0)
		end--;
	while (first > 0 && first < end && (!a[first].code || !b[first].code))
		first--;
	while (end < c->columns && end > first && (!a[end].code || !b[end].code))
		end++;
	*ret_end = end;
	return first;
}

void top_terminal_show(const struct canvas *c)
{
	bool resized = terminal.shown.rows != c->rows || terminal.shown.columns != c->columns;

	if (resized) /* the terminal may have moved its content, so write all cells */
		curses.clearok(window(), TRUE);
	for (unsigned row = 0; row < c->rows; row++) {
		unsigned end, first = changed_cells(c, row, &end);

		write_cells(c, row, first, end);
	}
	curses.wnoutrefresh(window());
	curses.doupdate();
	if (resized && canvas_resize(&terminal.shown, c->rows, c->columns) != 0) {
		terminal.shown.rows = 0; /* out of memory: write all cells the next time, too */
		return;
	}
	memcpy(terminal.shown.cell, c->cell,
	       (size_t)c->rows * c->columns * sizeof(*terminal.shown.cell));
}

int top_terminal_key(void)
{
	static const struct {
		wint_t code;
		enum top_key key;
	} keys[] = {
		{ KEY_UP, TOP_KEY_UP },         { KEY_DOWN, TOP_KEY_DOWN },
		{ KEY_LEFT, TOP_KEY_LEFT },     { KEY_RIGHT, TOP_KEY_RIGHT },
		{ KEY_PPAGE, TOP_KEY_PAGE_UP }, { KEY_NPAGE, TOP_KEY_PAGE_DOWN },
		{ KEY_HOME, TOP_KEY_HOME },     { KEY_END, TOP_KEY_END },
		{ KEY_ENTER, TOP_KEY_ENTER },   { KEY_BACKSPACE, TOP_KEY_BACKSPACE },
		{ KEY_RESIZE, TOP_KEY_RESIZE },
	};
	wint_t code = 0;
	int kind = curses.wget_wch(window(), &code);

	if (kind == ERR)
		return TOP_KEY_NONE;
	for (size_t i = 0; kind == KEY_CODE_YES && i < COUNT(keys); i++)
		if (keys[i].code == code)
			return keys[i].key;
	if (kind == KEY_CODE_YES)
		return TOP_KEY_OTHER;
	switch (code) {
	case '\r':
	case '\n': return TOP_KEY_ENTER;
	case '\t': return TOP_KEY_TAB;
	case 27: return TOP_KEY_ESCAPE;
	case 8:
	case 127: return TOP_KEY_BACKSPACE;
	default: return (int)code;
	}
}

#else

int top_terminal_begin(bool color, bool *ret_utf8, char *message, size_t size)
{
	(void)color;
	*ret_utf8 = false;
	snprintf(message, size,
		 "this gpuward was built without top, because curses.h was missing (Debian: "
		 "libncurses-dev); use gpuward snapshot -w");
	return -GW_E_NOSUPPORT;
}

void top_terminal_end(void)
{
}

void top_terminal_size(unsigned *ret_rows, unsigned *ret_columns)
{
	*ret_rows = *ret_columns = 1;
}

void top_terminal_show(const struct canvas *c)
{
	(void)c;
}

int top_terminal_key(void)
{
	return TOP_KEY_NONE;
}

#endif
