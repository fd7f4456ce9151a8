#include "service_processes.h"

#include "cli.h"

#include "base/clock.h"
#include "base/json_doc.h"
#include "device/workload.h"
#include "measure/attribute.h"
#include "serve/view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Longest wait for the reply. A service that nobody watched waits up to 0.3 s for a new reading
 * before it replies. */
#define REPLY_NS (500 * NS_PER_MS)

void service_processes_open(struct service_processes *s, const struct cli *c)
{
	const struct remote_flags flags = { .quiet = true };

	*s = (struct service_processes){ .fd = -1 };
	s->use = c && !cli_names_driver(c) && remote_open(&s->remote, &flags) == EXIT_OK;
}

void service_processes_close(struct service_processes *s)
{
	if (s->fd >= 0)
		close(s->fd);
	remote_close(&s->remote);
	free(s->energy);
	free(s->workload);
}

void service_processes_ask(struct service_processes *s)
{
	char ignored[700];
	int err;

	if (!s->use || s->fd >= 0)
		return;
	err = remote_send(&s->remote, "GET", "/api/v1/processes", NULL, REPLY_NS, &s->fd,
			  ignored, sizeof(ignored));
	if (err)
		s->fd = -1;
	if (err == -GW_E_TIMEOUT)
		s->use = false; /* ask once, so that each reading of --watch is not slow */
}

/* Returns the row of a process in the reply, or NULL.  hint: where the row probably is. */
static const struct json_doc *find_row(const struct json_doc *doc, const struct gw_process *p,
				       const char *uuid, size_t hint)
{
	const size_t n = json_doc_count(doc, "processes");

	for (size_t i = 0; uuid && i < n; i++) {
		const struct json_doc *d = json_doc_at(doc, "processes", (hint + i) % n);
		const char *of = json_doc_string(d, "device_uuid");
		int64_t pid, ticks;

		if (!json_doc_integer(d, "start_ticks", &ticks))
			ticks = 0;
		if (json_doc_integer(d, "pid", &pid) && pid == p->pid && of &&
		    (uint64_t)ticks == p->start_ticks && strcmp(of, uuid) == 0)
			return d;
	}
	return NULL;
}

static double number_of(const struct json_doc *d, const char *key)
{
	return json_doc_is_number(d, key) ? json_doc_number(d, key) : (double)NAN;
}

static struct view_process read_energy(const struct json_doc *d)
{
	const char *method = d ? json_doc_string(d, "energy_method") : NULL;
	struct view_process e = { .absence = GW_ABSENT_NEEDS_SERVICE };

	if (!d)
		return e;
	e.energy_joules = number_of(d, "energy_joules");
	e.power_w = number_of(d, "power_watts");
	e.absence = isnan(e.energy_joules)
			    ? render_read_absence(json_doc_string(d, "absent.energy_joules"))
			    : GW_HAVE;
	for (unsigned how = 0; method && how < ATTRIBUTE_HOWS; how++)
		if (strcmp(attribute_how_name(how), method) == 0)
			e.how = how;
	return e;
}

static void read_text(const struct json_doc *d, const char *path, char *out, size_t size)
{
	const char *text = json_doc_string(d, path);

	snprintf(out, size, "%s", text ? text : "");
}

static void read_workload(const struct json_doc *d, struct workload *ret)
{
	const char *kind = d ? json_doc_string(d, "workload.kind") : NULL;

	*ret = (struct workload){ .kind = WORKLOAD_NONE };
	for (unsigned k = 0; kind && k < WORKLOAD_KINDS; k++)
		if (strcmp(workload_kind_word(k), kind) == 0)
			ret->kind = k;
	if (!kind)
		return;
	read_text(d, "workload.id", ret->id, sizeof(ret->id));
	read_text(d, "workload.namespace", ret->space, sizeof(ret->space));
	read_text(d, "workload.name", ret->name, sizeof(ret->name));
	read_text(d, "workload.part", ret->part, sizeof(ret->part));
}

static bool make_room(struct service_processes *s, unsigned rows)
{
	if (rows <= s->rows)
		return true;
	free(s->energy);
	free(s->workload);
	s->energy = calloc(rows, sizeof(*s->energy));
	s->workload = calloc(rows, sizeof(*s->workload));
	s->rows = s->energy && s->workload ? rows : 0;
	return s->rows;
}

/* Reads the reply.  Returns false if there is none. */
static bool read_reply(struct service_processes *s)
{
	char ignored[700];
	int err;

	if (s->fd < 0)
		return false;
	err = remote_reply(&s->remote, s->fd, REPLY_NS, ignored, sizeof(ignored));
	s->fd = -1;
	if (err == -GW_E_TIMEOUT)
		s->use = false;
	return !err && s->remote.status == 200 && s->remote.reply;
}

struct render_process_list service_processes_take(struct service_processes *s,
						  const struct gw_process_list *list,
						  const struct gw_snapshot *snap)
{
	const unsigned n = list ? gw_process_list_count(list) : 0;

	if (!read_reply(s) || n == 0 || !make_room(s, n))
		return (struct render_process_list){ .list = list };
	for (unsigned i = 0; i < n; i++) {
		const struct gw_process *p = gw_process_list_get(list, i);
		const struct gw_device *device = gw_snapshot_device(snap, p->device);
		const char *uuid = device ? gw_device_text(device, GW_T_UUID) : NULL;
		const struct json_doc *d = find_row(s->remote.reply, p, uuid, i);

		s->energy[i] = read_energy(d);
		read_workload(d, &s->workload[i]);
	}
	return (struct render_process_list){ list, s->energy, s->workload };
}
