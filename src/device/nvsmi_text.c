/* The columns of nvidia-smi --query-gpu, and how a field becomes a value or an absence
 * reason. */
#include "nvsmi.h"

#include "base/array.h"
#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MHZ              1e6
#define PERCENT_TO_RATIO 0.01

enum format {
	TEXT,
	NUMBER,     /* a number that is not negative */
	PERCENT,    /* 0 to 100 */
	SIGNED,     /* a number that may be negative, such as a temperature */
	HEX,        /* a hexadecimal number: 0x0000000000000004 */
	FLAG,       /* a word in a row of flags[] */
	STATE,      /* P0 to P15 */
	MODE,       /* a word in a row of modes[] */
	CAPABILITY, /* "9.0": sets the target to 9 and the next quantity to 0 */
};

static const struct column {
	const char *name, *old_name;
	enum format format;
	unsigned target; /* enum gw_text for TEXT, else enum gw_quantity */
	double scale;
} columns[] = {
	{ "name", NULL, TEXT, GW_T_NAME, 0 },
	{ "driver_version", NULL, TEXT, GW_T_DRIVER, 0 },
	{ "vbios_version", NULL, TEXT, GW_T_VBIOS, 0 },
	{ "serial", NULL, TEXT, GW_T_SERIAL, 0 },
	{ "power.draw", NULL, NUMBER, GW_Q_POWER, 1 },
	{ "power.draw.average", NULL, NUMBER, GW_Q_POWER_AVERAGE, 1 },
	{ "power.draw.instant", NULL, NUMBER, GW_Q_POWER_INSTANT, 1 },
	{ "memory.total", NULL, NUMBER, GW_Q_MEMORY_TOTAL, MIB },
	{ "memory.reserved", NULL, NUMBER, GW_Q_MEMORY_RESERVED, MIB },
	{ "memory.used", NULL, NUMBER, GW_Q_MEMORY_USED, MIB },
	{ "memory.free", NULL, NUMBER, GW_Q_MEMORY_FREE, MIB },
	{ "utilization.gpu", NULL, PERCENT, GW_Q_UTILIZATION_GPU, PERCENT_TO_RATIO },
	{ "utilization.memory", NULL, PERCENT, GW_Q_UTILIZATION_MEMORY, PERCENT_TO_RATIO },
	{ "temperature.gpu", NULL, SIGNED, GW_Q_TEMPERATURE_GPU, 1 },
	{ "clocks.gr", NULL, NUMBER, GW_Q_CLOCK_GRAPHICS, MHZ },
	{ "clocks.sm", NULL, NUMBER, GW_Q_CLOCK_SM, MHZ },
	{ "clocks.mem", NULL, NUMBER, GW_Q_CLOCK_MEMORY, MHZ },
	{ "pstate", NULL, STATE, GW_Q_PERFORMANCE_STATE, 1 },
	{ "clocks_event_reasons.active", "clocks_throttle_reasons.active", HEX,
	  GW_Q_CLOCK_REASONS, 1 },
	{ "clocks.video", NULL, NUMBER, GW_Q_CLOCK_VIDEO, MHZ },
	{ "temperature.memory", NULL, SIGNED, GW_Q_TEMPERATURE_MEMORY, 1 },
	{ "temperature.gpu.tlimit", NULL, SIGNED, GW_Q_TEMPERATURE_MARGIN, 1 },
	{ "utilization.encoder", NULL, PERCENT, GW_Q_UTILIZATION_ENCODER, PERCENT_TO_RATIO },
	{ "utilization.decoder", NULL, PERCENT, GW_Q_UTILIZATION_DECODER, PERCENT_TO_RATIO },
	{ "utilization.jpeg", NULL, PERCENT, GW_Q_UTILIZATION_JPEG, PERCENT_TO_RATIO },
	{ "utilization.ofa", NULL, PERCENT, GW_Q_UTILIZATION_OFA, PERCENT_TO_RATIO },
	{ "enforced.power.limit", "power.limit", NUMBER, GW_Q_POWER_LIMIT, 1 },
	{ "fan.speed", NULL, NUMBER, GW_Q_FAN_SPEED, PERCENT_TO_RATIO },
	{ "pcie.link.gen.current", NULL, NUMBER, GW_Q_PCIE_GENERATION, 1 },
	{ "pcie.link.width.current", NULL, NUMBER, GW_Q_PCIE_WIDTH, 1 },
	{ "ecc.errors.corrected.volatile.total", NULL, NUMBER, GW_Q_ECC_CORRECTED, 1 },
	{ "ecc.errors.uncorrected.volatile.total", NULL, NUMBER, GW_Q_ECC_UNCORRECTED, 1 },
	{ "ecc.errors.corrected.aggregate.total", NULL, NUMBER, GW_Q_ECC_CORRECTED_LIFE, 1 },
	{ "ecc.errors.uncorrected.aggregate.total", NULL, NUMBER, GW_Q_ECC_UNCORRECTED_LIFE,
	  1 },
	{ "retired_pages.pending", NULL, FLAG, GW_Q_PAGES_PENDING, 1 },
	{ "display_active", NULL, FLAG, GW_Q_DISPLAY_ACTIVE, 1 },
	{ "persistence_mode", NULL, FLAG, GW_Q_PERSISTENCE, 1 },
	{ "compute_mode", NULL, MODE, GW_Q_COMPUTE_MODE, 1 },
	{ "ecc.mode.current", NULL, FLAG, GW_Q_ECC_MODE, 1 },
	{ "ecc.mode.pending", NULL, FLAG, GW_Q_ECC_MODE_PENDING, 1 },
	{ "power.min_limit", NULL, NUMBER, GW_Q_POWER_LIMIT_MIN, 1 },
	{ "power.max_limit", NULL, NUMBER, GW_Q_POWER_LIMIT_MAX, 1 },
	{ "power.default_limit", NULL, NUMBER, GW_Q_POWER_LIMIT_DEFAULT, 1 },
	{ "clocks.max.sm", NULL, NUMBER, GW_Q_CLOCK_SM_MAX, MHZ },
	{ "clocks.max.mem", NULL, NUMBER, GW_Q_CLOCK_MEMORY_MAX, MHZ },
	{ "pcie.link.gen.max", NULL, NUMBER, GW_Q_PCIE_GENERATION_MAX, 1 },
	{ "pcie.link.width.max", NULL, NUMBER, GW_Q_PCIE_WIDTH_MAX, 1 },
	{ "compute_cap", NULL, CAPABILITY, GW_Q_COMPUTE_CAPABILITY_MAJOR, 1 },
	{ "mig.mode.current", NULL, FLAG, GW_Q_MIG_MODE, 1 },
	{ "remapped_rows.correctable", NULL, NUMBER, GW_Q_ROWS_CORRECTABLE, 1 },
	{ "remapped_rows.uncorrectable", NULL, NUMBER, GW_Q_ROWS_UNCORRECTABLE, 1 },
	{ "remapped_rows.pending", NULL, FLAG, GW_Q_ROWS_PENDING, 1 },
	{ "remapped_rows.failure", NULL, FLAG, GW_Q_ROWS_FAILED, 1 },
};

