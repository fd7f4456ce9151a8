#include "clean_room.h"

#include "base/utf8.h"
#include "base/clock.h"
#include "base/json_doc.h"
#include "base/mailbox.h"

#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WAIT_MOST_NS (3600 * NS_PER_S)
#define REPLY_NS     (5 * NS_PER_S)
/* A hold is a lease. The lease is half as long as the time since --clean-room began, within
 * these limits. The lease is renewed when a third of its time is over. So a command that is
 * killed early blocks the workers only for seconds, and a command that runs for hours does not
 * fill the service's log. */
#define LEASE_LEAST_S 12.0
#define LEASE_MOST_S  300.0
#define LEAVING_NS    (100 * NS_PER_MS) /* Time between requests until the workers have left. */
/* Time between requests while someone else holds a worker, or after an error. */
#define AGAIN_NS NS_PER_S
#define CALM_NS  (4 * NS_PER_S) /* Time between requests after the workers have left. */

enum holder { HELD_BY_US, HELD_BY_OTHERS, NOT_HELD };

struct held {
	enum holder holder;
	bool out; /* The worker has left the GPU. */
	/* Number of evictions of this worker, as counted by the service when the worker left.
	 * NAN: the worker has not left. */
	double evictions;
	/* If HELD_BY_US: the requester of our hold, as the service reports it. The text
	 * contains our process id. */
	char requested_by[256];
	/* If HELD_BY_US: our hold does not end before this time on the monotonic clock. */
	uint64_t until_ns;
};

struct clean_room {
	const struct cli *c;
	struct remote remote;
	/* The record for the result. Its workers have the same order as held[]. */
	struct measured_room record;
	struct held held[POLICY_WORKERS];
	/* Names of the workers that have a process on a measured GPU. */
	char on_gpu[POLICY_WORKERS][128];
	unsigned on_gpu_count;
	uint64_t begin_ns;
	bool ended;
	/* While the thread runs, it owns all members above. */
	pthread_t thread;
	bool running;
	int wake_fd;
	atomic_bool stop, all_out;
};

static uint64_t now_ns(void)
{
	return clock_mono_ns(clock_real());
}

static int wait_of(const struct clean_room_flags *f, uint64_t *ret_ns)
{
	return option_duration(f->wait, ret_ns) == 0 && *ret_ns && *ret_ns <= WAIT_MOST_NS ? 0
											   : -1;
}

int clean_room_check(const struct clean_room_flags *f)
{
	uint64_t ns;

	if (!f->wait && (f->remote.address || f->remote.token_file))
		return cli_usage("--%s needs --clean-room",
				 f->remote.address ? "address" : "token-file");
	if (f->wait && wait_of(f, &ns) != 0)
		return cli_usage(
			"--clean-room takes a time such as 30s or 5m, at most 1h, not '%s'",
			f->wait);
	return EXIT_OK;
}

static bool is_held(const struct json_doc *w)
{
	return reply_is(w, "hold", "evicted") ||
	       (reply_is(w, "hold", "none") && reply_has(w, "mask", "manual"));
}

static bool is_out(const struct json_doc *w)
{
	return (reply_is(w, "state", "evicted") || reply_is(w, "state", "absent")) &&
	       !json_doc_true(w, "hypothetical");
}

/* Returns true if this program requested the hold of the worker. */
static bool is_ours(const struct json_doc *w, const struct held *h)
{
	return reply_is(w, "hold", "evicted") && reply_is(w, "requested_by", h->requested_by);
}

/* Finds a worker in the last reply.  Returns NULL if the guard has no such worker. */
static const struct json_doc *worker_named(const struct clean_room *r, const char *name)
{
	const struct json_doc *all = r->remote.reply;

	for (size_t i = 0; all && i < json_doc_count(all, "workers"); i++)
		if (reply_is(json_doc_at(all, "workers", i), "name", name))
			return json_doc_at(all, "workers", i);
	return NULL;
}

/* Returns 0 if the request succeeded (err is 0) and the reply has this status.  Otherwise
 * returns an error with a sentence in message. */
