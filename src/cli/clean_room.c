#include "clean_room.h"

#include "base/clock.h"
#include "base/json_doc.h"
#include "base/thread.h"
#include "serve/timespec_parse.h"

#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WAIT_MOST_NS (3600 * NS_PER_S)
#define ANSWER_NS    (5 * NS_PER_S)
/* A lease lasts half as long as the room has lasted, and is renewed when a third of it is over:
 * one who is killed early keeps the workers out for seconds, and one who measures for hours
 * does not fill the service's log. */
#define LEASE_LEAST_S 12.0
#define LEASE_MOST_S  300.0
#define LEAVING_NS    (100 * NS_PER_MS) /* between looks until they are out, */
#define AGAIN_NS      NS_PER_S          /* while others hold one, or the service is silent, */
#define CALM_NS       (4 * NS_PER_S)    /* and afterwards */
#define SAME_NS       NS_PER_S          /* two times that a service told are one */

enum whose { OURS, THEIRS, NOBODYS };

struct held {
	enum whose whose;
	bool out;
	double evictions;       /* when it was seen out; NAN: not yet      */
	uint64_t until_wall_ns; /* ours: as the service told it            */
	uint64_t until_ns;      /* ours: monotonic, not later than that    */
};

struct clean_room {
	const struct cli *c;
	struct remote remote;
	struct measured_room told; /* and beside each worker of it: */
	struct held held[POLICY_WORKERS];
	char there[POLICY_WORKERS][128]; /* workers that have a process on a measured GPU */
	unsigned theres;
	uint64_t begin_ns;
	bool ended;
	/* The thread has all of the above from its start until it is joined. */
	pthread_t thread;
	bool running;
	int wake_fd;
	atomic_bool stop, all_out;
};

static uint64_t now_ns(void)
{
	return clock_mono_ns(clock_real());
}

/* ---- the options ---- */

static int wait_of(const struct clean_room_flags *f, uint64_t *ret_ns)
{
	return option_duration(f->wait, ret_ns) == 0 && *ret_ns && *ret_ns <= WAIT_MOST_NS ? 0
											   : -1;
}

int clean_room_check(const struct clean_room_flags *f)
{
	uint64_t ns;

	if (!f->wait && (f->remote.address || f->remote.token_file)) {
		cli_error(
			"--%s is about the service that --clean-room asks, and that is missing",
			f->remote.address ? "address" : "token-file");
		return EXIT_USAGE;
	}
	if (f->wait && wait_of(f, &ns) != 0) {
		cli_error("--clean-room takes a time such as 30s or 5m, an hour at most, not "
			  "'%s'",
			  f->wait);
		return EXIT_USAGE;
	}
	return EXIT_OK;
}

/* ---- what the service says of a worker ---- */

static bool is(const struct json_doc *w, const char *key, const char *word)
{
	const char *s = json_doc_string(w, key);

	return s && strcmp(s, word) == 0;
}

static const char *or_none(const char *s, const char *none)
{
	return s && *s ? s : none;
}

static bool by_hand(const struct json_doc *w)
{
	for (size_t i = 0; i < json_doc_count(w, "mask"); i++)
		if (is(json_doc_at(w, "mask", i), "", "manual"))
			return true;
	return false;
}

/* Is somebody's word that it stays out? */
static bool is_held(const struct json_doc *w)
{
	return is(w, "hold", "evicted") || (is(w, "hold", "none") && by_hand(w));
}

static bool is_out(const struct json_doc *w)
{
	return is(w, "state", "evicted") || is(w, "state", "absent");
}

static uint64_t until_of(const struct json_doc *w)
{
	const char *text = json_doc_string(w, "hold_until_utc");
	uint64_t wall_ns = 0;

	return text && timespec_parse(text, 0, &wall_ns) == 0 ? wall_ns : 0;
}

/* A hold is known by its end: who held it anew gave it another. */
static bool is_ours(const struct json_doc *w, const struct held *h)
{
	uint64_t until = until_of(w), own = h->until_wall_ns;

	return is(w, "hold", "evicted") && until &&
	       (until > own ? until - own : own - until) < SAME_NS;
}

/* Of the last answer; NULL: the guard has no such worker. */
static const struct json_doc *worker_named(const struct clean_room *r, const char *name)
{
	const struct json_doc *all = r->remote.reply;

	for (size_t i = 0; all && i < json_doc_count(all, "workers"); i++)
		if (is(json_doc_at(all, "workers", i), "name", name))
			return json_doc_at(all, "workers", i);
	return NULL;
}

