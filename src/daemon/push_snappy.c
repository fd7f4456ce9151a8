#include "push_snappy.h"

#include <stdint.h>
#include <string.h>

/* A position in a fragment fits in 16 bits, and so does the distance of a copy. */
#define FRAGMENT  65536u
#define HASH_BITS 12
/* shortest match: a copy takes up to 3 bytes, so a shorter match saves nothing */
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
		/* leaves at least 4 bytes for the next copy: the two-byte form needs 4 */
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
	uint16_t table
		[1 << HASH_BITS]; /* last position with each hash; 0: none, or the first byte */
	size_t at = 1, begin = 0, skip = 32;

	memset(table, 0, sizeof(table));
	while (at + MATCH_MIN <= n) {
		uint16_t *slot = &table[snappy_hash(snappy_load(p + at))];
		size_t from = *slot, len = MATCH_MIN;

		*slot = (uint16_t)at;
		if (from >= at || snappy_load(p + from) != snappy_load(p + at)) {
			at += skip++ >>
			      5; /* the step grows by one after 32 tries without a match */
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
