/* The program defines malloc() and similar functions, which replace those of libc in the whole
 * process. The return address shows which library made the call. */
#include "count.h"

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

unsigned long count_ours, count_others;

static struct range {
	uintptr_t from, to;
} text[8];
static unsigned ranges;

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);

static int note_object(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)size;
	(void)data;
	if (info->dlpi_name[0] && !strstr(info->dlpi_name, "/libc.so"))
		return 0;
	for (unsigned i = 0; i < info->dlpi_phnum && ranges < 8; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		text[ranges].from = info->dlpi_addr + p->p_vaddr;
		text[ranges].to = text[ranges].from + p->p_memsz;
		ranges++;
	}
	return 0;
}

void count_start(void)
{
	ranges = 0;
	dl_iterate_phdr(note_object, NULL);
	count_ours = count_others = 0;
}

static void count_call(const void *caller)
{
	uintptr_t at = (uintptr_t)caller;
	bool ours = false;

	if (ranges == 0)
		return;
	for (unsigned i = 0; i < ranges; i++)
		ours |= at >= text[i].from && at < text[i].to;
	if (ours)
		count_ours++;
	else
		count_others++;
}

/* The project hides its symbols. These functions must be visible to libc, because calls by
 * libc are counted, too. */
#pragma GCC visibility push(default)

void *malloc(size_t n)
{
	count_call(__builtin_return_address(0));
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	count_call(__builtin_return_address(0));
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	count_call(__builtin_return_address(0));
	return __libc_realloc(p, n);
}

#pragma GCC visibility pop
