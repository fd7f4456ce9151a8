/* Reads the body of POST /api/v1/guard/simulate. Its keys are those of GET
 * /api/v1/guard/gpus/{uuid}, so that a client can edit a reply and send it back. */
#include "guard_question.h"

#include "json_request.h"
#include "render.h"

#include "base/json_doc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_STANDARD 10.0
#define SECONDS_MOST     600.0
#define GPUS_MOST        16
#define PROCESSES_MOST   256
/* If a process of the request has no pid, it gets a pid from this number on. No real process
 * has such a pid, because pids of Linux are at most 4194304. */
#define FIRST_PID 4200000

/* The part of the body that is being read, and the buffer for an error message about it. */
struct place {
	const char *what; /* such as "processes[3]" */
	char *message;
	size_t size;
};

static bool question_wrong(const struct place *at, const char *key, const char *must)
{
	snprintf(at->message, at->size, "%s%s\"%s\" must be %s", at->what,
		 *at->what ? ": " : "", key, must);
	return false;
}

static bool keys_known(const struct json_doc *o, const char *const *keys, size_t n,
		       const struct place *at)
{
	return json_request_keys_known(o, keys, n, at->what, at->message, at->size);
}

/* read_number(), read_text() and read_flag() read the value of a key. If the key is absent,
 * these functions return true and leave *ret or out unchanged. If the value is not valid, they
 * write a message and return false. For read_number() and read_text(), null is the same as
 * absent. */
static bool read_number(const struct json_doc *o, const char *key, double least, double most,
			double *ret, const struct place *at)
{
	const struct json_doc *v = json_doc_get(o, key);
	char must[64];

	if (!v || json_doc_type(v, "") == JSON_DOC_NULL)
		return true;
	if (json_doc_is_number(v, "") && json_doc_number(v, "") >= least &&
	    json_doc_number(v, "") <= most) {
		*ret = json_doc_number(v, "");
		return true;
	}
	snprintf(must, sizeof(must), "a number from %.15g to %.15g", least, most);
	return question_wrong(at, key, must);
}

static bool read_text(const struct json_doc *o, const char *key, char *out, size_t size,
		      const struct place *at)
{
	const struct json_doc *v = json_doc_get(o, key);

	const char *s = json_doc_string(v, "");

	if (!v || json_doc_type(v, "") == JSON_DOC_NULL)
		return true;
	if (!s || strlen(s) >= size)
		return question_wrong(at, key, "a short text");
	snprintf(out, size, "%s", s);
	return true;
}

static bool read_flag(const struct json_doc *o, const char *key, bool *ret,
		      const struct place *at)
{
	const struct json_doc *v = json_doc_get(o, key);

	if (!v)
		return true;
	*ret = json_doc_true(v, "");
	return json_doc_type(v, "") == JSON_DOC_BOOL ||
	       question_wrong(at, key, "true or false");
}

static bool read_gpu(const struct json_doc *o, struct scene *s, const struct place *at)
{
	static const char *const keys[] = { "uuid",
					    "index",
					    "memory_total_bytes",
					    "memory_free_bytes",
					    "temperature_celsius",
					    "display" };
	struct scene_gpu *g = &s->gpu[s->gpus];
	double index = s->gpus, total = NAN, left = NAN;

	memset(g, 0, sizeof(*g));
	g->temperature_c = g->margin_c = NAN;
	g->cuda = -2;
	snprintf(g->uuid, sizeof(g->uuid), "GPU-%u", s->gpus);
	if (!keys_known(o, keys, sizeof(keys) / sizeof(keys[0]), at) ||
	    !read_text(o, "uuid", g->uuid, sizeof(g->uuid), at) ||
	    !read_number(o, "index", 0, 1023, &index, at) ||
	    !read_number(o, "memory_total_bytes", 1, JSON_REQUEST_WHOLE_MOST, &total, at) ||
	    !read_number(o, "memory_free_bytes", 0, JSON_REQUEST_WHOLE_MOST, &left, at) ||
	    !read_number(o, "temperature_celsius", -100, 300, &g->temperature_c, at) ||
	    !read_flag(o, "display", &g->display, at))
		return false;
	if (isnan(total))
		return question_wrong(at, "memory_total_bytes", "set");
	g->index = (unsigned)index;
	g->memory_known = true;
	g->total_bytes = (uint64_t)total;
	g->free_bytes = isnan(left) || left > total ? g->total_bytes : (uint64_t)left;
	g->used_bytes = g->total_bytes - g->free_bytes;
	s->gpus++;
	return true;
}

