/* sha256: SHA-256 as in FIPS 180-4, so that `sha256sum -c` can check the files that we
 * wrote. */
#ifndef GW_BASE_SHA256_H
#define GW_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
	uint32_t h[8];
	uint64_t length;
	unsigned char block[64];
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);

/* Writes 64 hexadecimal digits and a NUL. */
void sha256_end(struct sha256 *s, char out[static 65]);

/* Writes the digits of one buffer. */
void sha256_hex(const void *p, size_t n, char out[static 65]);

#endif
