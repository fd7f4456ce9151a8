/* The status of an operation. */
#include "guard_doc.h"

#include <stdio.h>
#include <stdlib.h>

void guard_doc_operation(struct json *j, const struct guard_operation *o)
{
	char id[24];

	snprintf(id, sizeof(id), "%llu", (unsigned long long)o->id);
	json_string(j, "id", id);
	json_string(j, "state", guard_operation_state_name(o->state));
	json_string(j, "worker", o->worker);
	json_string(j, "what", guard_operation_word(o->what));
	json_time(j, "since_utc", o->since_wall_ns);
	json_time(j, "ended_utc", o->ended_wall_ns);
	guard_doc_text(j, "message", o->message);
}

void api_guard_operation(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	const struct guard_view *g = guard_doc_there(a, r);
	const struct guard_operation *o;
	struct json j;
	char *end;
	uint64_t id;

	if (!g)
		return;
	id = strtoull(q->arg[0], &end, 10);
	o = *end ? NULL : guard_operation_find(g->operations, id);
	if (!o) {
		reply_problem(r, 404, "no-such-operation",
			      "GET /api/v1/guard/workers/NAME shows the state of the worker.",
			      "no operation \"%.64s\": the service keeps the latest %d since "
			      "its start",
			      q->arg[0], GUARD_OPERATIONS);
		return;
	}
	json_init(&j, &r->body, false);
	api_head(&j, a);
	guard_doc_operation(&j, o);
	json_object_end(&j);
	json_end(&j);
}
