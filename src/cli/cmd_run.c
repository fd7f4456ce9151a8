/* run: reserves GPU memory with the guard of the service, then runs a program on that GPU. */
#include "cli.h"
#include "output.h"
#include "remote.h"
#include "runner.h"

#include "base/clock.h"
#include "base/number.h"
#include "base/root.h"
#include "base/json_doc.h"

#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUND_S   60.0 /* longest wait for memory, in seconds, that one request asks for */
#define MARGIN_NS (20 * NS_PER_S) /* the reply may take this much longer than the wait */

extern char **environ;

struct given {
	struct remote_flags remote;
	const char *vram;
	uint64_t wait_ns, ttl_ns;
	bool anyway;
};

#define AT(member) offsetof(struct given, member)
static const struct option options[] = {
	OPTION_ROW(TEXT, 0, "vram", AT(vram), "SIZE",
		   "GPU memory that the program needs, such as 10G or 512MiB"),
	OPTION_ROW(DURATION, 0, "wait", AT(wait_ns), "TIME",
		   "wait up to TIME for other programs to free memory (default: wait only for "
		   "the guard's workers, 1m at most)"),
	OPTION_ROW(DURATION, 0, "ttl", AT(ttl_ns), "TIME",
		   "end the reservation after this time even if the program still runs"),
	OPTION_ROW(FLAG, 0, "anyway", AT(anyway), NULL,
		   "if no memory can be reserved, print a warning and start the program "
		   "nevertheless; for game launchers"),
	REMOTE_OPTIONS(remote),
	OPTION_END,
};

/* Parses a size. A unit is required, because a user who writes a number without a unit rarely
 * means bytes. Returns 0 or -1. */
static int read_size(const char *text, double *ret)
{
	if (!unit_parse(text, unit_sizes, ret) ||
	    isdigit((unsigned char)text[strlen(text) - 1]))
		return -1;
	*ret = floor(*ret);
	return *ret >= 1 && *ret < 9e15 ? 0 : -1;
}

struct reservation {
	double bytes;
	char id[32], gpu[96];
};

static void print_insufficient(const struct remote *r, const struct reservation *reservation)
{
	char needed[16], now[16], most[16], later[64] = "";
	const struct json_doc *p = r->reply;
	const char *gpu = json_doc_string(p, "gpu");
	double retry = json_doc_number(p, "retry_after_s");

	if (!(retry > 0)) { /* waiting does not help; the reply says why */
		cli_error("not enough GPU memory: %s", remote_why(r));
		return;
	}
	figure_bytes(needed, reservation->bytes);
	figure_bytes(now, json_doc_number(p, "available"));
	figure_bytes(most, json_doc_number(p, "available_at_most"));
	snprintf(later, sizeof(later), "; try again in %.0f s, or give --wait TIME", retry);
	cli_error("not enough GPU memory: the program needs %s; %s is free now, and at most %s "
		  "can become free%s%s%s",
		  needed, now, most, gpu ? " on " : "", gpu ? gpu : "", later);
}

/* Returns the start time of this process in clock ticks, or 0 if it is unknown. The pid alone
 * does not identify the process: if this program runs in a container, another process may have
 * the same pid outside of the container. */
static uint64_t own_start(void)
{
	unsigned long long ticks = 0;
	struct root root;
	char text[1024], *end;

	if (root_open(&root, NULL) != 0)
		return 0;
	/* The start time is the 22nd field.  The second field is a name in brackets that may
	 * contain any character. */
	if (root_read(&root, "proc/self/stat", text, sizeof(text)) > 0 &&
	    (end = strrchr(text, ')')) != NULL)
		(void)sscanf(end + 1,
			     " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			     "%*s %*s %*s %llu",
			     &ticks);
	root_close(&root);
	return ticks;
}

/* Sends one request for a reservation. Returns EXIT_OK, EXIT_NO_ROOM (r->reply says why;
 * nothing was printed), or another exit code. */
static int reserve_once(const struct cli *c, struct remote *r, struct reservation *reservation,
			double wait_s)
{
	const struct given *g = c->own;
	struct remote_body body;
	struct json *j = remote_body_begin(&body);
	char message[700];
	int err;

	json_double(j, "bytes", reservation->bytes);
	if (c->gpu.count)
		json_string(j, "gpu", c->gpu.item[0]);
	json_int(j, "pid", getpid());
	json_uint(j, "start_ticks", own_start());
	/* The value 0 means that the reservation lasts until this process ends. */
	json_double(j, "ttl_s", (double)g->ttl_ns * 1e-9);
	json_double(j, "wait_s", wait_s);
	err = remote_request(r, "POST", "/api/v1/guard/reservations", remote_body_end(&body),
			     (uint64_t)(wait_s * 1e9) + MARGIN_NS, message, sizeof(message));
	remote_body_done(&body);
	if (err)
		return cli_fail("%s", message);
	if (r->status == 409 && r->reply && json_doc_string(r->reply, "code"))
		return EXIT_NO_ROOM; /* A 409 without a code has another cause. */
	if (r->status != 201 || !r->reply || !*reply_text(r->reply, "id", "")) {
		remote_refusal(r, message, sizeof(message));
		return cli_fail("cannot reserve memory: %s", message);
	}
	snprintf(reservation->id, sizeof(reservation->id), "%s",
		 reply_text(r->reply, "id", ""));
	snprintf(reservation->gpu, sizeof(reservation->gpu), "%s",
		 reply_text(r->reply, "gpu", ""));
	return EXIT_OK;
}

