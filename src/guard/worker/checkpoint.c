/* A worker of which nothing is asked: the driver puts its processes away, through the companion where
 * there is one.  What cannot go well is refused before anything is touched. */
#include "guard/worker/checkpoint.h"
#include "guard/worker/common.h"
#include "guard/worker/companion.h"
#include "guard/worker/kinds.h"
#include "guard/worker/recheck.h"

#include "device/proc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Host memory that must be free, for each byte that is put away. */
#define HOST_SHARE 1.1

/* ---- refusals: before anything is touched */

static uint64_t number_in(const struct root *root, const char *path, const char *key)
{
	char text[4096], *found;

	if (root_read(root, path, text, sizeof(text)) < 0)
		return UINT64_MAX;
	found = strstr(text, key);
	found = found ? found + strlen(key) : NULL;
	return found && strspn(found, " \t0123456789") > 0 && strpbrk(found, "0123456789")
		       ? strtoull(found, NULL, 10)
		       : UINT64_MAX;
}

/* What one control group may still take: its limit, less what it has, but for files that the kernel keeps
 * only as long as nobody wants the room. */
static uint64_t one_group_free(const struct root *root, const char *group)
{
	char path[320];
	uint64_t max, now, files;

	max = number_in(root,
			root_path(path, sizeof(path), "sys/fs/cgroup%s/memory.max", group), "");
	now = number_in(root,
			root_path(path, sizeof(path), "sys/fs/cgroup%s/memory.current", group),
			"");
	files = number_in(root,
			  root_path(path, sizeof(path), "sys/fs/cgroup%s/memory.stat", group),
			  "\nfile ");
	if (max == UINT64_MAX || now == UINT64_MAX)
		return UINT64_MAX;
	if (files != UINT64_MAX)
		now -= files < now ? files : now;
	return max > now ? max - now : 0;
}

/* The least of its group and those above it: what is put away counts as memory of the process. */
static uint64_t group_free(const struct root *root, int64_t pid)
{
	uint64_t least = UINT64_MAX;
	struct proc who;

	if (proc_read(root, pid, &who) < 0)
		return least;
	while (who.cgroup[0] == '/' && who.cgroup[1]) {
		uint64_t one = one_group_free(root, who.cgroup);

		if (one < least)
			least = one;
		*strrchr(who.cgroup, '/') = '\0';
	}
	return least;
}

static int check_memory(const struct worker_call *c, const struct checkpoint_target *t,
			unsigned n, char *message, size_t size)
{
	uint64_t host_kib = number_in(c->root, "proc/meminfo", "MemAvailable:");
	double least = host_kib == UINT64_MAX ? -1 : (double)host_kib * 1024;
	double need = (double)c->order->bytes * HOST_SHARE;

	for (unsigned i = 0; i < n; i++) {
		uint64_t group = group_free(c->root, t[i].pid);

		if (group != UINT64_MAX && (double)group < least)
			least = (double)group;
	}
	if (least >= need)
		return 0;
	if (least < 0)
		snprintf(message, size, "how much host memory is free cannot be read");
	else
		snprintf(message, size,
			 "%.1f GiB of host memory are needed to put it away, %.1f are free",
			 need / (double)(1u << 30), least / (double)(1u << 30));
	return -GW_E_NOSUPPORT;
}

static int check_machine(const struct worker_call *c, unsigned n, char *message, size_t size)
{
	const char *why = NULL;

	if (c->facts.persistence != 1)
		why = c->facts.persistence == 0 ? "persistence mode is off, and a process that "
						  "is put away without it "
						  "dies: nvidia-smi -pm 1"
						: "whether persistence mode is on is not "
						  "known, and a process that is "
						  "put away without it dies";
	else if (c->facts.mps == 1)
		why = "a client of MPS cannot be put away";
	else if (c->facts.mig == 1)
		why = "a process on a MIG instance cannot be put away";
	else if (n == 0)
		why = "none of its processes is on a GPU";
	else if (c->order->more)
		why = "it has more processes on the GPU than can be kept in the journal (64), "
		      "and the others would be left behind";
	else if (n > 1 && c->worker->level < 2)
		why = "several of its processes are on the GPU, and putting away several is "
		      "unreliable; level = 2 does it all the same";
	if (!why)
		return 0;
	snprintf(message, size, "refused: %s", why);
	return -GW_E_NOSUPPORT;
}

static unsigned targets_of(const struct worker_call *c, struct checkpoint_target *t)
{
	unsigned n = c->order->targets;

	for (unsigned i = 0; i < n; i++)
		t[i] = (struct checkpoint_target){ c->order->target[i].pid,
						   c->order->target[i].start_ticks };
	return n;
}

/* One that is another program by now is not put away. */
static int check_who(const struct worker_call *c, char *message, size_t size)
{
	for (unsigned i = 0; i < c->order->targets; i++) {
		if (still_its(c, &c->order->target[i]))
			continue;
		snprintf(message, size, "process %" PRId64 " is no longer the worker's",
			 c->order->target[i].pid);
		return -GW_E_STATE;
	}
	return 0;
}

static int put_away(const struct worker_call *c, const struct checkpoint_target *t, unsigned n,
		    char *message, size_t size)
{
	if (c->companion)
		return companion_put_away(c->companion, t, n, c->deadline_ns, message, size);
	return checkpoint_put_away(c->root, t, n, c->deadline_ns, message, size);
}

static int evict(struct worker_call *c, char *message, size_t size)
{
	struct checkpoint_target t[GUARD_TARGETS];
	unsigned n = targets_of(c, t);
	char who[64];
	int rc = check_machine(c, n, message, size);

	rc = rc ? rc : check_who(c, message, size);
	rc = rc ? rc : check_memory(c, t, n, message, size);
	if (!rc && !c->companion)
		rc = checkpoint_usable(message, size);
	if (rc)
		return rc;
	for (unsigned i = 0; i < n; i++) {
		snprintf(who, sizeof(who), "%" PRId64 " %" PRIu64, t[i].pid, t[i].start_ticks);
		worker_note(c, "process", who);
	}
	rc = put_away(c, t, n, message, size);
	if (!rc)
		snprintf(message, size, "%u processes put away", n);
	return rc;
}

/* A process that is put away is in no list of the driver's: the order names it, or the notes do. */
static int resume(struct worker_call *c, char *message, size_t size)
{
	struct checkpoint_target t[GUARD_TARGETS];
	unsigned n = targets_of(c, t);
	char who[64];

	for (unsigned i = 0;
	     n < GUARD_TARGETS && worker_noted(c, "process", i, who, sizeof(who)); i++)
		if (sscanf(who, "%" SCNd64 " %" SCNu64, &t[n].pid, &t[n].start_ticks) == 2)
			n++;
	if (c->companion)
		return companion_restore(c->companion, t, n, c->deadline_ns, message, size);
	return checkpoint_restore(c->root, t, n, message, size);
}

const struct worker_ops worker_checkpoint = { .evict = evict, .resume = resume };
