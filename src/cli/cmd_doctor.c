/* doctor: finds problems and prints how to fix them. The sentences about GPUs are in cause.def.
 * It also checks which features of the guard work with the permissions of this user; for this,
 * it queries the kernel, the driver's library and the companion. It changes nothing. */
#include "cli.h"
#include "client.h"
#include "remote.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "daemon/config.h"
#include "daemon/guard_config.h"
#include "guard/process_cache.h"
#include "guard/worker/checkpoint.h"
#include "guard/worker/companion.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define COMPANION_TIMEOUT_NS (3 * NS_PER_S)

/* Bit numbers from capabilities(7). */
enum { CAP_KILL = 5 };

#define USE_COMPANION                                                              \
	"Run the service as root, or use gpuward-companion(8): guard.companion = " \
	"\"" COMPANION_SOCKET "\"."

struct privilege_check {
	const struct cli *cli;
	uint64_t capabilities; /* effective capabilities of this process */
	char socket[256];      /* path of the companion's socket; "": none is configured */
	bool companion;        /* the companion answers and accepts this user */
	/* What the packaged service cannot see. "": it sees everything that the guard needs. */
	char hidden[PROC_VISIBILITY_TEXT];
};

static void __attribute__((format(printf, 3, 4)))
set_result(struct render_privilege *p, bool have, const char *fmt, ...)
{
	va_list ap;

	p->state = have ? PRIVILEGE_THERE : PRIVILEGE_MISSING;
	va_start(ap, fmt);
	vsnprintf(p->message, sizeof(p->message), fmt, ap);
	va_end(ap);
}

static bool has_capability(const struct privilege_check *l, unsigned capability)
{
	return l->capabilities >> capability & 1;
}

static void check_companion(struct privilege_check *l, struct render_privilege *p)
{
	uint64_t until = clock_mono_ns(clock_real()) + COMPANION_TIMEOUT_NS;

	if (!l->socket[0]) {
		set_result(p, geteuid() == 0,
			   geteuid() == 0
				   ? "no companion is needed, because this user is root"
				   : "no companion is configured, so the guard has only the "
				     "permissions of its own user");
		return;
	}
	l->companion = companion_reach(l->socket, until, p->message, sizeof(p->message)) == 0;
	if (l->companion)
		set_result(p, true, "%s answers", l->socket);
}

static void check_signals(struct privilege_check *l, struct render_privilege *p)
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

static void check_units(struct privilege_check *l, struct render_privilege *p)
{
	if (l->companion)
		set_result(p, true,
			   "the companion stops and starts the units that its configuration "
			   "allows");
	else if (geteuid() == 0)
		set_result(p, true, "this user is root");
	else
		set_result(p, false,
			   "this user is not root and needs a polkit rule to stop units");
}

/* Returns the first GPU without persistence mode, or NULL. On such a GPU, a checkpointed
 * process would be lost. */
static const struct gw_device *without_persistence(const struct cli *c)
{
	double v;

	for (unsigned i = 0; i < gw_snapshot_device_count(c->snap); i++) {
		const struct gw_device *d = gw_snapshot_device(c->snap, i);

		if (gw_device_value(d, GW_Q_PERSISTENCE, &v) == GW_HAVE && v == 0)
			return d;
	}
	return NULL;
}

/* Returns false if this machine certainly has no NVIDIA GPU. Returns true even if a problem,
 * such as a broken driver, hides the GPUs. */
static bool may_have_nvidia(const struct cli *c)
{
	const enum gw_cause cause = gw_snapshot_status(c->snap)->cause;

	for (unsigned i = 0; i < gw_snapshot_device_count(c->snap); i++)
		if (gw_snapshot_device(c->snap, i)->vendor == GW_VENDOR_NVIDIA)
			return true;
	return cause != GW_CAUSE_NONE && cause != GW_CAUSE_NO_GPU;
}

static void check_checkpoint(struct privilege_check *l, struct render_privilege *p)
{
	const struct gw_device *off = without_persistence(l->cli);

	if (checkpoint_usable(p->message, sizeof(p->message)) != 0) {
		p->state = PRIVILEGE_USELESS;
		p->remedy = "Install NVIDIA driver 570 or newer.";
		if (may_have_nvidia(l->cli))
			return;
		p->remedy = "";
		snprintf(p->message, sizeof(p->message), "this machine has no NVIDIA GPU");
	} else if (off) {
		set_result(p, false, "persistence mode is off on GPU %u", off->index);
		p->state = PRIVILEGE_USELESS;
		p->remedy = "As root: nvidia-smi -pm 1.";
	} else if (l->companion) {
		set_result(p, true,
			   "the companion checkpoints the processes that its configuration "
			   "allows");
	} else {
		set_result(p, geteuid() == 0,
			   geteuid() == 0
				   ? "this user is root"
				   : "only root can checkpoint processes of other users");
	}
}

