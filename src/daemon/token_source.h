/* token_source: asks an inference server which models are loaded, and reads their token
 * counters.
 *
 * A query never loads or wakes a model and starts no generation. All requests of a query
 * together take at most TOKEN_SOURCE_NS. The functions block, so token_counter.c calls them on
 * a separate thread. */
#ifndef GW_DAEMON_TOKEN_SOURCE_H
#define GW_DAEMON_TOKEN_SOURCE_H

#include "base/clock.h"
#include "guard/policy.h"
#include "measure/model_energy.h"

#include <stdatomic.h>

#define TOKEN_SOURCE_NS        (2 * NS_PER_S)
#define TOKEN_SOURCE_PROCESSES 32

struct root;

/* Facts about one kind of server. */
struct token_kind {
	bool known; /* This kind is an inference server. */
	/* Name of the token counter in /metrics. NULL: the server has no token counter. "": the
	 * server is a router, and the servers behind it have counters. */
	const char *counter[MODEL_DIRECTIONS];
	const char *text; /* The column text of token_source.def. */
};
const struct token_kind *token_kind(enum policy_kind kind);

struct token_query {
	enum policy_kind kind;
	char url[512], token_file[512]; /* token_file is "" if there is none. */
	/* The query also reads the counters, not only the list of models. */
	bool count;
	/* The worker's processes on the GPUs. The counters of a model with an idle process are
	 * not read. Reading them is a request, and some servers put a model to sleep only after
	 * a time without requests. */
	struct token_process {
		int64_t pid;
		bool active;
	} process[TOKEN_SOURCE_PROCESSES];
	unsigned processes;
};

enum token_result {
	TOKEN_COUNTED, /* The counters were read, or no model required a reading. */
	TOKEN_LISTED,  /* Only the list of models was requested. */
	TOKEN_OFF,     /* The list is there, but the server does not offer its counters. */
	TOKEN_UNREAD,  /* The list is there, but the counters could not be read this time. */
	TOKEN_FAILED,  /* The server did not answer, so there is no list. */
};

struct token_answer {
	enum token_result result;
	struct model_list list;
	/* The reason in one sentence, for TOKEN_OFF, TOKEN_UNREAD and TOKEN_FAILED. */
	char why[240];
};

/* Queries a server. When *cancelled becomes true, the query ends soon. root is the root
 * below which /proc is read. */
void token_source_ask(const struct token_query *q, const struct root *root,
		      const atomic_bool *cancelled, struct token_answer *ret);

#endif
