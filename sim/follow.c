/* [[gpu]] follow: real processes report their GPU memory, each in a file named by its pid. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "world.h"

#define FOLLOWED_MAX 256

struct followed {
	uint32_t pid;
	uint64_t bytes;
	bool graphics, hidden;
};

/* A file that is being written may be empty: ignore it. The driver drops processes that died.
 */
static bool read_one(int dir, const char *name, struct followed *ret)
{
	char text[64], *end;
	unsigned long long pid = strtoull(name, &end, 10);
	int fd;
	ssize_t n;

	if (end == name || *end || pid == 0 || pid > INT32_MAX)
		return false;
	fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0 || (kill((pid_t)pid, 0) != 0 && errno == ESRCH))
		return false;
	text[n] = 0;
	ret->pid = (uint32_t)pid;
	ret->bytes = strtoull(text, &end, 10);
	ret->graphics = strstr(end, "graphics") != NULL;
	ret->hidden = strstr(end, "hidden") != NULL;
	return end != text;
}

static unsigned read_all(const char *path, struct followed *found)
{
	DIR *dir = opendir(path);
	const struct dirent *e;
	unsigned n = 0;

	while (dir != NULL && n < FOLLOWED_MAX && (e = readdir(dir)) != NULL)
		if (read_one(dirfd(dir), e->d_name, &found[n]))
			n++;
	if (dir != NULL)
		closedir(dir);
	return n;
}

static struct process *find_followed(struct device *d, uint32_t pid)
{
	for (size_t i = 0; i < d->n_processes; i++)
		if (d->processes[i].followed && d->processes[i].pid == pid)
			return &d->processes[i];
	return NULL;
}

static bool is_among(const struct followed *found, unsigned n, uint32_t pid)
{
	for (unsigned i = 0; i < n; i++)
		if (found[i].pid == pid && found[i].bytes != 0)
			return true;
	return false;
}

void device_follow(struct device *d)
{
	struct followed found[FOLLOWED_MAX];
	unsigned n;

	if (d->follow[0] == 0)
		return;
	n = read_all(d->follow, found);
	for (size_t i = d->n_processes; i-- > 0;)
		if (d->processes[i].followed && !is_among(found, n, d->processes[i].pid))
			device_set_process(d, d->processes[i].pid, 0, false);
	for (unsigned i = 0; i < n; i++) {
		struct process *p = find_followed(d, found[i].pid);

		if (found[i].bytes == 0 || (p != NULL && p->bytes == found[i].bytes))
			continue;
		if (device_set_process(d, found[i].pid, found[i].bytes, found[i].graphics) == 0)
			for (size_t k = 0; k < d->n_processes; k++)
				if (d->processes[k].pid == found[i].pid) {
					d->processes[k].followed = true;
					d->processes[k].hidden = found[i].hidden;
				}
	}
}