static int check_reply(struct clean_room *r, int err, int status, char *message, size_t size)
{
	if (!err && r->remote.status == status && r->remote.reply)
		return 0;
	if (!err)
		remote_refusal(&r->remote, message, size);
	return -GW_E_IO;
}

/* Requests the list of workers.  Returns 0 and keeps the reply, or an error with a sentence in
 * message. */
static int request_workers(struct clean_room *r, char *message, size_t size)
{
	int err = remote_request(&r->remote, "GET", "/api/v1/guard?limit=0", NULL, REPLY_NS,
				 message, size);

	return check_reply(r, err, 200, message, size);
}

static double lease_s(const struct clean_room *r)
{
	double lasted = (double)(now_ns() - r->begin_ns) * 1e-9;

	return fmin(fmax(lasted / 2, LEASE_LEAST_S), LEASE_MOST_S);
}

/* Sends a verb such as "/hold" for one worker.  ttl_s is the length of the hold; 0 if the verb
 * has none.  Returns 0, or an error with a sentence in message. */
static int request_verb(struct clean_room *r, const char *name, const char *verb, double ttl_s,
			char *message, size_t size)
{
	char path[REMOTE_PATH], reason[64];
	struct remote_body body;
	struct json *j = remote_body_begin(&body);
	int err;

	snprintf(reason, sizeof(reason), "clean room of a measurement, process %ld",
		 (long)getpid());
	if (ttl_s > 0) {
		json_string(j, "state", "evicted");
		json_double(j, "ttl_s", ttl_s);
	}
	json_string(j, "reason", reason);
	err = remote_request(&r->remote, "POST", remote_path(path, REMOTE_WORKERS, name, verb),
			     remote_body_end(&body), REPLY_NS, message, size);
	remote_body_done(&body);
	return check_reply(r, err, 202, message, size);
}

static int hold_worker(struct clean_room *r, unsigned i, char *message, size_t size)
{
	double ttl_s = lease_s(r);
	uint64_t asked_ns = now_ns();
	struct held *h = &r->held[i];
	int err = request_verb(r, r->record.worker[i].name, "/hold", ttl_s, message, size);

	if (err)
		return err;
	h->holder = HELD_BY_US;
	snprintf(h->requested_by, sizeof(h->requested_by), "%s",
		 reply_text(r->remote.reply, "requested_by", ""));
	h->until_ns = asked_ns + (uint64_t)(ttl_s * 1e9);
	r->record.worker[i].held = true;
	return 0;
}

/* Stores why the worker did not stay off the GPU. Only the first reason is kept. */
static void set_broken(struct clean_room *r, unsigned i, const char *why)
{
	struct measured_worker *w = &r->record.worker[i];

	if (!*w->broken)
		snprintf(w->broken, sizeof(w->broken), "%s, %.0f s after the clean room began",
			 why, (double)(now_ns() - r->begin_ns) * 1e-9);
}

/* Records when the worker leaves the GPU. If the worker left earlier and has returned since the
 * last request, records the return. */
static void update_presence(struct clean_room *r, unsigned i, const struct json_doc *w)
{
	double evictions = json_doc_number(w, "evictions_total");
	struct held *h = &r->held[i];

	if (!h->out && is_out(w)) {
		h->out = true;
		h->evictions = evictions;
	} else if (h->out && (evictions > h->evictions || reply_is(w, "state", "active"))) {
		set_broken(r, i, "it returned to the GPU");
		h->evictions = evictions;
	}
}

/* Updates who holds the worker.  If someone else changed our hold, the hold is no longer
 * treated as ours. */
static void update_holder(struct clean_room *r, unsigned i, const struct json_doc *w)
{
	struct held *h = &r->held[i];

	if (!w || reply_is(w, "hold", "active")) {
		set_broken(r, i,
			   w ? "someone holds it active"
			     : "the guard has no worker of this name any more");
		h->holder = NOT_HELD;
	} else if (h->holder == HELD_BY_US && !is_ours(w, h)) {
		if (!is_held(w))
			set_broken(r, i,
				   now_ns() < h->until_ns ? "someone released it"
							  : "the hold expired");
		h->holder = is_held(w) ? HELD_BY_OTHERS : NOT_HELD;
	}
}