/* ---- asking ---- */

/* 0, and the answer lists the workers; else a sentence. */
static int look(struct clean_room *r, char *message, size_t size)
{
	int err = remote_request(&r->remote, "GET", "/api/v1/guard?limit=0", NULL, ANSWER_NS,
				 message, size);

	if (!err && r->remote.status == 200 && r->remote.reply)
		return 0;
	if (!err)
		snprintf(message, size, "the service answers %d: %s", r->remote.status,
			 remote_why(&r->remote));
	return -GW_E_IO;
}

static double lease_s(const struct clean_room *r)
{
	double lasted = (double)(now_ns() - r->begin_ns) * 1e-9;

	return fmin(fmax(lasted / 2, LEASE_LEAST_S), LEASE_MOST_S);
}

static void wish(struct buf *out, double ttl_s)
{
	char reason[64];
	struct json j;

	snprintf(reason, sizeof(reason), "clean room of a measurement, process %ld",
		 (long)getpid());
	json_init(&j, out, false);
	json_object(&j, NULL);
	if (ttl_s > 0) {
		json_string(&j, "state", "evicted");
		json_double(&j, "ttl_s", ttl_s);
	}
	json_string(&j, "reason", reason);
	json_object_end(&j);
	json_end(&j);
}

/* ttl_s 0: verb needs none.  0; else a sentence, which says what to do about a refusal. */
static int ask(struct clean_room *r, const char *name, const char *verb, double ttl_s,
	       char *message, size_t size)
{
	struct remote *m = &r->remote;
	struct buf path, body;
	int err;

	buf_init(&path, 1024);
	buf_init(&body, 1024);
	buf_adds(&path, "/api/v1/guard/workers/");
	remote_escape(&path, name);
	buf_addf(&path, "/%s", verb);
	wish(&body, ttl_s);
	err = remote_request(m, "POST", path.p, body.p, ANSWER_NS, message, size);
	buf_done(&path);
	buf_done(&body);
	if (!err && m->status == 202 && m->reply)
		return 0;
	if (!err && (m->status == 401 || m->status == 403))
		snprintf(message, size, "the service refuses: %s (%s)", remote_why(m),
			 remote_hint(m));
	else if (!err)
		snprintf(message, size, "the service answers %d: %s", m->status, remote_why(m));
	return -GW_E_IO;
}

/* Begins a lease, or renews it. */
static int hold(struct clean_room *r, unsigned i, char *message, size_t size)
{
	double ttl_s = lease_s(r);
	uint64_t asked_ns = now_ns();
	struct held *h = &r->held[i];
	int err = ask(r, r->told.worker[i].name, "hold", ttl_s, message, size);

	if (err)
		return err;
	h->whose = OURS;
	h->until_wall_ns = until_of(r->remote.reply);
	h->until_ns = asked_ns + (uint64_t)(ttl_s * 1e9);
	r->told.worker[i].held = true;
	return 0;
}

/* ---- keeping ---- */

/* The first thing that broke it counts. */
static void broken(struct clean_room *r, unsigned i, const char *why)
{
	struct measured_worker *w = &r->told.worker[i];

	if (!*w->broken)
		snprintf(w->broken, sizeof(w->broken), "%s after %.0f s", why,
			 (double)(now_ns() - r->begin_ns) * 1e-9);
}

/* Once it was out: is it still, and has it been? */
static void watch_out(struct clean_room *r, unsigned i, const struct json_doc *w)
{
	double evictions = json_doc_number(w, "evictions_total");
	struct held *h = &r->held[i];

	if (!h->out && is_out(w)) {
		h->out = true;
		h->evictions = evictions;
	} else if (h->out && (evictions > h->evictions || is(w, "state", "active"))) {
		broken(r, i, "it came back");
		h->evictions = evictions;
	}
}

/* Whose is its hold now?  What somebody else did to ours is respected. */
static void see_hold(struct clean_room *r, unsigned i, const struct json_doc *w)
{
	struct held *h = &r->held[i];

	if (!w || is(w, "hold", "active")) {
		broken(r, i, w ? "somebody holds it active" : "the guard has it no more");
		h->whose = NOBODYS;
	} else if (h->whose == OURS && !is_ours(w, h)) {
		if (!is_held(w))
			broken(r, i,
			       now_ns() < h->until_ns ? "somebody released it"
						      : "the hold ran out");
		h->whose = is_held(w) ? THEIRS : NOBODYS;
	}
}