/* Checks which facts about processes of other users are visible. This user is often root, but
 * the user of the service is not, so the text also says what the service cannot see. */
static void check_programs(struct privilege_check *l, struct render_privilege *p)
{
	static const char *const which[] = {
		[0] = "this user cannot see which programs other users run, nor which process "
		      "owns a port",
		[PROC_VISIBILITY_PROGRAMS] =
			"this user sees which programs other users run, but not which process "
			"owns a port: that also needs CAP_DAC_READ_SEARCH",
		[PROC_VISIBILITY_ALL] = "this user sees which programs other users run, and "
					"which process owns a port",
	};
	unsigned visible = proc_visibility_now();

	set_result(p, visible == PROC_VISIBILITY_ALL, "%s%s%.300s", which[visible],
		   visible == PROC_VISIBILITY_ALL && *l->hidden ? "; in the packaged service, "
								: "",
		   visible == PROC_VISIBILITY_ALL ? l->hidden : "");
}

static void check_kernel_log(struct privilege_check *l, struct render_privilege *p)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC), error = errno;

	(void)l;
	set_result(p, fd >= 0, "/dev/kmsg: %s", fd >= 0 ? "readable" : strerror(error));
	if (fd < 0 && error != EPERM && error != EACCES) {
		p->state = PRIVILEGE_USELESS;
		p->remedy = "Read the kernel log on the host.";
	}
	if (fd >= 0)
		close(fd);
}

static void check_device_opens(struct privilege_check *l, struct render_privilege *p)
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
	{ "companion", "actions for which the guard's own user has no permission",
	  "Run systemctl enable --now gpuward-companion.socket, then set guard.companion = "
	  "\"" COMPANION_SOCKET "\"; see gpuward-companion(8). You need it only for workers of "
	  "kind checkpoint, systemd or signal.",
	  check_companion },
	{ "signal", "kind \"signal\" and levels 5 and 6 for workers of other users",
	  USE_COMPANION, check_signals },
	{ "unit", "kind \"systemd\" and level 4: stopping and starting units", USE_COMPANION,
	  check_units },
	{ "checkpoint", "kind \"checkpoint\" for workers of other users", USE_COMPANION,
	  check_checkpoint },
	{ "programs", "match.exe and match.port for processes of other users",
	  "Use match.unit, match.cgroup, match.command or match.name, or give the service "
	  "CAP_SYS_PTRACE, and for ports CAP_DAC_READ_SEARCH.",
	  check_programs },
	{ "kernel_log", "GPU errors (Xid) that happened before the service started",
	  "Give the service CAP_SYSLOG, or read the kernel log yourself.", check_kernel_log },
	{ "device_opens", "an immediate reaction when a process opens a GPU",
	  "Raise fs.inotify.max_user_instances or fs.inotify.max_user_watches. Without "
	  "inotify, the guard still checks every 100 ms.",
	  check_device_opens },
};
#define PRIVILEGES (COUNT(permissions))

static uint64_t read_capabilities(void)
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

/* Reads the configuration of the guard. Ignores mistakes, which `gpuward config check`
 * reports. */
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

/* Checks all permissions, fills row[] and returns the number of rows. Returns 0 if the GPUs are
 * simulated or --root is given. */
static unsigned privileges_check(const struct cli *c, struct render_privilege *row)
{
	struct privilege_check l = { .cli = c, .capabilities = read_capabilities() };
	unsigned n = 0;

	if (c->root || gw_snapshot_status(c->snap)->simulated)
		return 0;
	read_config(&l);
	for (; n < PRIVILEGES; n++) {
		row[n] = (struct render_privilege){ .key = permissions[n].key,
						    .feature = permissions[n].feature,
						    .remedy = permissions[n].remedy };
		permissions[n].check(&l, &row[n]);
	}
	return n;
}

#define FACT_COLUMN   10
#define REMEDY_COLUMN 9

/* Prints a line: a word in this style, then the text. */
static void print_row(const char *word, enum term_style style, const char *text)
{
	char left[64];

	snprintf(left, sizeof(left), "%s%s%s", term_on(style), word, term_off());
	term_wrap(left, REMEDY_COLUMN, text, term_width());
}

