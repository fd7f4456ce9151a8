#include "mem_trim.h"

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES_AT_ONCE 512

struct search {
	uintptr_t inside;
	size_t page, returned;
};

/* Not instrumented, because it also reads the areas that sanitizers keep between a library's
 * variables. */
__attribute__((no_sanitize("address", "thread"))) static bool all_zero(uintptr_t page,
								       size_t size)
{
	const uint64_t *word = (const uint64_t *)page;
	uint64_t any = 0;

	for (size_t i = 0; i < size / sizeof(*word) && !any; i += 8)
		any = word[i] | word[i + 1] | word[i + 2] | word[i + 3] | word[i + 4] |
		      word[i + 5] | word[i + 6] | word[i + 7];
	return !any;
}

static void return_pages(struct search *s, uintptr_t from, uintptr_t to)
{
	if (to > from && madvise((void *)from, to - from, MADV_DONTNEED) == 0)
		s->returned += to - from;
}

/* Returns resident zero pages to the kernel, with one call per run of pages. */
static void trim_pages(struct search *s, uintptr_t from, size_t pages)
{
	unsigned char resident[PAGES_AT_ONCE];
	uintptr_t run = from, at = from;

	if (mincore((void *)from, pages * s->page, resident) != 0)
		return;
	for (size_t i = 0; i < pages; i++, at += s->page)
		if (!(resident[i] & 1) || !all_zero(at, s->page)) {
			return_pages(s, run, at);
			run = at + s->page;
		}
	return_pages(s, run, at);
}

static bool mem_trim_contains(const struct dl_phdr_info *o, uintptr_t address)
{
	for (unsigned i = 0; i < o->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &o->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && address - (o->dlpi_addr + p->p_vaddr) < p->p_memsz)
			return true;
	}
	return false;
}

static int trim_library(struct dl_phdr_info *o, size_t size, void *arg)
{
	struct search *s = arg;

	(void)size;
	if (!mem_trim_contains(o, s->inside))
		return 0;
	for (unsigned i = 0; i < o->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &o->dlpi_phdr[i];
		uintptr_t begin = o->dlpi_addr + p->p_vaddr;
		/* The part of a segment that is not in the file is zeroed by the kernel (.bss).
		 * Use only the whole pages of this part. */
		uintptr_t at = (begin + p->p_filesz + s->page - 1) / s->page * s->page;
		uintptr_t end = (begin + p->p_memsz) / s->page * s->page;

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_W))
			continue;
		for (; at < end; at += PAGES_AT_ONCE * s->page) {
			size_t left = (end - at) / s->page;

			trim_pages(s, at, left < PAGES_AT_ONCE ? left : PAGES_AT_ONCE);
		}
	}
	return 1;
}

size_t mem_trim_unused(const void *inside)
{
	struct search s = { (uintptr_t)inside, (size_t)sysconf(_SC_PAGESIZE), 0 };

	dl_iterate_phdr(trim_library, &s);
	return s.returned;
}
