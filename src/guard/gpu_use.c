#include "gpu_use.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>

#define HIGH_NS  (5 * NS_PER_S)   /* power above its cap counts after this time */
#define CLEAR_NS (60 * NS_PER_S)  /* first value of wait_ns; doubled up to MOST_NS */
#define MOST_NS  (600 * NS_PER_S) /* greatest value of wait_ns */
/* if a cap is exceeded again within this time, wait_ns is doubled */
#define AGAIN_NS (900 * NS_PER_S)
#define WH       3600.0 /* joules per watt-hour */

/* Returns the energy since the latest of three times: the day began, the service started, the
 * energy counter fell. NAN: unknown. */
static double energy_today_j(struct budget *b, const struct budget_input *in)
{
	if (isnan(in->energy_j))
		return NAN;
	if (!b->begun || in->day != b->day || in->energy_j < b->base_j) {
		b->begun = true;
		b->day = in->day;
		b->base_j = in->energy_j;
	}
	return in->energy_j - b->base_j;
}

static bool power_exceeded(struct budget *b, const struct budget_options *o,
			   const struct budget_input *in)
{
	if (!(o->power_w > 0) || !(in->power_w > o->power_w)) {
		b->high_ns = 0;
		return false;
	}
	if (!b->high_ns)
		b->high_ns = in->now_ns;
	return in->now_ns - b->high_ns >= HIGH_NS;
}

static void begin_exceeded(struct budget *b, uint64_t now_ns)
{
	bool again = b->cleared_ns && now_ns - b->cleared_ns < AGAIN_NS;

	b->over = true;
	b->wait_ns = again ? 2 * b->wait_ns : CLEAR_NS;
	if (b->wait_ns > MOST_NS)
		b->wait_ns = MOST_NS;
}

static void end_exceeded(struct budget *b, uint64_t now_ns)
{
	if (!b->under_ns)
		b->under_ns = now_ns;
	if (now_ns - b->under_ns < b->wait_ns)
		return;
	b->over = false;
	b->cleared_ns = now_ns;
}

bool budget_update(struct budget *b, const struct budget_options *o,
		   const struct budget_input *in, char *why, size_t size)
{
	double used = energy_today_j(b, in);
	bool power = power_exceeded(b, o, in);
	bool energy = o->energy_j > 0 && used >= o->energy_j;
	bool unknown = (o->power_w > 0 && isnan(in->power_w) && !in->asleep) ||
		       (o->energy_j > 0 && isnan(used));

	if ((power || energy) && !b->over)
		begin_exceeded(b, in->now_ns);
	if (power || energy || unknown || b->high_ns)
		b->under_ns = 0;
	else if (b->over)
		end_exceeded(b, in->now_ns);
	why[0] = '\0';
	if (energy)
		snprintf(why, size, "%.0f Wh used today, %.0f Wh are allowed", used / WH,
			 o->energy_j / WH);
	else if (power)
		snprintf(why, size, "it draws %.0f W; the cap is %.0f W", in->power_w,
			 o->power_w);
	else if (b->over)
		snprintf(why, size, "it was above its cap within the last %.0f s",
			 (double)b->wait_ns * 1e-9);
	return b->over;
}

/* Unattributed use counts only after this time, because an ending process leaves the driver's
 * list of processes before its work on the GPU has ended. */
#define LASTS_NS           (10 * NS_PER_S)
#define BUSY_RATIO         0.99             /* utilisation from which a GPU counts as busy */
#define UNATTRIBUTED_BYTES (512. * 1048576) /* drivers and consoles use less than this */

/* Sets *since_ns to the time since which a condition holds; 0: the condition does not hold.
 * Returns true if the condition has lasted for LASTS_NS. */
static bool update_lasting(uint64_t *since_ns, bool now, uint64_t now_ns)
{
	if (!now)
		*since_ns = 0;
	else if (!*since_ns)
		*since_ns = now_ns;
	return now && now_ns - *since_ns >= LASTS_NS;
}

void unattributed_use_update(struct unattributed_use *g, const struct unattributed_use_facts *f,
			     uint64_t now_ns, char *why, size_t size)
{
	bool busy = update_lasting(&g->busy_ns,
				   !f->hidden && !f->processes && f->busy_ratio >= BUSY_RATIO,
				   now_ns);
	bool memory = update_lasting(&g->memory_ns,
				     !f->hidden && f->unattributed_bytes >= UNATTRIBUTED_BYTES,
				     now_ns);

	why[0] = '\0';
	if (busy && memory)
		snprintf(why, size,
			 "The GPU is busy although no process is listed, and %.0f MiB of its "
			 "memory belong to no listed process.",
			 f->unattributed_bytes / 1048576);
	else if (busy)
		snprintf(why, size, "The GPU is busy although no process is listed.");
	else if (memory)
		snprintf(why, size, "%.0f MiB of GPU memory belong to no listed process.",
			 f->unattributed_bytes / 1048576);
}
