#include "http_check.h"

#include "base/number.h"
#include "base/utf8.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static const char *decode(const char *raw, char *out, bool path)
{
	char *start = out;

	for (; *raw; raw++) {
		char c = *raw;

		if (c == '%') {
			int high = hex(raw[1]), low = high < 0 ? -1 : hex(raw[2]);

			if (low < 0)
				return "a '%' is not followed by two hexadecimal digits";
			c = (char)(high * 16 + low);
			if (path && c == '/')
				return "a '/' inside a segment of a path is not accepted";
			raw += 2;
		} else if (path && c == ' ')
			return "it has a space, which must be written as %20";
		if ((unsigned char)c < ' ' || c == 0x7f)
			return "it has a control character";
		*out++ = c;
	}
	*out = '\0';
	for (size_t n; *start; start += n)
		if ((n = utf8_length(start)) == 0)
			return "it is not UTF-8";
	return NULL;
}

const char *check_decode(const char *raw, char *out)
{
	return decode(raw, out, false);
}

const char *check_path(const char *raw, char *out)
{
	if (*raw != '/')
		return "it does not begin with '/'";

	const char *why = decode(raw, out, true);

	for (const char *s = out; !why && s; s = strchr(s + 1, '/')) {
		size_t n = strcspn(s + 1, "/");

		if ((n == 1 && s[1] == '.') || (n == 2 && s[1] == '.' && s[2] == '.'))
			why = "\".\" and \"..\" are not accepted in a path";
	}
	return why;
}

static bool host_char(char c)
{
	return isalnum((unsigned char)c) || c == '-' || c == '.' || c == '_';
}

static bool parse_port(const char *s, unsigned *ret)
{
	unsigned port = 0;

	*ret = 0;
	if (*s == '\0')
		return true;
	if (*s++ != ':')
		return false;
	for (; isdigit((unsigned char)*s) && port <= 65535; s++)
		port = port * 10 + (unsigned)(*s - '0');
	*ret = port;
	return *s == '\0' && port <= 65535;
}

bool check_host(const char *text, char host[static CHECK_HOST_SIZE], unsigned *ret_port)
{
	bool bracket = *text == '[';
	const char *s = text + bracket;
	struct in6_addr v6;
	size_t n = 0;

	for (; *s && n < CHECK_HOST_SIZE - 1; s++) {
		if (!host_char(*s) && !(bracket && *s == ':'))
			break;
		host[n++] = (char)tolower((unsigned char)*s);
	}
	host[n] = '\0';
	if (n == 0)
		return false;
	if (bracket && (*s++ != ']' || inet_pton(AF_INET6, host, &v6) != 1))
		return false;
	return parse_port(s, ret_port);
}

bool check_length(const char *text, uint64_t *ret)
{
	uint64_t n = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		unsigned digit = (unsigned)(*text - '0');

		if (digit > 9 || n > (UINT64_MAX - digit) / 10)
			return false;
		n = n * 10 + digit;
	}
	*ret = n;
	return true;
}

bool check_token(const char *name, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)name[i]) &&
		    (name[i] == '\0' || !strchr("!#$%&'*+-.^_`|~", name[i])))
			return false;
	return n > 0;
}

bool check_value(const char *value, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (((unsigned char)value[i] < ' ' && value[i] != '\t') || value[i] == 0x7f)
			return false;
	return true;
}

/* Returns the length of the text before the first ';' or ',', without trailing space. */
static size_t name_length(const char *s)
{
	return strcspn(s, "; \t,");
}

/* An element of a list such as "text/html;q=0.5, *". */
struct element {
	const char *name;
	size_t n;
	double q;
};

static const char *next_element(const char *s, struct element *e)
{
	s += strspn(s, " \t,");
	if (!*s)
		return NULL;
	e->name = s;
	e->n = name_length(s);
	e->q = 1;
	s += e->n;
	while (*s && *s != ',') {
		const char *end;

		s += strspn(s, "; \t");
		if ((*s == 'q' || *s == 'Q') && s[1] == '=')
			e->q = number_parse(s + 2, &end);
		if (*s == '"') /* Skip the quote of a string without a name. */
			s++;
		s += strcspn(s, ";,");
	}
	return s;
}

static bool element_is(const struct element *e, const char *name, size_t n)
{
	return e->n == n && strncasecmp(e->name, name, n) == 0;
}

/* How strongly an Accept header prefers a media type. */
struct wish {
	/* How exactly the best element names the type: 0 not at all, 1 as "any type", 2 by its
	 * main type, 3 completely. */
	int match;
	double q; /* 0: refused */
	bool any; /* Accept has an element. */
};

static struct wish wish_for(const char *accept, const char *type)
{
	size_t n = name_length(type), major = strcspn(type, "/") + 1;
	struct wish best = { .match = 0 };
	struct element e;

	for (const char *s = accept; (s = next_element(s, &e));) {
		int match = 0;

		best.any = true;
		if (element_is(&e, type, n))
			match = 3;
		else if (e.n == major + 1 && e.name[major] == '*' &&
			 strncasecmp(e.name, type, major) == 0)
			match = 2;
		else if (element_is(&e, "*/*", 3) || element_is(&e, "*", 1))
			match = 1;
		if (match > best.match) {
			best.match = match;
			best.q = e.q;
		}
	}
	return best;
}

bool check_accepts(const char *accept, const char *type)
{
	struct wish w;

	if (!accept || strcmp(accept, "*/*") == 0)
		return true;
	w = wish_for(accept, type);
	return !w.any || w.q > 0;
}

bool check_prefers(const char *accept, const char *type, const char *usual)
{
	struct wish w, u;

	if (!accept)
		return false;
	w = wish_for(accept, type);
	u = wish_for(accept, usual);
	return w.q > u.q || (w.q > 0 && w.q >= u.q && w.match == 3);
}

bool check_gzip(const char *encoding)
{
	struct element e;
	double all = 0;

	if (!encoding)
		return false;
	for (const char *s = encoding; (s = next_element(s, &e));) {
		if (element_is(&e, "gzip", 4) || element_is(&e, "x-gzip", 6))
			return e.q > 0;
		if (element_is(&e, "*", 1))
			all = e.q;
	}
	return all > 0;
}

bool check_etag(const char *match, const char *etag)
{
	size_t n = strlen(etag);

	for (const char *s = match; s && *s; s += strcspn(s, ",")) {
		s += strspn(s, " \t,");
		if (strncmp(s, "W/", 2) == 0)
			s += 2;
		if (strncmp(s, etag, n) == 0)
			return true;
		if (*s == '*' && s[1 + strspn(s + 1, " \t")] == '\0')
			return true;
	}
	return false;
}

bool check_id(const char *id)
{
	size_t n = strlen(id);

	if (n == 0 || n > 64)
		return false;
	for (; *id; id++)
		if (!isalnum((unsigned char)*id) && !strchr("-_.:/+=", *id))
			return false;
	return true;
}

bool check_json(const char *type)
{
	const char *s = type;
	bool quoted;

	if (!s || strncasecmp(s, "application/json", 16) != 0)
		return false;
	s += 16;
	s += strspn(s, " \t");
	if (!*s)
		return true;
	if (*s++ != ';')
		return false;
	s += strspn(s, " \t");
	if (strncasecmp(s, "charset=", 8) != 0)
		return false;
	s += 8;
	quoted = *s == '"';
	s += quoted;
	if (strncasecmp(s, "utf-8", 5) != 0)
		return false;
	s += 5;
	if (quoted && *s++ != '"')
		return false;
	return s[strspn(s, " \t")] == '\0';
}
