package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"saltern/internal/command"
	"saltern/supervisor/layout"
)

// AdminAccount is the account that an appliance's administrator logs in as.
const AdminAccount = "admin"

// Accounts sets the keys and the password of the administrator's account. It does nothing on a
// machine without [AdminAccount]: such a machine is an ordinary host, whose administrator can log
// in already.
func Accounts(ctx context.Context, a Admin) error {
	u, err := user.Lookup(AdminAccount)
	if _, ok := errors.AsType[user.UnknownUserError](err); ok {
		return withHint(fmt.Errorf("this machine has no account %s", AdminAccount),
			"leave the administrator's key and password out: this machine has its own accounts")
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

	// The password goes to chpasswd through a pipe, never on a command line.
	set := command.Exec{Limit: time.Minute, Stdin: AdminAccount + ":" + a.Password + "\n"}
	if _, err := command.Do(ctx, set, "chpasswd"); err != nil {
		return fmt.Errorf("set the password: %w", err)
	}

	return nil
}

// PasswordFault returns why a password is not acceptable for the administrator, or "".
func PasswordFault(password string) string {
	if len(password) < 8 || len(password) > 256 || strings.ContainsAny(password, "\n\r\x00") {
		return "has to have 8 to 256 characters on one line"
	}
	return ""
}

// CheckPassword reports whether an account has this password. The caller must be root.
// CheckPassword runs the helper of pam_unix (unix_chkpwd(8)), which reads the password from a pipe.
// For an account without a password it returns false.
func CheckPassword(ctx context.Context, account, password string) (bool, error) {
	out, err := command.Exec{Limit: time.Minute, Stdin: password + "\x00"}.Run(ctx,
		[]string{"unix_chkpwd", account, "nonull"})
	if err != nil {
		return false, fmt.Errorf("check the password of %s: %w", account, err)
	}
	return out.Exit == 0, nil
}

// LockedOut reports whether nobody can log in to the administrator's account of this machine: the
// account exists and has neither a password nor an SSH key.
func LockedOut() bool {
	u, err := user.Lookup(AdminAccount)
	return err == nil && lockedOut("/etc", AdminAccount, u.HomeDir)
}

func lockedOut(etc, name, home string) bool {
	for _, path := range []string{filepath.Join(home, ".ssh", "authorized_keys"),
		filepath.Join(etc, "ssh", "authorized_keys.d", name)} {
		text, err := readBounded(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false // the file may contain a key
		}

		for line := range strings.Lines(string(text)) {
			if letsIn(line) {
				return false
			}
		}
	}

	shadow, err := readBounded(filepath.Join(etc, "shadow"))
	if err != nil {
		return false
	}

	for line := range strings.Lines(string(shadow)) {
		if f := strings.Split(line, ":"); len(f) > 1 && f[0] == name {
			// no password, or a locked one: shadow(5)
			return f[1] == "" || strings.HasPrefix(f[1], "!") || strings.HasPrefix(f[1], "*")
		}
	}

	return true
}

// maxKeys bounds what ReadKeys reads, in bytes.
const maxKeys = 128 << 10

// ReadKeys reads SSH public keys, one in a line, as in authorized_keys without options. It skips
// empty lines and comments. If any other line is not a key, it returns no keys.
func ReadKeys(r io.Reader) ([]string, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxKeys+1))
	if err != nil {
		return nil, fmt.Errorf("read SSH public keys: %w", err)
	}
	if len(text) > maxKeys {
		return nil, fmt.Errorf("read SSH public keys: there are more than %d bytes", maxKeys)
	}

	keys := SplitKeys(string(text))
	if len(keys) > maxSSHKeys {
		return nil, fmt.Errorf("read SSH public keys: there are more than %d", maxSSHKeys)
	}

	for _, k := range keys {
		if _, err := ParseSSHKey(k); err != nil {
			return nil, fmt.Errorf("%.40q %w", k, err)
		}
	}

	if len(keys) == 0 {
		return nil, errors.New("read SSH public keys: there is none; give a line as in ~/.ssh/id_ed25519.pub")
	}

	return keys, nil
}

// authorize adds keys to the authorized keys of a user.
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
		lines = mergeUnique(lines, []string{strings.TrimSpace(k)})
	}

	text := strings.TrimSpace(strings.Join(lines, "\n")) + "\n"
	if _, err := layout.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}

	return errors.Join(os.Lchown(dir, uid, gid), os.Lchown(path, uid, gid))
}
