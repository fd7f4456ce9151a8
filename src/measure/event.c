/* Writes and reads events as lines of text. There is one list of members per type of event. */
#include "event.h"

#include "base/member.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>

const unsigned event_quantity[FIGURES] = {
#define F(q) GW_Q_##q,
	EVENT_FIGURES(F)
#undef F
};

static const char *const codes[] = {
#define R(symbol, key, level, sentence) key,
#include <gpuward/code.def>
#undef R
	NULL
};

/* clang-format off */
#define M(kind, m)  { MEMBER(kind, struct event, u.m) }
#define REALS(m, n) { MEMBER_ARRAY(REAL, struct event, u.m), .least = n }

static const struct {
	char letter;
	struct member member[8];
} rows[EVENT_TYPES] = {
	[EVENT_POWER]   = { 'P', { M(REAL, power_w) } },
	[EVENT_COUNTER] = { 'C', { M(UNSIGNED, counter.after_ns), M(REAL, counter.joules) } },
	[EVENT_NO_COUNTER] = { 'c', { M(UNSIGNED, absence) } },
	[EVENT_TICK]    = { 'T', { M(UNSIGNED, tick.missed), REALS(tick.figure, EVENT_FIGURES_FIRST) } },
	[EVENT_LIMITS]  = { 'L', { REALS(limits.seconds, 0), M(REAL, limits.limit_w) } },
	[EVENT_NOTE]    = { 'N', { { MEMBER(NAME, struct event, u.code), .names = codes } } },
	[EVENT_PROCESS] = { 'W', { M(SIGNED, process.id.pid), M(UNSIGNED, process.id.start_ticks),
	                           M(UNSIGNED, process.memory_bytes), M(REAL, process.sm_ratio),
	                           M(SIGNED, process.own), M(TEXT, process.name) } },
	[EVENT_PROCESS_LIST]     = { 'A', { M(UNSIGNED, process_list.count), M(SIGNED, process_list.hidden) } },
	[EVENT_OPEN]    = { 'O', { M(UNSIGNED, window.id), M(REAL, window.period_s),
	                           M(TEXT, window.label) } },
	[EVENT_CLOSE]   = { 'X', { M(UNSIGNED, window.id) } },
	[EVENT_RESULT]  = { 'R', { M(UNSIGNED, window.id), M(SIGNED, window.exclusive) } },
	[EVENT_IDLE]    = { 'I', { M(REAL, idle.no_context_w), M(REAL, idle.context_w) } },
};
/* clang-format on */

void event_write(struct buf *out, const struct event *e)
{
	buf_addf(out, "%c\t%" PRIu64, rows[e->type].letter, e->t_ns);
	members_add(out, rows[e->type].member, e);
	buf_addc(out, '\n');
}

/* The reasons for reduced clocks are a bit mask: the number must fit into an integer. */
static bool tick_is_valid(const struct event *e)
{
	double mask = e->u.tick.figure[FIGURE_CLOCK_REASONS];

	return e->type != EVENT_TICK || isnan(mask) || (mask >= 0 && mask < 0x1p63);
}

int event_read(const char *line, struct event *ret)
{
	const char *at = line + 2;
	struct event e;

	memset(&e, 0, sizeof(e));
	if (!line[0] || line[1] != '\t')
		return -GW_E_PARSE;
	for (unsigned t = 0; t < EVENT_TYPES; t++) {
		if (rows[t].letter != line[0])
			continue;
		e.type = (enum event_type)t;
		if (!text_read_number(&at, UINT64_MAX, &e.t_ns) ||
		    members_take(&at, rows[t].member, &e) != 0 || *at || !tick_is_valid(&e))
			return -GW_E_PARSE;
		*ret = e;
		return 0;
	}
	return -GW_E_PARSE;
}
