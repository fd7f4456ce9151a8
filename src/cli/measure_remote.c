#include "measure_remote.h"

#include "window_read.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/http_message.h"
#include "base/utf8.h"
#include "serve/windows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLY_NS (5 * NS_PER_S)
/* Longest wait for the result, including its transfer. */
#define RESULT_NS (WINDOWS_WAIT_NS + 7 * NS_PER_S)
#define FORGET_NS NS_PER_S
/* The service ends the window if the lease is not renewed for this time. This is long enough
 * for a command that Ctrl-Z stops for a while. */
#define LEASE_S  600.0
#define RENEW_NS (60 * NS_PER_S)

struct measure_remote {
	struct remote remote;
	/* Selectors of the GPUs to measure. If there are none, all GPUs are measured. */
	const char *const *gpu;
	unsigned gpus;
	struct measure_remote_facts facts;
	char *environment; /* The memory that facts.environment points to. */
	char id[32];       /* Id of the open window. "": no window is open. */
	uint64_t lease_ns; /* Monotonic time of the last renewal of the lease. */
	/* Connection on which the reply to the stop request arrives. -1: no connection. */
	int stop_fd;
	char why[700];
	/* The devices of the last window that ended, as read from remote.reply. */
	struct measured_device *device;
	unsigned devices;
	bool truncated;
};

const struct measure_remote_facts *measure_remote_facts(const struct measure_remote *t)
{
	return &t->facts;
}

static bool is_type(const struct remote *r, const char *word)
{
	const char *type = r->reply ? json_doc_string(r->reply, "type") : NULL;

	return type && strstr(type, word);
}

static int print_refusal(const struct remote *r)
{
	static const char nothing[] = "nothing was measured";
	char message[700];

	remote_refusal(r, message, sizeof(message));
	if (r->status == 429)
		cli_error("%s; try again when other measurements have ended, or leave out "
			  "--service; %s",
			  message, nothing);
	else if (r->status >= 400)
		cli_error("%s; %s", message, nothing);
	else
		cli_error("the server on %s is not a gpuward service, or this gpuward was "
			  "built without libjansson; %s",
			  r->address, nothing);
	return is_type(r, "no-gpu") || is_type(r, "no-such-device") ? EXIT_NO_GPU : EXIT_FAILED;
}

static int send_request(struct measure_remote *t, const char *method, const char *path,
			const char *body)
{
	if (remote_request(&t->remote, method, path, body, REPLY_NS, t->why, sizeof(t->why)) ==
	    0)
		return t->remote.status < 400 && t->remote.reply ? EXIT_OK
								 : print_refusal(&t->remote);
	return cli_fail("%s; nothing was measured", t->why);
}

/* Rejects the selectors "visible" and "cuda:N", because they depend on the environment of the
 * process. */
static int check_gpus(const struct measure_remote *t)
{
	for (unsigned i = 0; i < t->gpus; i++)
		if (strcmp(t->gpu[i], "visible") == 0 || strncmp(t->gpu[i], "cuda:", 5) == 0)
			return cli_usage("--gpu '%s' depends on CUDA_VISIBLE_DEVICES of this "
					 "command, which the service does not know; give an "
					 "index, a UUID or a PCI id, or leave out --service",
					 t->gpu[i]);
	return EXIT_OK;
}

int measure_remote_open(const struct remote_flags *flags, const char *const *gpu, unsigned gpus,
			struct measure_remote **ret)
{
	struct measure_remote *t = calloc(1, sizeof(*t));
	int code;

	*ret = t;
	if (!t)
		return cli_no_memory();
	t->gpu = gpu;
	t->gpus = gpus;
	t->stop_fd = -1;
	code = remote_open(&t->remote, flags);
	t->facts.address = t->remote.address;
	return code == EXIT_OK ? check_gpus(t) : code;
}

static void drop_devices(struct measure_remote *t)
{
	free(t->device);
	t->device = NULL;
	t->devices = 0;
}