/* Is a lease to be begun or renewed? */
static bool is_due(const struct clean_room *r, unsigned i, const struct json_doc *w)
{
	const struct held *h = &r->held[i];
	double left_s = (double)(int64_t)(h->until_ns - now_ns()) * 1e-9;

	return h->whose == OURS ? left_s < lease_s(r) * 2 / 3
				: h->whose == THEIRS && !is_held(w);
}

/* One look at all of them, and what follows.  0, or the service could not be asked. */
static int keep(struct clean_room *r)
{
	bool due[POLICY_WORKERS] = { false }, all = true;
	char message[700];
	int err = look(r, message, sizeof(message));

	for (unsigned i = 0; !err && i < r->told.workers; i++) {
		const struct json_doc *w = worker_named(r, r->told.worker[i].name);

		see_hold(r, i, w);
		if (w) {
			watch_out(r, i, w);
			due[i] = is_due(r, i, w);
		}
		all = all && r->held[i].out;
	}
	if (!err)
		r->all_out = all;
	for (unsigned i = 0; !err && i < r->told.workers; i++)
		if (due[i])
			err = hold(r, i, message, sizeof(message));
	return err;
}

static uint64_t next_look_ns(const struct clean_room *r, int err)
{
	if (!err && !r->all_out)
		return LEAVING_NS;
	for (unsigned i = 0; i < r->told.workers; i++)
		if (err || r->held[i].whose == THEIRS)
			return AGAIN_NS;
	return CALM_NS;
}

