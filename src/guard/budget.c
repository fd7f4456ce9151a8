#include "budget.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>

#define HIGH_NS  (5 * NS_PER_S)
#define CLEAR_NS (60 * NS_PER_S)
#define AGAIN_NS (900 * NS_PER_S) /* exceeded again within this: it was the workers' return */
#define MOST_NS  (600 * NS_PER_S)
#define WH       3600.0

static double used_j(struct budget *b, const struct budget_look *l)
{
	if (isnan(l->energy_j))
		return NAN;
	if (!b->begun || l->day != b->day || l->energy_j < b->base_j) {
		b->begun = true;
		b->day = l->day;
		b->base_j = l->energy_j;
	}
	return l->energy_j - b->base_j;
}

static bool too_much_power(struct budget *b, const struct budget_options *o,
			   const struct budget_look *l)
{
	if (!(o->power_w > 0) || !(l->power_w > o->power_w)) {
		b->high_ns = 0;
		return false;
	}
	if (!b->high_ns)
		b->high_ns = l->now_ns;
	return l->now_ns - b->high_ns >= HIGH_NS;
}

static void begin(struct budget *b, uint64_t now_ns)
{
	bool again = b->cleared_ns && now_ns - b->cleared_ns < AGAIN_NS;

	b->over = true;
	b->wait_ns = again ? 2 * b->wait_ns : CLEAR_NS;
	if (b->wait_ns > MOST_NS)
		b->wait_ns = MOST_NS;
}

static void end(struct budget *b, uint64_t now_ns)
{
	if (!b->under_ns)
		b->under_ns = now_ns;
	if (now_ns - b->under_ns < b->wait_ns)
		return;
	b->over = false;
	b->cleared_ns = now_ns;
}

bool budget_look(struct budget *b, const struct budget_options *o, const struct budget_look *l,
		 char *why, size_t size)
{
	double used = used_j(b, l);
	bool power = too_much_power(b, o, l);
	bool energy = o->energy_j > 0 && used >= o->energy_j;
	bool unknown = o->power_w > 0 && isnan(l->power_w);

	if ((power || energy) && !b->over)
		begin(b, l->now_ns);
	if (power || energy || unknown || b->high_ns)
		b->under_ns = 0;
	else if (b->over)
		end(b, l->now_ns);
	why[0] = '\0';
	if (energy)
		snprintf(why, size, "%.0f Wh were used today, and %.0f are allowed", used / WH,
			 o->energy_j / WH);
	else if (power)
		snprintf(why, size, "it draws %.0f W, and %.0f are allowed", l->power_w,
			 o->power_w);
	else if (b->over)
		snprintf(why, size, "it was above its cap less than %.0f s ago",
			 (double)b->wait_ns * 1e-9);
	return b->over;
}