/* Returns true if a hold must be requested or renewed. */
static bool is_lease_due(const struct clean_room *r, unsigned i, const struct json_doc *w)
{
	const struct held *h = &r->held[i];
	double left_s = (double)(int64_t)(h->until_ns - now_ns()) * 1e-9;

	return h->holder == HELD_BY_US ? left_s < lease_s(r) * 2 / 3
				       : h->holder == HELD_BY_OTHERS && !is_held(w);
}

/* Requests the list of workers once, updates what is known about them, and renews the holds
 * that are due.  Returns 0 or an error. */
static int keep_workers(struct clean_room *r)
{
	bool due[POLICY_WORKERS] = { false }, all = true;
	char message[700];
	int err = request_workers(r, message, sizeof(message));

	for (unsigned i = 0; !err && i < r->record.workers; i++) {
		const struct json_doc *w = worker_named(r, r->record.worker[i].name);

		update_holder(r, i, w);
		if (w) {
			update_presence(r, i, w);
			due[i] = is_lease_due(r, i, w);
		}
		all = all && r->held[i].out;
	}
	if (!err)
		r->all_out = all;
	for (unsigned i = 0; !err && i < r->record.workers; i++)
		if (due[i])
			err = hold_worker(r, i, message, sizeof(message));
	return err;
}

static uint64_t next_request_ns(const struct clean_room *r, int err)
{
	if (!err && !r->all_out)
		return LEAVING_NS;
	for (unsigned i = 0; i < r->record.workers; i++)
		if (err || r->held[i].holder == HELD_BY_OTHERS)
			return AGAIN_NS;
	return CALM_NS;
}

static void *keeper_thread(void *arg)
{
	struct clean_room *r = arg;

	while (!r->stop) {
		struct pollfd fd = { r->wake_fd, POLLIN, 0 };
		uint64_t wait_ns = next_request_ns(r, keep_workers(r));
		struct timespec t = clock_timespec(wait_ns);

		if (!r->stop)
			ppoll(&fd, 1, &t, NULL);
	}
	return NULL;
}

static void stop_keeper(struct clean_room *r)
{
	if (!r->running)
		return;
	r->stop = true;
	eventfd_write(r->wake_fd, 1);
	pthread_join(r->thread, NULL);
	r->running = false;
}

static const char nothing[] = "nothing was measured";

static bool is_on_gpu(const struct clean_room *r, const char *name)
{
	for (unsigned i = 0; name && i < r->on_gpu_count; i++)
		if (strcmp(r->on_gpu[i], name) == 0)
			return true;
	return false;
}

/* Returns true if the worker is on a measured GPU, or if its configuration lets it use one.  A
 * worker without configured GPUs may be on any GPU. */
static bool may_be_on_gpus(const struct clean_room *r, const struct runner *runner,
			   const struct json_doc *w)
{
	size_t n = json_doc_count(w, "gpus");

	if (is_on_gpu(r, json_doc_string(w, "name")))
		return true;
	for (unsigned i = 0; n && i < gw_meter_device_count(runner->meter); i++) {
		const struct gw_device *d =
			gw_snapshot_device(r->c->snap, gw_meter_device(runner->meter, i));

		for (size_t k = 0; k < n; k++) {
			const char *s = json_doc_string(json_doc_at(w, "gpus", k), "");

			if (s && gw_device_matches(d, s) > 0)
				return true;
		}
	}
	return n == 0;
}

