#include "openapi.h"

#include "api_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOCUMENT_MAX (1u << 20)
#define SCHEMA_REF   "#/components/schemas/"

struct operation {
	const char *id;
	unsigned method;
	const char *path;
	unsigned flags;
	const char *tag, *params, *body, *answers, *summary, *description;
};

static const struct operation operations[] = {
#define R(id, method, path, handler, flags, tag, params, body, answers, summary, description) \
	{ #id, HTTP_##method, path, flags, tag, params, body, answers, summary, description },
#include "routes.def"
#undef R
};
#define OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static const struct parameter {
	const char *in, *name, *schema, *example, *description;
} parameters[] = {
	{ "query", "gpu", "{\"type\":\"string\"}", "\"0\"",
	  "Only these GPUs: index, UUID, beginning of a UUID, or PCI id; several are separated "
	  "by commas." },
	{ "query", "processes", "{\"type\":\"boolean\",\"default\":true}", "false",
	  "0 or false omits the processes." },
	{ "query", "quantity", "{\"type\":\"string\",\"default\":\"power_watts\"}",
	  "\"power_watts,temperature_gpu_celsius\"", "Quantities, separated by commas." },
	{ "query", "from", "{\"type\":\"string\",\"default\":\"-15m\"}", "\"-1h\"",
	  "Start of the range: RFC 3339, seconds since 1970, or relative to now such as -1h." },
	{ "query", "to", "{\"type\":\"string\",\"default\":\"now\"}", "\"now\"",
	  "End of the range, in the same format as from." },
	{ "query", "step", "{\"type\":\"string\"}", "\"10s\"",
	  "Time between points, such as 10s or 1m; default: a step that gives at most 1000 "
	  "points." },
	{ "query", "tier",
	  "{\"type\":\"string\",\"enum\":[\"auto\",\"second\",\"minute\",\"hour\"]}",
	  "\"minute\"", "Name of the step; ignored if step is given." },
	{ "query", "after", "{\"type\":\"integer\",\"minimum\":0}", "0",
	  "Only events with an id above this one." },
	{ "query", "topics", "{\"type\":\"string\"}", "\"tick,event,window\"",
	  "Topics to receive, separated by commas: tick, event, window, guard; default: all." },
	{ "query", "state", "{\"type\":\"string\",\"enum\":[\"open\",\"ended\"]}", "\"open\"",
	  "Only windows in this state; default: open and ended windows." },
	{ "query", "limit", "{\"type\":\"integer\",\"minimum\":0}", "10",
	  "Maximum number of entries." },
	{ "query", "since", "{\"type\":\"string\"}", "\"-1d\"",
	  "Only workloads that ended at or after this time: RFC 3339, seconds since 1970, or "
	  "relative to now such as -1d." },
	{ "query", "kind", "{\"$ref\":\"" SCHEMA_REF "common_workload_kind\"}", "\"slurm\"",
	  "Only workloads of this kind; the kind none is that of processes without a "
	  "workload." },
	{ "query", "name", "{\"type\":\"string\"}", "\"train-*\"",
	  "Only workloads with this name; * and ? match any characters." },
	{ "query", "running",
	  "{\"type\":\"string\",\"enum\":[\"without\",\"with\",\"only\"],"
	  "\"default\":\"without\"}",
	  "\"with\"", "Whether workloads that still run are listed." },
	{ "query", "fits", "{\"type\":\"string\"}", "\"40GiB\"",
	  "Also lists the nodes that have GPUs with this much available memory: a size, or a "
	  "number of bytes." },
	{ "query", "gpus", "{\"type\":\"integer\",\"minimum\":0,\"maximum\":64,\"default\":1}",
	  "2", "Number of GPUs on one node that must have this memory; only with fits." },
	{ "query", "top",
	  "{\"type\":\"integer\",\"minimum\":0,\"maximum\":1000,\"default\":50}", "10",
	  "Maximum number of entries in each list." },
	{ "path", "uuid", "{\"type\":\"string\"}", "\"0\"",
	  "UUID or its beginning, index, or PCI id." },
	{ "path", "id", "{\"type\":\"string\"}", "\"w0123456789abcdef\"", "Id of the window." },
	{ "query", "worker", "{\"type\":\"string\"}", "\"ollama\"", "Only this worker." },
	{ "query", "bytes", "{\"type\":\"integer\",\"minimum\":1}", "8589934592",
	  "Amount of memory in bytes." },
	{ "path", "worker", "{\"type\":\"string\"}", "\"ollama\"",
	  "Name of the worker in the configuration." },
	{ "path", "reservation", "{\"type\":\"string\"}", "\"1\"", "Id of the reservation." },
	{ "path", "game", "{\"type\":\"string\"}", "\"4711\"", "Id of the game's process." },
	{ "path", "operation", "{\"type\":\"string\"}", "\"1\"", "Id of the operation." },
	{ "path", "setting", "{\"type\":\"string\"}", "\"power-limit\"",
	  "Name of the setting." },
	{ "path", "file", "{\"type\":\"string\"}", "\"app.js\"", "Name of the file." },
};