static void *keeper(void *arg)
{
	struct clean_room *r = arg;

	while (!r->stop) {
		struct pollfd fd = { r->wake_fd, POLLIN, 0 };
		uint64_t wait_ns = next_look_ns(r, keep(r));
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

/* ---- beginning ---- */

static const char nothing[] = "nothing was measured";

static bool is_there(const struct clean_room *r, const char *name)
{
	for (unsigned i = 0; name && i < r->theres; i++)
		if (strcmp(r->there[i], name) == 0)
			return true;
	return false;
}

/* Is it on a measured GPU, or may it be by its configuration?  One that names no GPU is
 * wherever it likes. */
static bool concerns(const struct clean_room *r, const struct runner *runner,
		     const struct json_doc *w)
{
	size_t n = json_doc_count(w, "gpus");

	if (is_there(r, json_doc_string(w, "name")))
		return true;
	for (unsigned i = 0; n && i < gw_meter_device_count(runner->meter); i++) {
		const struct gw_device *d =
			gw_snapshot_device(r->c->snap, gw_meter_device(runner->meter, i));

		for (size_t k = 0; k < n; k++) {
			const char *s = json_doc_string(json_doc_at(w, "gpus", k), "");

			if (s && (strcmp(s, "all") == 0 || gw_device_matches(d, s) > 0))
				return true;
		}
	}
	return n == 0;
}

/* Can it be held off?  EXIT_OK or an exit code, having said why. */
static int check_worker(const struct json_doc *w, const char *mode)
{
	const char *name = json_doc_string(w, "name");

	if (is(w, "dry_run_why", "simulated"))
		cli_error("the GPUs of worker %s are simulated, and the guard acts on such "
			  "only with simulated = true in [guard]; %s",
			  name, nothing);
	else if (is(w, "dry_run_why", "another-service"))
		cli_error("another service acts for the GPUs of worker %s: --address names it; "
			  "%s",
			  name, nothing);
	else if (json_doc_true(w, "dry_run"))
		cli_error("the guard would not move worker %s (mode %s): set mode = "
			  "\"enforce\" in [guard], or leave --clean-room out; %s",
			  name, mode, nothing);
	else if (is(w, "hold", "active")) {
		cli_error("worker %s is held active, which is somebody's wish: gpuward guard "
			  "release %s ends it; %s",
			  name, name, nothing);
		return EXIT_SHARED;
	} else {
		return EXIT_OK;
	}
	return EXIT_FAILED;
}

static void note(struct clean_room *r, const struct json_doc *w)
{
	struct measured_worker *t = &r->told.worker[r->told.workers];
	struct held *h = &r->held[r->told.workers++];
	const char *hold =
		is(w, "hold", "none") && by_hand(w) ? "manual" : json_doc_string(w, "hold");
	double left = json_doc_number(w, "hold_until_seconds");

	*h = (struct held){ .whose = is_held(w) ? THEIRS : NOBODYS, .evictions = NAN };
	snprintf(t->name, sizeof(t->name), "%s", or_none(json_doc_string(w, "name"), "?"));
	snprintf(t->state, sizeof(t->state), "%s", or_none(json_doc_string(w, "state"), "?"));
	snprintf(t->hold, sizeof(t->hold), "%s", or_none(hold, "none"));
	t->hold_left_s = is_held(w) && left > 0 ? left : NAN;
}

/* Who is to be held; as check_worker(). */
static int choose(struct clean_room *r, const struct runner *runner)
{
	const struct json_doc *all = r->remote.reply;
	const char *mode = or_none(json_doc_string(all, "mode"), "unknown");
	size_t n = json_doc_count(all, "workers");
	int code = EXIT_OK;

	if (n == 0) {
		cli_error("the guard has no [[worker]] that it could hold off: name them in "
			  "the configuration of the service, or leave --clean-room out; %s",
			  nothing);
		return EXIT_FAILED;
	}
	for (size_t i = 0; i < n && i < POLICY_WORKERS && code == EXIT_OK; i++) {
		const struct json_doc *w = json_doc_at(all, "workers", i);

		if (!concerns(r, runner, w))
			continue;
		code = check_worker(w, mode);
		if (code == EXIT_OK)
			note(r, w);
	}
	if (code == EXIT_OK && r->told.workers == 0 && !r->c->quiet)
		cli_error("no worker of the guard may be on these GPUs: nobody has to leave");
	return code;
}

/* Of the last answer, which is about a GPU. */
static void note_there(struct clean_room *r)
{
	const struct json_doc *gpu = r->remote.reply;

	for (size_t i = 0; gpu && i < json_doc_count(gpu, "processes"); i++) {
		const char *name = json_doc_string(json_doc_at(gpu, "processes", i), "worker");

		if (name && !is_there(r, name) && r->theres < POLICY_WORKERS)
			snprintf(r->there[r->theres++], sizeof(r->there[0]), "%s", name);
	}
}

/* Asks until it is known: a guard that has just begun has not looked yet. */
static int ask_gpu(struct clean_room *r, const char *uuid, struct runner *runner, char *message,
		   size_t size)
{
	uint64_t until = now_ns() + ANSWER_NS;
	char path[160];
	int err;

	snprintf(path, sizeof(path), "/api/v1/guard/gpus/%.100s", uuid);
	do
		err = remote_request(&r->remote, "GET", path, NULL, ANSWER_NS, message, size);
	while (!err && r->remote.status == 503 && now_ns() < until &&
	       !runner_sleep(runner, now_ns() + LEAVING_NS));
	return err;
}

/* Another machine's workers are left alone: its service does not know our GPUs. */
static int check_gpus(struct clean_room *r, struct runner *runner)
{
	unsigned n = gw_meter_device_count(runner->meter);
	char message[700];

	if (n == 0) {
		cli_error("there is no GPU that could be kept clear; %s", nothing);
		return EXIT_NO_GPU;
	}
	for (unsigned i = 0; i < n; i++) {
		const struct gw_device *d =
			gw_snapshot_device(r->c->snap, gw_meter_device(runner->meter, i));
		const char *uuid = or_none(gw_device_text(d, GW_T_UUID), "-");

		if (ask_gpu(r, uuid, runner, message, sizeof(message)) != 0) {
			cli_error("%s; --clean-room asks the guard of gpuward serve; %s",
				  message, nothing);
			return EXIT_FAILED;
		}
		if (r->remote.status == 200) {
			note_there(r);
			continue;
		}
		cli_error("the service on %s does not guard GPU %u (%s): %s; --address names "
			  "another; %s",
			  r->remote.address, d->index, uuid, remote_why(&r->remote), nothing);
		return EXIT_FAILED;
	}
	return EXIT_OK;
}

/* Those that nobody else holds. */
static int hold_all(struct clean_room *r)
{
	char message[700];

	for (unsigned i = 0; i < r->told.workers; i++) {
		if (r->held[i].whose == THEIRS)
			continue;
		if (hold(r, i, message, sizeof(message)) == 0)
			continue;
		cli_error("worker %s cannot be held off: %s; %s", r->told.worker[i].name,
			  message, nothing);
		return EXIT_FAILED;
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
	if (code == EXIT_OK && look(r, message, sizeof(message)) != 0) {
		cli_error("%s; %s", message, nothing);
		code = EXIT_FAILED;
	}
	return code == EXIT_OK ? choose(r, runner) : code;
}

/* Of the last answer. */
static void say_who_stayed(const struct clean_room *r, const char *wait)
{
	for (unsigned i = 0; i < r->told.workers; i++) {
		const char *name = r->told.worker[i].name;
		const struct json_doc *w = worker_named(r, name);

		if (!r->held[i].out)
			cli_error(
				"worker %s did not leave within %s (it is %s: %s); gpuward "
				"guard explain %s tells more, --clean-room=TIME waits longer; "
				"%s",
				name, wait, w ? json_doc_string(w, "state") : "gone",
				or_none(w ? json_doc_string(w, "why") : NULL, "no reason told"),
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
			fprintf(stderr, "gpuward: waiting until the guard's workers are out\n");
			said = true;
		}
	}
	r->told.waited_s = (double)(now_ns() - r->begin_ns) * 1e-9;
	if (runner->interrupted)
		return 128 + runner->interrupted;
	if (r->all_out)
		return EXIT_OK;
	stop_keeper(r);
	if (look(r, message, sizeof(message)) != 0) {
		cli_error("%s; %s", message, nothing);
		return EXIT_FAILED;
	}
	say_who_stayed(r, f->wait);
	return EXIT_SHARED;
}

static int begin(struct clean_room *r, const struct clean_room_flags *f, struct runner *runner)
{
	int code = find_workers(r, f, runner);

	r->begin_ns = now_ns();
	if (code == EXIT_OK)
		code = hold_all(r);
	if (code != EXIT_OK || r->told.workers == 0)
		return code;
	if (thread_start(&r->thread, 0, keeper, r) != 0) {
		cli_error("%s; %s", gw_strerror(-GW_E_NOMEM), nothing);
		return EXIT_FAILED;
	}
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
	r->told.asked = true;
	buf_init(&r->remote.body, 1);
	code = begin(r, f, runner);
	if (code == EXIT_OK)
		*ret = r;
	else
		clean_room_free(r);
	return code;
}

/* ---- ending ---- */

static void say_broken(const struct clean_room *r)
{
	for (unsigned i = 0; i < r->told.workers; i++)
		if (*r->told.worker[i].broken)
			cli_error("the room was not kept clean: worker %s: %s",
				  r->told.worker[i].name, r->told.worker[i].broken);
}

/* Only what is still ours; what cannot be asked for ends by itself. */
static void release_all(struct clean_room *r)
{
	char message[700] = "";
	bool ours[POLICY_WORKERS];

	if (look(r, message, sizeof(message)) != 0) {
		cli_error("%s: the workers are held off until their holds end by themselves, "
			  "within %.0f s",
			  message, lease_s(r));
		for (unsigned i = 0; i < r->told.workers; i++)
			broken(r, i, "nobody knows: the service did not answer at the end,");
		return;
	}
	for (unsigned i = 0; i < r->told.workers; i++) {
		const struct json_doc *w = worker_named(r, r->told.worker[i].name);

		see_hold(r, i, w);
		if (w)
			watch_out(r, i, w);
		ours[i] = r->held[i].whose == OURS;
	}
	for (unsigned i = 0; i < r->told.workers; i++)
		if (ours[i] &&
		    ask(r, r->told.worker[i].name, "release", 0, message, sizeof(message)) != 0)
			cli_error("worker %s: %s: its hold ends by itself within %.0f s",
				  r->told.worker[i].name, message, lease_s(r));
}

static bool any_ours(const struct clean_room *r)
{
	for (unsigned i = 0; i < r->told.workers; i++)
		if (r->held[i].whose == OURS)
			return true;
	return false;
}

void clean_room_end(struct clean_room *r)
{
	if (!r || r->ended)
		return;
	stop_keeper(r);
	if (r->told.workers && (r->all_out || any_ours(r)))
		release_all(r);
	if (r->all_out)
		say_broken(r);
	r->ended = true;
}

const struct measured_room *clean_room_told(const struct clean_room *r)
{
	return r ? &r->told : NULL;
}

void clean_room_line(const struct measured_worker *w, char *out, size_t size)
{
	snprintf(out, size, "%s was held off%s%s%s", w->name,
		 w->held ? "" : " by others already", *w->broken ? ", but " : "", w->broken);
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
