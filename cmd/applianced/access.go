package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"saltern/internal/pause"
	"saltern/supervisor/setup"
	"saltern/tui"
)

// access implements tui.Access, with which the console page adds SSH keys for the administrator's
// account.
type access struct {
	before bool // whether the page runs before a log-in on this terminal
}

// newAccess returns an access, or nil if there is no account to add keys to: the image's account is
// missing, or the caller is not root.
func newAccess(before bool) tui.Access {
	if _, err := user.Lookup(setup.AdminAccount); err != nil || os.Geteuid() != 0 {
		return nil
	}
	return access{before}
}

// Account implements tui.Access.
func (access) Account() string { return setup.AdminAccount }

// hostKey is the key of the image's SSH server.
const hostKey = "/etc/ssh/ssh_host_ed25519_key.pub"

// HostKey implements tui.Access.
func (access) HostKey() string {
	text, _ := os.ReadFile(hostKey)
	return keyFinger(string(text))
}

// keyFinger returns the fingerprint of a public key as ssh shows it, or "" if line is no key.
func keyFinger(line string) string {
	words := strings.Fields(line)
	if len(words) < 2 {
		return ""
	}
	blob, err := base64.StdEncoding.DecodeString(words[1])
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(blob)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// NeedsPassword implements tui.Access. It returns false while the account has neither a password
// nor a key.
func (a access) NeedsPassword() bool { return a.before && !setup.LockedOut() }

// Prove implements tui.Access.
func (a access) Prove(ctx context.Context, password string) error {
	if !a.NeedsPassword() {
		return nil
	}
	ok, err := setup.CheckPassword(ctx, setup.AdminAccount, password)
	if err != nil {
		return err
	}
	if !ok {
		// The pause slows down the guessing of passwords, as a login does.
		_ = pause.For(ctx, 3*time.Second)
		return tui.ErrPassword
	}
	return nil
}

// SetPassword implements tui.Access.
func (a access) SetPassword(ctx context.Context, password, fresh string) error {
	if why := setup.PasswordFault(fresh); why != "" {
		return errors.New("the new password " + why)
	}
	if err := a.Prove(ctx, password); err != nil {
		return err
	}
	return setup.Accounts(ctx, setup.Admin{Password: fresh})
}

// Add implements tui.Access.
func (a access) Add(ctx context.Context, key, password string) (int, error) {
	if err := a.Prove(ctx, password); err != nil {
		return 0, err
	}

	var in io.Reader = strings.NewReader(key)
	if strings.HasPrefix(key, "https://") {
		body, err := fetchKeys(ctx, key)
		if err != nil {
			return 0, err
		}
		defer body.Close()
		in = body
	}

	keys, err := setup.ReadKeys(in)
	if err != nil {
		return 0, err
	}

	return len(keys), setup.Accounts(ctx, setup.Admin{SSHKeys: keys})
}