static void print_finding(const struct cli *c, const struct gw_finding *f)
{
	static const struct {
		const char *word;
		enum term_style style;
	} severities[] = { { "ok", TERM_GOOD },
			   { "note", TERM_WARN },
			   { "PROBLEM", TERM_BAD } };
	const char *remedy = gw_cause_info(f->cause)->remedy;
	char where[24] = "", text[sizeof(f->detail) + sizeof(where)];

	if (f->device >= 0)
		snprintf(where, sizeof(where),
			 "GPU %u: ", gw_snapshot_device(c->snap, (unsigned)f->device)->index);
	snprintf(text, sizeof(text), "%s%s", where, f->detail);
	print_row(severities[f->severity].word, severities[f->severity].style, text);
	if (*remedy)
		term_wrap("", REMEDY_COLUMN, remedy, term_width());
}

static void print_facts(const struct cli *c)
{
	const struct gw_status *s = gw_snapshot_status(c->snap);

	term_row(FACT_COLUMN, "gpuward", "%s", gw_version());
	term_row(FACT_COLUMN, "backend", "%s, %u GPU%s", s->backend,
		 gw_snapshot_device_count(c->snap),
		 gw_snapshot_device_count(c->snap) == 1 ? "" : "s");
	if (s->library_path)
		term_row(FACT_COLUMN, "library", "%s%s", s->library_path,
			 s->simulated ? " (simulator)" : "");
	if (s->driver_version && (s->cuda_version || s->nvml_version))
		term_row(FACT_COLUMN, "driver", "%s, CUDA up to %s, NVML %s", s->driver_version,
			 s->cuda_version ? s->cuda_version : "-",
			 s->nvml_version ? s->nvml_version : "-");
	else if (s->driver_version)
		term_row(FACT_COLUMN, "driver", "%s", s->driver_version);
	putchar('\n');
}

static unsigned count_problems(const struct gw_diagnosis *g)
{
	unsigned n = 0;

	for (unsigned i = 0; i < gw_diagnosis_count(g); i++)
		n += gw_diagnosis_get(g, i)->severity == GW_SEVERITY_ERROR;
	return n;
}

/* Prints one line per permission. For a feature that does not work, also prints what to do. */
static void print_privileges(const struct render_privilege *p, unsigned n)
{
	static const struct {
		const char *word;
		enum term_style style;
	} states[] = { [PRIVILEGE_MISSING] = { "missing", TERM_WARN },
		       [PRIVILEGE_THERE] = { "ok", TERM_GOOD },
		       [PRIVILEGE_USELESS] = { "note", TERM_WARN } };
	char text[700];

	if (n > 0)
		printf("\nPermissions of the guard, if it runs as this user:\n");
	for (unsigned i = 0; i < n; i++) {
		snprintf(text, sizeof(text), "%s: %s", p[i].feature, p[i].message);
		print_row(states[p[i].state].word, states[p[i].state].style, text);
		if (p[i].state != PRIVILEGE_THERE && *p[i].remedy)
			term_wrap("", REMEDY_COLUMN, p[i].remedy, term_width());
	}
}

/* Prints the last line if there is no problem. A missing permission is not a problem; it only
 * disables a feature. */
static void print_end(const struct render_privilege *p, unsigned n)
{
	char text[700];
	unsigned missing = 0;
	size_t len = 0;

	for (unsigned i = 0; i < n; i++)
		missing += p[i].state == PRIVILEGE_MISSING;
	if (!missing) {
		printf("%sNothing to fix.%s\n", term_on(TERM_GOOD), term_off());
		return;
	}
	len = (size_t)snprintf(text, sizeof(text),
			       "No problems found. %u permission%s missing: ", missing,
			       missing == 1 ? " is" : "s are");
	for (unsigned i = 0, said = 0; i < n && len < sizeof(text); i++)
		if (p[i].state == PRIVILEGE_MISSING)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s",
						said++ ? ", " : "", p[i].key);
	snprintf(text + (len < sizeof(text) ? len : sizeof(text) - 2), 2, ".");
	putchar('\n');
	term_wrap("", 0, text, term_width());
}

enum push_state { PUSH_NOT_CONFIGURED, PUSH_WORKS, PUSH_UNKNOWN, PUSH_FAILS };

/* Asks the service whether it can push its metrics. Writes a sentence to out unless the result
 * is PUSH_NOT_CONFIGURED. */
static enum push_state check_push(char *out, size_t size)
{
	struct remote_flags flags = { .address = NULL };
	enum push_state state = PUSH_UNKNOWN;
	char unused[2000];
	struct remote r;
	struct config c;
	struct buf body;
	const char *line;
	int status;