/* Checks that the worker can be held.  Returns an exit code. */
static int check_worker(const struct json_doc *w, const char *mode)
{
	const char *name = reply_text(w, "name", "?");

	if (reply_is(w, "dry_run_why", "simulated"))
		cli_error("worker %s runs on simulated GPUs; the guard acts on them only with "
			  "simulated = true in [guard]; %s",
			  name, nothing);
	else if (reply_is(w, "dry_run_why", "another-service"))
		cli_error("another service controls the GPUs of worker %s; give the --address "
			  "of that service; %s",
			  name, nothing);
	else if (json_doc_true(w, "dry_run"))
		cli_error("the guard does not move worker %s in mode %s; set mode = "
			  "\"enforce\" in [guard], or leave out --clean-room; %s",
			  name, mode, nothing);
	else if (reply_is(w, "hold", "active")) {
		cli_error("someone holds worker %s active; to end this hold, run gpuward guard "
			  "release %s; %s",
			  name, name, nothing);
		return EXIT_SHARED;
	} else {
		return EXIT_OK;
	}
	return EXIT_FAILED;
}

static void add_worker(struct clean_room *r, const struct json_doc *w)
{
	struct measured_worker *t = &r->record.worker[r->record.workers];
	struct held *h = &r->held[r->record.workers++];
	const char *hold = reply_is(w, "hold", "none") && reply_has(w, "mask", "manual")
				   ? "manual"
				   : reply_text(w, "hold", "none");
	double left = json_doc_number(w, "hold_until_seconds");

	*h = (struct held){ .holder = is_held(w) ? HELD_BY_OTHERS : NOT_HELD,
			    .evictions = NAN };
	snprintf(t->name, sizeof(t->name), "%s", reply_text(w, "name", "?"));
	snprintf(t->state, sizeof(t->state), "%s", reply_text(w, "state", "?"));
	snprintf(t->hold, sizeof(t->hold), "%s", hold);
	t->hold_left_s = is_held(w) && left > 0 ? left : NAN;
}

/* Chooses the workers to hold.  Returns an exit code. */
static int choose_workers(struct clean_room *r, const struct runner *runner)
{
	const struct json_doc *all = r->remote.reply;
	const char *mode = reply_text(all, "mode", "unknown");
	size_t n = json_doc_count(all, "workers");
	int code = EXIT_OK;

	if (n == 0)
		return cli_fail("the guard has no [[worker]] to move off the GPUs; configure "
				"workers in the service, or leave out --clean-room; %s",
				nothing);
	for (size_t i = 0; i < n && i < POLICY_WORKERS && code == EXIT_OK; i++) {
		const struct json_doc *w = json_doc_at(all, "workers", i);

		if (!may_be_on_gpus(r, runner, w))
			continue;
		code = check_worker(w, mode);
		if (code == EXIT_OK)
			add_worker(r, w);
	}
	if (code == EXIT_OK && r->record.workers == 0 && !r->c->quiet)
		cli_error("note: no worker of the guard uses these GPUs, so none has to leave");
	return code;
}

static void note_workers_on_gpu(struct clean_room *r)
{
	const struct json_doc *gpu = r->remote.reply;

	for (size_t i = 0; gpu && i < json_doc_count(gpu, "processes"); i++) {
		const char *name = json_doc_string(json_doc_at(gpu, "processes", i), "worker");

		if (name && !is_on_gpu(r, name) && r->on_gpu_count < POLICY_WORKERS)
			snprintf(r->on_gpu[r->on_gpu_count++], sizeof(r->on_gpu[0]), "%s",
				 name);
	}
}

/* Requests the state of a GPU from the guard. If the guard has just started and has no scene
 * yet (status 503), repeats the request. */
static int request_gpu(struct clean_room *r, const char *uuid, struct runner *runner,
		       char *message, size_t size)
{
	uint64_t until = now_ns() + REPLY_NS;
	char path[160];
	int err;

	snprintf(path, sizeof(path), "/api/v1/guard/gpus/%.100s", uuid);
	do
		err = remote_request(&r->remote, "GET", path, NULL, REPLY_NS, message, size);
	while (!err && r->remote.status == 503 && now_ns() < until &&
	       !runner_sleep(runner, now_ns() + LEAVING_NS));
	return err;
}

/* Checks that the service guards the measured GPUs: a service on another machine does not know
 * them. */
