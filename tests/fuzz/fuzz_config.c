/* Whatever bytes a configuration has: no crash, no leak; errors have a place and a sentence of one
 * line, and what was taken prints as a file that is taken again and prints the same. */
#include "daemon/config_read.h"

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
