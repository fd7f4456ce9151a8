#include "service_processes.h"

#include "cli.h"

#include "base/clock.h"

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
	render_process_rows_done(&s->rows);
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
	struct render_process_list known = { .list = list };

	if (list && read_reply(s))
		(void)render_read_processes(s->remote.reply, snap, &s->rows, &known);
	return known;
}
