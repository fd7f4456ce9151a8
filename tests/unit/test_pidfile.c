/* Tests which pidfiles the guard trusts, in a small /proc. */
#include "tree.h"

#include "guard/pid_lookup.h"

#include <gpuward.h>

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#define TEST_SETUP    begin
#define TEST_TEARDOWN end
#include "test.h"

#define OTHER  4242
#define WORKER 4343

static struct tree tree;

static int begin(void **state)
{
	tree_init(&tree);
	tree_put(&tree, "proc/500/stat",
		 "500 (w) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 50 1 2\n");
	tree_put(&tree, "proc/500/status", "Tgid:\t500\nUid:\t4343\t4343\t4343\t4343\n");
	tree_put(&tree, "run/w/pid", "500\n");
	return 0;
}

static int end(void **state)
{
	tree_done(&tree);
	return 0;
}

static void set_mode(const char *path, mode_t mode)
{
	assert_int_equal(fchmodat(tree.root.fd, path, mode, 0), 0);
}

static void set_owner(const char *path, uid_t uid, gid_t gid)
{
	assert_int_equal(fchownat(tree.root.fd, path, uid, gid, AT_SYMLINK_NOFOLLOW), 0);
}

static void assert_trusted(void)
{
	struct pidfile file;

	assert_int_equal(pidfile_read(&tree.root, "/run/w/pid", &file), 0);
	assert_int_equal(file.pid, 500);
	assert_null(file.fault);
}

static void assert_refused(const char *path, const char *why)
{
	struct pidfile file;

	assert_int_equal(pidfile_read(&tree.root, path, &file), -GW_E_STATE);
	assert_in(file.fault, why);
}

TEST(a_pidfile_that_only_its_owner_can_write_is_trusted)
{
	struct pidfile file;

	assert_trusted();
	assert_int_equal(pidfile_read(&tree.root, "/var/run/w/pid", &file), 0);
	assert_int_equal(pidfile_read(&tree.root, "/run//w/none", &file), -GW_E_NOENT);
	assert_null(file.fault);
	tree_put(&tree, "run/w/pid", "");
	assert_int_equal(pidfile_read(&tree.root, "/run/w/pid", &file), -GW_E_PARSE);
	tree_put(&tree, "run/w/pid", "-1\n");
	assert_int_equal(pidfile_read(&tree.root, "/run/w/pid", &file), -GW_E_PARSE);
	tree_put(&tree, "run/w/pid", " 500 \n");
	assert_trusted();
}

TEST(a_pidfile_in_a_folder_that_others_can_write_is_refused)
{
	set_mode("run/w", 0777);
	assert_refused("/run/w/pid", "other users can write its folder");
	set_mode("run/w", 01777);
	assert_refused("/run/w/pid", "other users can write its folder");
	set_mode("run/w", 0755);
	set_mode("run", 0777);
	assert_refused("/run/w/pid", "other users can write its folder");
	set_mode("run", 01777); /* like /tmp: others cannot replace run/w */
	assert_trusted();
	set_mode("run/w/pid", 0666);
	assert_refused("/run/w/pid", "other users can write it");
}

TEST(a_link_is_not_followed)
{
	tree_put(&tree, "run/w/link", "-> pid");
	assert_refused("/run/w/link", "link");
	tree_put(&tree, "run/folder", "-> w");
	assert_refused("/run/folder/pid", "link");
	assert_refused("/run/w", "regular file");
}

TEST(a_group_may_write_only_if_it_is_that_of_root_or_ours)
{
	if (geteuid() != 0)
		skip();
	set_mode("run/w", 0775);
	assert_trusted();
	set_owner("run/w", 0, OTHER);
	assert_refused("/run/w/pid", "other users can write its folder");
}

TEST(a_pidfile_that_an_access_control_list_opens_to_others_is_refused)
{
	/* rw for its owner and for OTHER (4242), r for its group and all other users */
	static const unsigned char acl[] = {
		2,    0,    0,    0, /* version */
		1,    0,    6,    0, 0xff, 0xff, 0xff, 0xff, 2,    0,    6, 0, 0x92, 0x10, 0,
		0,    4,    0,    4, 0,    0xff, 0xff, 0xff, 0xff, 0x10, 0, 6, 0,    0xff, 0xff,
		0xff, 0xff, 0x20, 0, 4,    0,    0xff, 0xff, 0xff, 0xff,
	};
	char path[64];
	int fd = openat(tree.root.fd, "run/w/pid", O_RDONLY);

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (setxattr(path, "system.posix_acl_access", acl, sizeof(acl), 0) != 0) {
		close(fd);
		skip(); /* the file system has no access control lists */
	}
	close(fd);
	assert_refused("/run/w/pid", "other users can write it");
}

TEST(a_pidfile_of_another_user_names_only_processes_of_that_user)
{
	if (geteuid() != 0)
		skip();
	set_owner("run/w/pid", WORKER, WORKER);
	assert_trusted();
	set_owner("run/w", WORKER, WORKER);
	assert_trusted();
	set_owner("run/w/pid", OTHER, OTHER);
	assert_refused("/run/w/pid", "several users");
	set_owner("run/w", OTHER, OTHER);
	assert_refused("/run/w/pid", "nor to the owner of the process");
	set_owner("run/w/pid", 0, 0); /* the owner of the folder can put a file of root there */
	assert_refused("/run/w/pid", "nor to the owner of the process");
}

TEST_MAIN(NULL, NULL)
