#include "setup_service.h"

#include "cli.h"
#include "remote.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/json_doc.h"
#include "guard/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define START_NS    (15 * NS_PER_S) /* longest wait for a service that was just started */
#define QUESTION_NS (5 * NS_PER_S)
#define GUARD       "/api/v1/guard"

/* Returns true if requests may be sent: see the head of setup_service.h. */
static bool is_asked(const struct setup_place *at)
{
	const char *address = getenv("GPUWARD_ADDRESS");

	return !*at->prefix || (address && *address);
}

/* Sends a request. Returns false, with a sentence in message, if no service answers or if it
 * refuses the request. */
static bool ask(struct remote *r, const char *method, const char *path, const char *body,
		char *message, size_t size)
{
	if (remote_request(r, method, path, body, QUESTION_NS, message, size) != 0)
		return false;
	if (r->status >= 400)
		remote_refusal(r, message, size);
	return r->status < 400;
}

bool setup_service_mode(const struct setup_place *at, bool wait, char out[static 16])
{
	const uint64_t until = clock_mono_ns(clock_real()) + (wait ? START_NS : 0);
	const struct timespec pause = { .tv_nsec = 100 * 1000 * 1000 };
	const char *mode = NULL;
	char message[700];
	struct remote r;

	if (!is_asked(at))
		return false;
	if (remote_open(&r, &(struct remote_flags){ .address = NULL }) == EXIT_OK) {
		while (!ask(&r, "GET", GUARD, NULL, message, sizeof(message)) &&
		       clock_mono_ns(clock_real()) < until)
			nanosleep(&pause, NULL);
		mode = r.reply ? json_doc_string(r.reply, "mode") : NULL;
		snprintf(out, 16, "%s", mode ? mode : "");
	}
	remote_close(&r);
	return mode != NULL;
}

#define RETURN_NS (30 * NS_PER_S) /* longest wait for a worker's return */

/* A worker that the undo must release, or that is off its GPU. */
struct off {
	char name[128], state[16];
	bool held;    /* a person holds the worker, or has evicted it */
	bool out;     /* the guard has moved it off its GPU, or is doing so */
	bool returns; /* only that person keeps it off its GPU, so it returns after a release */
};

static bool is_out(const struct json_doc *w)
{
	static const char *const in[] = { "active", "suspect", "drain", "reconcile", "absent" };
	const char *state = json_doc_string(w, "state");

	for (unsigned i = 0; state && i < COUNT(in); i++)
		if (strcmp(state, in[i]) == 0)
			return false;
	return state && !json_doc_true(w, "hypothetical");
}

static unsigned read_workers(const struct remote *r, struct off off[static POLICY_WORKERS])
{
	unsigned n = 0;

	for (size_t i = 0; i < json_doc_count(r->reply, "workers") && n < POLICY_WORKERS; i++) {
		const struct json_doc *w = json_doc_at(r->reply, "workers", i);
		const bool manual = reply_has(w, "mask", "manual");

		off[n] = (struct off){
			.held = manual || strcmp(reply_text(w, "hold", "none"), "none") != 0,
			.out = is_out(w),
			.returns = manual && json_doc_count(w, "mask") == 1 &&
				   !json_doc_true(w, "stays_evicted"),
		};
		snprintf(off[n].name, sizeof(off[n].name), "%s", reply_text(w, "name", ""));
		snprintf(off[n].state, sizeof(off[n].state), "%s", reply_text(w, "state", ""));
		n += off[n].held || off[n].out;
	}
	return n;
}

/* Prints that a mode or a hold stays stored, and why it could not be cleared. */
static void say_stays(const char *what, const char *why)
{
	char text[1200];

	snprintf(text, sizeof(text),
		 "%s: %s. It stays stored in the database of the service "
		 "(/var/lib/gpuward/gpuward.db, or the file that history.path names), and the "
		 "service uses it again after its next start.",
		 what, why);
	term_wrap(" -", 4, text, term_width());
}

/* Waits until the worker is on its GPU again, at most RETURN_NS. Updates o->out. */
static void wait_for_return(struct remote *r, const char *path, struct off *o)
{
	const uint64_t until = clock_mono_ns(clock_real()) + RETURN_NS;
	const struct timespec pause = { .tv_nsec = 100 * 1000 * 1000 };
	char message[700];

	while (o->out && clock_mono_ns(clock_real()) < until &&
	       ask(r, "GET", path, NULL, message, sizeof(message))) {
		o->out = is_out(r->reply);
		if (o->out)
			nanosleep(&pause, NULL);
	}
}

/* Ends the hold of a worker. If the worker is off its GPU only because of this hold, waits
 * until it has returned. This must happen before the mode is cleared: in a dry run, the worker
 * would stay off its GPU. */
static void release(struct remote *r, struct off *o, bool quiet)
{
	const bool back = o->out && o->returns;
	char path[REMOTE_PATH], message[700], what[200];

	remote_path(path, REMOTE_WORKERS, o->name, back ? "/resume" : "/release");
	if (!ask(r, "POST", path, back ? "{\"force\": true}" : "{}", message,
		 sizeof(message))) {
		snprintf(what, sizeof(what), "The hold of the worker %s was not removed",
			 o->name);
		say_stays(what, message);
	} else {
		if (!quiet)
			printf("  released the worker %s, which a person held\n", o->name);
		if (back)
			wait_for_return(r, remote_path(path, REMOTE_WORKERS, o->name, ""), o);
	}
}

static void say_out(const struct off *o)
{
	char text[500];

	snprintf(text, sizeof(text),
		 "The worker %s is off the GPU now (state %s). If it is still off when the "
		 "service stops, its model stays unloaded until a request loads it or you "
		 "start the worker yourself.",
		 o->name, o->state);
	term_wrap(" -", 4, text, term_width());
}

static void forget_mode(struct remote *r, const char *mode, bool quiet, bool dry_run)
{
	char message[700], what[100];

	if (dry_run) {
		printf("  clear the mode %s, which was set at run time\n", mode);
	} else if (!ask(r, "DELETE", GUARD "/mode", NULL, message, sizeof(message))) {
		snprintf(what, sizeof(what), "The mode %s, set at run time, was not cleared",
			 mode);
		say_stays(what, message);
	} else if (!quiet) {
		printf("  cleared the mode %s, which was set at run time\n", mode);
	}
}

void setup_service_forget(const struct setup_place *at, bool quiet, bool dry_run)
{
	struct off off[POLICY_WORKERS];
	char message[700], mode[32] = "";
	const char *set;
	struct remote r;
	unsigned n;

	if (!is_asked(at))
		return;
	if (remote_open(&r, &(struct remote_flags){ .address = NULL }) != EXIT_OK ||
	    !ask(&r, "GET", GUARD, NULL, message, sizeof(message))) {
		if (!quiet)
			say_stays("A mode or a hold that was set at run time could not be "
				  "cleared",
				  "no service answers");
		remote_close(&r);
		return;
	}
	set = json_doc_string(r.reply, "mode_set.mode");
	snprintf(mode, sizeof(mode), "%s", set ? set : "");
	n = read_workers(&r, off);
	for (unsigned i = 0; i < n; i++) {
		if (off[i].held && dry_run)
			printf("  release the worker %s, which a person holds\n", off[i].name);
		else if (off[i].held)
			release(&r, &off[i], quiet);
	}
	if (*mode)
		forget_mode(&r, mode, quiet, dry_run);
	for (unsigned i = 0; i < n; i++)
		if (off[i].out)
			say_out(&off[i]);
	remote_close(&r);
}
