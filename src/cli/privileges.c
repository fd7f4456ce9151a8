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

#define COMPANION_TIMEOUT_NS (3 * NS_PER_S)

/* From capabilities(7). */
enum { CAP_KILL = 5 };

#define USE_COMPANION                                                              \
	"Run the service as root, or use gpuward-companion(8): guard.companion = " \
	"\"" COMPANION_SOCKET "\"."

struct privilege_check {
	const struct cli *cli;
	uint64_t capabilities;
	char socket[256]; /* "": no companion is configured */
	bool companion;   /* it answers and accepts this user */
	char hidden
		[PROC_VISIBILITY_TEXT]; /* what the packaged service cannot see; "": nothing */
};

static void set_result(struct render_privilege *p, bool have, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void set_result(struct render_privilege *p, bool have, const char *fmt, ...)
{
	va_list ap;

	p->have = have;
	va_start(ap, fmt);
	vsnprintf(p->message, sizeof(p->message), fmt, ap);
	va_end(ap);
}

static bool has_capability(const struct privilege_check *l, unsigned capability)
{
	return l->capabilities >> capability & 1;
}

/* ---- one function per permission ---- */

static void companion(struct privilege_check *l, struct render_privilege *p)
{
	uint64_t until = clock_mono_ns(clock_real()) + COMPANION_TIMEOUT_NS;

	if (!l->socket[0]) {
		set_result(p, geteuid() == 0,
			   "no companion is configured: the guard has only the permissions of "
			   "its own user%s",
			   geteuid() == 0 ? ", which is root here" : "");
		return;
	}
	l->companion = companion_reach(l->socket, until, p->message, sizeof(p->message)) == 0;
	if (l->companion)
		set_result(p, true, "%s answers", l->socket);
	p->have = l->companion;
}

static void signals(struct privilege_check *l, struct render_privilege *p)
{
	if (l->companion)
		set_result(p, true,
			   "the companion sends the signals that its configuration allows");
	else if (has_capability(l, CAP_KILL))
		set_result(p, true, "this user has CAP_KILL");
	else
		set_result(
			p, false,
			"without CAP_KILL the guard can signal only processes of its own user");
}

static void units(struct privilege_check *l, struct render_privilege *p)
{
	if (l->companion)
		set_result(p, true,
			   "the companion stops and starts the units that its configuration "
			   "allows");
	else if (geteuid() == 0)
		set_result(p, true, "this user is root");
	else
		set_result(p, false, "this user needs a polkit rule to stop units");
}

/* Returns the first GPU without persistence mode, or -1.  A checkpointed process would die
 * there. */
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

static void checkpoints(struct privilege_check *l, struct render_privilege *p)
{
	int off = without_persistence(l->cli);

	if (checkpoint_usable(p->message, sizeof(p->message)) != 0) {
		p->have = false;
		p->remedy = "Install NVIDIA driver 570 or newer.";
	} else if (off >= 0) {
		set_result(p, false, "persistence mode is off on GPU %d", off);
		p->remedy = "As root: nvidia-smi -pm 1.";
	} else if (l->companion) {
		set_result(p, true,
			   "the companion checkpoints the processes that its configuration "
			   "allows");
	} else {
		set_result(p, geteuid() == 0,
			   geteuid() == 0 ? "this user is root"
					  : "processes of other users need root");
	}
}

/* The user is often root while the service is not: also report what the service would miss. */
static void programs(struct privilege_check *l, struct render_privilege *p)
{
	static const char *const which[] = {
		[0] = "this user cannot see which programs other users run, nor which process "
		      "owns a port",
		[PROC_VISIBILITY_PROGRAMS] =
			"this user sees which programs other users run, but not which process "
			"owns a port: that also needs CAP_DAC_READ_SEARCH",
		[PROC_VISIBILITY_ALL] = "this user sees both",
	};
	unsigned visible = proc_visibility_now();

	set_result(p, visible == PROC_VISIBILITY_ALL, "%s%s%.300s", which[visible],
		   visible == PROC_VISIBILITY_ALL && *l->hidden ? "; in the packaged service, "
								: "",
		   visible == PROC_VISIBILITY_ALL ? l->hidden : "");
}

static void kernel_log(struct privilege_check *l, struct render_privilege *p)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	(void)l;
	set_result(p, fd >= 0, "/dev/kmsg: %s", fd >= 0 ? "readable" : strerror(errno));
	if (fd >= 0)
		close(fd);
}

static void device_opens(struct privilege_check *l, struct render_privilege *p)
{
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	bool good = fd >= 0 && inotify_add_watch(fd, "/dev", IN_CREATE) >= 0;

	(void)l;
	set_result(p, good, "inotify: %s", good ? "available" : strerror(errno));
	if (fd >= 0)
		close(fd);
}

static const struct {
	const char *key, *feature, *remedy;
	void (*check)(struct privilege_check *l, struct render_privilege *p);
} permissions[] = {
	{ "companion", "actions that the guard's own user may not do",
	  "systemctl enable --now gpuward-companion.socket, then guard.companion = "
	  "\"" COMPANION_SOCKET "\"; see gpuward-companion(8). You need it only for workers of "
	  "kind checkpoint, systemd or signal.",
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
	{ "kernel_log", "GPU errors (Xid) from before the service started",
	  "Give the service CAP_SYSLOG, or read the kernel log yourself.", kernel_log },
	{ "device_opens", "immediate reaction when a process opens a GPU",
	  "Raise fs.inotify.max_user_instances or max_user_watches. Without it the guard still "
	  "checks every 100 ms.",
	  device_opens },
};

_Static_assert(sizeof(permissions) / sizeof(permissions[0]) <= PRIVILEGES,
	       "PRIVILEGES is too small");

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

/* Ignores mistakes in the configuration: `gpuward config check` reports them. */
static void read_config(struct privilege_check *l)
{
	struct guard_settings guard;
	char unused[2000];
	struct config c;
	int err = config_load_rest(&c, unused, sizeof(unused));

	if (c.guard_companion)
		snprintf(l->socket, sizeof(l->socket), "%s", c.guard_companion);
	if (!err && guard_config_make(&c, &guard) == 0) {
		if (!proc_visibility_missing(&guard.policy, 0, l->hidden))
			l->hidden[0] = '\0';
		guard_settings_done(&guard);
	}
	config_done(&c);
}

unsigned privileges_check(const struct cli *c, struct render_privilege *row)
{
	struct privilege_check l = { .cli = c, .capabilities = capabilities() };
	unsigned n = 0;

	if (c->root || gw_snapshot_status(c->snap)->simulated)
		return 0;
	read_config(&l);
	for (; n < sizeof(permissions) / sizeof(permissions[0]); n++) {
		row[n] = (struct render_privilege){ .key = permissions[n].key,
						    .feature = permissions[n].feature,
						    .remedy = permissions[n].remedy };
		permissions[n].check(&l, &row[n]);
	}
	return n;
}
