/* Hides symbols, to simulate a driver that is older than its client: dlsym() must fail in every
 * client for the symbols that the driver lacks. The dynamic linker ignores a symbol with value
 * 0, so this file writes 0 into the library's own table of dynamic symbols. The pages of the
 * table are writable only during this write. */
#include "hide.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi.h"

#define HIDDEN_MAX (N_CALLS + 1)

struct hidden {
	ElfW(Sym) * symbol;
	ElfW(Addr) value;
};

static struct hidden hidden[HIDDEN_MAX];
static size_t n_hidden;

struct table {
	const void *inside; /* an address inside this library */
	ElfW(Sym) * symbols;
	const char *strings;
	size_t n;
};

/* Returns the number of dynamic symbols. The ELF file does not store this number; it follows
 * from the end of the last chain in the GNU hash table. */
static size_t count_symbols(const uint32_t *hash)
{
	uint32_t n_buckets = hash[0], first = hash[1], bloom = hash[2];
	const uint32_t *buckets = hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4);
	const uint32_t *chains = buckets + n_buckets;
	uint32_t last = 0;

	for (uint32_t i = 0; i < n_buckets; i++)
		if (buckets[i] > last)
			last = buckets[i];
	if (last < first)
		return first;
	while (!(chains[last - first] & 1))
		last++;
	return last + 1;
}

/* Returns the absolute form of an address from the dynamic section. glibc has already made
 * these addresses absolute; musl leaves them relative. */
static ElfW(Addr) absolute(ElfW(Addr) base, ElfW(Addr) value)
{
	return value < base ? base + value : value;
}

static int find_table(struct dl_phdr_info *info, size_t size, void *data)
{
	struct table *t = data;
	const ElfW(Dyn) *dynamic = NULL;
	bool ours = false;

	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		ElfW(Addr) at = info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_LOAD && (ElfW(Addr))t->inside - at < p->p_memsz)
			ours = true;
		if (p->p_type == PT_DYNAMIC)
			dynamic = (const ElfW(Dyn) *)at;
	}
	if (!ours || dynamic == NULL)
		return 0;
	for (; dynamic->d_tag != DT_NULL; dynamic++) {
		ElfW(Addr) at = absolute(info->dlpi_addr, dynamic->d_un.d_ptr);

		if (dynamic->d_tag == DT_SYMTAB)
			t->symbols = (ElfW(Sym) *)at;
		else if (dynamic->d_tag == DT_STRTAB)
			t->strings = (const char *)at;
		else if (dynamic->d_tag == DT_HASH)
			t->n = ((const uint32_t *)at)[1];
		else if (dynamic->d_tag == DT_GNU_HASH)
			t->n = count_symbols((const uint32_t *)at);
	}
	return 1;
}

static int table_protect(const struct table *t, int protection)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = (uintptr_t)t->symbols & ~(page - 1);
	uintptr_t end = (uintptr_t)(t->symbols + t->n);

	return mprotect((void *)first, end - first, protection);
}

static void hide_symbol(const struct table *t, const char *name)
{
	for (size_t i = 0; i < t->n && n_hidden < HIDDEN_MAX; i++) {
		ElfW(Sym) *s = &t->symbols[i];

		if (s->st_shndx == SHN_UNDEF || strcmp(t->strings + s->st_name, name) != 0)
			continue;
		if (s->st_value == 0)
			return;
		hidden[n_hidden++] = (struct hidden){ s, s->st_value };
		s->st_value = 0;
		return;
	}
}

void hide_symbols(char *const *names, size_t n)
{
	struct table t = { .inside = &n_hidden };

	if (n == 0 && n_hidden == 0)
		return;
	dl_iterate_phdr(find_table, &t);
	if (t.symbols == NULL || t.strings == NULL || t.n == 0 ||
	    table_protect(&t, PROT_READ | PROT_WRITE) != 0)
		return;
	while (n_hidden > 0) {
		n_hidden--;
		hidden[n_hidden].symbol->st_value = hidden[n_hidden].value;
	}
	for (size_t i = 0; i < n; i++)
		hide_symbol(&t, names[i]);
	table_protect(&t, PROT_READ);
}
