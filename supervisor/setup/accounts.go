package setup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"saltern/command"
	"saltern/supervisor/layout"
)

// AdminAccount is the account that an appliance's administrator logs in as.
const AdminAccount = "admin"

// Accounts gives the administrator's account its keys and password. A machine
// without that account is not an appliance's: its administrator is there
// already.
func Accounts(ctx context.Context, a Admin) error {
	u, err := user.Lookup(AdminAccount)
	var unknown user.UnknownUserError
	if errors.As(err, &unknown) {
		return hint(fmt.Errorf("this machine has no account %s", AdminAccount), "leave the administrator's key and password out: this machine has its own accounts")
	}
	if err != nil {
		return err
	}
	if len(a.SSHKeys) > 0 {
		if err := authorize(u, a.SSHKeys); err != nil {
			return err
		}
	}
	if a.Password == "" {
		return nil
	}
	// The password goes through a pipe, never on a command line.
	set := command.Exec{Limit: time.Minute, Stdin: AdminAccount + ":" + a.Password + "\n"}
	if _, err := command.Do(ctx, set, "chpasswd"); err != nil {
		return fmt.Errorf("set the password: %w", err)
	}
	return nil
}

// authorize adds keys to those that may log in.
func authorize(u *user.User, keys []string) error {
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	dir := filepath.Join(u.HomeDir, ".ssh")
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	path := filepath.Join(dir, "authorized_keys")
	old, err := readBounded(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(old)), "\n")
	for _, k := range keys {
		lines = merge(lines, []string{strings.TrimSpace(k)})
	}
	text := strings.TrimSpace(strings.Join(lines, "\n")) + "\n"
	if _, err := layout.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return errors.Join(os.Lchown(dir, uid, gid), os.Lchown(path, uid, gid))
}
