/* Any path of a control group: no crash; every text that is found ends inside its field, and
 * the id of a user's workload begins with the id of the user. */
#include "text.h"

#include "device/proc.h"
#include "device/workload.h"

#define ENDS(field) memchr(field, 0, sizeof(field))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size), out[72], shown[256];
	struct cgroup_unit u;
	struct workload w;

	memset(&w, 'x', sizeof(w));
	workload_from_cgroup(text, 1000, &w);
	if (w.kind >= WORKLOAD_KINDS || !ENDS(w.id) || !ENDS(w.space) || !ENDS(w.name) ||
	    !ENDS(w.part) || (w.kind != WORKLOAD_NONE && (!*w.id || !*w.name)))
		abort();
	(void)workload_is_named(&w);
	if (cgroup_unit_find(text, &u)) {
		if (u.name < text || u.end > text + strlen(text) || u.name >= u.end)
			abort();
		cgroup_unit_service(&u, shown, sizeof(shown));
	}
	cgroup_container_name(text, out, sizeof(out));
	cgroup_unit_name(text, shown, sizeof(shown));
	if (!ENDS(out) || !ENDS(shown) || (*text && !proc_in_cgroup(text, text)))
		abort();
	free(text);
	return 0;
}
