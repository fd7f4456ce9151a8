#include "proc.h"

#include "workload.h"

#include "base/root.h"

#include <gpuward.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS          INT64_C(1000000000)
#define PARENTS_MAX 64

#define KERNEL_THREAD 0x00200000u /* PF_KTHREAD of the kernel */

/* PROC_PID_INIT_INO of the kernel: the fixed inode of the first pid namespace. */
#define ROOT_PID_NAMESPACE UINT64_C(0xEFFFFFFC)

static long read_file(const struct root *root, int64_t pid, const char *file, char *out,
		      size_t size)
{
	char path[64];

	root_path(path, sizeof(path), "proc/%lld/%s", (long long)pid, file);
	return root_read(root, path, out, size);
}

static long read_link(const struct root *root, int64_t pid, const char *file, char *out,
		      size_t size)
{
	char path[64];

	root_path(path, sizeof(path), "proc/%lld/%s", (long long)pid, file);
	return root_readlink(root, path, out, size);
}

/* Returns the text after "Key:" at the start of a line; NULL if there is no such line. */
static const char *value_of(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, n) == 0 && line[n] == ':')
			return line + n + 1 + strspn(line + n + 1, " \t");
	}
	return NULL;
}

struct stat_line {
	char state;
	int64_t parent;
	unsigned flags, threads;
	uint64_t start_ticks;
	uint64_t cpu_ticks; /* CPU time in user and system mode */
};

static int read_stat(const struct root *root, int64_t pid, struct stat_line *ret)
{
	char text[1024];
	long n = read_file(root, pid, "stat", text, sizeof(text));
	unsigned long long start, user, system;
	long long parent;
	const char *p;
	unsigned flags, threads;
	char state;

	if (n < 0)
		return (int)n;
	/* The name ends at the last ')'. It may contain anything, even ')' and newlines; the
	 * fields after it cannot contain ')'. */
	p = strrchr(text, ')');
	if (!p || sscanf(p + 1,
			 " %c %lld %*s %*s %*s %*s %u %*s %*s %*s %*s %llu %llu %*s %*s %*s "
			 "%*s %u %*s %llu",
			 &state, &parent, &flags, &user, &system, &threads, &start) != 7)
		return -GW_E_PARSE;
	*ret = (struct stat_line){ state, parent, flags, threads, start, user + system };
	return 0;
}

/* True if the process has ended. /proc has only the state of its first thread. That thread is a
 * zombie after it has ended, even if other threads still run. */
static bool has_ended(const struct stat_line *s)
{
	return (s->state == 'Z' || s->state == 'X') && s->threads <= 1;
}

/* Reads the process that a thread belongs to, and its effective user. Returns 0, or
 * -GW_E_NOENT, -GW_E_PERM or -GW_E_IO; on error *tgid and *uid are unchanged. */
static int read_status(const struct root *root, int64_t pid, int64_t *tgid, int64_t *uid)
{
	char text[4096];
	long n = read_file(root, pid, "status", text, sizeof(text));
	long long v;
	const char *p;

	if (n < 0)
		return (int)n;
	p = value_of(text, "Tgid");
	if (p && sscanf(p, "%lld", &v) == 1 && v > 0)
		*tgid = v;
	p = value_of(text, "Uid");
	if (p && sscanf(p, "%*d %lld", &v) == 1)
		*uid = v;
	return 0;
}

static void read_name(const struct root *root, struct proc *p)
{
	long n = read_file(root, p->pid, "comm", p->name, sizeof(p->name));

	p->incomplete |= n == -GW_E_IO;
	/* The kernel adds one newline at the end; other newlines belong to the name. */
	if (n > 0 && p->name[n - 1] == '\n')
		p->name[n - 1] = '\0';
}

static void read_command(const struct root *root, struct proc *p)
{
	long n = read_file(root, p->pid, "cmdline", p->command, sizeof(p->command));

	p->incomplete |= n == -GW_E_IO;
	for (long i = 0; i < n; i++)
		if (p->command[i] == '\0')
			p->command[i] = ' ';
	while (n > 0 && p->command[n - 1] == ' ')
		p->command[--n] = '\0';
}

/* Reads the cgroup. A line is "id:controllers:path"; the unified hierarchy is "0::path". On a
 * hybrid system the unified path is "/", and the other lines have the process's cgroup. The
 * cgroup of a Slurm job can be in the other lines even if systemd uses the unified
 * hierarchy. */
