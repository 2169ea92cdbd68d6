package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"saltern/supervisor/internal/sharedfolder"
)

// Import imports the private keys of an export (gpg --export-secret-keys), armoured or not, into
// the shared keyring, and returns them. If a master could not use one of the keys without a person,
// for example because of a passphrase, Import returns an error and changes nothing. Only one import
// in the cluster runs at a time.
func (p Place) Import(ctx context.Context, export string) ([]Key, error) {
	if err := p.makeFolder(); err != nil {
		return nil, err
	}

	unlock, err := p.lockKeyring(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()

	p.removeLeftovers()
	h, err := p.openCopy(true)
	if err != nil {
		return nil, err
	}
	defer h.close()

	out, err := h.runGPG(ctx, export, "--status-fd", "1", "--import")
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}

	fingers := imported(string(out.Stdout))
	if len(fingers) == 0 {
		if strings.Contains(string(out.Stdout), "] IMPORT_OK ") {
			return nil, errors.New("import: there are only public keys in it; " +
				"export the private one: gpg --export-secret-keys KEY")
		}
		return nil, errors.New("import: there is no key in it that gpg understands; " +
			"export one: gpg --armor --export-secret-keys KEY")
	}

	all, err := p.listKeys(ctx, h)
	if err != nil {
		return nil, err
	}

	var keys []Key
	for _, k := range all {
		if slices.Contains(fingers, k.Fingerprint) {
			if err := h.usable(ctx, k); err != nil {
				return nil, fmt.Errorf("import: key %s %w", k.Fingerprint, err)
			}
			keys = append(keys, k)
		}
	}

	return keys, p.writeBack(h)
}

// Adopt imports the private keys of another keyring into the shared one, as Import does. from is
// the gpg folder of another master, which Adopt only reads. If from has no private keys, Adopt does
// nothing.
func (p Place) Adopt(ctx context.Context, from string) ([]Key, error) {
	keys, err := fs.Glob(os.DirFS(from), privateKeys+"/*.key")
	if err != nil || len(keys) == 0 {
		return nil, err
	}

	h, err := Place{Shared: from, Run: p.Run}.openCopy(true)
	if err != nil {
		return nil, err
	}
	defer h.close()

	out, err := h.runGPG(ctx, "", "--pinentry-mode", "error", "--armor", "--export-secret-keys")
	if err == nil {
		err = out.Err()
	}

	if err != nil {
		return nil, fmt.Errorf("export the keys of %s: %w", from, err)
	}

	return p.Import(ctx, string(out.Stdout))
}

// Remove removes a key from the shared keyring, its private part first.
func (p Place) Remove(ctx context.Context, name string) (Key, error) {
	if _, err := os.Lstat(p.Shared); errors.Is(err, fs.ErrNotExist) {
		return choose(nil, name, nil)
	}

	unlock, err := p.lockKeyring(ctx)
	if err != nil {
		return Key{}, err
	}
	defer unlock()

	p.removeLeftovers()
	h, err := p.openCopy(true)
	if err != nil {
		return Key{}, err
	}
	defer h.close()

	keys, err := p.listKeys(ctx, h)
	if err != nil {
		return Key{}, err
	}

	k, err := choose(keys, name, func(Key) bool { return true })
	if err != nil {
		return Key{}, err
	}

	out, err := h.runGPG(ctx, "", "--yes", "--delete-secret-and-public-key", k.Fingerprint)
	if err == nil {
		err = out.Err()
	}

	if err != nil {
		return Key{}, fmt.Errorf("remove key %s: %w", k.Fingerprint, err)
	}

	return k, p.writeBack(h)
}

// imported returns the fingerprints of the private keys that gpg's status lines report as imported.
func imported(status string) (fingers []string) {
	for line := range strings.Lines(status) {
		f := strings.Fields(line)
		if len(f) == 4 && f[0] == "[GNUPG:]" && f[1] == "IMPORT_OK" && isHex(f[3]) {
			if flags, err := strconv.Atoi(f[2]); err == nil && flags&16 != 0 && !slices.Contains(fingers, f[3]) {
				fingers = append(fingers, f[3])
			}
		}
	}
	return fingers
}

