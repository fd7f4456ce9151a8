#include "term.h"

#include "base/array.h"
#include "base/number.h"
#include "base/utf8.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static struct {
	bool color, utf8, tty;
	bool error;       /* output goes to standard error */
	const char *mode; /* the last argument of term_init() */
} term;

static FILE *term_file(void)
{
	return term.error ? stderr : stdout;
}

/* Returns the descriptor of the output. It does not use fileno(): while a frame is printed into
 * memory, stdout has no descriptor. */
static int term_fd(void)
{
	return term.error ? STDERR_FILENO : STDOUT_FILENO;
}

static bool is_set(const char *name)
{
	const char *v = getenv(name);

	return v && *v;
}

static bool is_forced(const char *name)
{
	return is_set(name) && strcmp(getenv(name), "0") != 0;
}

static bool want_color(const char *mode)
{
	const char *kind = getenv("TERM");

	if (mode && strcmp(mode, "always") == 0)
		return true;
	if (mode && strcmp(mode, "never") == 0)
		return false;
	if (is_set("NO_COLOR"))
		return false;
	if (is_forced("FORCE_COLOR") || is_forced("CLICOLOR_FORCE"))
		return true;
	return term.tty && kind && strcmp(kind, "dumb") != 0;
}

/* Returns true if the environment variables select UTF-8. Does not call setlocale(), which
 * would load 350 KB of tables for the same answer. */
static bool want_utf8(void)
{
	static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

	for (size_t i = 0; i < COUNT(names); i++)
		if (is_set(names[i]))
			return strcasestr(getenv(names[i]), "utf-8") ||
			       strcasestr(getenv(names[i]), "utf8");
	return false;
}

void term_init(const char *color_mode)
{
	term.utf8 = want_utf8();
	term.mode = color_mode;
	term.tty = isatty(term_fd());
	term.color = want_color(color_mode);
}

void term_to_stderr(bool on)
{
	fflush(stdout);
	term.error = on;
	term_init(term.mode);
}

