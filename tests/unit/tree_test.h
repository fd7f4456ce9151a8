/* tree_test: tests that each get a new tree t. */
#ifndef TREE_TEST_H
#define TREE_TEST_H

#include "tree.h"

#define TEST_SETUP    tree_setup
#define TEST_TEARDOWN tree_teardown
#include "test.h"

static struct tree t;

static int tree_setup(void **state)
{
	tree_init(&t);
	return 0;
}

static int tree_teardown(void **state)
{
	tree_done(&t);
	return 0;
}

#endif