int measure_remote_begin(struct measure_remote *t, const char *label)
{
	char name[WINDOWS_LABEL];
	const char *id;
	struct remote_body body;
	struct json *j = remote_body_begin(&body);
	int code;

	drop_devices(t);
	utf8_clean(name, sizeof(name), label);
	json_string(j, "label", name);
	json_double(j, "limit_seconds", WINDOWS_LIMIT_MOST_S);
	json_double(j, "lease_seconds", LEASE_S);
	if (t->gpus) {
		json_array(j, "gpus");
		for (unsigned i = 0; i < t->gpus; i++)
			json_string(j, NULL, t->gpu[i]);
		json_array_end(j);
	}
	code = send_request(t, "POST", "/api/v1/windows", remote_body_end(&body));
	remote_body_done(&body);
	if (code != EXIT_OK)
		return code;
	id = json_doc_string(t->remote.reply, "id");
	if (!id || strlen(id) >= sizeof(t->id))
		return print_refusal(&t->remote);
	snprintf(t->id, sizeof(t->id), "%s", id);
	t->facts.simulated = json_doc_true(t->remote.reply, "simulated");
	t->lease_ns = clock_mono_ns(clock_real());
	return EXIT_OK;
}

/* Sends a request about the window and ignores the reply. */
static void request_window(struct measure_remote *t, const char *method)
{
	char path[80], ignored[700];

	snprintf(path, sizeof(path), "/api/v1/windows/%s", t->id);
	(void)remote_request(&t->remote, method, path, NULL, FORGET_NS, ignored,
			     sizeof(ignored));
}

void measure_remote_renew(struct measure_remote *t)
{
	uint64_t now = clock_mono_ns(clock_real());

	if (!*t->id || now - t->lease_ns < RENEW_NS)
		return;
	t->lease_ns = now;
	request_window(t, "GET");
}

void measure_remote_forget(struct measure_remote *t)
{
	if (*t->id)
		request_window(t, "DELETE");
	t->id[0] = '\0';
}

void measure_remote_stop(struct measure_remote *t)
{
	char path[80];

	snprintf(path, sizeof(path), "/api/v1/windows/%s/stop", t->id);
	if (remote_send(&t->remote, "POST", path, NULL, REPLY_NS, &t->stop_fd, t->why,
			sizeof(t->why)) != 0)
		t->stop_fd = -1;
}

void measure_remote_close(struct measure_remote *t)
{
	if (!t)
		return;
	if (t->stop_fd >= 0)
		(void)remote_reply(&t->remote, t->stop_fd, FORGET_NS, t->why, sizeof(t->why));
	measure_remote_forget(t);
	drop_devices(t);
	remote_close(&t->remote);
	free(t->environment);
	free(t);
}

/* Requests a document about the selected GPUs.  Returns false if the service does not send the
 * document. */
static bool request_for_gpus(struct measure_remote *t, const char *what)
{
	char ignored[700];
	struct buf path;
	int err;

	buf_init(&path, 8192);
	buf_adds(&path, what);
	for (unsigned i = 0; i < t->gpus; i++) {
		buf_adds(&path, i ? "," : "?gpu=");
		url_escape(&path, t->gpu[i]);
	}
	err = remote_request(&t->remote, "GET", path.p, NULL, FORGET_NS, ignored,
			     sizeof(ignored));
	buf_done(&path);
	return !err && t->remote.status == 200 && t->remote.reply;
}

/* Compares boot ids. Returns false if they show that the service runs on another machine than
 * this program; true if it runs on the same machine, or if one of the boot ids is unknown. */
static bool same_boot(const struct json_doc *environment)
{
	const char *theirs = json_doc_string(environment, "host.boot_id");
	char ours[80], ignored[200];
	ssize_t n = file_read("/proc/sys/kernel/random/boot_id", ours, sizeof(ours) - 1,
			      ignored, sizeof(ignored));

	if (n <= 0 || !theirs)
		return true;
	ours[n] = '\0';
	ours[strcspn(ours, "\n")] = '\0';
	return strcmp(ours, theirs) == 0;
}

void measure_remote_describe(struct measure_remote *t)
{
	struct buf text;

	if (t->environment || t->stop_fd < 0 || !request_for_gpus(t, "/api/v1/environment"))
		return;
	remote_json(&t->remote, &text);
	t->environment = text.err ? NULL : strdup(text.p);
	buf_done(&text);
	if (!t->environment)
		return;
	t->facts.elsewhere = !same_boot(t->remote.reply);
	for (size_t n = strlen(t->environment); n && t->environment[n - 1] == '\n'; n--)
		t->environment[n - 1] = '\0';
	t->facts.environment = t->environment;
}

unsigned measure_remote_temperatures(struct measure_remote *t,
				     struct cooldown_gpu ret[static COOLDOWN_DEVICES])
{
	unsigned n = 0;