static unsigned width_of(int fd)
{
	struct winsize ws;
	const char *columns = getenv("COLUMNS");
	unsigned long n = 0;

	if (ioctl(fd, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 0)
		n = ws.ws_col;
	else if (columns)
		n = strtoul(columns, NULL, 10);
	if (n == 0)
		n = 80;
	return (unsigned)(n < 40 ? 40 : n > 500 ? 500 : n);
}

unsigned term_width(void)
{
	return width_of(term_fd());
}

unsigned term_table_width(void)
{
	return term.tty || is_set("COLUMNS") ? term_width() : INT_MAX;
}

bool term_utf8(void)
{
	return term.utf8;
}

bool term_color(void)
{
	return term.color;
}

const char *term_plain(const char *text)
{
	static const char *const plain[][2] = {
		{ "°C", "C" }, { "µ", "u" }, { "µs", "us" }, { "µJ", "uJ" }, { "±", "+-" }
	};

	for (size_t i = 0; !term.utf8 && i < COUNT(plain); i++)
		if (strcmp(text, plain[i][0]) == 0)
			return plain[i][1];
	return text;
}

const char *term_prefix(double v, double *ret_scale)
{
	static const double scales[] = { 1e9, 1e6, 1e3, 1, 1e-3, 1e-6 };
	static const char *const prefixes[] = { "G", "M", "k", "", "m", "µ" };
	double size = fabs(v);
	unsigned i = 0;

	if (!(size >= 1e-9))
		i = 3;
	else
		while (i < 5 && size < scales[i] * (i < 3 ? 10 : 1))
			i++;
	*ret_scale = scales[i];
	return term_plain(prefixes[i]);
}

const char *term_quantity(char out[static 32], double v, const char *unit)
{
	double scale, size;
	const char *prefix = term_prefix(v, &scale);

	size = fabs(v) / scale;
	if (isnan(v))
		snprintf(out, 32, "unknown");
	else if (fabs(v) < 1e-9) /* the difference of equal numbers must not become "-0.000" */
		snprintf(out, 32, "0 %s", unit);
	else
		snprintf(out, 32, "%.*f %s%s",
			 size >= 1000  ? 0
			 : size >= 100 ? 1
			 : size >= 10  ? 2
				       : 3,
			 v / scale, prefix, unit);
	return out;
}

/* Returns the number of decimals (0 to 6) that show the half width of an interval with two
 * significant digits. */
static int digits_of(double half_width)
{
	int digits = half_width > 0 ? 1 - (int)floor(log10(half_width)) : 3;

	return digits < 0 ? 0 : digits > 6 ? 6 : digits;
}

const char *term_interval(char out[static 80], double v, double half_width, const char *unit)
{
	double scale;
	const char *prefix = term_prefix(fmax(fabs(v), half_width), &scale);
	int digits = digits_of(half_width / scale);

	if (isnan(v))
		return "unknown";
	snprintf(out, 80, "%.*f %s %.*f %s%s", digits,
		 number_without_minus_zero(v / scale, digits), term_plain("±"), digits,
		 half_width / scale, prefix, unit);
	return out;
}

const char *term_half_width(char out[static 32], double half_width, const char *unit)
{
	double scale;
	const char *prefix = term_prefix(half_width, &scale);

	if (isnan(half_width))
		return "unknown";
	snprintf(out, 32, "%.*f %s%s", digits_of(half_width / scale), half_width / scale,
		 prefix, unit);
	return out;
}

const char *term_on(enum term_style style)
{
	static const char *const codes[] = { "",         "\033[1m",  "\033[2m",   "\033[32m",
					     "\033[33m", "\033[31m", "\033[7;33m" };

	return term.color ? codes[style] : "";
}

const char *term_off(void)
{
	return term.color ? "\033[0m" : "";
}

void term_print_simulated(FILE *f)
{
	fprintf(f, "%s SIMULATED %s these GPUs are not real\n", term_on(TERM_MARK), term_off());
}

static size_t shown_columns(const char *text)
{
	size_t columns = utf8_columns(text);

	for (; (text = strchr(text, '\033')); text++)
		columns -= strcspn(text, "m") + 1;
	return columns;
}

size_t term_fit(const char *text, size_t bytes, size_t columns, size_t *ret_columns)
{
	size_t used = 0;

	*ret_columns = 0;
	while (used < bytes) {
		size_t n = utf8_length(text + used), width;
		char one[8];

		n = n ? n : 1;
		snprintf(one, sizeof(one), "%.*s", (int)n, text + used);
		width = utf8_columns(one);
		if (*ret_columns + width > columns)
			break;
		*ret_columns += width;
		used += n;
	}
	return used;
}

/* Returns the number of bytes of the word at text, and its width in *ret_columns. Counts at
 * most `most` columns of the word, but at least one character. */
static size_t next_word(const char *text, size_t most, size_t *ret_columns)
{
	size_t all = strcspn(text, " "), bytes = term_fit(text, all, most, ret_columns);

	return bytes || !all ? bytes
			     : term_fit(text, utf8_length(text) ? utf8_length(text) : 1,
					SIZE_MAX, ret_columns);
}

/* Prints wrapped text into the columns from `indent` to `width`. The cursor must be at column
 * `indent`. A word that has more than `most` columns is broken. */
static void wrap_text(FILE *out, unsigned indent, const char *text, size_t width, size_t most)
{
	size_t column = indent;
	bool fresh = true;

	while (*text) {
		size_t columns, bytes = next_word(text, most, &columns);

		if (!fresh && column + 1 + columns > width) {
			fprintf(out, "\n%*s", (int)indent, "");
			column = indent;
			fresh = true;
		}
		fprintf(out, "%s%.*s", fresh ? "" : " ", (int)bytes, text);
		column += columns + (fresh ? 0 : 1);
		fresh = false;
		text += bytes;
		if (*text && *text != ' ') { /* the rest of a broken word begins a new line */
			fprintf(out, "\n%*s", (int)indent, "");
			column = indent;
			fresh = true;
		}
		text += strspn(text, " ");
	}
	putc('\n', out);
}

void term_wrap(const char *left, unsigned indent, const char *text, unsigned width)
{
	size_t column = shown_columns(left);

	fputs(left, term_file());
	if (column > 0 && column + 2 > indent) {
		putc('\n', term_file());
		column = 0;
	}
	fprintf(term_file(), "%*s", (int)(indent - column), "");
	wrap_text(term_file(), indent, text, width, term.tty ? width - indent : SIZE_MAX);
}

void term_error_line(const char *left, const char *text)
{
	const size_t blanks = strspn(text, " "); /* an indented line stays indented */
	const unsigned indent = (unsigned)(shown_columns(left) + blanks);
	const bool tty = isatty(STDERR_FILENO);

	fprintf(stderr, "%s%.*s", left, (int)blanks, text);
	if (tty)
		wrap_text(stderr, indent, text + blanks, width_of(STDERR_FILENO), SIZE_MAX);
	else
		fprintf(stderr, "%s\n", text + blanks);
}

void term_row(unsigned indent, const char *title, const char *fmt, ...)
{
	char text[1024], left[64];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(left, sizeof(left), "%s%s%s", *title ? term_on(TERM_BOLD) : "", title,
		 *title ? term_off() : "");
	term_wrap(left, indent, text, term_width());
}

static struct {
	FILE *terminal; /* the real standard output while a frame is printed into memory */
	char *text;
	size_t size;
} screen;

static volatile sig_atomic_t stop_flag;

static void on_stop_signal(int number)
{
	stop_flag = number;
}

static const char *exit_message;
static volatile sig_atomic_t progress_is_shown;

/* A signal handler: it may call only async-signal-safe functions. */
static void on_exit_signal(int number)
{
	ssize_t n = progress_is_shown ? write(STDERR_FILENO, "\r\033[K", 4) : 0;

	if (n >= 0)
		n = write(STDERR_FILENO, exit_message, strlen(exit_message));
	_exit(128 + number);
}

static void catch_signals(void (*handler)(int), int flags)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = flags }, before;

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGQUIT, &act, NULL); /* the terminal must also be restored after SIGQUIT */
	/* If nohup ignores SIGHUP, the program must survive the end of the terminal. */
	if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
		sigaction(SIGHUP, &act, NULL);
}

