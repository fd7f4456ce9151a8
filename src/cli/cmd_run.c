/* run: makes room on a GPU through the service's guard, and runs a program there. */
#include "cli.h"
#include "remote.h"

#include "base/clock.h"
#include "base/number.h"
#include "base/root.h"
#include "base/unit.h"
#include "base/json_doc.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUND_S     60.0            /* the service lets nobody wait longer in one request */
#define MARGIN_NS   (20 * NS_PER_S) /* for the answer itself */
#define NOT_FOUND   127
#define NOT_STARTED 126

extern char **environ;

struct given {
	struct remote_flags remote;
	const char *vram;
	uint64_t wait_ns, ttl_ns;
	bool anyway;
};

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	{ "vram", 0, OPTION_TEXT, AT(vram), "SIZE",
	  "memory of the GPU that it needs, as 10G or 512MiB", NULL, NULL },
	{ "wait", 0, OPTION_DURATION, AT(wait_ns), "TIME",
	  "wait so long for room that others may leave (default: until our workers have left, "
	  "1m at most)",
	  NULL, NULL },
	{ "ttl", 0, OPTION_DURATION, AT(ttl_ns), "TIME",
	  "end the reservation after this time even if the program still runs", NULL, NULL },
	{ "anyway", 0, OPTION_FLAG, AT(anyway), NULL,
	  "start the program also where no room can be had or asked for, and say so: for "
	  "launchers of games",
	  NULL, NULL },
	REMOTE_OPTIONS(remote),
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

/* As sizes of the configuration are written, but with a unit: a bare number is seldom meant as
 * bytes. */
static int read_size(const char *text, double *ret)
{
	if (!unit_parse(text, unit_sizes, ret) ||
	    isdigit((unsigned char)text[strlen(text) - 1]))
		return -1;
	*ret = floor(*ret);
	return *ret >= 1 && *ret < 9e15 ? 0 : -1;
}

/* ---- room ---- */

struct room {
	double bytes;
	char id[32], gpu[96];
};

static void say_insufficient(const struct remote *r, const struct room *room)
{
	char needed[16], now[16], most[16], later[64] = "";
	const struct json_doc *p = r->reply;
	const char *gpu = json_doc_string(p, "gpu");
	double retry = json_doc_number(p, "retry_after_s");

	if (!(retry > 0)) { /* it is no matter of time, and the service says why */
		cli_error("insufficient_vram: %s", remote_why(r));
		return;
	}
	cli_bytes(needed, room->bytes);
	cli_bytes(now, json_doc_number(p, "available"));
	cli_bytes(most, json_doc_number(p, "available_at_most"));
	snprintf(later, sizeof(later), "; retry after %.0f s (--wait TIME waits)", retry);
	cli_error("insufficient_vram: needed %s, available %s now and %s at most%s%s%s", needed,
		  now, most, gpu ? " on " : "", gpu ? gpu : "", later);
}

/* So that a number that is somebody else's where the service is (we are in a container) is seen
 * to be one. */
static uint64_t own_start(void)
{
	unsigned long long ticks = 0;
	struct root root;
	char text[1024], *end;

	if (root_open(&root, NULL) != 0)
		return 0;
	/* The 22nd field; the second, a name in brackets, may hold anything. */
	if (root_read(&root, "proc/self/stat", text, sizeof(text)) > 0 &&
	    (end = strrchr(text, ')')) != NULL)
		(void)sscanf(end + 1,
			     " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			     "%*s %*s %*s %llu",
			     &ticks);
	root_close(&root);
	return ticks;
}

static void wish(struct buf *out, const struct cli *c, const struct room *room, double wait_s)
{
	const struct given *g = c->own;
	struct json j;

	json_init(&j, out, false);
	json_object(&j, NULL);
	json_double(&j, "bytes", room->bytes);
	if (c->gpu.count)
		json_string(&j, "gpu", c->gpu.item[0]);
	json_int(&j, "pid", getpid());
	json_uint(&j, "start_ticks", own_start());
	json_double(&j, "ttl_s", (double)g->ttl_ns * 1e-9); /* 0: as long as this process */
	json_double(&j, "wait_s", wait_s);
	json_object_end(&j);
	json_end(&j);
}