/* Reserves memory. With --wait, repeats the request until the time of --wait is over, because
 * other programs may free memory. Returns an exit code. */
static int reserve_memory(const struct cli *c, struct remote *r,
			  struct reservation *reservation)
{
	const struct given *g = c->own;
	uint64_t now = clock_mono_ns(clock_real()), end = now + g->wait_ns;
	int code;

	for (;;) {
		double left = g->wait_ns ? (double)(end - now) * 1e-9 : ROUND_S, retry;

		code = reserve_once(c, r, reservation, fmin(left, ROUND_S));
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
		print_insufficient(r, reservation);
	return code;
}

static void release_reservation(const struct cli *c, struct remote *r,
				const struct reservation *reservation)
{
	char path[128], message[700];

	snprintf(path, sizeof(path), "/api/v1/guard/reservations/%s", reservation->id);
	if (remote_request(r, "DELETE", path, NULL, MARGIN_NS, message, sizeof(message)) != 0 &&
	    !c->quiet)
		cli_error("the reservation could not be ended: %s; the service ends it when "
			  "this process has ended",
			  message);
}

/* Waits for the program and returns its exit status as a shell does. Forwards signals to the
 * program, except signals from the terminal (SI_KERNEL), because the terminal itself sends them
 * to the program. */
static int wait_for_program(pid_t pid, const sigset_t *set)
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

static int run_program(const struct cli *c, const struct reservation *reservation)
{
	sigset_t set, mask;
	pid_t pid;
	int err;

	if (*reservation->gpu) {
		setenv("GPUWARD_GPU", reservation->gpu, 1);
		setenv("CUDA_VISIBLE_DEVICES", reservation->gpu, 0);
	}
	runner_signals(&set);
	sigprocmask(SIG_BLOCK, &set, &mask);
	err = runner_spawn(c->argv, environ, NULL, &mask, c->pipe_ignored, &pid);
	if (!err)
		return wait_for_program(pid, &set);
	cli_error("cannot start %s: %s", c->argv[0], strerror(err));
	return runner_spawn_status(err);
}

static int run_run(struct cli *c)
{
	const struct given *g = c->own;
	struct reservation reservation = { .bytes = 0 };
	struct remote r;
	int code;

	if (!g->vram || read_size(g->vram, &reservation.bytes) != 0)
		return cli_usage(g->vram ? "--vram takes a size with a unit, such as 10G or "
					   "512MiB, not '%s'"
					 : "--vram SIZE is missing: give the GPU memory that "
					   "the program needs%s",
				 g->vram ? g->vram : "");
	if (c->argc < 1 || c->gpu.count > 1)
		return cli_usage(
			c->argc < 1 ? "a command is missing: gpuward run --vram SIZE -- COMMAND"
				    : "memory can be reserved on one GPU only: select one GPU "
				      "with --gpu");
	code = remote_open(&r, &g->remote);
	if (code == EXIT_OK)
		code = reserve_memory(c, &r, &reservation);
	if (code == EXIT_OK) {
		if (c->verbose)
			cli_error("reserved %s on %s", g->vram, reservation.gpu);
		code = run_program(c, &reservation);
		release_reservation(c, &r, &reservation);
	} else if (g->anyway) {
		cli_error(
			"no memory is reserved; %s is started nevertheless because of --anyway",
			c->argv[0]);
		code = run_program(c, &reservation);
	}
	remote_close(&r);
	return code;
}

const struct command command_run = {
	.name = "run",
	.summary = "reserve GPU memory and run a program",
	.description =
		"Reserves GPU memory with the guard of gpuward serve: workers leave the GPU, "
		"lowest priority first, until enough memory is free. Then the program starts; "
		"the reservation ends when the program ends. The exit status is that of the "
		"program. It is 14 if the GPU has too little memory, and 1 if the service does "
		"not answer or refuses the request; with --anyway, the program starts in these "
		"cases, too. "
		"The environment variable GPUWARD_GPU contains the UUID of the GPU; "
		"CUDA_VISIBLE_DEVICES does, too, unless it is already set. A reservation is "
		"binding only for the guard's workers: another program can still take the "
		"memory first.",
	.examples =
		"  gpuward run --vram 10G -- ./render scene.blend\n"
		"  gpuward run --vram 8G --gpu 0 --wait 5m -- ./train.sh\n"
		"  gpuward run --vram 8G --anyway -- %command%   (launch options of a game)\n",
	.arguments = "-- COMMAND [ARGUMENT...]",
	.verbose = "also print how much memory is reserved, and on which GPU",
	.options = options,
	.options_size = sizeof(struct given),
	.offline = true,
	.names_gpu = true,
	.one_form = true,
	.runs = 1,
	.run = run_run,
};
