/* Any document of the store: an accepted record is written and reads back the same. */
#include "text.h"

#include "base/buf.h"
#include "daemon/journal_record.h"
#include "serve/manage_doc.h"

static void same(const char *once, const char *twice)
{
	if (strcmp(once, twice) != 0)
		abort();
}

static void check_record(const char *text)
{
	static struct guard_record_more more;
	static char once[64 << 10], twice[64 << 10];
	static struct guard_record r;
	struct buf b;

	if (guard_record_read(text, &r, &more) != 0)
		return;
	buf_init_fixed(&b, once, sizeof(once));
	guard_record_write(&b, &r, &more);
	if (b.err || guard_record_read(once, &r, &more) != 0)
		abort();
	buf_init_fixed(&b, twice, sizeof(twice));
	guard_record_write(&b, &r, &more);
	same(once, twice);
}

static void check_room(const char *text)
{
	struct guard_room_record r;
	char once[2000], twice[2000];
	struct buf b;

	if (guard_room_read(text, &r) != 0)
		return;
	buf_init_fixed(&b, once, sizeof(once));
	guard_room_write(&b, &r);
	if (b.err || guard_room_read(once, &r) != 0)
		abort();
	buf_init_fixed(&b, twice, sizeof(twice));
	guard_room_write(&b, &r);
	same(once, twice);
}

static void check_game(const char *text)
{
	struct guard_game_record r;
	char once[4000];
	struct buf b;

	if (guard_game_read(text, &r) != 0)
		return;
	buf_init_fixed(&b, once, sizeof(once));
	guard_game_write(&b, &r);
	if (b.err)
		abort();
}

/* The first line is the id of a stored setting. */
static void check_setting(char *text)
{
	struct manage_change o = { .what = MANAGE_POWER_LIMIT };
	char message[300] = "", *rest = text + strcspn(text, "\n"), id[MANAGE_DOC_ID_SIZE];
	struct manage_entry e;

	if (manage_body_read(text, strlen(text), &o, message, sizeof(message)) != 0 &&
	    !*message)
		abort();
	if (*rest)
		*rest++ = '\0';
	if (manage_entry_read(text, rest, &e) != 0)
		return;
	manage_entry_id(&e, id);
	same(id, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);

	check_record(text);
	check_room(text);
	check_game(text);
	check_setting(text);
	free(text);
	return 0;
}
