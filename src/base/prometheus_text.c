#include "prometheus_text.h"

#include "number.h"

#include <math.h>
#include <string.h>

static const char *text_skip_blank(const char *p)
{
	return p + strspn(p, " \t");
}

/* Parses a quoted value at *p and moves *p past it.  Returns false if it is malformed or too
 * long. */
static bool label_parse_quoted(const char **p, char *out, size_t size)
{
	const char *s = *p;
	size_t n = 0;

	if (*s++ != '"')
		return false;
	for (; *s && *s != '"' && *s != '\n'; s++) {
		char c = *s;

		if (c == '\\' && s[1] && s[1] != '\n')
			c = *++s == 'n' ? '\n' : *s;
		if (n + 1 >= size)
			return false;
		out[n++] = c;
	}
	out[n] = '\0';
	*p = s + (*s == '"');
	return *p > s;
}

int prometheus_label_next(const char **p, struct prometheus_label *ret)
{
	size_t n;

	*p = text_skip_blank(*p);
	if (**p == ',')
		*p = text_skip_blank(*p + 1);
	if (**p == '}') {
		(*p)++;
		return 0;
	}
	n = strcspn(*p, "=,{}\" \t\n");
	if (n == 0 || n >= sizeof(ret->key))
		return -1;
	memcpy(ret->key, *p, n);
	ret->key[n] = '\0';
	*p = text_skip_blank(*p + n);
	if (**p != '=')
		return -1;
	*p = text_skip_blank(*p + 1);
	return label_parse_quoted(p, ret->value, sizeof(ret->value)) ? 1 : -1;
}

/* Moves *p past the labels, if there are any. Returns false if they are malformed. */
static bool line_skip_labels(const char **p)
{
	struct prometheus_label l;
	int more = 1;

	if (**p != '{')
		return true;
	for ((*p)++; more == 1;)
		more = prometheus_label_next(p, &l);
	return more == 0;
}

static void line_parse(const char *line, size_t name_len, struct prometheus_line *ret)
{
	const char *p = line + name_len, *labels = p, *end;
	const bool labelled = line_skip_labels(&p);

	*ret = (struct prometheus_line){ .name = line,
					 .name_len = name_len,
					 .labels = labels,
					 .labels_len = labelled ? (size_t)(p - labels) : 0,
					 .value = NAN };
	if (!labelled)
		return;
	p = text_skip_blank(p);
	if (!*p || *p == '\n')
		return;
	ret->value = number_parse(p, &end);
	ret->valid = end != p && (!*end || strchr(" \t\r\n", *end));
	if (!ret->valid)
		ret->value = NAN;
}

bool prometheus_text_next(const char **text, struct prometheus_line *ret)
{
	while (**text) {
		const char *line = text_skip_blank(*text);
		const size_t name = strcspn(line, "{ \t\r\n");

		*text = line + strcspn(line, "\n");
		*text += **text == '\n';
		if (*line == '#' || name == 0)
			continue;
		line_parse(line, name, ret);
		return true;
	}
	return false;
}

bool prometheus_line_is(const struct prometheus_line *l, const char *name)
{
	return l->name_len == strlen(name) && memcmp(l->name, name, l->name_len) == 0;
}

bool prometheus_line_label(const struct prometheus_line *l, const char *key, char *out,
			   size_t size)
{
	const char *p = l->labels + 1;
	struct prometheus_label label;

	out[0] = '\0';
	while (l->labels_len && prometheus_label_next(&p, &label) == 1)
		if (strcmp(label.key, key) == 0 && strlen(label.value) < size) {
			memcpy(out, label.value, strlen(label.value) + 1);
			return true;
		}
	return false;
}