static bool read_gpus(const struct json_doc *list, struct scene *s, char *message, size_t size)
{
	char what[32];
	size_t n = json_doc_count(list, "");

	if (json_doc_type(list, "") != JSON_DOC_ARRAY || n == 0 || n > GPUS_MOST) {
		snprintf(message, size, "\"gpus\" must be a list of 1 to %d GPUs", GPUS_MOST);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		struct place at = { what, message, size };

		snprintf(what, sizeof(what), "gpus[%zu]", i);
		if (!read_gpu(json_doc_at(list, "", i), s, &at))
			return false;
	}
	return true;
}

static bool on_gpu(const struct json_doc *o, const struct scene *s, unsigned *ret,
		   const struct place *at)
{
	const struct json_doc *v = json_doc_get(o, "gpu");

	const char *uuid = json_doc_string(v, "");
	int64_t index;
	bool by_index = json_doc_integer(v, "", &index);

	*ret = 0;
	if (!v)
		return s->gpus > 0 || question_wrong(at, "gpu", "set");
	for (unsigned i = 0; i < s->gpus; i++)
		if ((by_index && index == s->gpu[i].index) ||
		    (uuid && strcmp(uuid, s->gpu[i].uuid) == 0)) {
			*ret = i;
			return true;
		}
	return question_wrong(at, "gpu", "the index or the UUID of a GPU in this request");
}

static bool read_types(const struct json_doc *o, unsigned *ret, const struct place *at)
{
	const struct json_doc *list = json_doc_get(o, "types");

	if (list &&
	    (json_doc_type(list, "") != JSON_DOC_ARRAY || !render_read_types(list, ret)))
		return question_wrong(at, "types",
				      "a list of the words compute, graphics and mps");
	if (!list)
		*ret = GW_PROCESS_COMPUTE;
	return true;
}

/* If a process has the key "worker", makes the process a root process of that worker, as if the
 * port or the unit of the worker had identified the process. */
static bool read_worker(const struct json_doc *o, const struct policy *p,
			const struct scene_process *q, struct scene *s, const struct place *at)
{
	char name[64] = "";
	int worker;

	if (!read_text(o, "worker", name, sizeof(name), at))
		return false;
	if (!*name || s->roots == SCENE_ROOTS)
		return true;
	worker = policy_find_worker(p, name);
	if (worker < 0)
		return question_wrong(at, "worker", "the name of a configured worker");
	s->root[s->roots++] = (struct scene_root){ .worker = (unsigned)worker, .id = q->id };
	return true;
}

static void take_memory(struct scene *s, const struct scene_process *q)
{
	struct scene_gpu *g = &s->gpu[q->gpu];
	uint64_t bytes = q->bytes < g->free_bytes ? q->bytes : g->free_bytes;

	g->free_bytes -= bytes;
	g->used_bytes += bytes;
}

static bool read_process(const struct json_doc *o, const struct policy *p, struct scene *s,
			 const struct place *at)
{
	/* A client may send a reply back as a request. The keys class, action, rule, by_rule,
	 * program_seen and may_be_worker of a reply are accepted but ignored, because the
	 * simulation computes them again. */
	static const char *const keys[] = {
		"gpu",          "pid",           "name",
		"exe",          "command",       "cgroup",
		"uid",          "types",         "container",
		"worker",       "class",         "action",
		"rule",         "memory_bytes",  "utilization_sm_ratio",
		"program_seen", "may_be_worker", "by_rule"
	};
	struct scene_process *q = &s->process[s->processes];
	double pid = FIRST_PID + s->processes, uid = -1, bytes = NAN;

	memset(q, 0, sizeof(*q));
	q->sm_ratio = NAN;
	if (json_doc_type(o, "") != JSON_DOC_OBJECT) {
		snprintf(at->message, at->size, "%s must be an object", at->what);
		return false;
	}
	if (!keys_known(o, keys, sizeof(keys) / sizeof(keys[0]), at) ||
	    !on_gpu(o, s, &q->gpu, at) || !read_types(o, &q->type, at) ||
	    !read_number(o, "pid", 1, INT32_MAX, &pid, at) ||
	    !read_number(o, "uid", 0, UINT32_MAX, &uid, at) ||
	    !read_number(o, "memory_bytes", 0, JSON_REQUEST_WHOLE_MOST, &bytes, at) ||
	    !read_number(o, "utilization_sm_ratio", 0, 1, &q->sm_ratio, at) ||
	    !read_text(o, "name", q->name, sizeof(q->name), at) ||
	    !read_text(o, "exe", q->exe, sizeof(q->exe), at) ||
	    !read_text(o, "command", q->command, sizeof(q->command), at) ||
	    !read_text(o, "cgroup", q->cgroup, sizeof(q->cgroup), at) ||
	    !read_text(o, "container", q->container, sizeof(q->container), at))
		return false;
	q->id.pid = (int64_t)pid;
	q->uid = (int64_t)uid;
	q->id.start_ticks = 1;
	q->bytes_known = !isnan(bytes);
	q->bytes = q->bytes_known ? (uint64_t)bytes : 0;
	if (!*q->name && !*q->exe)
		return question_wrong(at, "name", "set, to identify the process");
	if (!read_worker(o, p, q, s, at))
		return false;
	take_memory(s, q);
	s->processes++;
	return true;
}