/* One request.  EXIT_OK, EXIT_NO_ROOM (the answer says why) or another, having said why. */
static int ask_once(const struct cli *c, struct remote *r, struct room *room, double wait_s)
{
	char message[700];
	struct buf body;
	const char *id, *gpu;
	int err;

	buf_init(&body, 4096);
	wish(&body, c, room, wait_s);
	err = remote_ask(r, "POST", "/api/v1/guard/reservations", body.p,
			 (uint64_t)(wait_s * 1e9) + MARGIN_NS, message, sizeof(message));
	buf_done(&body);
	if (err) {
		cli_error("%s", message);
		return EXIT_FAILED;
	}
	if (r->status == 409)
		return EXIT_NO_ROOM;
	id = r->reply ? json_doc_string(r->reply, "id") : NULL;
	gpu = r->reply ? json_doc_string(r->reply, "gpu") : NULL;
	if (r->status == 401 || r->status == 403) {
		cli_error("the service refuses: %s (%s)", remote_why(r), remote_hint(r));
		return EXIT_FAILED;
	}
	if (r->status != 201 || !id) {
		cli_error("no room can be asked for: the service answers %d: %s", r->status,
			  remote_why(r));
		return EXIT_FAILED;
	}
	snprintf(room->id, sizeof(room->id), "%s", id);
	snprintf(room->gpu, sizeof(room->gpu), "%s", gpu ? gpu : "");
	return EXIT_OK;
}

/* Again and again until the time is over: others may leave. */
static int take_room(const struct cli *c, struct remote *r, struct room *room)
{
	const struct given *g = c->own;
	uint64_t now = clock_mono_ns(clock_real()), end = now + g->wait_ns;
	int code;

	for (;;) {
		double left = g->wait_ns ? (double)(end - now) * 1e-9 : ROUND_S, retry;

		code = ask_once(c, r, room, fmin(left, ROUND_S));
		now = clock_mono_ns(clock_real());
		if (code != EXIT_NO_ROOM || !g->wait_ns || now >= end ||
		    json_doc_true(r->reply, "never"))
			break;
		retry = json_doc_number(r->reply, "retry_after_s");
		retry = fmin(retry >= 1 ? fmin(retry, 5) : 5, (double)(end - now) * 1e-9);
		clock_sleep_until(clock_real(), now + (uint64_t)(retry * 1e9));
		now = clock_mono_ns(clock_real());
		if (now >= end)
			break;
	}
	if (code == EXIT_NO_ROOM)
		say_insufficient(r, room);
	return code;
}

static void release(const struct cli *c, struct remote *r, const struct room *room)
{
	char path[128], message[700];

	snprintf(path, sizeof(path), "/api/v1/guard/reservations/%s", room->id);
	if (remote_ask(r, "DELETE", path, NULL, MARGIN_NS, message, sizeof(message)) != 0 &&
	    !c->quiet)
		cli_error("%s (it lets go of the reservation by itself)", message);
}

/* ---- the program ---- */

/* Those that are ours to hand on; one that is ignored stays so, for the program too. */
static void handed_on(sigset_t *set)
{
	static const int signals[] = { SIGINT,  SIGQUIT, SIGTERM, SIGHUP,
				       SIGUSR1, SIGUSR2, SIGCONT };
	struct sigaction now;

	sigemptyset(set);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
			sigaddset(set, signals[i]);
	sigaddset(set, SIGCHLD);
}

/* 0 or an errno. */
static int start(const struct cli *c, const sigset_t *mask, pid_t *ret_pid)
{
	posix_spawnattr_t attr;
	sigset_t reset;
	int err;

	sigemptyset(&reset);
	if (!c->pipe_ignored)
		sigaddset(&reset, SIGPIPE);
	sigaddset(&reset, SIGXFSZ); /* main() ignores it */
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigdefault(&attr, &reset);
	posix_spawnattr_setsigmask(&attr, mask);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	err = posix_spawnp(ret_pid, c->argv[0], NULL, &attr, c->argv, environ);
	posix_spawnattr_destroy(&attr);
	return err;
}