/* The request headers that an operation uses. */
static const struct {
	const char *operation;
	struct parameter p;
} headers[] = {
	{ "openWindow",
	  { "header", "Idempotency-Key", "{\"type\":\"string\"}", "\"run-17\"",
	    "Repeating a request with the same key and body returns the same window." } },
	{ "reserveMemory",
	  { "header", "Idempotency-Key", "{\"type\":\"string\"}", "\"run-17\"",
	    "Repeating a request with the same key and body returns the same reservation while "
	    "it lasts." } },
	{ "getEvents",
	  { "header", "Last-Event-ID", "{\"type\":\"integer\"}", "17",
	    "Id of the last event that a reconnecting client has received." } },
	{ "getGuardEvents",
	  { "header", "Last-Event-ID", "{\"type\":\"integer\"}", "17",
	    "Id of the last event that a reconnecting client has received." } },
};

static const struct {
	const char *name, *description;
} tags[] = {
	{ "gpu", "Short documents with a fixed format" },
	{ "devices", "Current state of GPUs, processes and the machine" },
	{ "history", "History" },
	{ "fleet", "All machines, from Prometheus" },
	{ "energy", "Energy windows and sensors" },
	{ "events", "Events" },
	{ "health", "Liveness and readiness" },
	{ "metrics", "Metrics for Prometheus" },
	{ "service", "The service itself" },
	{ "manage", "GPU settings, if the service may change them" },
	{ "guard", "Workers and reservations, health and capacity" },
	{ "page", "The web page" },
};

static const struct {
	int status;
	const char *title, *description, *detail;
} statuses[] = {
	{ 200, NULL, "OK", NULL },
	{ 201, NULL, "Created", NULL },
	{ 202, NULL, "Accepted; the document shows the current state", NULL },
	{ 204, NULL, "Done; the answer has no body", NULL },
	{ 400, "Bad Request", "A parameter or the body is invalid",
	  "unknown parameter \\\"quantiti\\\"; did you mean \\\"quantity\\\"?" },
	{ 401, "Unauthorized", "The token is required", "this request needs the token" },
	{ 403, "Forbidden", "The service or the driver does not allow the request",
	  "changing GPU settings is disabled in this service" },
	{ 404, "Not Found", "Not found", "no window \\\"w1\\\"" },
	{ 409, "Conflict", "Not possible in this state", "window w0123456789abcdef has ended" },
	{ 415, "Unsupported Media Type", "The Content-Type is not application/json",
	  "the Content-Type of the body is not application/json" },
	{ 422, "Unprocessable Content", "The Idempotency-Key was used for another request",
	  "this Idempotency-Key was used with a different request" },
	{ 429, "Too Many Requests", "A limit is reached",
	  "64 windows are open, which is the maximum" },
	{ 500, "Internal Server Error", "The driver failed",
	  "the driver answered with an unknown error" },
	{ 501, "Not Implemented", "This GPU or driver does not support the request",
	  "this GPU has no such setting" },
	{ 503, "Service Unavailable", "Temporarily not possible; see Retry-After",
	  "the drivers are being opened for the first time" },
};
#define STATUSES (sizeof(statuses) / sizeof(statuses[0]))

static const char *status_text(int status)
{
	for (size_t i = 0; i < STATUSES; i++)
		if (statuses[i].status == status)
			return statuses[i].description;
	return "";
}

static const char *example_of(const char *operation, const char *suffix)
{
	char name[64];

	snprintf(name, sizeof(name), "%s%s", operation, suffix);
	for (const struct openapi_text *t = openapi_examples; t->name; t++)
		if (strcmp(t->name, name) == 0)
			return t->json;
	return NULL;
}

static void schema_ref(struct json *j, const char *name, size_t n)
{
	char ref[96];

	snprintf(ref, sizeof(ref), SCHEMA_REF "%.*s", (int)n, name);
	json_object(j, "schema");
	json_string(j, "$ref", ref);
	json_object_end(j);
}

static void write_parameter(struct json *j, const struct parameter *p)
{
	json_object(j, NULL);
	json_string(j, "name", p->name);
	json_string(j, "in", p->in);
	if (strcmp(p->in, "path") == 0)
		json_bool(j, "required", true);
	json_string(j, "description", p->description);
	json_raw(j, "schema", p->schema);
	json_raw(j, "example", p->example);
	json_object_end(j);
}