static int check_gpus(struct clean_room *r, struct runner *runner)
{
	unsigned n = gw_meter_device_count(runner->meter);
	char message[700];

	if (n == 0) {
		cli_error("--clean-room needs a GPU, and there is none; %s", nothing);
		return EXIT_NO_GPU;
	}
	for (unsigned i = 0; i < n; i++) {
		const struct gw_device *d =
			gw_snapshot_device(r->c->snap, gw_meter_device(runner->meter, i));
		const char *uuid = gw_device_text(d, GW_T_UUID);

		uuid = uuid && *uuid ? uuid : "-";
		if (request_gpu(r, uuid, runner, message, sizeof(message)) != 0)
			return cli_fail("%s; --clean-room needs the guard of gpuward serve; %s",
					message, nothing);
		if (r->remote.status == 200) {
			note_workers_on_gpu(r);
			continue;
		}
		return cli_fail("the service on %s does not guard GPU %u (%s): %s; give the "
				"--address of another service; %s",
				r->remote.address, d->index, uuid, remote_why(&r->remote),
				nothing);
	}
	return EXIT_OK;
}

static int hold_all(struct clean_room *r)
{
	char message[700];

	for (unsigned i = 0; i < r->record.workers; i++) {
		if (r->held[i].holder == HELD_BY_OTHERS)
			continue;
		if (hold_worker(r, i, message, sizeof(message)) == 0)
			continue;
		return cli_fail("cannot move worker %s off the GPU: %s; %s",
				r->record.worker[i].name, message, nothing);
	}
	return EXIT_OK;
}

static int find_workers(struct clean_room *r, const struct clean_room_flags *f,
			struct runner *runner)
{
	char message[700];
	int code = remote_open(&r->remote, &f->remote);

	if (code == EXIT_OK)
		code = check_gpus(r, runner);
	if (code == EXIT_OK && request_workers(r, message, sizeof(message)) != 0)
		code = cli_fail("%s; %s", message, nothing);
	return code == EXIT_OK ? choose_workers(r, runner) : code;
}

/* Prints an error for each worker that did not leave, with its state from the last reply. */
static void print_stayed(const struct clean_room *r, const char *wait)
{
	for (unsigned i = 0; i < r->record.workers; i++) {
		const char *name = r->record.worker[i].name;
		const struct json_doc *w = worker_named(r, name);

		if (!r->held[i].out)
			cli_error(
				"worker %s did not leave within %s (it is %s: %s); see gpuward "
				"guard explain %s, or wait longer with --clean-room=TIME; %s",
				name, wait, w ? reply_text(w, "state", "unknown") : "gone",
				w ? reply_text(w, "why", "no reason given") : "no reason given",
				name, nothing);
	}
}

static int wait_until_out(struct clean_room *r, const struct clean_room_flags *f,
			  struct runner *runner)
{
	uint64_t now = now_ns(), wait_ns = 0, until;
	char message[700];
	bool said = false;

	wait_of(f, &wait_ns);
	until = r->begin_ns + wait_ns;
	while (!r->all_out && now < until && !runner_sleep(runner, now + LEAVING_NS / 2)) {
		now = now_ns();
		if (!said && !r->c->quiet && now - r->begin_ns > NS_PER_S) {
			cli_error("waiting for the guard's workers to leave their GPUs");
			said = true;
		}
	}
	r->record.waited_s = (double)(now_ns() - r->begin_ns) * 1e-9;
	if (runner->interrupted)
		return 128 + runner->interrupted;
	if (r->all_out)
		return EXIT_OK;
	stop_keeper(r);
	if (request_workers(r, message, sizeof(message)) != 0)
		return cli_fail("%s; %s", message, nothing);
	print_stayed(r, f->wait);
	return EXIT_SHARED;
}

static int begin_room(struct clean_room *r, const struct clean_room_flags *f,
		      struct runner *runner)
{
	int code = find_workers(r, f, runner);