_Static_assert(COUNT(columns) <= NVSMI_COLUMNS, "NVSMI_COLUMNS is too small");
_Static_assert(GW_Q_COMPUTE_CAPABILITY_MINOR == GW_Q_COMPUTE_CAPABILITY_MAJOR + 1,
	       "CAPABILITY sets two neighbours");

/* The texts that nvidia-smi prints instead of a value, and the absence reason for each text. */
static const struct {
	const char *text;
	enum gw_absence why;
} absences[] = {
	{ "N/A", GW_ABSENT_NOT_SUPPORTED },
	{ "Not Supported", GW_ABSENT_NOT_SUPPORTED },
	{ "Requested functionality has been deprecated", GW_ABSENT_NOT_SUPPORTED },
	{ "Deprecated", GW_ABSENT_NOT_SUPPORTED },
	{ "Insufficient Permissions", GW_ABSENT_NO_PERMISSION },
	{ "Not Found", GW_ABSENT_NO_DATA },
	{ "No data", GW_ABSENT_NO_DATA },
	{ "Not Ready", GW_ABSENT_NO_DATA },
	{ "GPU is lost", GW_ABSENT_LOST },
	{ "GPU requires reset", GW_ABSENT_LOST },
	{ "Unknown Error", GW_ABSENT_ERROR },
};

