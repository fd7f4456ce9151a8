#include "ab_take.h"

#include "base/buf.h"
#include "measure/meter.h"

#include <math.h>

/* Energies of several GPUs, added up. */
struct sum {
	double best, variance, below, above; /* J, J^2 */
	double counter_j, samples_j, warmest_c;
	bool alone; /* some part had no second meter */
	enum gw_validity validity;
	uint64_t codes;
};

static void add_energy(struct sum *s, const struct gw_energy *e)
{
	double below = e->relative.best - e->relative.low;
	double above = e->relative.high - e->relative.best;

	s->best += e->relative.best;
	s->variance += e->u_relative * e->u_relative;
	s->below += below * below;
	s->above += above * above;
	s->counter_j += e->counter_joules;
	s->samples_j += e->samples_joules;
	s->alone = s->alone || isnan(e->residual_ratio);
	s->warmest_c = fmax(s->warmest_c, e->temperature_begin);
	s->validity = e->validity > s->validity ? e->validity : s->validity;
	s->codes |= e->codes;
}

static void finish_sum(const struct sum *s, struct ab_record *r)
{
	r->energy = (struct gw_interval){ s->best - sqrt(s->below), s->best,
					  s->best + sqrt(s->above) };
	r->u_j = sqrt(s->variance);
	r->power_w = s->best / r->seconds;
	r->residual_ratio = s->alone ? NAN : s->samples_j / s->counter_j - 1;
	r->temperature_c = s->warmest_c;
	r->validity = s->validity;
	r->codes = s->codes;
}

static void take_whole(struct gw_meter *meter, const struct runner_run *run, struct sum *s,
		       double *ret_seconds)
{
	for (unsigned i = 0; i < gw_meter_device_count(meter); i++)
		add_energy(s, gw_window_energy(run->window, i));
	*ret_seconds = run->seconds;
}

static void take_part(struct gw_meter *meter, const struct progress_marks_window *w,
		      struct sum *s, double *ret_seconds)
{
	*ret_seconds = (double)(w->end_ns - w->begin_ns) * 1e-9;
	for (unsigned i = 0; i < gw_meter_device_count(meter); i++)
		add_energy(s, &w->energy[i]);
}

int ab_take(struct gw_meter *meter, const char *part, const struct runner_run *run,
	    struct ab_record *r)
{
	struct sum s = { .warmest_c = NAN };
	const struct progress_marks_window *w;
	unsigned found = 1;

	if (!part) {
		take_whole(meter, run, &s, &r->seconds);
	} else {
		w = progress_marks_find(&run->marks, part, &found);
		if (!w)
			return -GW_E_NOENT;
		take_part(meter, w, &s, &r->seconds);
	}
	finish_sum(&s, r);
	return (int)found;
}

void ab_take_reason(struct gw_meter *meter, const char *part, const struct gw_snapshot *snap,
		    const struct runner_run *run, char *out, size_t size)
{
	unsigned found;
	const struct progress_marks_window *w =
		part ? progress_marks_find(&run->marks, part, &found) : NULL;
	char evidence[200];
	struct buf b;

	buf_init_fixed(&b, out, size);
	for (unsigned i = 0; i < gw_meter_device_count(meter); i++) {
		const struct gw_energy *e =
			w ? &w->energy[i] : gw_window_energy(run->window, i);

		for (unsigned c = 0; c < GW_CODES; c++) {
			const struct gw_code_info *info = gw_code_info(c);

			if (!(e->codes & UINT64_C(1) << c) || info->level == GW_VALID)
				continue;
			window_evidence(run->window, i, e, c, evidence, sizeof(evidence));
			buf_addf(&b, "%sGPU %u: %s%s%s", b.len ? "; " : "",
				 gw_snapshot_device(snap, gw_meter_device(meter, i))->index,
				 info->sentence, *evidence ? ", " : "", evidence);
		}
	}
	if (b.len == 0)
		buf_adds(&b, "its energy is not known");
}
