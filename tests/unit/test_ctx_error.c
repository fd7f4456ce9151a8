/* Tests the sentence about the last failure on a context. */
#include "test.h"

#include <gpuward.h>

#include <pthread.h>
#include <string.h>

static struct gw_ctx *open_none(void)
{
	struct gw_options o = { .size = sizeof(o), .backend = "none" };
	struct gw_ctx *ctx = NULL;

	assert_int_equal(gw_open(&o, &ctx), 0);
	return ctx;
}

static void *take_unknown_tiers(void *ctx)
{
	struct gw_snapshot *snap;

	assert_int_equal(gw_snapshot_new(ctx, &snap), 0);
	assert_int_equal(gw_snapshot_take(snap, 1u << 30), -GW_E_ARG);
	gw_snapshot_free(snap);
	return NULL;
}

static void *error_of_no_context(void *arg)
{
	strncpy(arg, gw_ctx_error(NULL), 99);
	return NULL;
}

TEST(the_error_of_a_failed_open_is_visible_only_on_its_thread)
{
	struct gw_options o = { .size = sizeof(o), .backend = "cuda" };
	struct gw_ctx *ctx = NULL;
	char other[100] = "?";
	pthread_t thread;

	assert_int_equal(gw_open(&o, &ctx), -GW_E_ARG);
	assert_null(ctx);
	assert_string_equal(gw_ctx_error(NULL),
			    "unknown backend \"cuda\"; use nvml, nvidia-smi, amdgpu, intel, "
			    "auto, all or none");
	assert_int_equal(pthread_create(&thread, NULL, error_of_no_context, other), 0);
	pthread_join(thread, NULL);
	assert_string_equal(other, "");
	o = (struct gw_options){ .size = sizeof(o), .root = "/nowhere" };
	assert_int_equal(gw_open(&o, &ctx), -GW_E_NOENT);
	assert_in(gw_ctx_error(NULL), "/nowhere");
	o = (struct gw_options){ .size = sizeof(o), .flags = 1u << 20 };
	assert_int_equal(gw_open(&o, &ctx), -GW_E_ARG);
	assert_in(gw_ctx_error(NULL), "0x100000");
}

TEST(options_with_a_wrong_size_are_refused)
{
	struct {
		struct gw_options o;
		uint64_t unknown[2];
	} newer = { .o = { .size = sizeof(newer), .backend = "none" } };
	struct gw_ctx *ctx = NULL;

	assert_int_equal(gw_open(&newer.o, &ctx), 0);
	gw_close(ctx);
	ctx = NULL;
	newer.unknown[1] = 1;
	assert_int_equal(gw_open(&newer.o, &ctx), -GW_E_ARG);
	assert_in(gw_ctx_error(NULL),
		  "members that this library (" GW_VERSION ") does not know");
	newer.o.size = 1000000;
	assert_int_equal(gw_open(&newer.o, &ctx), -GW_E_ARG);
	assert_in(gw_ctx_error(NULL), "the size of struct gw_options is 1000000; set it to ");
	newer.o.size = sizeof(newer.o) - 8;
	assert_int_equal(gw_open(&newer.o, &ctx), -GW_E_ARG);
	assert_null(ctx);
}

TEST(a_context_keeps_the_last_failure_of_any_thread)
{
	struct gw_ctx *ctx = open_none(), *second = open_none();
	struct gw_snapshot *snap;
	pthread_t thread;

	assert_string_equal(gw_ctx_error(ctx), "");
	assert_int_equal(pthread_create(&thread, NULL, take_unknown_tiers, ctx), 0);
	pthread_join(thread, NULL);
	assert_string_equal(gw_ctx_error(ctx),
			    "unknown tiers 0x40000000; use values of enum gw_tier");
	/* a success does not clear the error */
	assert_int_equal(gw_snapshot_new(ctx, &snap), 0);
	assert_int_equal(gw_snapshot_take(snap, GW_TIERS_COMMON), 0);
	assert_string_equal(gw_ctx_error(ctx),
			    "unknown tiers 0x40000000; use values of enum gw_tier");
	assert_string_equal(gw_ctx_error(second), "");
	gw_snapshot_free(snap);
	gw_close(ctx);
	gw_close(second);
}

TEST_MAIN(NULL, NULL)
