/* Replaces guard_service_log(): the struct `seen` gets the last line and counts the lines. */
#ifndef GUARD_LOG_H
#define GUARD_LOG_H

#include <stdarg.h>
#include <stdio.h>

uint64_t guard_service_log(struct guard_service *x, const char *severity, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(seen.text, sizeof(seen.text), fmt, ap);
	va_end(ap);
	return ++seen.logged;
}

#endif