static void read_cgroup(const struct root *root, struct proc *p)
{
	char text[8192], *save = NULL;
	const char *best = "", *unified = "", *job = "";
	struct workload w;
	long n = read_file(root, p->pid, "cgroup", text, sizeof(text));

	p->incomplete |= n == -GW_E_IO;
	if (n <= 0)
		return;
	for (char *line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		const char *path = strchr(line, ':');

		path = path ? strchr(path + 1, ':') : NULL;
		if (!path)
			continue;
		path++;
		if (strlen(path) > strlen(best))
			best = path;
		if (strncmp(line, "0::", 3) == 0 && strcmp(path, "/") != 0)
			unified = path;
		workload_from_cgroup(path, -1, &w);
		if (w.kind == WORKLOAD_SLURM && strlen(path) > strlen(job))
			job = path;
	}
	best = *job ? job : *unified ? unified : best;
	/* Find the container before the path is cut. */
	cgroup_container_name(best, p->container, sizeof(p->container));
	snprintf(p->cgroup, sizeof(p->cgroup), "%.*s", (int)sizeof(p->cgroup) - 1, best);
}

/* Returns the CPU time of a process. The kernel's CPU-time clock of the process counts
 * nanoseconds. The ticks in /proc/PID/stat are 10 ms long, which is too coarse for two readings
 * that are 50 ms apart. */
static uint64_t read_cpu_ns(const struct root *root, int64_t pid, uint64_t ticks)
{
	const long hz = sysconf(_SC_CLK_TCK);
	struct timespec t;
	clockid_t clock;

	if (root->real && clock_getcpuclockid((pid_t)pid, &clock) == 0 &&
	    clock_gettime(clock, &t) == 0)
		return (uint64_t)(t.tv_sec * NS + t.tv_nsec);
	return hz > 0 ? ticks * ((uint64_t)NS / (uint64_t)hz) : 0;
}

static uint64_t namespace_in(const char *link)
{
	unsigned long long v;

	return sscanf(link, "pid:[%llu]", &v) == 1 ? v : 0;
}

int proc_read(const struct root *root, int64_t pid, struct proc *ret)
{
	struct proc p = { .pid = pid, .uid = -1 };
	struct stat_line begin = { 0 }, end = { 0 };
	int err;

	err = pid > 0 ? read_status(root, pid, &p.pid, &p.uid) : -GW_E_NOENT;
	if (err == -GW_E_NOENT)
		return err;
	p.incomplete = err == -GW_E_IO;
	err = read_stat(root, p.pid, &begin);
	if (err == -GW_E_NOENT)
		return err;
	p.incomplete |= err == -GW_E_IO;
	p.state = begin.state;
	p.parent = begin.parent;
	p.start_ticks = begin.start_ticks;
	p.kernel = begin.flags & KERNEL_THREAD;
	read_name(root, &p);
	read_link(root, p.pid, "exe", p.exe, sizeof(p.exe));
	read_command(root, &p);
	read_cgroup(root, &p);

	/* Check the start time again: if the pid was reused meanwhile, the data would be from
	 * two processes. */
	err = read_stat(root, p.pid, &end);
	p.incomplete |= err == -GW_E_IO;
	if (err == -GW_E_NOENT || (!p.incomplete && end.start_ticks != begin.start_ticks))
		return -GW_E_NOENT;
	p.ended = has_ended(&end);
	p.cpu_ns = read_cpu_ns(root, p.pid, end.cpu_ticks);
	*ret = p;
	return 0;
}

int proc_start_ticks(const struct root *root, int64_t pid, uint64_t *ret)
{
	struct stat_line s;
	int err = pid > 0 ? read_stat(root, pid, &s) : -GW_E_NOENT;

	if (err < 0)
		return err == -GW_E_NOENT ? err : -GW_E_PARSE;
	*ret = s.start_ticks;
	return 0;
}

int proc_open(const struct root *root, struct proc_id id, int *ret_fd)
{
	uint64_t start;

	*ret_fd = (int)syscall(SYS_pidfd_open, (pid_t)id.pid, 0);
	if (*ret_fd < 0)
		*ret_fd = -errno;
	if (proc_start_ticks(root, id.pid, &start) == 0 && start == id.start_ticks)
		return 0;
	if (*ret_fd >= 0) {
		close(*ret_fd);
		*ret_fd = -ESRCH;
	}
	return -GW_E_NOENT;
}

