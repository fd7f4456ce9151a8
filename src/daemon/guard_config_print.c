/* The guard's tables as TOML that reads back to the same, and as JSON. */
#include "guard_config_read.h"

#include <string.h>

static const char *const plural[GUARD_TABLES] = { "workers", "rules", "schedules" };

void guard_config_print(struct buf *out, const struct config_memory *m, bool origin)
{
	for (const struct guard_entry *e = m->entries; e; e = e->next) {
		buf_addf(out, "\n[[%s]]\n", guard_table_names[e->table]);
		for (unsigned k = 0; k < GUARD_KEYS; k++) {
			const struct config_row *row = &guard_keys[k].row;

			if (!e->given[k])
				continue;
			buf_addf(out, "%s = ", row->key);
			config_value_print(out, row, &e->value[k]);
			if (origin)
				config_origin_print(out, &e->place[k]);
			buf_addc(out, '\n');
		}
	}
}

/* Keys in the order of guard_config.def, so that those of match are contiguous. */
static void entry_json(struct json *j, const struct guard_entry *e)
{
	static const char match[] = "match.";
	bool in_match = false;

	json_object(j, NULL);
	for (unsigned k = 0; k < GUARD_KEYS; k++) {
		const struct config_row *row = &guard_keys[k].row;
		bool of_match = e->table != GUARD_SCHEDULE &&
				strncmp(row->key, match, strlen(match)) == 0;

		if (of_match && !in_match)
			json_object(j, "match");
		else if (in_match && !of_match)
			json_object_end(j);
		in_match = of_match;
		if (e->given[k])
			config_value_json(j, row->key + (of_match ? strlen(match) : 0), row,
					  &e->value[k]);
	}
	config_origin_json(j, "origin", &e->at);
	json_object_end(j);
}

void guard_config_json(struct json *j, const struct config_memory *m)
{
	for (unsigned t = 0; t < GUARD_TABLES; t++) {
		json_array(j, plural[t]);
		for (const struct guard_entry *e = m->entries; e; e = e->next)
			if (e->table == t)
				entry_json(j, e);
		json_array_end(j);
	}
}
