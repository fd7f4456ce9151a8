#include "log.h"

#include "buf.h"
#include "file.h"
#include "json.h"
#include "number.h"
#include "text.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux writes up to PIPE_BUF bytes to a pipe in one piece, so lines of several processes do
 * not mix. A pipe that poll() reports as writable has room for PIPE_BUF bytes. */
#define LINE_SIZE PIPE_BUF

/* Reserved for the end of the line: the mark that the line was cut, the brace and the
 * newline. */
#define TAIL_SIZE 16

static const char *const level_names[] = { "error", "warning", "info", "debug", NULL };
static const char *const format_names[] = { "logfmt", "json", NULL };

struct line {
	struct buf b;
	bool json;
	bool cut;
};

/* Opens a pipe or a terminal again, so that writing to it does not block. The flag O_NONBLOCK
 * on fd would also affect the other programs that use it. poll() alone is not enough: it
 * reports a terminal as writable while there is room for one byte, and another program may fill
 * a pipe before the write. Returns fd if it cannot be opened again. */
static int log_open_again(int fd)
{
	char path[32];
	struct stat st;
	int own = -1;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (isatty(fd) || (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode)))
		own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return own < 0 ? fd : own;
}

void log_init(struct log *l, int fd, enum log_level level, enum log_format format,
	      const struct clock *clock)
{
	l->fd = log_open_again(fd);
	l->level = level;
	l->format = format;
	l->clock = clock;
	atomic_init(&l->dropped, 0);
}

/* Returns the number of bytes that still fit into the line before its reserved end. */
static size_t log_room(const struct line *l)
{
	size_t keep = TAIL_SIZE + 1;

	return l->b.len + keep < LINE_SIZE ? LINE_SIZE - keep - l->b.len : 0;
}

/* True if logfmt needs no quotes around s. */
static bool is_bare(const char *s)
{
	if (!*s)
		return false;
	for (; *s; s++)
		if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 0x7F ||
		    strchr("\"=\\", *s))
			return false;
	return true;
}

/* Writes a string: quoted as in JSON (in logfmt only if necessary), and cut where the line is
 * full. */
static void put_text(struct line *l, const char *s)
{
	bool quote = l->json || !is_bare(s);

	if (quote)
		buf_addc(&l->b, '"');
	while (*s && log_room(l) > JSON_ESCAPE_MAX + 1)
		s += json_escape(&l->b, s);
	l->cut |= *s != '\0';
	if (quote)
		buf_addc(&l->b, '"');
}

/* Writes the key. Returns false if there is no space for the key and a number. */
static bool put_key(struct line *l, const char *key)
{
	if (log_room(l) < strlen(key) + 8 + NUMBER_SIZE) {
		l->cut = true;
		return false;
	}
	if (l->json)
		buf_addf(&l->b, "%s\"%s\":", l->b.len ? "," : "{", key);
	else
		buf_addf(&l->b, "%s%s=", l->b.len ? " " : "", key);
	return true;
}

static void put_string(struct line *l, const char *key, const char *s)
{
	if (!put_key(l, key))
		return;
	if (s)
		put_text(l, s);
	else
		buf_adds(&l->b, "null");
}

static void put_pair(struct line *l, const struct log_pair *p)
{
	char number[NUMBER_SIZE];

	if (p->type == LOG_PAIR_STRING) {
		put_string(l, p->key, p->v.s);
		return;
	}
	if (!put_key(l, p->key))
		return;
	if (p->type == LOG_PAIR_BOOL) {
		buf_adds(&l->b, p->v.b ? "true" : "false");
	} else if (p->type == LOG_PAIR_INT) {
		buf_addf(&l->b, "%lld", (long long)p->v.i);
	} else if (isfinite(p->v.d)) {
		number_format(p->v.d, number);
		buf_adds(&l->b, number);
	} else {
		buf_adds(&l->b, "null");
	}
}

/* Returns false if the line was not written completely. */
static bool write_line(struct log *l, enum log_level level, const char *msg,
		       const struct log_pair *pairs, unsigned n)
{
	struct line line = { .json = l->format == LOG_JSON };
	char mem[LINE_SIZE], time[CLOCK_RFC3339_SIZE];
	ssize_t written;

	if (!file_accepts(l->fd))
		return false;
	buf_init_fixed(&line.b, mem, sizeof(mem));
	clock_format_rfc3339(clock_wall_ns(l->clock), time);
	put_string(&line, "time", time);
	put_string(&line, "level", level_names[level]);
	put_string(&line, "msg", msg);
	for (unsigned i = 0; i < n; i++)
		put_pair(&line, &pairs[i]);
	if (line.cut)
		buf_adds(&line.b, line.json ? ",\"cut\":true" : " cut=true");
	buf_adds(&line.b, line.json ? "}\n" : "\n");
	do {
		written = write(l->fd, line.b.p, line.b.len);
	} while (written < 0 && errno == EINTR);
	return written == (ssize_t)line.b.len;
}

void log_write(struct log *l, enum log_level level, const char *msg,
	       const struct log_pair *pairs, unsigned n)
{
	uint64_t dropped;

	if (level > l->level)
		return;
	dropped = atomic_exchange(&l->dropped, 0);
	if (dropped && write_line(l, LOG_WARNING,
				  "lines of the log were dropped because they could not be "
				  "written",
				  &LOG_I("lines", (int64_t)dropped), 1))
		dropped = 0;
	if (!write_line(l, level, msg, pairs, n))
		dropped++;
	atomic_fetch_add(&l->dropped, dropped);
}

bool log_latch(struct log_latch *latch, bool on)
{
	if (on == latch->on) {
		latch->repeats += on;
		return false;
	}
	latch->on = on;
	if (on)
		latch->repeats = 0;
	return true;
}

int log_level_parse(const char *text, enum log_level *ret)
{
	int i = text_find(level_names, text, strlen(text));

	if (i < 0)
		return -GW_E_ARG;
	*ret = (enum log_level)i;
	return 0;
}

int log_format_parse(const char *text, enum log_format *ret)
{
	int i = text_find(format_names, text, strlen(text));

	if (i < 0)
		return -GW_E_ARG;
	*ret = (enum log_format)i;
	return 0;
}
