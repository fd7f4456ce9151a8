#include "guard/worker/kinds.h"

#define KILL_LEVELS (1u << 5 | 1u << 6)

static const struct worker_ops *const table[WORKER_KINDS] = {
	[WORKER_OLLAMA] = &worker_ollama,       [WORKER_LLAMACPP] = &worker_llamacpp,
	[WORKER_LLAMASWAP] = &worker_llamaswap, [WORKER_VLLM] = &worker_vllm,
	[WORKER_SGLANG] = &worker_sglang,       [WORKER_TABBY] = &worker_tabby,
	[WORKER_KOBOLD] = &worker_kobold,       [WORKER_COMFY] = &worker_comfy,
	[WORKER_A1111] = &worker_a1111,         [WORKER_CHECKPOINT] = &worker_checkpoint,
	[WORKER_SYSTEMD] = &worker_systemd,     [WORKER_CONTAINER] = &worker_container,
	[WORKER_EXEC] = &worker_exec,           [WORKER_SIGNAL] = &worker_signal_kind,
	[WORKER_CALLBACK] = &worker_callback,
};

const struct worker_ops *worker_ops_of(enum policy_kind kind)
{
	return table[kind];
}

const struct worker_ops *worker_stopper(const struct policy_worker *w)
{
	if (w->kind == WORKER_SYSTEMD || w->kind == WORKER_CONTAINER)
		return table[w->kind];
	return w->match.unit ? &worker_systemd : w->match.container ? &worker_container : NULL;
}

unsigned worker_levels(const struct policy_worker *w)
{
	unsigned levels = table[w->kind]->levels;

	if (worker_stopper(w))
		levels |= 1u << 4;
	return w->knobs.allow_kill ? levels | KILL_LEVELS : levels;
}