// usable returns nil if a master can decrypt messages with a key without a person, else the reason.
// It decrypts a message to find out. While decrypting, gpg's agent converts the key to its own
// format, so that the agents of the nodes need not convert the key later.
func (h *home) usable(ctx context.Context, k Key) error {
	args := []string{"--armor", "--encrypt", "--recipient", k.Fingerprint}
	switch k.State {
	case NoEncrypt:
		return errors.New("is not for encryption; make one that is: " +
			"gpg --quick-gen-key NAME future-default default never")
	case Revoked:
		return errors.New("is revoked")
	case NoPrivate:
		return errors.New("comes without the private part that decrypts; export it where that is")
	case Expired: // messages from before the expiry must still be readable
		if k.Expires == nil {
			return errors.New("has expired, nobody knows when")
		}
		args = append([]string{"--faked-system-time", strconv.FormatInt(k.Expires.Unix()-1, 10) + "!"}, args...)
	}

	const word = "a try"
	out, err := h.runGPG(ctx, word, args...)
	if err == nil {
		err = out.Err()
	}

	if err != nil {
		return fmt.Errorf("encrypts nothing: %w", err)
	}

	opened, err := h.runGPG(ctx, string(out.Stdout), "--pinentry-mode", "error", "--decrypt")
	if err != nil {
		return fmt.Errorf("is tried: %w", err)
	}
	if string(opened.Stdout) == word {
		return nil
	}

	for _, g := range k.grips {
		if b, err := os.ReadFile(filepath.Join(h.dir, privateKeys, g+
			".key")); err == nil && bytes.Contains(b, []byte("shadowed-private-key")) {
			return errors.New("is on a smart card; the masters need a key of their own")
		}
	}

	return errors.New("has a passphrase, which nobody enters when a pillar is made; " +
		"take it off in a copy of the keyring (gpg --edit-key KEY passwd), and export that")
}

// makeFolder creates the folder of the keyring if it is missing.
func (p Place) makeFolder() error {
	err := os.Mkdir(p.Shared, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil && os.Geteuid() == 0 {
		err = os.Lchown(p.Shared, p.UID, p.GID)
	}
	if err != nil {
		return fmt.Errorf("make the keyring: %w", err)
	}
	return nil
}

// lockTakes is how long a change of the keyring waits for another change to end.
const lockTakes = 2 * gpgTakes

func (p Place) lockKeyring(ctx context.Context) (unlock func(), err error) {
	return sharedfolder.Lock(ctx, p.Shared, "the keyring", lockTakes)
}

// removeLeftovers removes files that imports left on this node when they were killed. The caller
// holds the lock.
func (p Place) removeLeftovers() {
	if p.Run == "" {
		return
	}
	old, _ := filepath.Glob(filepath.Join(p.Run, homePrefix+"*"))
	for _, dir := range old {
		// A folder without private keys holds no secret, and may be in use.
		if keys, err := os.ReadDir(filepath.Join(dir, privateKeys)); err == nil && len(keys) > 0 {
			_ = os.RemoveAll(dir)
		}
	}
}

// writeBack writes the changes of a gpg command to the shared keyring, private keys first, because
// a public key without its private key must not be used for encryption.
func (p Place) writeBack(h *home) error {
	now, err := readKeyring(h.dir, true)
	if err != nil {
		return err
	}

	before, err := readKeyring(p.Shared, true)
	if err != nil {
		return err
	}

	root, err := os.OpenRoot(p.Shared)
	if err != nil {
		return fmt.Errorf("write the keyring: %w", err)
	}
	defer root.Close()

	if err := root.Mkdir(privateKeys, 0o700); err == nil && os.Geteuid() == 0 {
		err = root.Lchown(privateKeys, p.UID, p.GID)
		if err != nil {
			return fmt.Errorf("write the keyring: %w", err)
		}
	}

	for name := range before {
		if _, stays := now[name]; !stays && strings.HasPrefix(name, privateKeys+"/") {
			if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("write the keyring: %w", err)
			}
		}
	}

	names := slices.Sorted(maps.Keys(now)) // private-keys-v1.d comes before pubring
	for _, name := range names {
		if bytes.Equal(before[name], now[name]) {
			continue
		}
		if err := p.writeFile(root, name, now[name]); err != nil {
			return fmt.Errorf("write the keyring: %w", err)
		}
	}

	return nil
}

func (p Place) writeFile(root *os.Root, name string, content []byte) error {
	return sharedfolder.Write(root, name, bytes.NewReader(content), func(f *os.File) error {
		if os.Geteuid() != 0 {
			return nil
		}
		return f.Chown(p.UID, p.GID)
	})
}