/* Its status as a shell gives it.  What the terminal sends, the program has got already. */
static int follow(pid_t pid, const sigset_t *set)
{
	siginfo_t s;
	int status;

	for (;;) {
		pid_t done = waitpid(pid, &status, WNOHANG);

		if (done == pid && WIFSIGNALED(status))
			return 128 + WTERMSIG(status);
		if (done == pid)
			return WEXITSTATUS(status);
		if (sigwaitinfo(set, &s) < 0 || s.si_signo == SIGCHLD)
			continue;
		if (s.si_code != SI_KERNEL)
			kill(pid, s.si_signo);
	}
}

static int run_there(const struct cli *c, const struct room *room)
{
	sigset_t set, mask;
	pid_t pid;
	int err;

	if (*room->gpu) {
		setenv("GPUWARD_GPU", room->gpu, 1);
		setenv("CUDA_VISIBLE_DEVICES", room->gpu, 0);
	}
	signal(SIGCHLD, SIG_DFL);
	handed_on(&set);
	sigprocmask(SIG_BLOCK, &set, &mask);
	err = start(c, &mask, &pid);
	if (!err)
		return follow(pid, &set);
	cli_error("%s cannot be started: %s", c->argv[0], strerror(err));
	return err == ENOENT || err == ENOTDIR ? NOT_FOUND : NOT_STARTED;
}

static int run(struct cli *c)
{
	const struct given *g = c->own;
	struct room room = { .bytes = 0 };
	struct remote r;
	int code;

	if (!g->vram || read_size(g->vram, &room.bytes) != 0) {
		cli_error(
			g->vram ? "--vram takes a size with its unit, such as 10G or 512MiB, "
				  "not '%s'"
				: "run wants --vram SIZE: how much memory the program needs%s",
			g->vram ? g->vram : "");
		return EXIT_USAGE;
	}
	if (c->argc < 1 || c->gpu.count > 1) {
		cli_error(c->argc < 1 ? "run wants a command"
				      : "room is made on one GPU: --gpu takes one here");
		return EXIT_USAGE;
	}
	code = remote_open(&r, &g->remote);
	if (code == EXIT_OK)
		code = take_room(c, &r, &room);
	if (code == EXIT_OK) {
		if (c->verbose)
			fprintf(stderr, "gpuward: %s of %s is free\n", g->vram, room.gpu);
		code = run_there(c, &room);
		release(c, &r, &room);
	} else if (g->anyway) {
		cli_error("so no room is made; %s is started all the same (--anyway)",
			  c->argv[0]);
		code = run_there(c, &room);
	}
	remote_close(&r);
	return code;
}

const struct command command_run = {
	.name = "run",
	.summary = "makes room on a GPU and runs a program there",
	.description =
		"Reserves memory of a GPU with the guard of gpuward serve: as many workers "
		"leave as it takes, lowest priority first. When the memory is free the program "
		"is started; the reservation ends with it. The exit status is the program's; "
		"14: there is not as much memory; 1: the service is not there or refuses. With "
		"--anyway the program is started then too. The program finds the GPU's UUID in "
		"GPUWARD_GPU, and in CUDA_VISIBLE_DEVICES unless that is set. A reservation "
		"binds the guard's workers: other programs can still take the memory first.",
	.examples =
		"  gpuward run --vram 10G -- ./render scene.blend\n"
		"  gpuward run --vram 8G --gpu 0 --wait 5m -- ./train.sh\n"
		"  gpuward run --vram 8G --anyway -- %command%   (launch options of a game)\n",
	.arguments = "-- COMMAND [ARGUMENT...]",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.names_gpu = true,
	.one_form = true,
	.runs = 1,
	.run = run,
};