/* The texts that nvidia-smi prints instead of its table, and the cause for each text. */
static const struct {
	const char *text;
	enum gw_cause cause;
} causes[] = {
	{ "couldn't communicate with the NVIDIA driver", GW_CAUSE_NO_DRIVER },
	{ "Driver Not Loaded", GW_CAUSE_NO_DRIVER },
	{ "Driver/library version mismatch", GW_CAUSE_VERSION_MISMATCH },
	{ "couldn't find libnvidia-ml", GW_CAUSE_NO_LIBRARY },
	{ "No devices were found", GW_CAUSE_NO_GPU },
	{ "GPU is lost", GW_CAUSE_GPU_LOST },
	{ "GPU requires reset", GW_CAUSE_GPU_LOST },
	{ "Insufficient Permissions", GW_CAUSE_NO_PERMISSION },
	{ "Failed to initialize NVML", GW_CAUSE_DRIVER_ERROR },
	{ "Unable to determine the device handle", GW_CAUSE_GPU_LOST },
	{ "Unknown Error", GW_CAUSE_DRIVER_ERROR },
};

static const struct {
	const char *text;
	int value;
} flags[] = { { "Enabled", 1 }, { "Disabled", 0 }, { "Yes", 1 }, { "No", 0 } },
  modes[] = { { "Default", 0 },
	      { "Exclusive_Thread", 1 },
	      { "Prohibited", 2 },
	      { "Exclusive_Process", 3 } };

unsigned nvsmi_column_count(void)
{
	return COUNT(columns);
}

const char *nvsmi_column_name(unsigned c, enum nvsmi_name which)
{
	return which == NVSMI_NEW   ? columns[c].name
	       : which == NVSMI_OLD ? columns[c].old_name
				    : NULL;
}

unsigned nvsmi_column_tiers(unsigned c)
{
	if (columns[c].format == TEXT)
		return GW_TIER_STATIC;
	/* `gpuward list` reads only STATIC and shows this value. */
	if (columns[c].target == GW_Q_MEMORY_TOTAL)
		return GW_TIER_STATIC | GW_TIER_FAST;
	return gw_quantity_info(columns[c].target)->tier;
}

/* Parses the quoted field that starts at p with its opening quote. Moves the text of the field
 * to the left, over the quotes. */
static char *nvsmi_unquote(char *p, char **ret_field)
{
	char *out = p;

	*ret_field = p++;
	while (*p && (*p != '"' || p[1] == '"')) {
		p += *p == '"';
		*out++ = *p++;
	}
	p += *p == '"';
	p += strcspn(p, ",");
	if (*p)
		*p++ = '\0';
	else
		p = NULL;
	*out = '\0';
	return p;
}

static char *cut_field(char *p, char **ret_field)
{
	char *end = p + strcspn(p, ","), *next = *end ? end + 1 : NULL;

	while (end > p && strchr(" \t\r", end[-1]))
		end--;
	*end = '\0';
	*ret_field = p;
	return next;
}

unsigned nvsmi_split(char *line, char **fields, unsigned cap)
{
	unsigned n = 0;
	char *field;

	while (line) {
		line += strspn(line, " \t");
		line = *line == '"' ? nvsmi_unquote(line, &field) : cut_field(line, &field);
		if (n < cap)
			fields[n] = field;
		n++;
	}
	return n;
}

enum gw_absence nvsmi_absence(const char *field)
{
	size_t n = strlen(field);
	bool brackets = n >= 2 && field[0] == '[' && field[n - 1] == ']';

