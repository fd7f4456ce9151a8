#include "http_message.h"

#include <gpuward.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void http_message_write(struct buf *out, const struct http_message *m)
{
	buf_addf(out, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", m->method, m->path,
		 m->host);
	buf_addf(out, "Accept: %s\r\nUser-Agent: gpuward\r\n", m->accept);
	if (m->token && *m->token)
		buf_addf(out, "Authorization: Bearer %s\r\n", m->token);
	if (m->body)
		buf_adds(out, "Content-Type: application/json\r\n");
	if (m->body || strcmp(m->method, "GET") != 0)
		buf_addf(out, "Content-Length: %zu\r\n", m->body ? strlen(m->body) : 0);
	buf_addf(out, "\r\n%s", m->body ? m->body : "");
}

/* Returns the value of a header in the lines before end, or NULL if there is no such header. */
static const char *find_header(const char *head, const char *end, const char *name)
{
	size_t n = strlen(name);

	for (const char *line = strstr(head, "\r\n"); line && line < end;
	     line = strstr(line + 2, "\r\n"))
		if (strncasecmp(line + 2, name, n) == 0 && line[2 + n] == ':')
			return line + 3 + n + strspn(line + 3 + n, " \t");
	return NULL;
}

static bool is_chunked(const char *head, const char *end)
{
	const char *coding = find_header(head, end, "Transfer-Encoding");

	return coding && strncasecmp(coding, "chunked", 7) == 0;
}

bool http_message_complete(const struct buf *answer)
{
	static const char last[] = "\r\n0\r\n\r\n";
	const char *end = strstr(answer->p, "\r\n\r\n");
	const char *length = end ? find_header(answer->p, end, "Content-Length") : NULL;
	size_t n = strlen(last);

	if (end && is_chunked(answer->p, end))
		return answer->len >= n && memcmp(answer->p + answer->len - n, last, n) == 0;
	return length &&
	       (size_t)(answer->p + answer->len - (end + 4)) >= strtoull(length, NULL, 10);
}

static int read_chunks(const char *p, const char *end, struct buf *out)
{
	while (p < end) {
		char *after;
		unsigned long n = strtoul(p, &after, 16);
		const char *data = strstr(after, "\r\n");

		if (after == p || !data || n > out->max)
			return -GW_E_PARSE;
		data += 2;
		if (n == 0)
			return out->err;
		if ((size_t)(end - data) < n + 2)
			return -GW_E_PARSE;
		buf_add(out, data, n);
		p = data + n + 2;
	}
	return -GW_E_PARSE; /* the empty last chunk is missing */
}

int http_message_read(const struct buf *answer, int *ret_status, struct buf *ret_body)
{
	const char *end = strstr(answer->p, "\r\n\r\n");
	const char *body, *length;
	size_t size;

	if (!end || sscanf(answer->p, "HTTP/1.%*1d %3d", ret_status) != 1 || *ret_status < 100)
		return -GW_E_PARSE;
	body = end + 4;
	size = (size_t)(answer->p + answer->len - body);
	length = find_header(answer->p, end, "Content-Length");
	if (is_chunked(answer->p, end))
		return read_chunks(body, answer->p + answer->len, ret_body);
	if (length && strtoull(length, NULL, 10) != size)
		return -GW_E_PARSE;
	buf_add(ret_body, body, size);
	return ret_body->err;
}

void url_escape(struct buf *out, const char *s)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789-._~";

	for (; *s; s++) {
		if (strchr(plain, *s))
			buf_addc(out, *s);
		else
			buf_addf(out, "%%%02X", (unsigned char)*s);
	}
}
