#include "job_mapping.h"

#include "base/array.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 512 /* One file per GPU and one per MIG instance: 64 x (1 + 7). */
#define FILE_MAX  4096
#define ID_MAX    32
#define AGE_NS    NS_PER_S

struct job_file {
	unsigned gpu;
	int instance;
	/* Monotonic time at which the file was read. 0 if the file must be read again. */
	uint64_t read_ns;
	char ids[96]; /* Ids of the jobs, joined by commas. "" if there is no job. */
};

struct job_mapping {
	char *folder;
	const struct clock *clock;
	void (*log)(void *arg, const char *sentence);
	void *arg;
	/* Descriptor of inotify. -1 if there is none; a change is then noticed up to one second
	 * late. */
	int inotify;
	int watch; /* Watch descriptor of the folder. -1 if the folder is not watched. */
	bool logged;
	struct job_file *file;
	unsigned files, cap;
};

struct job_mapping *job_mapping_new(const char *folder, const struct clock *clock,
				    void (*log)(void *arg, const char *sentence), void *arg)
{
	struct job_mapping *m = calloc(1, sizeof(*m));
	char *copy = strdup(folder);

	if (!m || !copy) {
		free(m);
		free(copy);
		return NULL;
	}
	*m = (struct job_mapping){ .folder = copy,
				   .clock = clock,
				   .log = log,
				   .arg = arg,
				   .inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC),
				   .watch = -1 };
	return m;
}

void job_mapping_free(struct job_mapping *m)
{
	if (!m)
		return;
	if (m->inotify >= 0)
		close(m->inotify);
	free(m->folder);
	free(m->file);
	free(m);
}

/* Discards the cached files if inotify reports any change. The loop does not watch the inotify
 * descriptor, so a change does not wake the service. The events wait in the queue of the
 * kernel, which has a limited size and reports an overflow. */
static void mapping_see_changes(struct job_mapping *m)
{
	_Alignas(struct inotify_event) char events[4096];
	bool changed = false;
	ssize_t n;

	while (m->inotify >= 0 && (n = read(m->inotify, events, sizeof(events))) > 0) {
		changed = true;
		for (ssize_t at = 0; at < n;) {
			const struct inotify_event *e = (const void *)(events + at);

			if (e->mask & (IN_IGNORED | IN_MOVE_SELF))
				m->watch = -1;
			at += (ssize_t)sizeof(*e) + e->len;
		}
	}
	for (unsigned i = 0; changed && i < m->files; i++)
		m->file[i].read_ns = 0;
}

static void mapping_log(struct job_mapping *m, int error)
{
	char line[512];

	if (m->logged || !m->log)
		return;
	m->logged = true;
	snprintf(line, sizeof(line),
		 "the job mapping directory %.300s cannot be read (%s): create it, or correct "
		 "workloads.hpc_job_mapping_dir",
		 m->folder, strerror(error));
	m->log(m->arg, line);
}

/* Opens the folder and watches it. Returns its descriptor or -1. */
static int mapping_open(struct job_mapping *m)
{
	int fd = open(m->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0) {
		mapping_log(m, errno);
		return -1;
	}
	m->logged = false;
	if (m->watch < 0 && m->inotify >= 0)
		m->watch = inotify_add_watch(m->inotify, m->folder,
					     IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVE |
						     IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF |
						     IN_ONLYDIR);
	return fd;
}

/* Reads a regular file. If it is longer than the buffer, the text ends after its last whole
 * line. */
static void mapping_read(int folder, const char *name, char *text, size_t size)
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	size_t used = 0;
	ssize_t n = 1;

	text[0] = '\0';
	if (fd < 0)
		return;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return; /* The file is a FIFO or a device. */
	}
	while (n > 0 && used < size - 1) {
		n = read(fd, text + used, size - 1 - used);
		used += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	text[used] = '\0';
	if (used == size - 1) {
		char *newline = strrchr(text, '\n');

		*(newline ? newline : text) = '\0';
	}
}

static bool is_job_id(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && !strchr("-_.+[]:", s[i]))
			return false;
	return n > 0 && n <= ID_MAX;
}

static bool has_id(const char *ids, const char *s, size_t n)
{
	for (size_t m; *ids; ids += m + (ids[m] == ',')) {
		m = strcspn(ids, ",");
		if (m == n && memcmp(ids, s, n) == 0)
			return true;
	}
	return false;
}

/* Joins the ids of a file's lines. Skips a line that is not an id, for example binary data. */
static void mapping_join(const char *text, char *ids, size_t size)
{
	size_t used = 0;

	ids[0] = '\0';
	for (size_t line; *text; text += line + (text[line] == '\n')) {
		const char *s = text + strspn(text, " \t\r");
		size_t n;

		line = strcspn(text, "\n");
		n = s < text + line ? strcspn(s, " \t\r\n") : 0;
		if (!is_job_id(s, n) || has_id(ids, s, n) || used + n + 2 > size)
			continue;
		used += (size_t)snprintf(ids + used, size - used, "%s%.*s", used ? "," : "",
					 (int)n, s);
	}
}

static struct job_file *mapping_file(struct job_mapping *m, unsigned gpu, int instance)
{
	for (unsigned i = 0; i < m->files; i++)
		if (m->file[i].gpu == gpu && m->file[i].instance == instance)
			return &m->file[i];
	if (m->files == FILES_MAX ||
	    array_reserve(&m->file, &m->cap, m->files + 1, sizeof(*m->file)) != 0)
		return NULL;
	m->file[m->files] = (struct job_file){ .gpu = gpu, .instance = instance };
	return &m->file[m->files++];
}

static const char *mapping_ids(struct job_mapping *m, unsigned gpu, int instance)
{
	const uint64_t now_ns = clock_mono_ns(m->clock);
	struct job_file *f = mapping_file(m, gpu, instance);
	char name[32], text[FILE_MAX];
	int folder;

	if (!f)
		return "";
	if (f->read_ns && now_ns - f->read_ns < AGE_NS)
		return f->ids;
	f->read_ns = now_ns;
	f->ids[0] = '\0';
	folder = mapping_open(m);
	if (folder < 0)
		return "";
	if (instance < 0)
		snprintf(name, sizeof(name), "%u", gpu);
	else
		snprintf(name, sizeof(name), "%u.%d", gpu, instance);
	mapping_read(folder, name, text, sizeof(text));
	close(folder);
	mapping_join(text, f->ids, sizeof(f->ids));
	return f->ids;
}

bool job_mapping_find(struct job_mapping *m, unsigned gpu, int gpu_instance, char *out,
		      size_t size)
{
	const char *ids = "";

	mapping_see_changes(m);
	if (gpu_instance >= 0)
		ids = mapping_ids(m, gpu, gpu_instance);
	if (!*ids)
		ids = mapping_ids(m, gpu, -1);
	snprintf(out, size, "%s", ids);
	return *ids;
}
