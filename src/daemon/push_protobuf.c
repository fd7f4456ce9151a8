#include "push_protobuf.h"

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
	buf_addc(out, 0); /* room for a length below 128, which most messages have */
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

/* ---- reading ---- */

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
