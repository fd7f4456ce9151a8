#include "lines.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int lines_open(struct lines *l, const struct root *root, const char *path)
{
	int fd = openat(root->fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ESRCH))
		return -GW_E_NOENT;
	if (fd < 0)
		return errno == EACCES || errno == EPERM ? -GW_E_PERM : -GW_E_IO;
	l->fd = fd;
	l->at = l->used = 0;
	l->end = l->skip = false;
	return 0;
}

void lines_close(struct lines *l)
{
	close(l->fd);
	l->fd = -1;
}

/* Moves what is left to the front and reads behind it, leaving room for a NUL. */
static void refill(struct lines *l)
{
	ssize_t n;

	l->used -= l->at;
	memmove(l->buf, l->buf + l->at, l->used);
	l->at = 0;
	do {
		n = read(l->fd, l->buf + l->used, sizeof(l->buf) - 1 - l->used);
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		l->end = true;
	else
		l->used += (size_t)n;
}

/* The rest of a line that did not fit. */
static void skip_rest(struct lines *l)
{
	while (!l->end) {
		char *newline;

		l->at = l->used;
		refill(l);
		newline = memchr(l->buf, '\n', l->used);
		if (newline) {
			l->at = (size_t)(newline - l->buf) + 1;
			return;
		}
	}
	l->at = l->used;
}

char *lines_next(struct lines *l)
{
	if (l->skip)
		skip_rest(l);
	l->skip = false;
	for (;;) {
		char *begin = l->buf + l->at;
		char *newline = memchr(begin, '\n', l->used - l->at);

		if (newline) {
			*newline = '\0';
			l->at = (size_t)(newline - l->buf) + 1;
			return begin;
		}
		if (l->end || l->used - l->at == sizeof(l->buf) - 1)
			break;
		refill(l);
	}
	if (l->at == l->used)
		return NULL;
	l->buf[l->used] = '\0';
	if (l->end) {
		char *last = l->buf + l->at;

		l->at = l->used;
		return last;
	}
	/* Too long: its head is the answer; the next call goes on behind its end. */
	l->skip = true;
	l->at = l->used;
	return l->buf;
}
