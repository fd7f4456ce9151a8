#include "manage_doc.h"

#include "base/json.h"

#include <math.h>
#include <stdio.h>

void manage_entry_id(const struct manage_entry *e, char out[static MANAGE_DOC_ID_SIZE])
{
	snprintf(out, MANAGE_DOC_ID_SIZE, "%s/%s", e->uuid, manage_info(e->what)->word);
}

void manage_value_write(struct json *j, const char *key, enum manage_what what,
			const double v[2])
{
	char mode[32];

	json_object(j, key);
	switch (what) {
	case MANAGE_PERSISTENCE:
		if (isnan(v[0]))
			json_null(j, "enabled");
		else
			json_bool(j, "enabled", v[0] != 0);
		break;
	case MANAGE_POWER_LIMIT: json_double(j, "watts", v[0]); break;
	case MANAGE_COMPUTE_MODE:
		manage_text(what, v, mode, sizeof(mode));
		json_string(j, "mode", isnan(v[0]) ? NULL : mode);
		break;
	case MANAGE_CLEAR_ECC:
		json_double(j, "corrected_errors", v[0]);
		json_double(j, "uncorrected_errors", v[1]);
		break;
	default: json_double(j, "min_hertz", v[0]); json_double(j, "max_hertz", v[1]);
	}
	json_object_end(j);
}

void manage_entry_write(struct buf *out, const struct manage_entry *e)
{
	struct json j;

	json_init(&j, out, false);
	json_object(&j, NULL);
	json_string(&j, "uuid", e->uuid);
	json_string(&j, "setting", manage_info(e->what)->word);
	manage_value_write(&j, "before", e->what, e->before);
	manage_value_write(&j, "after", e->what, e->after);
	if (!isnan(e->earlier[0]))
		manage_value_write(&j, "earlier", e->what, e->earlier);
	json_string(&j, "who", e->who);
	json_time(&j, "time_utc", e->wall_ns);
	json_uint(&j, "wall_ns", e->wall_ns);
	json_object_end(&j);
	json_end(&j);
}