int proc_lives(const struct root *root, int64_t pid, uint64_t start_ticks)
{
	struct stat_line s;
	int err = pid > 0 ? read_stat(root, pid, &s) : -GW_E_NOENT;

	if (err < 0)
		return err == -GW_E_NOENT ? 0 : -GW_E_IO;
	return s.start_ticks == start_ticks && !has_ended(&s);
}

/* Computes the boot time. For the real /proc it uses the kernel's clock: /proc/stat in a
 * container may show the start of the container, but ticks count from the boot of the
 * machine. */
static int boot_ns(const struct root *root, int64_t *ret)
{
	struct timespec wall, up;
	struct lines l;
	char *line;
	long long seconds;
	int err = -GW_E_NOENT;

	if (root->real) {
		if (clock_gettime(CLOCK_REALTIME, &wall) != 0 ||
		    clock_gettime(CLOCK_BOOTTIME, &up) != 0)
			return -GW_E_NOENT;
		*ret = (wall.tv_sec - up.tv_sec) * NS + wall.tv_nsec - up.tv_nsec;
		return 0;
	}
	if (lines_open(&l, root, "proc/stat") < 0)
		return -GW_E_NOENT;
	while (err && (line = lines_next(&l)))
		if (sscanf(line, "btime %lld", &seconds) == 1) {
			*ret = seconds * NS;
			err = 0;
		}
	lines_close(&l);
	return err;
}

int proc_began_ns(const struct root *root, uint64_t start_ticks, uint64_t *ret)
{
	const long hz = sysconf(_SC_CLK_TCK);
	int64_t boot;
	double after_s;

	if (hz <= 0 || boot_ns(root, &boot) != 0)
		return -GW_E_NOENT;
	after_s = (double)start_ticks / (double)hz;
	*ret = (uint64_t)(boot + (int64_t)(after_s * (double)NS));
	return 0;
}

bool proc_in_tree(const struct root *root, int64_t pid, int64_t ancestor)
{
	int64_t uid;
	struct stat_line s;

	if (pid <= 0 || ancestor <= 0 || read_status(root, pid, &pid, &uid) == -GW_E_NOENT)
		return false;
	for (int i = 0; i <= PARENTS_MAX && pid > 0; i++) {
		if (pid == ancestor)
			return true;
		if (read_stat(root, pid, &s) < 0)
			return false;
		pid = s.parent;
	}
	return false;
}

unsigned proc_ancestors(const struct root *root, int64_t pid, int64_t *out, unsigned cap)
{
	struct stat_line s;
	unsigned n = 0;

	while (n < cap && pid > 0 && read_stat(root, pid, &s) == 0 && s.parent > 0)
		out[n++] = pid = s.parent;
	return n;
}

bool proc_in_cgroup(const char *inner, const char *outer)
{
	size_t n = strlen(outer);

	if (n == 0)
		return false;
	while (n > 0 && outer[n - 1] == '/')
		n--;
	return strncmp(inner, outer, n) == 0 && (n == 0 || inner[n] == '\0' || inner[n] == '/');
}

/* Parses "name:password:uid:...". Returns the name, or NULL if the line is for another uid. */
static const char *name_of_line(char *line, const char *uid)
{
	char *end = strchr(line, ':');
	char *number = end ? strchr(end + 1, ':') : NULL;
	size_t n = strlen(uid);

	if (!number || end == line || strncmp(number + 1, uid, n) != 0 || number[n + 1] != ':')
		return NULL;
	*end = '\0';
	return line;
}

void proc_user(const struct root *root, int64_t uid, char *out, size_t size)
{
	struct lines l;
	char number[24];
	const char *name = NULL;
	char *line;

	out[0] = '\0';
	if (uid < 0)
		return;
	snprintf(number, sizeof(number), "%lld", (long long)uid);
	snprintf(out, size, "%s", number);
	if (lines_open(&l, root, "etc/passwd") < 0)
		return;
	while (!name && (line = lines_next(&l)))
		name = name_of_line(line, number);
	if (name)
		snprintf(out, size, "%s", name);
	lines_close(&l);
}

int proc_in_child_namespace(const struct root *root)
{
	char link[64];
	uint64_t ns;

	if (root_readlink(root, "proc/self/ns/pid", link, sizeof(link)) < 0)
		return -GW_E_NOSUPPORT;
	ns = namespace_in(link);
	if (ns == 0)
		return -GW_E_NOSUPPORT;
	return ns != ROOT_PID_NAMESPACE;
}