static void parameter_named(struct json *j, const char *in, const char *name, size_t n)
{
	for (size_t i = 0; i < sizeof(parameters) / sizeof(parameters[0]); i++)
		if (strcmp(parameters[i].in, in) == 0 && strlen(parameters[i].name) == n &&
		    memcmp(parameters[i].name, name, n) == 0)
			write_parameter(j, &parameters[i]);
}

/* Writes a path in the form of OpenAPI, in which a wildcard must have a name. */
static void path_text(const struct operation *o, char *out, size_t size)
{
	size_t n = strcspn(o->path, "*");

	snprintf(out, size, "%.*s%s", (int)n, o->path, o->path[n] ? "{file}" : "");
}

static void all_parameters(struct json *j, const struct operation *o)
{
	char path[96];

	path_text(o, path, sizeof(path));
	json_array(j, "parameters");
	for (const char *p = strchr(path, '{'); p; p = strchr(p + 1, '{'))
		parameter_named(j, "path", p + 1, strcspn(p + 1, "}"));
	for (const char *p = *o->params == '*' ? "" : o->params; *p;) {
		size_t n = strcspn(p, " ");

		parameter_named(j, "query", p, n);
		p += n + (p[n] == ' ');
	}
	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
		if (strcmp(headers[i].operation, o->id) == 0)
			write_parameter(j, &headers[i].p);
	json_array_end(j);
}

static void request_body(struct json *j, const struct operation *o)
{
	const char *example = example_of(o->id, ".request");

	if (!*o->body)
		return;
	json_object(j, "requestBody");
	json_object(j, "content");
	json_object(j, "application/json");
	schema_ref(j, o->body, strlen(o->body));
	if (example)
		json_raw(j, "example", example);
	json_object_end(j);
	json_object_end(j);
	json_object_end(j);
}

/* Writes one content type of a reply. `name` is a schema, a media type for plain text, or
 * "TYPE=SCHEMA": a text that contains JSON documents of this schema, such as the data of
 * streamed events. */
static void write_form(struct json *j, const struct operation *o, const char *name, size_t n)
{
	const char *example = example_of(o->id, "");
	const char *content = memchr(name, '=', n);
	bool text = memchr(name, '/', n) != NULL;
	char type[64], schema[160] = "{\"type\":\"string\"}";

	snprintf(type, sizeof(type), "%.*s", (int)(content ? content - name : (ptrdiff_t)n),
		 name);
	if (content)
		snprintf(schema, sizeof(schema),
			 "{\"type\":\"string\",\"contentMediaType\":\"application/json\","
			 "\"contentSchema\":{\"$ref\":\"" SCHEMA_REF "%.*s\"}}",
			 (int)(name + n - content - 1), content + 1);
	json_object(j, text ? type : "application/json");
	if (text)
		json_raw(j, "schema", schema);
	else
		schema_ref(j, name, n);
	if (example && (*example == '"') == text)
		json_raw(j, "example", example);
	json_object_end(j);
}

/* Writes the reply that a row of routes.def describes as "STATUS:FORM|FORM" or "STATUS". */
static void write_answer(struct json *j, const struct operation *o, const char *text, size_t n)
{
	char key[4], ref[64];
	int status = atoi(text);

	snprintf(key, sizeof(key), "%d", status);
	json_object(j, key);
	if (status >= 400) {
		snprintf(ref, sizeof(ref), "#/components/responses/problem%d", status);
		json_string(j, "$ref", ref);
		json_object_end(j);
		return;
	}
	json_string(j, "description", status_text(status));
	if (n > 4) {
		json_object(j, "content");
		for (const char *p = text + 4; p < text + n;) {
			size_t len = strcspn(p, "| ");

			write_form(j, o, p, len);
			p += len + 1;
		}
		json_object_end(j);
	}
	json_object_end(j);
}

static void write_answers(struct json *j, const struct operation *o)
{
	json_object(j, "responses");
	for (const char *p = o->answers; *p;) {
		size_t n = strcspn(p, " ");

		write_answer(j, o, p, n);
		p += n + (p[n] == ' ');
	}
	json_object_end(j);
}

/* Writes whether a token is needed. The routes for windows accept requests with or without a
 * token, because the configuration may open them to all clients. */
static void write_security(struct json *j, const struct operation *o)
{
	bool measures = o->method != HTTP_GET && !(o->flags & ROUTE_CHANGE);

	json_raw(j, "security",
		 o->method == HTTP_GET ? "[]"
		 : measures            ? "[{},{\"bearer\":[]}]"
				       : "[{\"bearer\":[]}]");
}

static const char *method_key(unsigned method)
{
	switch (method) {
	case HTTP_POST: return "post";
	case HTTP_PUT: return "put";
	case HTTP_DELETE: return "delete";
	default: return "get";
	}
}