static bool read_processes(const struct json_doc *list, const struct policy *p, struct scene *s,
			   char *message, size_t size)
{
	char what[32];
	size_t n = json_doc_count(list, "");

	if (!list)
		return true;
	if (json_doc_type(list, "") != JSON_DOC_ARRAY || n > PROCESSES_MOST ||
	    s->processes + n > SCENE_PROCESSES) {
		snprintf(message, size, "\"processes\" must be a list of at most %d processes",
			 PROCESSES_MOST);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		struct place at = { what, message, size };

		snprintf(what, sizeof(what), "processes[%zu]", i);
		if (!read_process(json_doc_at(list, "", i), p, s, &at))
			return false;
	}
	return true;
}

static int read_trace(const char *lines, const struct policy *p,
		      const struct guard_view_ops *ops, struct guard_question *q, char *message,
		      size_t size)
{
	unsigned line = 0;
	int err =
		ops->last_scene ? ops->last_scene(lines, p, &q->scene, &line) : -GW_E_NOSUPPORT;

	if (err == -GW_E_PARSE && line)
		snprintf(message, size, "\"trace\": line %u is not a line of a recording",
			 line);
	else if (err == -GW_E_PARSE)
		snprintf(message, size, "\"trace\" has no complete scene");
	return err;
}

static int read_world(const struct json_doc *root, const struct policy *p,
		      const struct guard_view_ops *ops, const struct scene *now,
		      struct guard_question *ret, char *message, size_t size)
{
	static const char *const keys[] = { "seconds", "gpus",   "processes",
					    "trace",   "policy", "on_battery" };
	struct place at = { "", message, size };
	const struct json_doc *gpus = json_doc_get(root, "gpus");
	const struct json_doc *trace = json_doc_get(root, "trace");

	if (!keys_known(root, keys, sizeof(keys) / sizeof(keys[0]), &at) ||
	    !read_number(root, "seconds", 0, SECONDS_MOST, &ret->seconds, &at))
		return -GW_E_PARSE;
	if (json_doc_get(root, "policy") && !json_doc_string(root, "policy")) {
		question_wrong(&at, "policy", "a configuration as text");
		return -GW_E_PARSE;
	}
	if (trace && (!json_doc_string(trace, "") || gpus)) {
		question_wrong(&at, "trace", "lines of a recording, instead of \"gpus\"");
		return -GW_E_PARSE;
	}
	ret->made_up = trace || gpus;
	if (now && !trace) {
		ret->scene = *now;
		if (gpus)
			ret->scene.gpus = ret->scene.processes = ret->scene.roots = 0;
	} else if (!trace && !gpus) {
		return -GW_E_STATE;
	}
	if (trace) {
		int err = read_trace(json_doc_string(trace, ""), p, ops, ret, message, size);

		if (err)
			return err;
	}
	if ((gpus && !read_gpus(gpus, &ret->scene, message, size)) ||
	    !read_flag(root, "on_battery", &ret->scene.on_battery, &at) ||
	    !read_processes(json_doc_get(root, "processes"), p, &ret->scene, message, size))
		return -GW_E_PARSE;
	return 0;
}

char *guard_question_policy(const char *body, size_t n)
{
	struct json_doc *root = NULL;
	const char *toml;
	char unused[200], *copy;

	if (json_doc_new_strict(body, n, &root, unused, sizeof(unused)) != 0)
		return NULL;
	toml = json_doc_string(root, "policy");
	copy = toml ? strdup(toml) : NULL;
	json_doc_free(root);
	return copy;
}

int guard_question_read(const char *body, size_t n, const struct policy *p,
			const struct guard_view_ops *ops, const struct scene *now,
			struct guard_question *ret, char *message, size_t size)
{
	struct json_doc *root = NULL;
	char why[200];
	int err = json_doc_new_strict(n ? body : "{}", n ? n : 2, &root, why, sizeof(why));

	memset(ret, 0, sizeof(*ret));
	ret->seconds = SECONDS_STANDARD;
	if (err) {
		snprintf(message, size, "the body is %s", why);
		return -GW_E_PARSE;
	}
	if (json_doc_type(root, "") == JSON_DOC_OBJECT) {
		err = read_world(root, p, ops, now, ret, message, size);
	} else {
		snprintf(message, size, "the body must be an object");
		err = -GW_E_PARSE;
	}
	json_doc_free(root);
	return err;
}
