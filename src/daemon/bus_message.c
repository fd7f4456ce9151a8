#include "bus_message.h"

#include <gpuward.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Size of the part before the header fields: endianness, type, flags, version, body size,
 * serial, size of the fields. */
#define HEAD_SIZE 16
/* The protocol allows 128 MiB; a message from logind has a few hundred bytes. */
#define MESSAGE_MAX (16u * 1024)
#define FIELDS      8

/* Header field numbers of the D-Bus protocol. */
enum {
	F_PATH = 1,
	F_INTERFACE,
	F_MEMBER,
	F_ERROR,
	F_REPLY_TO,
	F_DESTINATION,
	F_SENDER,
	F_SIGNATURE
};

static size_t aligned(size_t n, size_t to)
{
	return (n + to - 1) & ~(to - 1);
}

/* A position in the header fields or in the body. */
struct cursor {
	const uint8_t *p;
	size_t at, end;
	bool big_endian, bad;
};

static uint32_t read_u32(const uint8_t *p, bool big_endian)
{
	return big_endian ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
				    p[3]
			  : (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 |
				    p[0];
}

/* Returns the next n bytes, aligned to `to`; NULL if fewer bytes are left. */
static const uint8_t *cursor_take(struct cursor *c, size_t n, size_t to)
{
	size_t at = aligned(c->at, to);

	if (c->bad || at > c->end || n > c->end - at) {
		c->bad = true;
		return NULL;
	}
	c->at = at + n;
	return c->p + at;
}

static uint32_t take_number(struct cursor *c)
{
	const uint8_t *p = cursor_take(c, 4, 4);

	return p ? read_u32(p, c->big_endian) : 0;
}

static const char *take_text(struct cursor *c, bool short_length)
{
	const uint8_t *n = short_length ? cursor_take(c, 1, 1) : NULL;
	size_t len = n ? *n : short_length ? 0 : take_number(c);
	const char *s = (const char *)cursor_take(c, len + 1, 1);

	if (s && (s[len] != '\0' || strlen(s) != len))
		c->bad = true;
	return s;
}

/* Reads one header field. Accepts only the types that the fields of the protocol have today. A
 * field with another type fails the message, because its size is unknown. */
static void take_field(struct cursor *c, struct bus_message *m)
{
	const char **const text[FIELDS + 1] = { [F_PATH] = &m->path,
						[F_INTERFACE] = &m->interface,
						[F_MEMBER] = &m->member,
						[F_ERROR] = &m->error,
						[F_DESTINATION] = &m->destination,
						[F_SENDER] = &m->sender,
						[F_SIGNATURE] = &m->signature };
	const uint8_t *code = cursor_take(c, 1, 8);
	const char *type = take_text(c, true);
	bool known = code && *code <= FIELDS;

	if (!code || !type) {
		c->bad = true;
	} else if (strcmp(type, "u") == 0) {
		uint32_t value = take_number(c);

		if (*code == F_REPLY_TO)
			m->reply_to = value;
	} else if (strcmp(type, "s") == 0 || strcmp(type, "o") == 0 || strcmp(type, "g") == 0) {
		const char *s = take_text(c, *type == 'g');

		if (known && text[*code])
			*text[*code] = s;
	} else {
		c->bad = true;
	}
}

long bus_read(const uint8_t *bytes, size_t size, struct bus_message *ret)
{
	struct cursor c = { .p = bytes, .at = HEAD_SIZE };
	struct bus_message m = { .type = BUS_CALL };
	size_t body, fields, begin;

	if (size < HEAD_SIZE)
		return 0;
	c.big_endian = m.big_endian = bytes[0] == 'B';
	body = read_u32(bytes + 4, c.big_endian);
	fields = read_u32(bytes + 12, c.big_endian);
	if ((bytes[0] != 'l' && bytes[0] != 'B') || bytes[1] < BUS_CALL ||
	    bytes[1] > BUS_SIGNAL || bytes[3] != 1 || body > MESSAGE_MAX ||
	    fields > MESSAGE_MAX)
		return -GW_E_PARSE;
	begin = aligned(HEAD_SIZE + fields, 8);
	if (size < begin + body)
		return 0;
	m.type = (enum bus_type)bytes[1];
	m.serial = read_u32(bytes + 8, c.big_endian);
	m.body = bytes + begin;
	m.body_size = body;
	c.end = HEAD_SIZE + fields;
	while (!c.bad && c.at < c.end)
		take_field(&c, &m);
	if (c.bad)
		return -GW_E_PARSE;
	*ret = m;
	return (long)(begin + body);
}

int bus_read_bool(const struct bus_message *m, bool *ret)
{
	uint32_t value;

	if (!m->signature || strcmp(m->signature, "b") != 0 || m->body_size != 4)
		return -GW_E_PARSE;
	value = read_u32(m->body, m->big_endian);
	*ret = value == 1;
	return value <= 1 ? 0 : -GW_E_PARSE;
}

int bus_read_u32(const struct bus_message *m, uint32_t *ret)
{
	if (!m->signature || m->signature[0] != 'u' || m->body_size < 4)
		return -GW_E_PARSE;
	*ret = read_u32(m->body, m->big_endian);
	return 0;
}

int bus_read_u32_text(const struct bus_message *m, uint32_t *ret, const char **ret_text)
{
	struct cursor c = { .p = m->body, .end = m->body_size, .big_endian = m->big_endian };

	if (!m->signature || strcmp(m->signature, "us") != 0)
		return -GW_E_PARSE;
	*ret = take_number(&c);
	*ret_text = take_text(&c, false);
	return c.bad ? -GW_E_PARSE : 0;
}

static void put_number(struct buf *out, uint32_t n)
{
	const char b[4] = { (char)(n & 255), (char)(n >> 8 & 255), (char)(n >> 16 & 255),
			    (char)(n >> 24 & 255) };

	buf_add(out, b, sizeof(b));
}

static void pad(struct buf *out, size_t begin, size_t to)
{
	while (!out->err && (out->len - begin) % to)
		buf_addc(out, '\0');
}

static void put_text(struct buf *out, size_t begin, const char *s)
{
	pad(out, begin, 4);
	put_number(out, (uint32_t)strlen(s));
	buf_add(out, s, strlen(s) + 1);
}

static void put_field(struct buf *out, size_t begin, char code, char type, const char *s)
{
	const char head[4] = { code, 1, type, '\0' };

	pad(out, begin, 8);
	buf_add(out, head, sizeof(head));
	if (type == 'g') {
		buf_addc(out, (char)strlen(s));
		buf_add(out, s, strlen(s) + 1);
	} else {
		put_text(out, begin, s);
	}
}

static void put_number_at(struct buf *out, size_t at, size_t n)
{
	for (unsigned i = 0; i < 4 && !out->err; i++)
		out->p[at + i] = (char)(n >> 8 * i & 255);
}

void bus_call_begin(struct bus_call *c, struct buf *out, uint32_t serial,
		    const struct bus_method *m, const char *signature)
{
	const char head[4] = { 'l', BUS_CALL, 0, 1 };

	c->out = out;
	c->begin = out->len;
	buf_add(out, head, sizeof(head));
	/* Placeholder for the size of the body; bus_call_end() writes it. */
	put_number(out, 0);
	put_number(out, serial);
	put_number(out, 0); /* Placeholder for the size of the header fields; written below. */
	put_field(out, c->begin, F_PATH, 'o', m->path);
	put_field(out, c->begin, F_DESTINATION, 's', m->destination);
	put_field(out, c->begin, F_INTERFACE, 's', m->interface);
	put_field(out, c->begin, F_MEMBER, 's', m->member);
	if (*signature)
		put_field(out, c->begin, F_SIGNATURE, 'g', signature);
	put_number_at(out, c->begin + 12, out->len - c->begin - HEAD_SIZE);
	pad(out, c->begin, 8);
	c->body = out->len;
}

void bus_put_u32(struct bus_call *c, uint32_t n)
{
	pad(c->out, c->body, 4);
	put_number(c->out, n);
}

void bus_put_text(struct bus_call *c, const char *s)
{
	put_text(c->out, c->body, s);
}

void bus_put_texts(struct bus_call *c, const char *const *list)
{
	size_t at;

	bus_put_u32(c, 0); /* Placeholder for the size of the elements; written below. */
	at = c->out->len;
	for (; *list; list++)
		bus_put_text(c, *list);
	put_number_at(c->out, at - 4, c->out->len - at);
}

void bus_put_no_pairs(struct bus_call *c)
{
	bus_put_u32(c, 0);
	/* Elements of this array are aligned to 8 bytes. D-Bus requires the padding before the
	 * first element even if the array is empty. */
	pad(c->out, c->body, 8);
}

void bus_call_end(struct bus_call *c)
{
	put_number_at(c->out, c->begin + 4, c->out->len - c->body);
}

void bus_write_greeting(struct buf *out, bool unix_fds)
{
	char uid[16];

	buf_addc(out, '\0');
	buf_adds(out, "AUTH EXTERNAL ");
	snprintf(uid, sizeof(uid), "%u", (unsigned)geteuid());
	for (const char *p = uid; *p; p++)
		buf_addf(out, "%02x", (unsigned)(unsigned char)*p);
	buf_adds(out, unix_fds ? "\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n" : "\r\nBEGIN\r\n");
}

void bus_write(struct buf *out, uint32_t serial, const struct bus_method *m,
	       const char *const *arg)
{
	char signature[FIELDS + 1] = "";
	struct bus_call c;
	unsigned n = 0;

	while (n < FIELDS && arg[n])
		signature[n++] = 's';
	bus_call_begin(&c, out, serial, m, signature);
	for (unsigned i = 0; i < n; i++)
		bus_put_text(&c, arg[i]);
	bus_call_end(&c);
}
