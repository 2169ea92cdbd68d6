package main

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"saltern/master/client"
)

// becomeUser switches this process to the account name, or to the configured account if name is
// empty. So new files have the right owner (salt/utils/verify.py check_user).
func (t *tool) becomeUser(name string) error {
	name = cmp.Or(name, t.cfg.User)
	if name == "" || name == client.EffectiveUser() {
		return nil
	}

	uid, gid, ok := userIDs(name)
	if !ok {
		fmt.Fprintf(t.stderr, "%s: error: user %q does not exist\n", t.optionParser.Prog, name)
		return exit(67)
	}
	if os.Geteuid() != 0 {
		t.log.Error(fmt.Sprintf("Salt configured to run as user %q but unable to switch.", name))
		return exit(exitGeneric)
	}

	groups := []int{gid}
	if u, err := user.Lookup(name); err == nil {
		if ids, err := u.GroupIds(); err == nil {
			groups = groups[:0]
			for _, id := range ids {
				if n, err := strconv.Atoi(id); err == nil {
					groups = append(groups, n)
				}
			}
		}
	}

	if err := syscall.Setgroups(groups); err != nil {
		return fmt.Errorf("become user %s: %w", name, err)
	}

	if err := syscall.Setgid(gid); err != nil {
		return fmt.Errorf("become user %s: %w", name, err)
	}

	if err := syscall.Setuid(uid); err != nil {
		return fmt.Errorf("become user %s: %w", name, err)
	}

	return nil
}

func userIDs(name string) (uid, gid int, ok bool) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, false
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	return uid, gid, err1 == nil && err2 == nil
}
