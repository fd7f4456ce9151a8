/* Replies with the state of the fleet, which comes from the user's Prometheus. */
#include "api_parts.h"

#include "fleet.h"

#include "base/number.h"

#include <math.h>

#define WAIT_STEP_NS (50 * NS_PER_MS)
/* Maximum time that a reply waits for Prometheus. WAIT_FIRST_NS applies if the service has no
 * answer of Prometheus yet; it is longer than the deadline of the queries. WAIT_NEXT_NS applies
 * if an older answer can be shown instead. */
#define WAIT_FIRST_NS (25 * NS_PER_S)
#define WAIT_NEXT_NS  (2 * NS_PER_S)
#define TOP_STANDARD  50
#define TOP_MOST      1000
#define GPUS_MOST     64

/* Reads ?fits=40GiB. Returns false after an error reply. */
static bool read_fits(const struct request *q, struct reply *r, double *ret)
{
	const char *text = request_param(q, "fits");

	*ret = 0;
	if (!text || (unit_parse(text, unit_sizes, ret) && *ret >= 1 && isfinite(*ret)))
		return true;
	reply_problem(r, 400, "bad-parameter", "Write ?fits=40GiB, or a number of bytes.",
		      "fits=\"%.64s\" is not a size", text);
	return false;
}

/* True if the reply has to wait for Prometheus. */
static bool waits(const struct api *a, const struct request *q, struct reply *r,
		  const struct fleet_state *s)
{
	uint64_t waited_ns = q->tries * WAIT_STEP_NS;

	if (!s->asking || waited_ns >= (s->fleet ? WAIT_NEXT_NS : WAIT_FIRST_NS))
		return false;
	reply_again(r, api_now(a) + WAIT_STEP_NS);
	return true;
}

static void write_fleet(const struct api *a, struct reply *r, const struct fleet_state *s,
			double fits, unsigned gpus, unsigned top)
{
	struct json j;

	json_init(&j, &r->body, false);
	json_object(&j, NULL);
	json_int(&j, "schema_version", RENDER_SCHEMA_VERSION);
	json_time(&j, "time_utc", clock_wall_ns(a->clock));
	json_bool(&j, "simulated", s->fleet->gpus_simulated > 0);
	json_double(&j, "age_seconds", (double)(api_now(a) - s->mono_ns) / 1e9);
	json_string(&j, "error", s->problem[0] ? s->problem : NULL);
	fleet_render(&j, s->fleet, top);
	if (fits > 0)
		fleet_render_fit(&j, s->fleet, fits, gpus, top);
	api_end(&j);
}

void api_fleet(void *arg, const struct request *q, struct reply *r)
{
	const struct api *a = arg;
	struct fleet_state s;
	uint64_t top, gpus;
	double fits;

	if (!a->fleet) {
		reply_problem(
			r, 404, "not-configured",
			"Set prometheus = \"http://HOST:9090\" in the section [fleet] of the "
			"configuration, and reload the service.",
			"no Prometheus is configured, so this service knows only its own "
			"machine");
		return;
	}
	if (!read_fits(q, r, &fits) || !api_number(q, r, "gpus", 1, GPUS_MOST, &gpus) ||
	    !api_number(q, r, "top", TOP_STANDARD, TOP_MOST, &top))
		return;
	a->fleet->look(a->fleet->arg, &s);
	if (waits(a, q, r, &s))
		return;
	if (!s.fleet) {
		reply_problem(r, 503, "no-answer", NULL, "%s",
			      s.problem[0] ? s.problem : "Prometheus has not answered yet");
		return;
	}
	if (fits > 0 && fleet_fit(s.fleet, fits, gpus ? (unsigned)gpus : 1) != 0) {
		reply_problem(r, 503, "no-memory", NULL, "out of memory");
		return;
	}
	write_fleet(a, r, &s, fits, gpus ? (unsigned)gpus : 1, (unsigned)top);
}
