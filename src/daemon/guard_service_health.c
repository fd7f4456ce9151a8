/* guard_service_health: evaluates the health of each GPU from ticks and driver events, passes
 * the consequences to the guard, and emits events about changes. */
#include "guard_service_parts.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- consequences ---- */

/* Passes the consequences for the workers on this GPU to the guard. */
static void update_guard(struct guard_service *g, unsigned i, uint64_t now)
{
	const char *uuid = g->gpus.uuid[i];
	struct health_meaning m;

	health_meaning(g->gpus.health[i], now, &m);
	guard_service_heat(g, uuid, m.heat, m.heat_why, now);
	for (unsigned r = 0; r < HEALTH_REASONS; r++) {
		const struct health_finding *f = &m.reason[r].found;

		guard_service_reason(g, uuid, m.reason[r].reason, m.reason[r].on, f->why, now);
		guard_service_reason_ends(g, uuid, m.reason[r].reason, f->clears, f->clears_ns);
	}
}

static const char *level_word(const struct health_status *s)
{
	static const char *const words[] = { "healthy", "degraded",
					     "hot: workers get no new work",
					     "too hot: workers leave", "in quarantine" };

	return s->level == HEALTH_WARN && s->heat == HEALTH_WARN ? "warm" : words[s->level];
}

/* Returns the separator between two sentences. The first may already end with a full stop. */
static const char *sentence_separator(const char *text)
{
	size_t n = strlen(text);

	return n && text[n - 1] == '.' ? " " : ". ";
}

/* Emits one event per change of the level. */
static void emit_level(struct guard_service *g, unsigned i, uint64_t now)
{
	struct health_status s;
	char text[500];

	health_status(g->gpus.health[i], now, &s);
	if (s.level == g->gpus.health_emitted[i])
		return;
	snprintf(text, sizeof(text), "GPU is %s%s%s%s%s", level_word(&s),
		 *s.worst.why ? ": " : "", s.worst.why,
		 *s.worst.advice ? sentence_separator(s.worst.why) : "", s.worst.advice);
	g->config.emit(g->config.arg,
		       &(struct view_event){ .kind = "health",
					     .uuid = g->gpus.uuid[i],
					     .severity = s.level >= HEALTH_EVICT ? "error"
							 : s.level               ? "warning"
										 : "info",
					     .text = text });
	g->gpus.health_emitted[i] = s.level;
}

static void evaluate(struct guard_service *g, unsigned i)
{
	uint64_t now = guard_service_real_ns();

	update_guard(g, i, now);
	emit_level(g, i, now);
}

double guard_service_threshold_c(const struct guard_service *g, const struct guard_decision *d)
{
	int i = guard_service_device_of(g, d->gpu);
	struct health_status s;

	if (i < 0 || !g->gpus.health[i])
		return (double)NAN;
	health_status(g->gpus.health[i], d->mono_ns, &s);
	return s.evict_at_c;
}

/* ---- readings, driver events and operators ---- */

void guard_service_health_read(struct guard_service *g, unsigned i, const struct gw_device *d)
{
	const struct guard_settings *s = g->settings;
	uint64_t now = guard_service_real_ns(), every;

	if (!s->health_enabled) {
		guard_service_health_forget(g, i);
		return;
	}
	if (!g->gpus.health[i] && health_new(&s->health, &g->gpus.health[i]) != 0)
		return;
	if (now < g->gpus.health_ns[i])
		return;
	every = health_interval_ns(g->gpus.health[i]);
	health_read(g->gpus.health[i], d, now);
	evaluate(g, i);
	g->gpus.health_ns[i] =
		now + (every < s->health_interval_ns ? every : s->health_interval_ns);
}

void guard_service_health_event(struct guard_service *g, const struct driver_event *e,
				bool past)
{
	const struct health_event event = { e->mono_ns, e->type, e->data };
	int i = guard_service_device_of(g, e->uuid);

	if (i < 0 || !g->gpus.health[i])
		return;
	if (past) {
		health_past(g->gpus.health[i], &event);
	} else {
		health_event(g->gpus.health[i], &event);
		g->gpus.health_ns[i] = 0; /* read the GPU's health again with the next tick */
	}
	evaluate(g, (unsigned)i);
}

int guard_service_clear(void *engine, const char *uuid, const char *who, char *message,
			size_t size)
{
	struct guard_service *g = engine;
	int i = guard_service_device_of(g, uuid);
	uint64_t now = guard_service_real_ns();
	int err;

	if (i < 0 || !g->gpus.health[i])
		return -GW_E_NOENT;
	err = guard_service_trust(g, uuid, now);
	if (err)
		snprintf(message, size, "The GPU does not respond.");
	else
		err = health_clear(g->gpus.health[i], now, message, size);
	if (err)
		return err;
	guard_service_log(g, "info", "%s: quarantine cleared (requested by %s)", uuid, who);
	evaluate(g, (unsigned)i);
	g->gpus.health_ns[i] = 0;
	guard_service_pump(g);
	scene_thread_trigger(g->scenes);
	return 0;
}

/* ---- reload and stop ---- */

static void clear_guard(struct guard_service *g, unsigned i, uint64_t now)
{
	struct health_meaning m;

	health_meaning(g->gpus.health[i], now, &m);
	guard_service_heat(g, g->gpus.uuid[i], 0, "", now);
	for (unsigned r = 0; r < HEALTH_REASONS; r++)
		guard_service_reason(g, g->gpus.uuid[i], m.reason[r].reason, false, "", now);
}

/* Applies new settings and keeps the health of each GPU. If health is now disabled, clears the
 * reasons that came from health. */
void guard_service_health_swapped(struct guard_service *g)
{
	uint64_t now = guard_service_real_ns();

	for (unsigned i = 0; i < GUARD_SERVICE_DEVICES; i++) {
		if (!g->gpus.health[i])
			continue;
		g->gpus.health_ns[i] = 0;
		if (g->settings->health_enabled) {
			health_set_options(g->gpus.health[i], &g->settings->health);
			continue;
		}
		clear_guard(g, i, now);
		guard_service_health_forget(g, i);
	}
}

void guard_service_health_forget(struct guard_service *g, unsigned i)
{
	health_free(g->gpus.health[i]);
	g->gpus.health[i] = NULL;
	g->gpus.health_emitted[i] = HEALTH_OK;
	g->gpus.health_ns[i] = 0;
}
