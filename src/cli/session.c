#include "session.h"

#include "output.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

#define WATCH_NS (250 * NS_PER_MS)

int session_check(const struct session_options *o)
{
	if (!isnan(o->cooldown_to_c) && o->no_cooldown)
		return cli_usage(
			"--cooldown-to and --no-cooldown exclude each other: give one of them");
	return EXIT_OK;
}

void session_init(struct session *s, struct cli *c, const struct session_options *o, void *arg)
{
	*s = (struct session){ .c = c, .o = o };
	runner_inherit(&s->inherit, c->pipe_ignored);
	s->runner = (struct runner){
		.inherit = &s->inherit, .part = o->part, .arg = arg, .watch_ns = WATCH_NS
	};
	s->cool =
		(struct cooldown){ .runner = &s->runner, .to_c = o->cooldown_to_c, .arg = arg };
}

int session_start(struct session *s, const struct meter_config *config, uint64_t interval_ns)
{
	struct gw_meter_options o = { .size = sizeof(o),
				      .interval_ns = interval_ns,
				      .gpus = s->c->gpu.count ? s->c->gpu.item : NULL,
				      .flags = GW_METER_PROCESSES };
	struct meter_config all = *config;
	int err;

	all.options = &o;
	s->cool.ctx = s->c->ctx;
	err = cooldown_init(&s->cool);
	if (!err)
		err = meter_start(s->c->ctx, &all, &s->runner.meter);
	if (err)
		return cli_fail("cannot measure: %s", gw_strerror(err));
	meter_set_exclusive(s->runner.meter, s->o->require_exclusive);
	return EXIT_OK;
}

void session_stop(struct session *s)
{
	gw_meter_stop(s->runner.meter);
	cooldown_done(&s->cool);
}

int session_begin(struct session *s)
{
	int code;

	if (runner_begin(&s->runner) != 0)
		return cli_fail("cannot watch for signals: %s", strerror(errno));
	code = clean_room_new(s->c, &s->o->room, &s->runner, &s->room);
	if (code != EXIT_OK)
		session_end(s);
	return code;
}

void session_end(struct session *s)
{
	clean_room_free(s->room);
	s->room = NULL;
	runner_end(&s->runner);
}

void session_cool_down(struct session *s, void (*clear)(void))
{
	cooldown_wait(&s->cool);
	if (s->cool.late_gpu < 0)
		return;
	if (clear)
		clear();
	cli_error("GPU %d did not cool below %.0f %s within a minute; later runs wait for this "
		  "temperature",
		  s->cool.late_gpu, s->cool.late_c, term_plain("°C"));
}

const struct gw_device *session_device(const struct session *s, unsigned i)
{
	return gw_snapshot_device(s->c->snap, gw_meter_device(s->runner.meter, i));
}

const char *session_command_name(const char *command)
{
	const char *slash = strrchr(command, '/');

	return slash && slash[1] ? slash + 1 : command;
}

int session_write(const struct session *s, struct cli_document *doc, struct bundle *bundle,
		  int err)
{
	char message[512];
	int code;

	if (!err)
		err = json_end(&doc->json);
	code = err ? cli_fail("cannot build the result: %s", gw_strerror(err))
		   : output_result(s->o->output, s->c->json, &doc->buf);
	if (bundle && !err) /* bundle_close() reports errors */
		bundle_file(bundle, "result.json", doc->buf.p, doc->buf.len, message,
			    sizeof(message));
	buf_done(&doc->buf);
	return code;
}
