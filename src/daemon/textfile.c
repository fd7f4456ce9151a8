#include "textfile.h"

#include "base/file.h"

#include <gpuward.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int textfile_init(struct textfile *f, const char *path, char *message, size_t size)
{
	size_t n = strlen(path);

	if (n >= sizeof(f->path)) {
		snprintf(message, size, "the path of the metrics file is too long");
		return -GW_E_SIZE;
	}
	if (n < 6 || strcmp(path + n - 5, ".prom") != 0) {
		snprintf(message, size,
			 "%s does not end in .prom, so node_exporter would ignore it", path);
		return -GW_E_ARG;
	}
	memcpy(f->path, path, n + 1);
	snprintf(f->temp, sizeof(f->temp), "%s.tmp", path);
	f->error = 0;
	return 0;
}

static int write_temp(const struct textfile *f, const char *text, size_t n)
{
	int fd, err;

	/* The folder may belong to node_exporter. Remove a file that another user may have put
	 * there, instead of opening it. */
	if (unlink(f->temp) != 0 && errno != ENOENT)
		return -1;
	fd = open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -1;
	err = file_write_all(fd, text, n);
	return close(fd) != 0 ? -1 : err;
}

int textfile_write(struct textfile *f, const char *text, size_t n, bool *ret_news,
		   char *message, size_t size)
{
	int err = 0;

	message[0] = '\0';
	if (write_temp(f, text, n) != 0 || rename(f->temp, f->path) != 0) {
		err = file_failed(message, size, f->path, "written");
		unlink(f->temp);
	}
	*ret_news = err != f->error;
	f->error = err;
	return err;
}

void textfile_done(struct textfile *f)
{
	if (f->path[0])
		unlink(f->path);
	f->path[0] = '\0';
}
