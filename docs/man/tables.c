/* Prints gpuward-quantities(7) from the tables in include/gpuward: what is measured, why a
 * figure can be missing, and what can be wrong. */
#include <stdio.h>

/* scdoc's own signs are taken literally. */
static void text(const char *s)
{
	for (; *s; s++) {
		if (*s == '_' || *s == '*' || *s == '\\' || *s == '#' || *s == '[')
			putchar('\\');
		putchar(*s);
	}
}

/* As the beginning of a sentence. */
static void sentence_of(const char *s)
{
	if (*s >= 'a' && *s <= 'z')
		putchar(*s++ - 'a' + 'A');
	text(s);
}

static void entry(const char *key, const char *kind, const char *when, const char *help)
{
	printf("*");
	text(key);
	printf("*");
	if (*kind)
		printf(" (%s%s%s)", kind, *when ? ", " : "", when);
	printf("\n\t");
	sentence_of(help);
	printf(".\n\n");
}

static void heading(const char *title, const char *intro)
{
	printf("# %s\n\n%s\n\n", title, intro);
}

#define GAUGE   "gauge"
#define COUNTER "counter"
#define FLAG    "flag"
#define ENUM    "word"
#define MASK    "words"

#define STATIC     "once"
#define FAST       "every time"
#define SLOW       "at most once a second"
#define ENERGY     "at most once a second, costly"
#define HEALTH     "at most every ten seconds"
#define LIMITS     "at most every ten seconds; at the edges of energy windows"
#define ON_REQUEST "only when asked"

#define OK    "ok"
#define NOTE  "note"
#define ERROR "problem"

static void quantities(void)
{
	heading("FIGURES OF A GPU",
		"The unit ends the name. Ratios are 0 to 1. A counter only grows while the "
		"driver "
		"stays loaded; a word is one of a set of names. What follows the kind is how "
		"often "
		"the figure is read from the driver; in between the last reading stands.");
#define Q(symbol, key, kind, tier, help) entry(key, kind, tier, help);
#include <gpuward/quantity.def>
#undef Q
}

static void machine(void)
{
	heading("FIGURES OF THE MACHINE", "Read at most once a second.");
#define H(symbol, key, kind, help) entry(key, kind, "", help);
#include <gpuward/host.def>
#undef H
}

static void words(void)
{
	heading("WORDS ABOUT A GPU", "Texts; null when the driver does not say.");
#define T(symbol, key) \
	printf("- ");  \
	text(key);     \
	putchar('\n');
#include <gpuward/text.def>
#undef T
	putchar('\n');
}

static void absences(void)
{
	heading("WHY A FIGURE IS MISSING",
		"The words of every *absent* object in JSON. *not_read* does not appear there: "
		"what nobody asked for is left out. The last two are said of *cuda_ordinal* "
		"alone, which is no figure; C has -1 and -2 for them.");
#define A(symbol, key, sentence) entry(key, "", "", sentence);
#include <gpuward/absence.def>
#undef A
	entry("not_visible", "cuda_ordinal", "",
	      "CUDA_VISIBLE_DEVICES hides it from CUDA programs, or it is not NVIDIA's");
	entry("order_unknown", "cuda_ordinal", "",
	      "CUDA numbers these GPUs by speed, which cannot be told from outside");
}

static void cause(const char *key, const char *severity, const char *sentence,
		  const char *remedy)
{
	printf("*");
	text(key);
	printf("* (%s)\n\t", severity);
	sentence_of(sentence);
	printf(".");
	if (*remedy) {
		printf(" ");
		text(remedy);
	}
	printf("\n\n");
}

static void causes(void)
{
	heading("WHAT CAN BE WRONG",
		"The words of *cause* in JSON and the findings of *gpuward-doctor*(1).");
#define C(symbol, key, severity, sentence, remedy) cause(key, severity, sentence, remedy);
#include <gpuward/cause.def>
#undef C
}

int main(void)
{
	printf("gpuward-quantities(7)\n\n# NAME\n\n"
	       "gpuward-quantities - what gpuward measures, and the words it uses\n\n"
	       "# DESCRIPTION\n\n"
	       "These names are the same in JSON, on the terminal and in the C library. In C a "
	       "figure is GW_Q_ and its symbol, a reason GW_ABSENT_, a cause GW_CAUSE_: see "
	       "the "
	       "files below _/usr/include/gpuward_ (or _/usr/local/include/gpuward_).\n\n");
	quantities();
	machine();
	words();
	absences();
	causes();
	printf("# SEE ALSO\n\n*gpuward*(1), *gpuward-snapshot*(1), *gpuward-doctor*(1), "
	       "*gpuward*(3)\n");
	return 0;
}
