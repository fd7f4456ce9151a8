/* model_list: parses the lists of models that inference servers report, one format per kind of
 * server. The adapters use it to note what an eviction unloads; the service uses it to count
 * tokens per model. */
#ifndef GW_GUARD_WORKER_MODEL_LIST_H
#define GW_GUARD_WORKER_MODEL_LIST_H

#include "guard/worker/common.h"

/* From MODEL_LOADING on, the server runs the model or keeps it ready. */
enum model_state {
	MODEL_OUT, /* not in the memory of this machine */
	MODEL_FAILED,
	MODEL_LOADING,
	MODEL_LOADED,
	MODEL_SLEEPING, /* llama.cpp after --sleep-idle-seconds: its weights are not on the GPU */
	MODEL_SINGLE,   /* llama.cpp with a single model: it is loaded and cannot be unloaded */
};

/* One entry of a list. The strings belong to the document. */
struct listed_model {
	const char *name; /* NULL: the server does not report it */
	enum model_state state;
	const struct json_doc *entry;
};

/* Requests the list of the call's worker. The caller owns *ret, which is NULL if the server
 * reports that no model is loaded. Returns the errors of worker_get_json(), and -GW_E_NOSUPPORT
 * for a kind without a list. */
int model_list_get(struct worker_call *c, struct json_doc **ret);

/* Reads entry i (from 0) of a list. Returns false if the list has fewer entries. list may be
 * NULL. */
bool model_list_at(enum policy_kind kind, const struct json_doc *list, size_t i,
		   struct listed_model *ret);

#endif