void stop_catch(void)
{
	catch_signals(on_stop_signal, (int)SA_RESETHAND);
}

bool stop_requested(void)
{
	return stop_flag != 0;
}

int stop_signal(void)
{
	return stop_flag;
}

void stop_exit(const char *message)
{
	exit_message = message;
	catch_signals(on_exit_signal, (int)SA_RESETHAND);
}

/* Returns true if fd is a terminal on which the cursor can be moved. */
static bool can_redraw(int fd)
{
	const char *kind = getenv("TERM");

	return isatty(fd) && kind && strcmp(kind, "dumb") != 0;
}

bool screen_begin(void)
{
	if (!can_redraw(STDOUT_FILENO))
		return false;
	catch_signals(on_stop_signal, 0);
	fputs("\033[?1049h\033[?25l", stdout);
	return true;
}

static unsigned screen_height(void)
{
	struct winsize ws;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_row > 2 ? ws.ws_row : 24;
}

void screen_frame_begin(void)
{
	free(screen.text);
	screen.text = NULL;
	screen.terminal = stdout;
	stdout = open_memstream(&screen.text, &screen.size);
	if (!stdout)
		stdout = screen.terminal;
}

/* Draws the text from the top of the screen. Clears the rest of each line. The last line says
 * how many lines do not fit. */
static void screen_draw(const char *text, unsigned rows)
{
	unsigned lines = 0, shown = 0;

	for (const char *p = text; (p = strchr(p, '\n')); p++)
		lines++;
	fputs("\033[H", stdout);
	for (; *text && shown + 1 < rows; shown++) {
		size_t n = strcspn(text, "\n");

		printf("%.*s\033[K\n", (int)n, text);
		text += n + (text[n] == '\n');
	}
	if (*text)
		printf("... %u more lines; ", lines - shown);
	printf("press Ctrl-C to quit\033[J");
	fflush(stdout);
}

void screen_frame_end(void)
{
	if (stdout == screen.terminal)
		return;
	fclose(stdout);
	stdout = screen.terminal;
	if (screen.text)
		screen_draw(screen.text, screen_height());
}

void screen_end(void)
{
	fputs("\033[?25h\033[?1049l", stdout);
	if (screen.text)
		fputs(screen.text, stdout);
	free(screen.text);
	screen.text = NULL;
}

#define LINE_BYTES 512

bool progress_possible(bool quiet)
{
	return !quiet && can_redraw(STDERR_FILENO);
}

static unsigned progress_width(void)
{
	struct winsize ws;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 10 ? ws.ws_col : 80;
}

void progress_show(const char *fmt, ...)
{
	char line[LINE_BYTES];
	unsigned most = progress_width() - 1;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (strlen(line) > most) /* the text is ASCII, so it can be cut anywhere */
		line[most] = '\0';
	progress_is_shown = 1;
	fprintf(stderr, "\r%s\033[K", line);
	fflush(stderr);
}

void progress_clear(void)
{
	fputs("\r\033[K", stderr);
	fflush(stderr);
	progress_is_shown = 0;
}

void progress_bar(char out[static 64], unsigned columns, double share)
{
	unsigned inner = (columns > 60 ? 60 : columns) - 2, full;

	share = share < 0 ? 0 : share > 1 ? 1 : share;
	full = (unsigned)(share * inner);
	out[0] = '[';
	memset(out + 1, '#', full);
	memset(out + 1 + full, '.', inner - full);
	out[1 + inner] = ']';
	out[2 + inner] = '\0';
}
