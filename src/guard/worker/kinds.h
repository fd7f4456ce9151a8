/* kinds: every kind of worker, for the table in worker.c. */
#ifndef GW_GUARD_WORKER_KINDS_H
#define GW_GUARD_WORKER_KINDS_H

#include "guard/worker.h"

extern const struct worker_ops worker_ollama, worker_llamacpp, worker_llamaswap, worker_vllm,
	worker_sglang, worker_tabby, worker_kobold, worker_comfy, worker_a1111,
	worker_checkpoint, worker_systemd, worker_container, worker_exec, worker_signal_kind,
	worker_callback;

#endif
