/* Any output of nvidia-smi: no crash, and every figure is a number or has a reason. */
#include "device/nvsmi.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Checks a line of the stream: a reading has a timestamp, and watts or a reason. */
static void try_line(const char *line, bool no_instant)
{
	struct nvsmi_stream s;
	struct nvsmi_reading r;

	nvsmi_stream_init(&s);
	s.no_instant = no_instant;
	if (!nvsmi_stream_parse(&s, line, UINT64_C(1790000000000000), &r))
		return;
	if ((r.why == GW_HAVE) != (isfinite(r.power_w) || isfinite(r.instant_w)))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *fields[NVSMI_FIELDS], field[64];
	struct report r;
	unsigned n;

	memcpy(text, data, size);
	text[size] = '\0';
	nvsmi_cause(text);
	try_line(text, false);
	try_line(text, true);
	nvsmi_refused(text, field, sizeof(field));
	report_init(&r, GW_VENDOR_NVIDIA, GW_FROM_TEXT);
	n = nvsmi_split(text, fields, NVSMI_FIELDS);
	for (unsigned i = 0; i < n && i < NVSMI_FIELDS; i++)
		for (unsigned c = 0; c < nvsmi_column_count(); c++)
			nvsmi_apply(&r, c, fields[i]);
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		if (report_has(&r, q) && !isfinite(r.v[q]))
			abort();
	free(text);
	return 0;
}
