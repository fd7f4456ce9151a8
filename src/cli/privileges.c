#include "privileges.h"

#include "daemon/config.h"
#include "daemon/guard_config.h"
#include "guard/proc_visibility.h"
#include "guard/worker/checkpoint.h"
#include "guard/worker/companion.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define ANSWER_WITHIN_NS (3 * NS_PER_S)

/* Of capabilities(7). */
enum { CAP_KILL = 5 };

#define USE_COMPANION                                                                    \
	"Run the service as root, or let gpuward-companion(8) do it: guard.companion = " \
	"\"" COMPANION_SOCKET "\"."

struct looking {
	const struct cli *cli;
	uint64_t capabilities;
	char socket[256]; /* "": no companion is named */
	bool companion;   /* it is there and serves us */
	char unseen
		[PROC_VISIBILITY_TEXT]; /* what a service without rights would not see; "": nothing */
};

static void say(struct render_privilege *p, bool have, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void say(struct render_privilege *p, bool have, const char *fmt, ...)
{
	va_list ap;

	p->have = have;
	va_start(ap, fmt);
	vsnprintf(p->message, sizeof(p->message), fmt, ap);
	va_end(ap);
}

static bool has(const struct looking *l, unsigned capability)
{
	return l->capabilities >> capability & 1;
}

/* ---- one function a right */

static void companion(struct looking *l, struct render_privilege *p)
{
	uint64_t until = clock_mono_ns(clock_real()) + ANSWER_WITHIN_NS;

	if (!l->socket[0]) {
		say(p, geteuid() == 0,
		    "no companion is set: the guard has the rights of its own user%s",
		    geteuid() == 0 ? ", and this one is root" : "");
		return;
	}
	l->companion = companion_reach(l->socket, until, p->message, sizeof(p->message)) == 0;
	if (l->companion)
		say(p, true, "%s answers", l->socket);
	p->have = l->companion;
}

static void signals(struct looking *l, struct render_privilege *p)
{
	if (l->companion)
		say(p, true, "the companion signals what its file allows");
	else if (has(l, CAP_KILL))
		say(p, true, "this user has CAP_KILL");
	else
		say(p, false,
		    "without CAP_KILL only this user's own processes can be signalled");
}

static void units(struct looking *l, struct render_privilege *p)
{
	if (l->companion)
		say(p, true, "the companion stops and starts what its file allows");
	else if (geteuid() == 0)
		say(p, true, "this user is root");
	else
		say(p, false, "this user needs a rule of polkit to stop units");
}

/* The first GPU on which a process that is put away would die; -1: none. */
static int without_persistence(const struct cli *c)
{
	double v;

	for (unsigned i = 0; i < gw_snapshot_device_count(c->snap); i++)
		if (gw_device_value(gw_snapshot_device(c->snap, i), GW_Q_PERSISTENCE, &v) ==
			    GW_HAVE &&
		    v == 0)
			return (int)i;
	return -1;
}

static void checkpoints(struct looking *l, struct render_privilege *p)
{
	int off = without_persistence(l->cli);

	if (checkpoint_usable(p->message, sizeof(p->message)) != 0) {
		p->have = false;
		p->remedy = "An NVIDIA driver of release 570 or newer has it.";
	} else if (off >= 0) {
		say(p, false, "persistence mode is off on GPU %d", off);
		p->remedy = "As root: nvidia-smi -pm 1.";
	} else if (l->companion) {
		say(p, true, "the companion puts away what its file allows");
	} else {
		say(p, geteuid() == 0,
		    geteuid() == 0 ? "this user is root" : "other users' processes need root");
	}
}

/* Whoever asks is often root, and the service is not: what it would miss is told all the same. */
static void programs(struct looking *l, struct render_privilege *p)
{
	static const char *const which[] = {
		[0] = "this user sees neither which program other users run nor who listens",
		[PROC_VISIBILITY_PROGRAMS] =
			"this user sees which program other users run, and not who "
			"listens: that needs CAP_DAC_READ_SEARCH too",
		[PROC_VISIBILITY_ALL] = "this user sees them",
	};
	unsigned visible = proc_visibility_now();

	say(p, visible == PROC_VISIBILITY_ALL, "%s%s%.300s", which[visible],
	    visible == PROC_VISIBILITY_ALL && *l->unseen ? "; in the packaged service, " : "",
	    visible == PROC_VISIBILITY_ALL ? l->unseen : "");
}

static void kernel_log(struct looking *l, struct render_privilege *p)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	(void)l;
	say(p, fd >= 0, "/dev/kmsg: %s", fd >= 0 ? "it can be read" : strerror(errno));
	if (fd >= 0)
		close(fd);
}

