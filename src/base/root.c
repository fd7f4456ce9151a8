#include "root.h"

#include "file.h"

#include <gpuward.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int root_open(struct root *r, const char *path)
{
	int fd = open(path ? path : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return file_error(errno);
	r->fd = fd;
	r->real = !path || strcmp(path, "/") == 0;
	return 0;
}

void root_close(struct root *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
}

long root_read(const struct root *r, const char *path, char *out, size_t size)
{
	int fd = openat(r->fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	long n;

	out[0] = '\0';
	if (fd < 0)
		return file_error(errno);
	n = file_read_all(fd, out, size - 1);
	if (n < 0)
		n = file_error(errno);
	out[n < 0 ? 0 : n] = '\0';
	close(fd);
	return n;
}

long root_read_line(const struct root *r, const char *path, char *out, size_t size)
{
	long n = root_read(r, path, out, size);

	while (n > 0 && isspace((unsigned char)out[n - 1]))
		out[--n] = '\0';
	return n;
}

int root_read_i64(const struct root *r, const char *path, int64_t *ret)
{
	char text[64], *end;
	long n = root_read_line(r, path, text, sizeof(text));
	long long v;

	if (n < 0)
		return (int)n;
	errno = 0;
	v = strtoll(text, &end, strncmp(text, "0x", 2) == 0 ? 16 : 10);
	/* The comparison with text + n also refuses text that contains a NUL. */
	if (end == text || end != text + n || errno)
		return -GW_E_PARSE;
	*ret = v;
	return 0;
}

long root_readlink(const struct root *r, const char *path, char *out, size_t size)
{
	ssize_t n = readlinkat(r->fd, path, out, size - 1);

	out[0] = n < 0 ? '\0' : out[0];
	if (n < 0)
		return file_error(errno);
	out[n] = '\0';
	return n;
}

long root_readlink_base(const struct root *r, const char *path, char *out, size_t size)
{
	long n = root_readlink(r, path, out, size);
	const char *base = n > 0 ? strrchr(out, '/') : NULL;

	if (base) {
		n -= base + 1 - out;
		memmove(out, base + 1, (size_t)n + 1);
	}
	return n;
}

bool root_exists(const struct root *r, const char *path)
{
	struct stat st;

	return fstatat(r->fd, path, &st, 0) == 0;
}

DIR *root_opendir(const struct root *r, const char *path)
{
	int fd = openat(r->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d;

	if (fd < 0)
		return NULL;
	d = fdopendir(fd);
	if (!d)
		close(fd);
	return d;
}

static bool each_entry(const char *buf, ssize_t n, bool (*fn)(void *, const char *), void *arg)
{
	for (ssize_t at = 0; at < n;) {
		const struct dirent64 *e = (const void *)(buf + at);

		at += e->d_reclen;
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    !fn(arg, e->d_name))
			return false;
	}
	return true;
}

int root_each_name(const struct root *r, const char *path,
		   bool (*fn)(void *arg, const char *name), void *arg)
{
	_Alignas(struct dirent64) char buf[8192];
	int fd = openat(r->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return file_error(errno);
	do
		n = getdents64(fd, buf, sizeof(buf));
	while (n > 0 && each_entry(buf, n, fn, arg));
	close(fd);
	return n < 0 ? -GW_E_IO : 0;
}

int64_t root_name_number(const char *name)
{
	char *end;
	long long v;

	if (*name < '1' || *name > '9')
		return 0;
	errno = 0;
	v = strtoll(name, &end, 10);
	return *end || errno ? 0 : v;
}

const char *root_path(char *out, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(out, size, fmt, ap);
	va_end(ap);
	return out;
}

int lines_open(struct lines *l, const struct root *root, const char *path)
{
	int fd = openat(root->fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return file_error(errno);
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

/* Moves the unread bytes to the front and reads more, leaving one byte for a NUL. */
static void lines_refill(struct lines *l)
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

/* Skips the rest of a line that did not fit. */
static void skip_rest(struct lines *l)
{
	while (!l->end) {
		char *newline;

		l->at = l->used;
		lines_refill(l);
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
		lines_refill(l);
	}
	if (l->at == l->used)
		return NULL;
	l->buf[l->used] = '\0';
	if (l->end) {
		char *last = l->buf + l->at;

		l->at = l->used;
		return last;
	}
	/* The line is too long: return its start. The next call continues after its end. */
	l->skip = true;
	l->at = l->used;
	return l->buf;
}