static void write_operation(struct json *j, const struct operation *o)
{
	json_object(j, method_key(o->method));
	json_string(j, "operationId", o->id);
	json_array(j, "tags");
	json_string(j, NULL, o->tag);
	json_array_end(j);
	json_string(j, "summary", o->summary);
	json_string(j, "description", o->description);
	all_parameters(j, o);
	request_body(j, o);
	write_answers(j, o);
	write_security(j, o);
	json_object_end(j);
}

/* True if the operation can succeed: the list of replies in its row begins with a 2xx
 * status. */
static bool is_listed(const struct operation *o)
{
	return o->answers[0] == '2';
}

/* Writes each path once, with all its methods, in the order of routes.def. */
static void write_paths(struct json *j)
{
	char path[96];

	json_object(j, "paths");
	for (size_t i = 0; i < OPERATIONS; i++) {
		bool first = is_listed(&operations[i]);

		for (size_t k = 0; k < i; k++)
			first = first && strcmp(operations[k].path, operations[i].path) != 0;
		if (!first)
			continue;
		path_text(&operations[i], path, sizeof(path));
		json_object(j, path);
		for (size_t k = i; k < OPERATIONS; k++)
			if (strcmp(operations[k].path, operations[i].path) == 0 &&
			    is_listed(&operations[k]))
				write_operation(j, &operations[k]);
		json_object_end(j);
	}
	json_object_end(j);
}

/* True if any operation can reply with this status. */
static bool is_used(int status)
{
	char word[4];

	snprintf(word, sizeof(word), "%d", status);
	for (size_t i = 0; i < OPERATIONS; i++)
		if (api_word_in(operations[i].answers, word, 3))
			return true;
	return false;
}

static void write_problems(struct json *j)
{
	char key[16], example[512];

	json_object(j, "responses");
	for (size_t i = 0; i < STATUSES; i++) {
		if (!statuses[i].detail || !is_used(statuses[i].status))
			continue;
		snprintf(key, sizeof(key), "problem%d", statuses[i].status);
		snprintf(example, sizeof(example),
			 "{\"type\":\"about:blank\",\"title\":\"%s\",\"status\":%d,"
			 "\"detail\":\"%s\"}",
			 statuses[i].title, statuses[i].status, statuses[i].detail);
		json_object(j, key);
		json_string(j, "description", statuses[i].description);
		json_object(j, "content");
		json_object(j, "application/problem+json");
		schema_ref(j, "problem", 7);
		json_raw(j, "example", example);
		json_object_end(j);
		json_object_end(j);
		json_object_end(j);
	}
	json_object_end(j);
}

static void write_components(struct json *j)
{
	json_object(j, "components");
	json_object(j, "schemas");
	for (const struct openapi_text *t = openapi_schemas; t->name; t++)
		json_raw(j, t->name, t->json);
	json_object_end(j);
	write_problems(j);
	json_raw(j, "securitySchemes",
		 "{\"bearer\":{\"type\":\"http\",\"scheme\":\"bearer\","
		 "\"description\":\"The token of the service's token_file; clients of the UNIX "
		 "socket need none.\"}}");
	json_object_end(j);
}

static void write_info(struct json *j)
{
	json_object(j, "info");
	json_string(j, "title", "gpuward");
	json_string(j, "version", gw_version());
	json_string(j, "summary", "State, energy and control of this machine's GPUs");
	json_string(j, "description",
		    "Every GET route also supports HEAD. Unknown values are null, with the "
		    "reason in \"absent\" next to them. A key ends with its unit. Errors are "
		    "application/problem+json. Keys may be added at any time; removing or "
		    "redefining one increases schema_version.");
	json_raw(j, "license", "{\"name\":\"Apache-2.0\",\"identifier\":\"Apache-2.0\"}");
	json_object_end(j);
}

void openapi_render(struct buf *out)
{
	struct json j;

	json_init(&j, out, false);
	json_object(&j, NULL);
	json_string(&j, "openapi", "3.1.0");
	write_info(&j);
	json_raw(&j, "servers", "[{\"url\":\"/\"}]");
	json_array(&j, "tags");
	for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
		json_object(&j, NULL);
		json_string(&j, "name", tags[i].name);
		json_string(&j, "description", tags[i].description);
		json_object_end(&j);
	}
	json_array_end(&j);
	write_paths(&j);
	write_components(&j);
	api_end(&j);
}

void api_openapi(void *arg, const struct request *q, struct reply *r)
{
	struct api *a = arg;

	(void)q;
	if (!a->openapi.p || a->openapi.len == 0) {
		buf_init(&a->openapi, DOCUMENT_MAX);
		openapi_render(&a->openapi);
	}
	if (a->openapi.err)
		api_no_memory(r);
	else
		reply_static(r, "application/json", a->openapi.p, a->openapi.len, NULL, 0);
}