static void device_opens(struct looking *l, struct render_privilege *p)
{
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	bool good = fd >= 0 && inotify_add_watch(fd, "/dev", IN_CREATE) >= 0;

	(void)l;
	say(p, good, "inotify: %s", good ? "it can be used" : strerror(errno));
	if (fd >= 0)
		close(fd);
}

static const struct {
	const char *key, *feature, *remedy;
	void (*look)(struct looking *l, struct render_privilege *p);
} rights[] = {
	{ "companion", "what the guard's own user may not do",
	  "systemctl enable --now gpuward-companion.socket, then guard.companion = "
	  "\"" COMPANION_SOCKET
	  "\"; see gpuward-companion(8). Not needed where no worker is of kind "
	  "checkpoint, systemd or signal.",
	  companion },
	{ "signal", "kind \"signal\" and levels 5 and 6 for workers of other users",
	  USE_COMPANION, signals },
	{ "unit", "kind \"systemd\" and level 4: stopping and starting units", USE_COMPANION,
	  units },
	{ "checkpoint", "kind \"checkpoint\" for workers of other users", USE_COMPANION,
	  checkpoints },
	{ "programs", "match.exe and match.port for processes of other users",
	  "Use match.unit, match.cgroup, match.command or match.name, or give the service "
	  "CAP_SYS_PTRACE, and for ports CAP_DAC_READ_SEARCH.",
	  programs },
	{ "kernel_log", "errors of GPUs (Xid) from before the service started",
	  "Give the service CAP_SYSLOG, or read the kernel log yourself.", kernel_log },
	{ "device_opens", "a look at once when somebody opens a GPU",
	  "Raise fs.inotify.max_user_instances or max_user_watches; the guard looks every 100 "
	  "ms "
	  "all the same.",
	  device_opens },
};

_Static_assert(sizeof(rights) / sizeof(rights[0]) <= PRIVILEGES, "room for all");

/* ---- all of them */

static uint64_t capabilities(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long set = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %llx", &set) == 1)
			break;
	if (f)
		fclose(f);
	return set;
}

/* A configuration with faults is told of by `gpuward config check`; its tables mean nothing then. */
static void read_config(struct looking *l)
{
	struct guard_settings guard;
	char unused[2000];
	struct config c;
	int err = config_load_rest(&c, unused, sizeof(unused));

	if (c.guard_companion)
		snprintf(l->socket, sizeof(l->socket), "%s", c.guard_companion);
	if (!err && guard_config_make(&c, &guard) == 0) {
		if (!proc_visibility_missing(&guard.policy, 0, l->unseen))
			l->unseen[0] = '\0';
		guard_settings_done(&guard);
	}
	config_done(&c);
}

unsigned privileges_look(const struct cli *c, struct render_privilege *row)
{
	struct looking l = { .cli = c, .capabilities = capabilities() };
	unsigned n = 0;

	if (c->root || gw_snapshot_status(c->snap)->simulated)
		return 0;
	read_config(&l);
	for (; n < sizeof(rights) / sizeof(rights[0]); n++) {
		row[n] = (struct render_privilege){ .key = rights[n].key,
						    .feature = rights[n].feature,
						    .remedy = rights[n].remedy };
		rights[n].look(&l, &row[n]);
	}
	return n;
}