	(void)config_load_rest(&c, unused, sizeof(unused));
	if (!c.push_url) {
		config_done(&c);
		return PUSH_NOT_CONFIGURED;
	}
	buf_init(&body, CLIENT_REPLY_MAX);
	snprintf(out, size,
		 "push of metrics to %.200s: not checked, because the service does not answer; "
		 "start it",
		 c.push_url);
	if (remote_open(&r, &flags) == 0 &&
	    client_request_reply(&(struct client_request){ .address = r.address,
							   .method = "GET",
							   .path = "/readyz?verbose",
							   .accept = "text/plain" },
				 COMPANION_TIMEOUT_NS, &status, &body) == 0) {
		line = strstr(body.p, "] push ");
		state = line && line > body.p && line[-1] == '+' ? PUSH_WORKS : PUSH_FAILS;
		if (line) /* the text after "push" begins with the URL */
			snprintf(out, size, "push of metrics: %.*s",
				 (int)strcspn(line + 7, "\n"), line + 7);
		else
			snprintf(out, size,
				 "push of metrics: the running service does not push to "
				 "%.200s; reload or restart the service, and see its log",
				 c.push_url);
	}
	buf_done(&body);
	remote_close(&r);
	config_done(&c);
	return state;
}

/* Prints whether the push of metrics works, if it is configured. Returns true if the push
 * fails. */
static bool print_push(void)
{
	static const struct {
		const char *word;
		enum term_style style;
	} rows[] = { [PUSH_WORKS] = { "ok", TERM_GOOD },
		     [PUSH_UNKNOWN] = { "note", TERM_WARN },
		     [PUSH_FAILS] = { "PROBLEM", TERM_BAD } };
	char text[1000], clean[1000];
	enum push_state state = check_push(text, sizeof(text));

	if (state == PUSH_NOT_CONFIGURED)
		return false;
	utf8_clean(clean, sizeof(clean), text);
	print_row(rows[state].word, rows[state].style, clean);
	return state == PUSH_FAILS;
}

static bool has_checkpoint_worker(void)
{
	struct guard_settings guard;
	char unused[2000];
	bool found = false;
	struct config c;

	if (config_load_rest(&c, unused, sizeof(unused)) == 0 &&
	    guard_config_make(&c, &guard) == 0) {
		for (unsigned i = 0; i < guard.policy.workers; i++)
			found = found || move_is_checkpoint(guard.policy.worker[i].kind);
		guard_settings_done(&guard);
	}
	config_done(&c);
	return found;
}

/* Prints a note if a worker of kind checkpoint is configured and larger memory pages would make
 * checkpoints faster. */
static void print_pages(const struct cli *c)
{
	char text[MOVE_ADVICE_SIZE];
	struct root root;

	if (!has_checkpoint_worker() || root_open(&root, c->root) != 0)
		return;
	if (move_pages_advice(host_memory_pages(&root), text))
		print_row("note", TERM_WARN, text);
	root_close(&root);
}

static int print_text(const struct cli *c, const struct gw_diagnosis *g)
{
	struct render_privilege row[PRIVILEGES];
	bool push_fails;
	unsigned n;

	if (gw_snapshot_status(c->snap)->simulated)
		term_print_simulated(stdout);
	print_facts(c);
	for (unsigned i = 0; i < gw_diagnosis_count(g); i++)
		print_finding(c, gw_diagnosis_get(g, i));
	push_fails = print_push();
	print_pages(c);
	n = privileges_check(c, row);
	print_privileges(row, n);
	if (count_problems(g) == 0 && !push_fails)
		print_end(row, n);
	cli_print_try(c);
	return EXIT_OK;
}

static int print_diagnosis(const struct cli *c, const struct gw_diagnosis *g)
{
	struct render_privilege row[PRIVILEGES];
	struct cli_document doc;

	if (!c->json)
		return print_text(c, g);
	cli_document_begin(&doc, true);
	render_diagnosis(&doc.json, g, c->snap, row, privileges_check(c, row));
	return cli_document_end(&doc);
}

static int doctor_run(struct cli *c)
{
	struct gw_diagnosis *g;
	int code = cli_open(c, GW_TIERS_COMMON);

	if (code != EXIT_OK)
		return code;
	if (gw_diagnosis_new(c->snap, &g) != 0)
		return cli_no_memory();
	code = print_diagnosis(c, g);
	if (code == EXIT_OK)
		code = cli_device_exit_code(c);
	if (code == EXIT_OK && count_problems(g))
		code = EXIT_PARTIAL;
	gw_diagnosis_free(g);
	return code;
}

const struct command command_doctor = {
	.name = "doctor",
	.summary = "find problems on this machine and say how to fix them",
	.description =
		"Checks the library, the driver, the devices, permissions, containers, "
		"sensors, what the guard may do as this user, whether the service can push its "
		"metrics, and whether checkpoints can be faster. For each problem it prints "
		"how to fix it. Exit status: 0 if nothing is broken (a machine without a GPU "
		"is not broken), 3 if a problem hides all GPUs, 4 if some GPU has a problem.",
	.examples = "  gpuward doctor\n"
		    "  gpuward doctor --simulate=version-mismatch\n",
	.run = doctor_run,
};
