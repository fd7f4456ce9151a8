/* Any bytes as a configuration: no crash and no leak; errors have a place and one line. An
 * accepted configuration is printed and read again with the same result. */
#include "daemon/config_read.h"
#include "daemon/guard_config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_faults(const struct config_faults *f, int err)
{
	if ((err == 0) != (f->errors == 0))
		abort();
	for (unsigned i = 0; i < f->count; i++) {
		const struct config_fault *x = &f->fault[i];

		if (!x->at.name || !x->at.line || !x->at.column || !*x->text ||
		    strpbrk(x->text, "\n\r\033"))
			abort();
	}
}

static void print(struct buf *out, const struct config *c)
{
	buf_init(out, (size_t)1 << 24);
	config_print(out, c, true);
	if (out->err)
		abort();
}

/* Both readings must give the same policy. */
static void check_policy(const struct config *c, const struct config *again)
{
	static struct guard_settings a, b;

	if (guard_config_make(c, &a) != 0 || guard_config_make(again, &b) != 0 ||
	    !policy_same(&a.policy, &b.policy))
		abort();
	for (unsigned i = 0; i < a.policy.workers; i++)
		if (!a.policy.worker[i].name || !a.policy.worker[i].text ||
		    a.policy.worker[i].schedules > POLICY_SPANS)
			abort();
	guard_settings_done(&a);
	guard_settings_done(&b);
}

static void check_round(const struct config *c)
{
	static struct config_faults faults;
	struct config again;
	struct buf a, b;

	buf_init(&a, (size_t)1 << 24);
	config_print(&a, c, false);
	if (config_read_text(&again, "printed", a.p, a.len, &faults) != 0)
		abort();
	buf_init(&b, (size_t)1 << 24);
	config_print(&b, &again, false);
	if (a.err || b.err || strcmp(a.p, b.p) != 0)
		abort();
	check_policy(c, &again);
	config_done(&again);
	config_faults_done(&faults);
	buf_done(&b);
	buf_done(&a);
	print(&a, c);
	buf_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct config_faults faults;
	struct config c;
	int err = config_read_text(&c, "fuzz", (const char *)data, size, &faults);

	check_faults(&faults, err);
	if (err == 0)
		check_round(&c);
	config_done(&c);
	config_faults_done(&faults);
	return 0;
}
