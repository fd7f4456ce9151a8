#include "push_wire.h"

#include <stdint.h>
#include <string.h>

enum protobuf_wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_LENGTH = 2, WIRE_32 = 5 };

unsigned protobuf_varint(uint64_t v, char out[static PROTOBUF_VARINT_MAX])
{
	unsigned n = 0;

	for (; v >= 128; v >>= 7)
		out[n++] = (char)(v | 128);
	out[n++] = (char)v;
	return n;
}

static void protobuf_add_varint(struct buf *out, uint64_t v)
{
	char text[PROTOBUF_VARINT_MAX];

	buf_add(out, text, protobuf_varint(v, text));
}

static void protobuf_tag(struct buf *out, unsigned field, enum protobuf_wire wire)
{
	protobuf_add_varint(out, (uint64_t)field << 3 | wire);
}

void protobuf_uint(struct buf *out, unsigned field, uint64_t v)
{
	protobuf_tag(out, field, WIRE_VARINT);
	protobuf_add_varint(out, v);
}

void protobuf_fixed64(struct buf *out, unsigned field, uint64_t v)
{
	char text[8];

	protobuf_tag(out, field, WIRE_64);
	for (unsigned i = 0; i < 8; i++)
		text[i] = (char)(v >> 8 * i);
	buf_add(out, text, sizeof(text));
}

void protobuf_double(struct buf *out, unsigned field, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	protobuf_fixed64(out, field, bits);
}

void protobuf_string(struct buf *out, unsigned field, const char *s)
{
	size_t n = strlen(s);

	protobuf_tag(out, field, WIRE_LENGTH);
	protobuf_add_varint(out, n);
	buf_add(out, s, n);
}

size_t protobuf_open(struct buf *out, unsigned field)
{
	protobuf_tag(out, field, WIRE_LENGTH);
	buf_addc(out, 0); /* Space for a length below 128, which most messages have. */
	return out->len;
}

void protobuf_close(struct buf *out, size_t place)
{
	static const char zeros[PROTOBUF_VARINT_MAX];
	char text[PROTOBUF_VARINT_MAX];
	size_t length = out->len - place;
	unsigned n = protobuf_varint(length, text);

	if (out->err)
		return;
	if (n > 1) {
		buf_add(out, zeros, n - 1);
		if (out->err)
			return;
		memmove(out->p + place + n - 1, out->p + place, length);
	}
	memcpy(out->p + place - 1, text, n);
}

static bool protobuf_read_varint(const char **p, const char *end, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 64 && *p < end; shift += 7) {
		unsigned char c = (unsigned char)*(*p)++;

		v |= (uint64_t)(c & 127) << shift;
		if (c < 128) {
			*ret = v;
			return true;
		}
	}
	return false;
}

bool protobuf_next(const char **p, const char *end, struct protobuf_field *ret)
{
	uint64_t tag, n;

	*ret = (struct protobuf_field){ 0 };
	if (!protobuf_read_varint(p, end, &tag) || tag >> 3 == 0 || tag >> 3 > 536870911)
		return false;
	ret->number = (unsigned)(tag >> 3);
	switch (tag & 7) {
	case WIRE_VARINT: return protobuf_read_varint(p, end, &ret->v);
	case WIRE_64: n = 8; break;
	case WIRE_32: n = 4; break;
	case WIRE_LENGTH:
		if (!protobuf_read_varint(p, end, &n))
			return false;
		break;
	default: return false;
	}
	if (n > (uint64_t)(end - *p))
		return false;
	if ((tag & 7) == WIRE_LENGTH) {
		ret->p = *p;
		ret->n = (size_t)n;
	}
	*p += n;
	return true;
}

/* A position in a fragment fits in 16 bits, and so does the distance of a copy. */
#define FRAGMENT  65536u
#define HASH_BITS 12
/* Shortest match. A copy takes up to 3 bytes, so a shorter match saves nothing. */
#define MATCH_MIN 4u
#define COPY_MAX  64u

static uint32_t snappy_load(const char *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static unsigned snappy_hash(uint32_t v)
{
	return (v * UINT32_C(0x1e35a7bd)) >> (32 - HASH_BITS);
}

static void snappy_literal(struct buf *out, const char *p, size_t n)
{
	char head[3];
	size_t m = n - 1;

	if (n == 0)
		return;
	if (m < 60) {
		head[0] = (char)(m << 2);
		buf_add(out, head, 1);
	} else if (m < 256) {
		head[0] = (char)(60 << 2);
		head[1] = (char)m;
		buf_add(out, head, 2);
	} else {
		head[0] = (char)(61 << 2);
		head[1] = (char)(m & 255);
		head[2] = (char)(m >> 8);
		buf_add(out, head, 3);
	}
	buf_add(out, p, n);
}

/* Writes a copy of n bytes, 4 or more, from `distance` bytes back. */
static void snappy_copy(struct buf *out, size_t distance, size_t n)
{
	while (n > 0) {
		/* Leave at least 4 bytes for the next copy, because the short form of a copy
		 * needs 4. */
		size_t part = n <= COPY_MAX              ? n
			      : n < COPY_MAX + MATCH_MIN ? COPY_MAX - 4
							 : COPY_MAX;
		char c[3];

		if (part >= 4 && part <= 11 && distance < 2048) {
			c[0] = (char)(1 | (part - 4) << 2 | distance >> 8 << 5);
			c[1] = (char)(distance & 255);
			buf_add(out, c, 2);
		} else {
			c[0] = (char)(2 | (part - 1) << 2);
			c[1] = (char)(distance & 255);
			c[2] = (char)(distance >> 8);
			buf_add(out, c, 3);
		}
		n -= part;
	}
}

static void snappy_fragment(struct buf *out, const char *p, size_t n)
{
	/* For each hash, the last position with this hash. 0 if there is no such position, or
	 * if it is the first byte. */
	uint16_t table[1 << HASH_BITS];
	size_t at = 1, begin = 0, skip = 32;

	memset(table, 0, sizeof(table));
	while (at + MATCH_MIN <= n) {
		uint16_t *slot = &table[snappy_hash(snappy_load(p + at))];
		size_t from = *slot, len = MATCH_MIN;

		*slot = (uint16_t)at;
		if (from >= at || snappy_load(p + from) != snappy_load(p + at)) {
			/* The step grows by one after 32 tries without a match. */
			at += skip++ >> 5;
			continue;
		}
		while (at + len < n && p[from + len] == p[at + len])
			len++;
		snappy_literal(out, p + begin, at - begin);
		snappy_copy(out, at - from, len);
		at += len;
		begin = at;
		skip = 32;
	}
	snappy_literal(out, p + begin, n - begin);
}

void push_snappy_add(struct buf *out, const char *p, size_t n)
{
	while (n > 0) {
		size_t part = n < FRAGMENT ? n : FRAGMENT;

		snappy_fragment(out, p, part);
		p += part;
		n -= part;
	}
}
