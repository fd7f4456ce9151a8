/* Writes and reads events as lines of text. A table lists the fields of each type of event. */
#include "event.h"

#include "base/number.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const unsigned event_quantity[FIGURES] = {
#define F(q) GW_Q_##q,
	EVENT_FIGURES(F)
#undef F
};

enum kind { END, U64, I64, REAL, UINT, INT, CODE, TEXT32, TEXT64 };

struct field {
	enum kind kind;
	size_t offset;
	unsigned count; /* number of values; 1, or more for REAL */
	/* The line may end after this many values. The other values are then NAN. */
	unsigned required;
};

/* clang-format off */
#define ONE(kind, name)  { kind, offsetof(struct event, u.name), 1, 1 }
#define MANY(name, n, required) { REAL, offsetof(struct event, u.name), n, required }

static const struct {
	char letter;
	struct field field[8];
} rows[EVENT_TYPES] = {
	[EVENT_POWER]   = { 'P', { ONE(REAL, power_w) } },
	[EVENT_COUNTER] = { 'C', { ONE(U64, counter.after_ns), ONE(REAL, counter.joules) } },
	[EVENT_NO_COUNTER] = { 'c', { ONE(UINT, absence) } },
	[EVENT_TICK]    = { 'T', { ONE(UINT, tick.missed), MANY(tick.figure, FIGURES, EVENT_FIGURES_FIRST) } },
	[EVENT_LIMITS]  = { 'L', { MANY(limits.seconds, GW_THROTTLES, GW_THROTTLES), ONE(REAL, limits.limit_w) } },
	[EVENT_NOTE]    = { 'N', { ONE(CODE, code) } },
	[EVENT_PROCESS] = { 'W', { ONE(I64, process.id.pid), ONE(U64, process.id.start_ticks),
	                           ONE(U64, process.memory_bytes), ONE(REAL, process.sm_ratio),
	                           ONE(INT, process.own), ONE(TEXT32, process.name) } },
	[EVENT_PROCESS_LIST]     = { 'A', { ONE(UINT, process_list.count), ONE(INT, process_list.hidden) } },
	[EVENT_OPEN]    = { 'O', { ONE(UINT, window.id), ONE(REAL, window.period_s),
	                           ONE(TEXT64, window.label) } },
	[EVENT_CLOSE]   = { 'X', { ONE(UINT, window.id) } },
	[EVENT_RESULT]  = { 'R', { ONE(UINT, window.id), ONE(INT, window.exclusive) } },
	[EVENT_IDLE]    = { 'I', { ONE(REAL, idle.no_context_w), ONE(REAL, idle.context_w) } },
};
/* clang-format on */

static void add_field(struct buf *out, const struct event *e, const struct field *f)
{
	const void *p = (const char *)e + f->offset;

	switch (f->kind) {
	case U64: buf_addf(out, "\t%" PRIu64, *(const uint64_t *)p); break;
	case I64: buf_addf(out, "\t%" PRId64, *(const int64_t *)p); break;
	case UINT: buf_addf(out, "\t%u", *(const unsigned *)p); break;
	case INT: buf_addf(out, "\t%d", *(const int *)p); break;
	case CODE: buf_addf(out, "\t%s", gw_code_info(*(const unsigned *)p)->key); break;
	case TEXT32:
	case TEXT64:
		buf_addc(out, '\t');
		tsv_add_text(out, p);
		break;
	case REAL:
		for (unsigned i = 0; i < f->count; i++) {
			buf_addc(out, '\t');
			tsv_add_real(out, ((const double *)p)[i]);
		}
		break;
	case END: break;
	}
}

void event_write(struct buf *out, const struct event *e)
{
	buf_addf(out, "%c\t%" PRIu64, rows[e->type].letter, e->t_ns);
	for (const struct field *f = rows[e->type].field; f->kind != END; f++)
		add_field(out, e, f);
	buf_addc(out, '\n');
}

static bool to_code(const char *s, unsigned *ret)
{
	for (*ret = 0; *ret < GW_CODES; (*ret)++)
		if (strcmp(gw_code_info(*ret)->key, s) == 0)
			return true;
	return false;
}

static bool to_field(const char *s, void *p, enum kind kind)
{
	uint64_t u;
	int64_t i;

	switch (kind) {
	case U64: return number_u64(s, p);
	case I64: return number_i64(s, p);
	case UINT:
		if (!number_u64(s, &u) || u > UINT32_MAX)
			return false;
		*(unsigned *)p = (unsigned)u;
		return true;
	case INT:
		if (!number_i64(s, &i) || i < INT32_MIN || i > INT32_MAX)
			return false;
		*(int *)p = (int)i;
		return true;
	case CODE: return to_code(s, p);
	case TEXT32: return tsv_text(s, p, 32);
	case TEXT64: return tsv_text(s, p, 64);
	case REAL: return number_real(s, p);
	case END: break;
	}
	return false;
}

static bool read_fields(const char *at, struct event *e)
{
	char text[EVENT_LINE_MAX];

	for (const struct field *f = rows[e->type].field; f->kind != END; f++)
		for (unsigned i = 0; i < f->count; i++) {
			void *p = (char *)e + f->offset + i * sizeof(double);

			if (i >= f->required && !*at)
				*(double *)p = NAN;
			else if (!tsv_take(&at, text, sizeof(text)) ||
				 !to_field(text, p, f->kind))
				return false;
		}
	return *at == '\0';
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
	char text[32];

	memset(&e, 0, sizeof(e));
	if (!line[0] || line[1] != '\t')
		return -GW_E_PARSE;
	for (unsigned t = 0; t < EVENT_TYPES; t++) {
		if (rows[t].letter != line[0])
			continue;
		e.type = (enum event_type)t;
		if (!tsv_take(&at, text, sizeof(text)) || !number_u64(text, &e.t_ns) ||
		    !read_fields(at, &e) || !tick_is_valid(&e))
			return -GW_E_PARSE;
		*ret = e;
		return 0;
	}
	return -GW_E_PARSE;
}
