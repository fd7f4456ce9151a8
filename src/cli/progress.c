#include "progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LINE_BYTES 512

bool progress_possible(bool quiet)
{
	const char *kind = getenv("TERM");

	return !quiet && isatty(STDERR_FILENO) && kind && strcmp(kind, "dumb") != 0;
}

static unsigned width(void)
{
	struct winsize ws;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 10 ? ws.ws_col : 80;
}

void progress_show(const char *fmt, ...)
{
	char line[LINE_BYTES];
	unsigned most = width() - 1;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (strlen(line) > most) /* what is shown is ASCII */
		line[most] = '\0';
	fprintf(stderr, "\r%s\033[K", line);
	fflush(stderr);
}

void progress_clear(void)
{
	fputs("\r\033[K", stderr);
	fflush(stderr);
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
