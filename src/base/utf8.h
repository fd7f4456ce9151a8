/* utf8: is this text what it says it is, and how wide does it print. */
#ifndef GW_BASE_UTF8_H
#define GW_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the valid UTF-8 sequence at s (1 to 4), 0 where there is none (overlong forms,
 * surrogates and values past U+10FFFF are none).  Reads no further than a NUL. */
size_t utf8_length(const char *s);

/* The code point of a sequence of n bytes that utf8_length() has accepted. */
uint32_t utf8_decode(const char *s, size_t n);

/* Writes code as UTF-8; returns its bytes (1 to 4), 0 for what is no code point. */
size_t utf8_encode(uint32_t code, char out[static 4]);

/* Columns that s takes on a terminal: one for each code point, none for combining marks,
 * two for East Asian wide ranges, one for each invalid byte. */
size_t utf8_columns(const char *s);

/* Copies src into dst (size > 0, NUL-terminated), with control characters and invalid bytes
 * replaced by '?', cut between code points.  For names that come from outside. */
void utf8_clean(char *dst, size_t size, const char *src);

#endif
