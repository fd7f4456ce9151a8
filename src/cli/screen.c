#include "screen.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static struct {
	FILE *terminal; /* standard output while a picture is drawn into memory */
	char *text;
	size_t size;
} screen;

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
	(void)number;
	ended = 1;
}

bool screen_ended(void)
{
	return ended;
}

bool screen_begin(void)
{
	struct sigaction act = { .sa_handler = on_signal };
	const char *kind = getenv("TERM");

	if (!isatty(STDOUT_FILENO) || !kind || strcmp(kind, "dumb") == 0)
		return false;
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	fputs("\033[?1049h\033[?25l", stdout);
	return true;
}

static unsigned height(void)
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

/* From the top, each line cleared to its end, the last saying what there is no room for. */
static void draw(const char *text, unsigned rows)
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
	printf("Ctrl-C ends\033[J");
	fflush(stdout);
}

void screen_frame_end(void)
{
	if (stdout == screen.terminal)
		return;
	fclose(stdout);
	stdout = screen.terminal;
	if (screen.text)
		draw(screen.text, height());
}

void screen_end(void)
{
	fputs("\033[?25h\033[?1049l", stdout);
	if (screen.text)
		fputs(screen.text, stdout);
	free(screen.text);
	screen.text = NULL;
}
