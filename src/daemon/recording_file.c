#include "recording_file.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int truncate_to(struct recording_file *r, uint64_t size)
{
	if (!r->regular || ftruncate(r->fd, (off_t)size) != 0)
		return -1;
	r->size = size;
	return 0;
}

/* ---- beginning and end ---- */

/* The end of the last whole line; 0: there is none. */
static uint64_t whole_lines(int fd, uint64_t size)
{
	char tail[4096];

	while (size) {
		size_t n = size < sizeof(tail) ? (size_t)size : sizeof(tail);

		if (pread(fd, tail, n, (off_t)(size - n)) != (ssize_t)n)
			return 0;
		for (; n && tail[n - 1] != '\n'; n--)
			size--;
		if (n)
			break;
	}
	return size;
}

/* Removes half a line that a killed service left.  A file that is no recording stays as it is. */
static void remove_half_line(const char *path, struct recording_file *r)
{
	char first[sizeof("begin\t") - 1];
	int fd = r->regular && r->size ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	uint64_t end;

	if (fd < 0)
		return;
	if (pread(fd, first, sizeof(first), 0) == sizeof(first) &&
	    memcmp(first, "begin\t", sizeof(first)) == 0) {
		end = whole_lines(fd, r->size);
		if (end && end != r->size)
			(void)truncate_to(r, end);
	}
	close(fd);
}

/* It shows which programs users run: readable by its owner alone. */
int recording_file_open(struct recording_file *r, const char *path)
{
	struct stat st = { .st_size = 0 };
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode)) {
		close(fd);
		errno = EINVAL;
		return -1;
	}
	*r = (struct recording_file){ fd, S_ISREG(st.st_mode), 0 };
	r->size = r->regular ? (uint64_t)st.st_size : 0;
	remove_half_line(path, r);
	return 0;
}

void recording_file_close(struct recording_file *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
}

/* ---- lines ---- */

/* Half a line would damage what another run adds. */
int recording_file_add(struct recording_file *r, const char *text, size_t size)
{
	int err;

	if (file_write_all(r->fd, text, size) == 0) {
		r->size += size;
		return 0;
	}
	err = errno;
	(void)truncate_to(r, r->size);
	errno = err;
	return -1;
}

bool recording_file_in_place(const struct recording_file *r, const char *path)
{
	struct stat here, there;

	return r->fd >= 0 && path && fstat(r->fd, &here) == 0 && stat(path, &there) == 0 &&
	       here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

int recording_file_move(struct recording_file *r, const char *path)
{
	char old[PATH_MAX];
	int err = ENAMETOOLONG;

	if (snprintf(old, sizeof(old), "%s.1", path) < (int)sizeof(old)) {
		if (rename(path, old) == 0)
			return 0;
		err = errno;
	}
	(void)truncate_to(r, 0);
	errno = err;
	return -1;
}