	r->begin_ns = now_ns();
	if (code == EXIT_OK)
		code = hold_all(r);
	if (code != EXIT_OK || r->record.workers == 0)
		return code;
	if (thread_start(&r->thread, 0, keeper_thread, r) != 0)
		return cli_fail("%s; %s", gw_strerror(-GW_E_NOMEM), nothing);
	r->running = true;
	return wait_until_out(r, f, runner);
}

int clean_room_new(const struct cli *c, const struct clean_room_flags *f, struct runner *runner,
		   struct clean_room **ret)
{
	struct clean_room *r;
	int code;

	*ret = NULL;
	if (!f->wait)
		return EXIT_OK;
	r = calloc(1, sizeof(*r));
	if (!r || (r->wake_fd = eventfd(0, EFD_CLOEXEC)) < 0) {
		cli_error("%s; %s", gw_strerror(-GW_E_NOMEM), nothing);
		free(r);
		return EXIT_FAILED;
	}
	r->c = c;
	r->record.asked = true;
	buf_init(&r->remote.body, 1);
	code = begin_room(r, f, runner);
	if (code == EXIT_OK)
		*ret = r;
	else
		clean_room_free(r);
	return code;
}

static void print_broken(const struct clean_room *r)
{
	for (unsigned i = 0; i < r->record.workers; i++)
		if (*r->record.worker[i].broken)
			cli_error("the GPUs may not have been kept free of workers: worker %s: "
				  "%s",
				  r->record.worker[i].name, r->record.worker[i].broken);
}

/* Releases the holds that this program requested, except holds that someone else has changed.
 * If the request fails, the leases end by themselves. */
static void release_all(struct clean_room *r)
{
	char message[700] = "";

	if (request_workers(r, message, sizeof(message)) != 0) {
		cli_error("%s; the workers stay off the GPUs until their holds expire, at most "
			  "%.0f s from now",
			  message, lease_s(r));
		for (unsigned i = 0; i < r->record.workers; i++)
			set_broken(r, i,
				   "it may have returned to the GPU: the service did not "
				   "answer at the end");
		return;
	}
	for (unsigned i = 0; i < r->record.workers; i++) {
		const struct json_doc *w = worker_named(r, r->record.worker[i].name);

		update_holder(r, i, w);
		if (w)
			update_presence(r, i, w);
	}
	for (unsigned i = 0; i < r->record.workers; i++)
		if (r->held[i].holder == HELD_BY_US &&
		    request_verb(r, r->record.worker[i].name, "/release", 0, message,
				 sizeof(message)) != 0)
			cli_error("worker %s: %s; its hold expires within %.0f s",
				  r->record.worker[i].name, message, lease_s(r));
}

static bool any_held_by_us(const struct clean_room *r)
{
	for (unsigned i = 0; i < r->record.workers; i++)
		if (r->held[i].holder == HELD_BY_US)
			return true;
	return false;
}

void clean_room_end(struct clean_room *r)
{
	if (!r || r->ended)
		return;
	stop_keeper(r);
	if (r->record.workers && (r->all_out || any_held_by_us(r)))
		release_all(r);
	if (r->all_out)
		print_broken(r);
	r->ended = true;
}

const struct measured_room *clean_room_record(const struct clean_room *r)
{
	return r ? &r->record : NULL;
}

void clean_room_print(const struct measured_room *r, unsigned indent)
{
	for (unsigned i = 0; r && i < r->workers; i++) {
		const struct measured_worker *w = &r->worker[i];
		char name[sizeof(w->name)], broken[sizeof(w->broken)];

		/* The name and the reason come from the service and may contain control
		 * characters. */
		utf8_clean(name, sizeof(name), w->name);
		utf8_clean(broken, sizeof(broken), w->broken);
		term_row(indent, i ? "" : "Clean room", "%s was kept off the GPUs%s%s%s", name,
			 w->held ? "" : " (someone else already held it)",
			 *broken ? ", but " : "", broken);
	}
}

void clean_room_free(struct clean_room *r)
{
	if (!r)
		return;
	clean_room_end(r);
	remote_close(&r->remote);
	close(r->wake_fd);
	free(r);
}
