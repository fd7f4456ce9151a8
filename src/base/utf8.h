/* utf8: checks UTF-8 text and computes its width on a terminal. */
#ifndef GW_BASE_UTF8_H
#define GW_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the number of bytes of the valid UTF-8 sequence at s (1 to 4). Returns 0 if the
 * sequence is invalid; overlong forms, surrogates and values above U+10FFFF are invalid. Reads
 * no further than a NUL. */
size_t utf8_length(const char *s);

/* Returns the code point of a sequence of n bytes that utf8_length() accepted. */
uint32_t utf8_decode(const char *s, size_t n);

/* Writes code as UTF-8. Returns the number of bytes (1 to 4), 0 for an invalid code point. */
size_t utf8_encode(uint32_t code, char out[static 4]);

/* Returns the number of columns that s takes on a terminal: none for combining marks, two for
 * wide East Asian characters, one for each other code point and for each invalid byte. */
size_t utf8_columns(const char *s);

/* Returns the longest suffix of s that has at most this number of columns. */
const char *utf8_tail(const char *s, size_t columns);

/* True for a character that could control a terminal or reorder its text: the control
 * characters C0, DEL and C1, and those that change the text direction. */
bool utf8_is_control(uint32_t code);

/* True if every byte of s belongs to a valid sequence. */
bool utf8_is_valid(const char *s);

/* Copies src to dst (size > 0, NUL-terminated), replaces control characters and invalid bytes
 * by '?', and cuts only between code points. Use it for names that other programs chose. */
void utf8_clean(char *dst, size_t size, const char *src);

#endif
