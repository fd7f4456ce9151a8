#include "self.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static unsigned entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned n = 0;

	if (!dir)
		return 0;
	for (const struct dirent *e; (e = readdir(dir));)
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* "VmRSS:     1234 kB" and its like. */
static void status(struct view_self *ret)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	unsigned long v;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "VmRSS: %lu", &v) == 1)
			ret->rss_bytes = (uint64_t)v * 1024;
		else if (sscanf(line, "VmHWM: %lu", &v) == 1)
			ret->rss_peak_bytes = (uint64_t)v * 1024;
		else if (sscanf(line, "Threads: %lu", &v) == 1)
			ret->threads = (unsigned)v;
	}
	if (f)
		fclose(f);
}

void self_read(struct view_self *ret, bool all)
{
	ret->cpu_seconds = cpu_seconds();
	status(ret);
	if (all)
		ret->descriptors = entries("/proc/self/fd");
}
