#include "call_cost.h"

#include "context.h"
#include "nvml.h"

_Static_assert(CALL_COUNT <= CALL_COST_CALLS, "a row for each call");

uint64_t call_cost_now_ns(void)
{
	return clock_mono_ns(clock_real());
}

uint64_t call_cost_add(struct call_cost_table *c, unsigned call, int code, uint64_t began_ns)
{
	uint64_t now = call_cost_now_ns(), ns = now - began_ns, most;
	struct call_cost_row *r;

	if (!c)
		return now;
	r = &c->row[call];
	atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&r->total_ns, ns, memory_order_relaxed);
	if (code != ABI_SUCCESS) {
		if (code < 0 || code >= CALL_COST_CODES)
			code = CALL_COST_CODES - 1;
		atomic_fetch_add_explicit(&r->code[code], 1, memory_order_relaxed);
	}
	most = atomic_load_explicit(&r->max_ns, memory_order_relaxed);
	while (ns > most && !atomic_compare_exchange_weak_explicit(&r->max_ns, &most, ns,
								   memory_order_relaxed,
								   memory_order_relaxed))
		;
	return now;
}

static void copy_row(struct call_cost *out, const char *name, struct call_cost_row *r)
{
	*out = (struct call_cost){ .name = name };
	out->total_ns = atomic_load_explicit(&r->total_ns, memory_order_relaxed);
	out->max_ns = atomic_load_explicit(&r->max_ns, memory_order_relaxed);
	out->count = atomic_load_explicit(&r->count, memory_order_relaxed);
	for (unsigned i = 1; i < CALL_COST_CODES; i++) {
		out->code[i] = atomic_load_explicit(&r->code[i], memory_order_relaxed);
		out->errors += out->code[i];
	}
}

unsigned call_cost_list(struct gw_ctx *ctx, struct call_cost *out, unsigned max)
{
	unsigned n = 0;

	for (unsigned i = 0; ctx && i < CALL_COUNT && n < max; i++)
		if (atomic_load_explicit(&ctx->cost.row[i].count, memory_order_relaxed))
			copy_row(&out[n++], nvml_symbol[i], &ctx->cost.row[i]);
	return n;
}

const char *call_cost_code_name(unsigned code)
{
	return nvml_meaning(code < CALL_COST_CODES - 1 ? (abi_return)code : ABI_UNKNOWN)->name;
}