	if (!request_for_gpus(t, "/api/v1/devices"))
		return 0;
	for (; n < json_doc_count(t->remote.reply, "devices") && n < COOLDOWN_DEVICES; n++) {
		const struct json_doc *d = json_doc_at(t->remote.reply, "devices", n);

		ret[n] = (struct cooldown_gpu){
			(unsigned)fmin(fabs(json_doc_number(d, "index")), 1e6), NAN
		};
		if (json_doc_is_number(d, "temperature_gpu_celsius"))
			ret[n].c = json_doc_number(d, "temperature_gpu_celsius");
	}
	return n;
}

static void mark_truncated(struct gw_energy *e)
{
	e->codes |= UINT64_C(1) << GW_CODE_TRUNCATED;
	e->validity = e->validity > GW_INVALID ? e->validity : GW_INVALID;
}

static void write_evidence(const void *of, unsigned i, const struct gw_energy *e, unsigned code,
			   char *out, size_t size)
{
	const struct measure_remote *t = of;

	(void)e;
	if (code == GW_CODE_TRUNCATED && t->truncated)
		snprintf(out, size,
			 "the service ended the window after %.3f s, before the command ended",
			 json_doc_number(t->remote.reply, "seconds"));
	else
		window_read_evidence(t->remote.reply, i, code, out, size);
}

/* Reads the devices from the reply.  Returns false if no device has an energy, or if memory is
 * short. */
static bool read_devices(struct measure_remote *t)
{
	const struct json_doc *w = t->remote.reply;
	size_t n = json_doc_count(w, "devices");
	bool any = false;

	drop_devices(t);
	t->device = calloc(n + 1, sizeof(*t->device));
	for (size_t i = 0; t->device && i < n && i < 256; i++) {
		any |= window_read_device(w, i, &t->device[i]);
		if (t->truncated)
			mark_truncated(&t->device[i].energy);
		t->devices++;
	}
	return any;
}

/* Reads the result from the reply.  If it contains no energy, prints why and returns false. */
static bool read_result(struct measure_remote *t)
{
	const char *by = reply_text(t->remote.reply, "ended_by", "");

	t->truncated = strcmp(by, "request") != 0;
	if (t->remote.status == 404 || (t->remote.status == 200 && strcmp(by, "crash") == 0))
		cli_error("the service on %s was restarted while the command ran; the energy "
			  "of this run is lost",
			  t->remote.address);
	else if (t->remote.status != 200)
		cli_error("the service replied %d: %s; the energy of this run is lost",
			  t->remote.status, remote_why(&t->remote));
	else if (json_doc_count(t->remote.reply, "devices") == 0)
		cli_error("the server on %s is not a gpuward service; the energy of this run "
			  "is lost",
			  t->remote.address);
	else if (!read_devices(t))
		cli_error("the service on %s lost its GPUs while the command ran; the energy "
			  "of this run is lost",
			  t->remote.address);
	else
		return true;
	return false;
}

static void print_truncated(const struct measure_remote *t)
{
	const char *by = reply_text(t->remote.reply, "ended_by", "");

	cli_error("the service ended the window before the command ended (%s); the result "
		  "covers the first %.3f s",
		  strcmp(by, "limit") == 0   ? "the longest allowed time was over"
		  : strcmp(by, "lease") == 0 ? "gpuward was stopped for ten minutes"
		  : strcmp(by, "meter") == 0 ? "the service released the driver, or ended"
					     : by,
		  json_doc_number(t->remote.reply, "seconds"));
}

enum measure_remote_outcome measure_remote_end(struct measure_remote *t,
					       struct run_result_remote *ret)
{
	int fd = t->stop_fd;

	*ret = (struct run_result_remote){ .evidence = write_evidence, .of = t };
	t->stop_fd = -1;
	t->truncated = false;
	if (fd < 0 || remote_reply(&t->remote, fd, RESULT_NS, t->why, sizeof(t->why)) != 0) {
		cli_error("%s; the energy of this run is lost", t->why);
		return MEASURE_REMOTE_LOST;
	}
	if (t->remote.status == 200)
		/* The window has ended and the service keeps its result, so do not delete the
		 * window. */
		t->id[0] = '\0';
	if (!read_result(t)) {
		drop_devices(t);
		return MEASURE_REMOTE_LOST;
	}
	ret->device = t->device;
	ret->devices = t->devices;
	ret->seconds = json_doc_number(t->remote.reply, "seconds");
	if (!t->truncated)
		return MEASURE_REMOTE_WHOLE;
	print_truncated(t);
	return MEASURE_REMOTE_CUT;
}
