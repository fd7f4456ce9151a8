/* The text of --fail-if. */
#include "ab.h"

#include <gpuward.h>

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/number.h"
#include "base/suggest.h"

static const char *const metric_names[AB_METRICS] = {
	[AB_ENERGY] = "energy",
	[AB_TIME] = "time",
	[AB_POWER] = "power",
	[AB_EDP] = "edp",
};

const char *ab_metric_name(enum ab_metric metric)
{
	return metric_names[metric];
}

#define EXAMPLE "write it like 'energy > +2%'"

/* What is left to read, and where a complaint goes. */
struct reader {
	const char *text, *at;
	struct buf err;
};

static int complain(struct reader *r, const char *what, const char *fix)
{
	unsigned column = (unsigned)(r->at - r->text) + 1;

	buf_addf(&r->err, "column %u: %s; %s", column, what, fix);
	return -GW_E_PARSE;
}

static void skip_blanks(struct reader *r)
{
	while (*r->at == ' ' || *r->at == '\t')
		r->at++;
}

static int no_metric(struct reader *r, const char *word)
{
	const char *near = suggest(word, metric_names, AB_METRICS, sizeof(metric_names[0]));
	char what[80], fix[80];
	struct buf w, f;

	if (word[0] == '\0')
		return complain(r, "no metric", EXAMPLE);
	buf_init_fixed(&w, what, sizeof(what));
	buf_addf(&w, "no metric is called '%s'", word);
	buf_init_fixed(&f, fix, sizeof(fix));
	if (near)
		buf_addf(&f, "did you mean '%s'?", near);
	else
		buf_adds(&f, "use energy, time, power or edp");
	return complain(r, what, fix);
}

static int read_metric(struct reader *r, enum ab_metric *ret)
{
	char word[32];
	size_t n = 0;

	while (n < sizeof(word) - 1 && (isalnum((unsigned char)r->at[n]) || r->at[n] == '_'))
		n++;
	memcpy(word, r->at, n);
	word[n] = '\0';
	for (unsigned i = 0; i < AB_METRICS; i++) {
		if (strcmp(word, metric_names[i]) == 0) {
			*ret = (enum ab_metric)i;
			r->at += n;
			return 0;
		}
	}
	return no_metric(r, word);
}

static int read_operator(struct reader *r, struct ab_gate *gate)
{
	if (*r->at != '>' && *r->at != '<')
		return complain(r, "no comparison after the metric", "use >, >=, < or <=");
	gate->above = *r->at++ == '>';
	gate->or_equal = *r->at == '=';
	r->at += gate->or_equal;
	return 0;
}

static int read_change(struct reader *r, double *ret)
{
	char digits[32];
	const char *end;
	bool negative = *r->at == '-';
	const char *p = r->at + (negative || *r->at == '+');
	size_t n = strspn(p, "0123456789.");

	if (n == 0 || n >= sizeof(digits))
		return complain(r, "no number",
				"name the change in percent, such as +2% or -0.5%");
	memcpy(digits, p, n);
	digits[n] = '\0';

	double percent = number_parse(digits, &end);

	if (*end != '\0')
		return complain(r, "not a number", "write a decimal such as 2 or 0.5");
	if (negative && percent >= 100)
		return complain(r, "nothing falls by 100 % or more", "name a smaller change");
	r->at = p + n;
	if (*r->at == ',')
		return complain(r, "a comma in a number", "write decimals with a point");
	skip_blanks(r);
	if (*r->at != '%')
		return complain(r, "no % after the number",
				"changes are in percent, such as +2%");
	r->at++;
	*ret = (negative ? -percent : percent) / 100;
	return 0;
}

static int read_gate(struct reader *r, struct ab_gate *gate)
{
	int err;

	skip_blanks(r);
	err = read_metric(r, &gate->metric);
	if (err < 0)
		return err;
	skip_blanks(r);
	err = read_operator(r, gate);
	if (err < 0)
		return err;
	skip_blanks(r);
	err = read_change(r, &gate->change);
	if (err < 0)
		return err;
	skip_blanks(r);
	return *r->at == '\0' ? 0 : complain(r, "more text after the %", EXAMPLE);
}

int ab_gate_parse(const char *text, struct ab_gate *ret, char *err, size_t err_size)
{
	struct reader r = { .text = text, .at = text };
	struct ab_gate gate;

	buf_init_fixed(&r.err, err, err_size);

	int e = read_gate(&r, &gate);

	if (e == 0)
		*ret = gate;
	return e;
}
