/* guard_config_read: shared by the files that read the guard's tables.
 *
 * guard_config.def has every key. guard_config_table.c reads each [[worker]], [[rule]] and
 * [[schedule]] into an entry and checks its values one by one; guard_config_check.c checks
 * entries and pairs of entries; guard_config.c makes a policy from the valid entries. */
#ifndef GW_DAEMON_GUARD_CONFIG_READ_H
#define GW_DAEMON_GUARD_CONFIG_READ_H

#include "config_read.h"
#include "guard/policy.h"

enum guard_table { GUARD_WORKER, GUARD_RULE, GUARD_SCHEDULE, GUARD_TABLES };

enum guard_key {
#define G(id, of, key, type, least, most, choices, help) GUARD_KEY_##id,
#include "guard_config.def"
#define O(...)
#define F(...)
#define D(key, ...) GUARD_KEY_##key,
#include "config.def"
#undef O
	GUARD_KEYS
};

struct guard_key_row {
	unsigned of; /* The tables that may have the key, as bits of enum guard_table. */
	struct config_row row;
};
extern const struct guard_key_row guard_keys[GUARD_KEYS];
extern const char *const guard_table_names[GUARD_TABLES];

/* One [[worker]], [[rule]] or [[schedule]]. The list is in the order of files and lines. */
struct guard_entry {
	struct guard_entry *next;
	enum guard_table table;
	/* Position of the entry among the entries of the same table, counted from 1. */
	unsigned number;
	struct config_place at;
	bool given[GUARD_KEYS];
	bool refused[GUARD_KEYS]; /* The key is given, but its value is invalid. */
	struct config_place place[GUARD_KEYS];
	struct config_value value[GUARD_KEYS];
};

/* Checks each value on its own. */
void guard_config_forms(struct config_reader *r, struct guard_entry *e);
/* Reports an error and marks the value as refused; later checks skip it. */
void guard_config_refuse(struct config_reader *r, struct guard_entry *e, enum guard_key key,
			 const char *value, const char *why);

/* The functions below return properties of an entry, for the checks and for the policy. */

/* Returns the string of a key, or NULL if the key is not given. */
static inline const char *guard_entry_text(const struct guard_entry *e, enum guard_key key)
{
	return e->given[key] ? e->value[key].text : NULL;
}
/* Returns the kind of the worker. A negative number means that the kind is unknown. */
int guard_entry_kind(const struct guard_entry *e);
/* Returns the url of the entry if the url is an HTTP address, else NULL. */
const char *guard_entry_http(const struct guard_entry *e);
/* Returns match.port, or else the port of url. Returns 0 if the entry has no port. */
unsigned guard_entry_port(const struct guard_entry *e);
unsigned guard_entry_max_level(const struct config *c, const struct guard_entry *e);
bool guard_entry_allow_kill(const struct config *c, const struct guard_entry *e);
/* True if the entry has a key match.*. If identity is true, match.uid alone is not enough. */
bool guard_entry_matches(const struct guard_entry *e, bool identity);
/* Returns the number of the signal, or 0 if no signal has this name. */
int guard_signal(const char *name);

#endif