	if (n == 0)
		return GW_ABSENT_NO_DATA;
	if (brackets) {
		field++;
		n -= 2;
	}
	for (size_t i = 0; i < COUNT(absences); i++)
		if (strlen(absences[i].text) == n &&
		    strncasecmp(field, absences[i].text, n) == 0)
			return absences[i].why;
	return brackets ? GW_ABSENT_ERROR : GW_HAVE;
}

/* Reads a whole field as a number between low and high. */
static bool read_number(const char *field, double low, double high, double *ret)
{
	const char *end;
	double v = number_parse(field, &end);

	if (end == field || *end || !(v >= low && v <= high))
		return false;
	*ret = v;
	return true;
}

static bool read_hex(const char *field, double *ret)
{
	char *end;
	unsigned long long v;

	if (strncmp(field, "0x", 2) != 0 || !strchr("0123456789abcdefABCDEF", field[2]) ||
	    strlen(field) > 18)
		return false;
	v = strtoull(field, &end, 16);
	*ret = (double)v;
	return *end == '\0' && v < UINT64_C(1) << 53;
}

static bool read_name(const char *field, bool mode, double *ret)
{
	size_t n = mode ? COUNT(modes) : COUNT(flags);

	for (size_t i = 0; i < n; i++) {
		if (strcasecmp(field, mode ? modes[i].text : flags[i].text) != 0)
			continue;
		*ret = mode ? modes[i].value : flags[i].value;
		return true;
	}
	return false;
}

static bool read_field(enum format format, const char *field, double *ret)
{
	switch (format) {
	case NUMBER: return read_number(field, 0, 1e15, ret);
	case PERCENT: return read_number(field, 0, 100, ret);
	case SIGNED: return read_number(field, -273, 1000, ret);
	case HEX: return read_hex(field, ret);
	case STATE: return *field == 'P' && read_number(field + 1, 0, 15, ret);
	case FLAG:
	case MODE: return read_name(field, format == MODE, ret);
	default: return false;
	}
}

static void apply_capability(struct report *r, unsigned q, const char *field)
{
	unsigned major, minor;
	int end = 0;

	if (sscanf(field, "%3u.%3u%n", &major, &minor, &end) != 2 || field[end]) {
		report_miss(r, q, GW_ABSENT_INVALID);
		report_miss(r, q + 1, GW_ABSENT_INVALID);
		return;
	}
	report_set(r, q, major);
	report_set(r, q + 1, minor);
}

void nvsmi_apply(struct report *r, unsigned c, const char *field)
{
	const struct column *col = &columns[c];
	enum gw_absence why = nvsmi_absence(field);
	double v;

	if (col->format == TEXT) {
		report_text(r, (enum gw_text)col->target, why == GW_HAVE ? field : NULL, why);
	} else if (why != GW_HAVE) {
		report_miss(r, col->target, why);
		if (col->format == CAPABILITY)
			report_miss(r, col->target + 1, why);
	} else if (col->format == CAPABILITY) {
		apply_capability(r, col->target, field);
	} else if (read_field(col->format, field, &v)) {
		report_set(r, col->target, v * col->scale);
	} else {
		report_miss(r, col->target, GW_ABSENT_INVALID);
	}
}

enum gw_cause nvsmi_cause(const char *text)
{
	for (size_t i = 0; i < COUNT(causes); i++)
		if (strstr(text, causes[i].text))
			return causes[i].cause;
	return GW_CAUSE_NONE;
}

bool nvsmi_refused(const char *text, char *out, size_t size)
{
	static const char tail[] = "\" is not a valid field to query";
	const char *end = strstr(text, tail), *begin = end;

	if (!end)
		return false;
	while (begin > text && begin[-1] != '"')
		begin--;
	if (begin == text || (size_t)(end - begin) >= size)
		return false;
	memcpy(out, begin, (size_t)(end - begin));
	out[end - begin] = '\0';
	return true;
}
