#include "output.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_standard(const char *path)
{
	return !path || strcmp(path, "-") == 0;
}

static int write_all(int fd, const struct buf *text)
{
	for (size_t done = 0; done < text->len;) {
		ssize_t n = write(fd, text->p + done, text->len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		done += (size_t)n;
	}
	return 0;
}

/* Closes fd; errno is that of the first failure. */
static int write_and_close(int fd, const struct buf *text)
{
	int bad = write_all(fd, text), was = errno;

	if (close(fd) != 0 && bad == 0)
		return -1;
	errno = was;
	return bad;
}

/* A new file beside the old one, which it then replaces. */
static int replace(const char *path, const struct buf *text)
{
	size_t size = strlen(path) + 8;
	char *other = malloc(size);
	mode_t mask = umask(0);
	int fd, bad = -1, was;

	umask(mask);
	if (!other)
		return -1;
	snprintf(other, size, "%s.XXXXXX", path);
	fd = mkstemp(other);
	if (fd >= 0) {
		bad = fchmod(fd, 0666 & ~mask) != 0;
		bad = write_and_close(fd, text) != 0 || bad || rename(other, path) != 0;
		was = errno;
		if (bad)
			unlink(other);
		errno = was;
	}
	free(other);
	return bad ? -1 : 0;
}

static int write_file(const char *path, const struct buf *text)
{
	char *real = realpath(path, NULL); /* where a link points; NULL: nothing is there */
	struct stat st;
	int fd, bad;

	if (real && stat(real, &st) == 0 && !S_ISREG(st.st_mode)) {
		fd = open(real, O_WRONLY | O_CLOEXEC);
		bad = fd < 0 || write_and_close(fd, text) != 0;
	} else {
		bad = replace(real ? real : path, text) != 0;
	}
	free(real);
	return bad ? -1 : 0;
}

int output_write(const char *path, const struct buf *text)
{
	if (text->err) {
		cli_error("cannot build the output: %s", gw_strerror(text->err));
		return EXIT_FAILED;
	}
	if (is_standard(path)) {
		fwrite(text->p, 1, text->len, stdout); /* main() looks whether it went well */
		return EXIT_OK;
	}
	if (write_file(path, text) == 0)
		return EXIT_OK;
	cli_error("%s: cannot be written: %s", path, strerror(errno));
	return EXIT_FAILED;
}

int output_spares(const char *path, char **inputs, int n)
{
	struct stat out, in;

	if (is_standard(path) || stat(path, &out) != 0)
		return EXIT_OK;
	for (int i = 0; i < n; i++) {
		if (stat(inputs[i], &in) == 0 && in.st_dev == out.st_dev &&
		    in.st_ino == out.st_ino) {
			cli_error("%s is read and would be overwritten: name another file with "
				  "-o",
				  path);
			return EXIT_USAGE;
		}
	}
	return EXIT_OK;
}
