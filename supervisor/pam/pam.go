// Package pam checks passwords of this machine's own accounts as root, on behalf of a master that
// is not root. It does what PAM's module pam_unix does, with the same program, unix_chkpwd: it
// checks the password and whether the password or the account has expired. It does not ask other
// modules of a PAM stack.
package pam

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/user"
	"regexp"
	"strconv"
	"strings"
	"time"

	"saltern/internal/command"
	"saltern/internal/control/pam"
	"saltern/internal/localsock"
	"saltern/internal/pause"
)

// chkpwd is the program of Linux-PAM that checks a password against /etc/shadow.
const chkpwd = "unix_chkpwd"

// maxPassword is how many bytes of a password unix_chkpwd reads.
const maxPassword = 511

// maxGroups is the largest number of groups returned for an account.
const maxGroups = 1024

// names matches names of accounts. A matching name is one argument of a command, and not an option.
var names = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)

// Serve answers the one request of a connection, if the peer's process runs under account.
func Serve(ctx context.Context, c net.Conn, account string) error {
	ctx, cancel := context.WithTimeout(ctx, pam.Time)
	defer cancel()
	if err := c.SetDeadline(time.Now().Add(pam.Time)); err != nil {
		return fmt.Errorf("bound the time of a request: %w", err)
	}

	peer, err := localsock.Peer(c)
	if err != nil {
		return err
	}

	owner, err := user.Lookup(account)
	if err != nil {
		return fmt.Errorf("look for the account of the master: %w", err)
	}

	if uid := strconv.FormatUint(uint64(peer.Uid), 10); uid != owner.Uid && uid != "0" {
		return fmt.Errorf("the user %s asks, and only %s may", uid, account)
	}

	name, password, err := pam.Receive(c)
	if err != nil {
		return err
	}

	a := Check(ctx, name, password)
	if !a.OK {
		// The delay limits how fast the master's account can guess.
		if err := pause.For(ctx, 2*time.Second); err != nil {
			return err
		}
	}

	return pam.Reply(c, a)
}

// Check checks whether an account may log in with this password.
func Check(ctx context.Context, name, password string) pam.Answer {
	refused := func(why string) pam.Answer { return pam.Answer{Why: why} }
	fault := func(err error) pam.Answer { return pam.Answer{Why: err.Error(), Fault: true} }
	switch {
	case password == "" || len(password) > maxPassword || strings.Contains(password, "\x00"):
		return refused("no password, or one that no account can have")
	case !names.MatchString(name):
		return refused("no name of an account")
	}

	u, err := user.Lookup(name)
	if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
		return refused("no such account")
	}
	if err != nil {
		return fault(fmt.Errorf("look for the account: %w", err))
	}
	if u.Uid == "0" {
		return refused("root does not log in here")
	}

	runner := command.Exec{Limit: 5 * time.Second, MaxOutput: 4096, Stdin: password + "\x00"}
	out, err := runner.Run(ctx, []string{chkpwd, name, "nonull"})
	if err != nil {
		return fault(err)
	}
	if out.Exit != 0 {
		return refused("the password is wrong, or the account is locked")
	}

	if out, err = runner.Run(ctx, []string{chkpwd, name, "chkexpiry"}); err != nil {
		return fault(err)
	}
	if out.Exit != 0 {
		return refused("the account or its password has expired")
	}

	groups, err := groupsOf(u)
	if err != nil {
		return fault(err)
	}

	return pam.Answer{OK: true, Groups: groups}
}

// groupsOf returns the names of the groups of an account.
func groupsOf(u *user.User) ([]string, error) {
	ids, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("look for the groups of the account: %w", err)
	}
	var out []string
	for _, id := range ids[:min(len(ids), maxGroups)] {
		if g, err := user.LookupGroupId(id); err == nil { // a group without a name is left out
			out = append(out, g.Name)
		}
	}
	return out, nil
}
